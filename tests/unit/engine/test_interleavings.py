"""Any order of questions, aborts, steps, failures, forgetting, eviction, expiry and restarts.

Nothing is lost, doubled, crossed or left without an end.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule
from numpy.typing import NDArray

from appliance.engine.backend import N_BATCH, DecodeFailed, NoRoom, Rows
from appliance.engine.echo_backend import EchoBackend
from appliance.engine.prefix_cache import KvState, Owner, PrefixCache
from appliance.engine.prompt import PromptBuilder
from appliance.engine.request import Finished, FinishReason, Message, Request, Started
from tests.unit.engine.scripted import Bench, FakeClock, WatchedEcho

TTL_S = 60.0


class MemoryShelf:
    """What outlives an engine, without a disk."""

    def __init__(self) -> None:
        self.states: dict[Owner, KvState] = {}

    def put(self, state: KvState) -> None:
        assert state.owner is not None
        self.states[state.owner] = state

    def peek(self, owner: Owner) -> NDArray[np.int32] | None:
        return self.states[owner].token_ids if owner in self.states else None

    def take(self, owner: Owner) -> KvState | None:
        return self.states.pop(owner, None)

    def drop_conversation(self, owner: Owner) -> None:
        self.states.pop(owner, None)

    def drop_person(self, person: str) -> None:
        self.states = {owner: state for owner, state in self.states.items() if owner.person != person}

    def evict(self) -> None:
        if self.states:
            del self.states[next(iter(self.states))]

    def close(self) -> None:
        """Nothing is left to write."""


class Interleavings(RuleBasedStateMachine):
    """The engine over a scripted backend; every question names itself, so that a mix-up shows."""

    running = Bundle("running")

    @initialize(
        n_slots=st.sampled_from([1, 2, 3, 5, 8]),
        row_s=st.sampled_from([0.0, 0.004, 0.1]),
        n_ctx_seq=st.sampled_from([200, 1024]),
        ram_bytes=st.sampled_from([100_000, 3_000, 0, None]),
        padded=st.sampled_from([frozenset(), frozenset({1, 2, 3})]),
    )
    def start(self, n_slots: int, row_s: float, n_ctx_seq: int, ram_bytes: int | None, padded: frozenset[int]) -> None:
        self.settings = {
            "padded_remainders": padded,
            "n_slots": n_slots,
            "n_ctx_seq": n_ctx_seq,
            "max_answer_tokens": 80,
            "max_input_tokens": 300,
        }
        self.row_s, self.ram_bytes = row_s, ram_bytes
        self.shelf = MemoryShelf()
        self.clock = FakeClock()
        self.start_engine()
        self.histories: dict[tuple[str, str], tuple[Message, ...]] = {}
        config = self.bench.config
        self.prompts = PromptBuilder(
            EchoBackend.vocabulary,
            EchoBackend.chat_template,
            {},
            n_ctx_seq=config.n_ctx_seq,
            max_answer_tokens=config.max_answer_tokens,
            max_input_tokens=config.max_input_tokens,
        )
        self.prompt_ids: dict[str, list[int]] = {}
        self.answer_ids: dict[str, list[int]] = {}
        self.max_tokens: dict[str, int] = {}
        self.in_broken_steps: set[str] = set()
        self.asked: dict[str, tuple[str, str, str]] = {}
        self.n_asked = 0

    def start_engine(self) -> None:
        """A process of its own would begin like this; `ram_bytes` None reuses nothing."""
        cache = None
        if self.ram_bytes is not None:
            cache = PrefixCache(ram_bytes=self.ram_bytes, ttl_s=TTL_S, shelf=self.shelf, wall_clock=self.clock)
        backend = WatchedEcho(int(str(self.settings["n_slots"])))
        backend.before_decode = self.check_batch
        self.bench = Bench(backend, cache=cache, clock=self.clock, **self.settings)  # type: ignore[arg-type]
        self.bench.row_s = self.row_s

    @rule(
        target=running,
        body=st.text("ab龘\U00020bb7", max_size=90),
        max_tokens=st.integers(1, 100),
        system=st.sampled_from(["", "be kind", "be very kind to everybody who asks"]),
        person=st.sampled_from(["ann", "bob"]),
        conversation=st.sampled_from(["", "1", "2"]),
    )
    def ask(self, body: str, max_tokens: int, system: str, person: str, conversation: str) -> str:
        self.n_asked += 1
        request_id = f"r{self.n_asked}"
        text = f"{request_id} {body}"
        head = (Message("system", system),) if system else ()
        messages = (*head, *self.histories.get((person, conversation), ()), Message("user", text))
        prompt = self.prompts.build(messages)
        self.prompt_ids[request_id] = prompt.token_ids
        self.answer_ids[request_id] = self.echo_of(prompt.token_ids, text.encode())
        self.max_tokens[request_id] = min(max_tokens, 80, self.bench.config.n_ctx_seq - len(prompt.token_ids))
        self.asked[request_id] = (person, conversation, text)
        self.bench.submit(Request(request_id, messages, max_tokens, person=person, conversation=conversation))
        return request_id

    @rule(request_id=consumes(running))
    def keep_the_turn(self, request_id: str) -> None:
        """The next question of this conversation follows this answer, however it ended."""
        person, conversation, text = self.asked[request_id]
        if conversation and self.bench.end(request_id) is not None:
            answer = Message("assistant", self.bench.text(request_id), tuple(self.bench.token_ids(request_id)))
            before = self.histories.get((person, conversation), ())
            self.histories[person, conversation] = (*before, Message("user", text), answer)

    @rule(person=st.sampled_from(["ann", "bob"]), body=st.text("ab", max_size=20), n=st.integers(1, 3))
    def talk(self, person: str, body: str, n: int) -> None:
        """A few turns of one conversation, each to its end and kept."""
        for _ in range(n):
            request_id = self.ask(body, 80, "be kind", person, "1")
            while self.bench.end(request_id) is None:
                self.bench.step()
            self.keep_the_turn(request_id)

    @rule(person=st.sampled_from(["ann", "bob"]))
    def edit(self, person: str) -> None:
        """The last question of that conversation will be another one."""
        self.histories[person, "1"] = self.histories.get((person, "1"), ())[:-2]

    @rule(request_id=consumes(running))
    def abort(self, request_id: str) -> None:
        if request_id not in self.prompt_ids:  # lost in a restart
            return
        was_over = self.bench.end(request_id) is not None
        self.bench.abort(request_id)
        end = self.bench.end(request_id)
        assert end is not None
        assert was_over or end.reason is FinishReason.ABORT

    @rule(n=st.integers(1, 8))
    def step(self, n: int) -> None:
        self.bench.step(n)

    @rule()
    def fail_with_no_room(self) -> None:
        n_before = self.n_unfinished()
        self.bench.backend.fail_next = NoRoom()
        self.bench.step()
        if self.bench.backend.fail_next is None:
            assert self.n_unfinished() == n_before - 1
        self.bench.backend.fail_next = None

    @rule(failure=st.sampled_from([DecodeFailed("broken"), RuntimeError("broken")]))
    def fail_half_way(self, failure: Exception) -> None:
        unfinished = {r for r in self.prompt_ids if self.bench.end(r) is None}
        self.bench.backend.break_next = failure
        self.bench.step()
        if self.bench.backend.break_next is None:
            self.in_broken_steps |= {r for r in unfinished if self.bench.end(r) is not None}
        self.bench.backend.break_next = None

    @rule(person=st.sampled_from(["ann", "bob"]), conversation=st.sampled_from(["", "1", "2"]))
    def forget(self, person: str, conversation: str) -> None:
        self.bench.engine.forget(person, conversation)
        owner = Owner.of(person, conversation)
        assert owner not in self.shelf.states
        assert conversation or all(kept.person != owner.person for kept in self.shelf.states)

    @rule()
    def copy_to_disk(self) -> None:
        self.bench.engine.persist_one()

    @rule()
    def evict(self) -> None:
        self.shelf.evict()

    @rule()
    def let_everything_expire(self) -> None:
        self.clock.now_s += TTL_S

    @rule(in_order=st.booleans())
    def restart(self, in_order: bool) -> None:
        """What ran is asked again by the client, under an id of its own here; what is on the shelf stays."""
        if in_order:
            self.bench.engine.close()
        for lost in [r for r in self.prompt_ids if self.bench.end(r) is None]:
            del self.prompt_ids[lost], self.answer_ids[lost]
        updates = self.bench.updates
        self.start_engine()
        self.bench.updates = updates

    @invariant()
    def every_answer_is_a_beginning_of_its_own_echo(self) -> None:
        if not hasattr(self, "bench"):
            return
        for request_id, expected in self.answer_ids.items():
            ids = self.bench.token_ids(request_id)
            assert ids == expected[: len(ids)]
            assert bytes(ids).decode(errors="ignore").startswith(self.bench.text(request_id))
            self.check_end(request_id, ids)

    @invariant()
    def every_slot_holds_one_unfinished_conversation(self) -> None:
        if not hasattr(self, "bench"):
            return
        owners = []
        for slot in range(self.bench.engine.n_running):
            held = self.bench.backend.held(slot)
            mine = [r for r in self.prompt_ids if self.bench.end(r) is None and self.sequence(r)[: len(held)] == held]
            assert mine, f"slot {slot} holds nobody's conversation"
            owners += [r for r in mine if len(held) >= len(self.prompt_ids[r])]
        assert len(set(owners)) == len(owners), "two slots hold the same conversation"
        for slot in range(self.bench.engine.n_running, self.bench.config.n_slots):
            assert self.bench.backend.held(slot) == [], f"slot {slot} is free and holds something"

    @invariant()
    def the_lists_add_up(self) -> None:
        if not hasattr(self, "bench"):
            return
        engine = self.bench.engine
        assert engine.n_running <= self.bench.config.n_slots
        assert engine.n_running + len(engine.waiting_ids()) == self.n_unfinished()
        assert engine.has_work == (self.n_unfinished() > 0)

    def teardown(self) -> None:
        if not hasattr(self, "bench"):
            return
        self.bench.finish(n_steps=30_000)
        for request_id, expected in self.answer_ids.items():
            end = self.bench.end(request_id)
            assert end is not None
            if end.reason is FinishReason.STOP:
                assert self.bench.token_ids(request_id) == expected
                assert self.bench.text(request_id) == bytes(expected).decode(errors="ignore")
        assert self.bench.engine.n_running == 0
        assert self.bench.engine.waiting_ids() == ()

    def check_end(self, request_id: str, ids: list[int]) -> None:
        updates = self.bench.updates[request_id]
        assert isinstance(updates[0], Started)
        end = self.bench.end(request_id)
        if end is None:
            return
        assert isinstance(updates[-1], Finished)
        assert end.n_decoded == len(ids)
        assert end.n_prompt == len(self.prompt_ids[request_id])
        assert 0 <= end.n_cached < end.n_prompt
        match end.reason:
            case FinishReason.LENGTH:
                assert len(ids) == self.max_tokens[request_id]
            case FinishReason.STOP:
                assert ids == self.answer_ids[request_id]
            case FinishReason.ERROR:
                assert end.error == "no_room" or request_id in self.in_broken_steps
        assert len(ids) <= self.max_tokens[request_id]

    def check_batch(self, batch: Sequence[Rows]) -> None:
        slots = [rows.slot for rows in batch]
        assert len(set(slots)) == len(slots)
        assert all(0 <= slot < self.bench.config.n_slots for slot in slots)
        n_running = self.bench.engine.n_running  # what is beyond those is scratch, without a hole either
        assert {s for s in slots if s >= n_running} == set(range(n_running, max(slots) + 1))
        assert 0 < sum(len(rows.token_ids) for rows in batch) <= N_BATCH
        assert all(rows.token_ids for rows in batch)
        for rows in batch:
            assert rows.first_position == len(self.bench.backend.held(rows.slot))
            assert rows.first_position + len(rows.token_ids) <= self.bench.config.n_ctx_seq

    def sequence(self, request_id: str) -> list[int]:
        return self.prompt_ids[request_id] + self.answer_ids[request_id]

    def n_unfinished(self) -> int:
        return sum(self.bench.end(r) is None for r in self.prompt_ids)

    @staticmethod
    def echo_of(prompt_ids: list[int], asked: bytes) -> list[int]:
        """What the echo answers: the last message as the prompt holds it, cut or not."""
        n_tail = 3  # end of the message, begin and role of the answer
        for n in range(len(asked), 0, -1):
            if prompt_ids[-n_tail - n : -n_tail] == list(asked[:n]):
                return list(asked[:n])
        raise AssertionError("the prompt does not end with the question")


TestInterleavings = Interleavings.TestCase
TestInterleavings.settings = settings(max_examples=60, stateful_step_count=50, deadline=None)
