"""The engine without its process: requests in, updates out, one `step()` at a time. Owned by one thread."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable
from operator import attrgetter

from appliance.base.errors import InputTooLong
from appliance.engine.backend import N_BATCH, Backend, DecodeFailed, NoRoom, Rows
from appliance.engine.batch_shape import BATCH, ROW_GROUP
from appliance.engine.config import EngineConfig
from appliance.engine.detokenizer import Detokenizer
from appliance.engine.prefix_cache import Owner, PrefixCache, n_common
from appliance.engine.prompt import BadMessages, ContextFull, Prompt, PromptBuilder, SystemPromptTooLong
from appliance.engine.request import Delta, Finished, FinishReason, Request, Started, Update
from appliance.engine.sampler import TokenSampler, sample
from appliance.engine.scheduler import Rules, Scheduler, Step
from appliance.engine.sequence import Sequence
from appliance.engine.step_cost import StepCost

log = logging.getLogger(__name__)

Updates = list[tuple[str, Update]]
"""(request_id, update) in the order they happened."""

_N_CHARACTER_TOKENS = 3
"""Bytes, and so at most tokens, that an unfinished UTF-8 character can have."""
_MIN_SHARED = 8
"""A shorter system prompt is not worth a step of its own."""
_MAX_REMEMBERED = 1024
"""Conversations whose last answer's time is known."""


class CrossedSequence(AssertionError):
    """A slot holds other tokens than the conversation it belongs to. Nothing of it may be shown."""


class BatchEngine:
    """Continuous batching over one backend."""

    def __init__(
        self,
        backend: Backend,
        config: EngineConfig,
        clock: Callable[[], float],
        cache: PrefixCache | None = None,
        padded_remainders: frozenset[int] = frozenset(),
    ) -> None:
        """`cache` None reuses nothing. `padded_remainders`: see batch_shape.py."""
        self._backend = backend
        self._cache = cache
        self._padded_remainders = padded_remainders
        self._config = config
        self._clock = clock
        self._prompts = PromptBuilder(
            backend.vocabulary,
            backend.chat_template,
            backend.template_globals,
            n_ctx_seq=config.n_ctx_seq,
            max_answer_tokens=config.max_answer_tokens,
            max_input_tokens=config.max_input_tokens,
        )
        self._cost = StepCost()
        rules = Rules(
            n_slots=config.n_slots,
            n_batch=N_BATCH,
            max_itl_s=config.max_itl_ms / 1000,
            starvation_limit_s=config.starvation_limit_ms / 1000,
            max_wait_s=config.max_wait_ms / 1000,
            min_batch_size=config.min_batch_size,
        )
        self._scheduler = Scheduler(rules, self._cost)
        self._last_answer_s: OrderedDict[Owner, float] = OrderedDict()
        self._sequences: dict[str, Sequence] = {}
        self.n_decoded_total = 0

    @property
    def has_work(self) -> bool:
        """Whether a step would do anything."""
        return bool(self._sequences)

    @property
    def n_running(self) -> int:
        """Requests that hold a slot."""
        return len(self._scheduler.running)

    def waiting_ids(self) -> tuple[str, ...]:
        """Requests without a slot, in the order they will get one."""
        return tuple(s.request_id for s in self._scheduler.order(self._clock()))

    def window_s(self) -> float:
        """Seconds the batching window is still open."""
        return self._scheduler.window_s(self._clock())

    def submit(self, request: Request) -> Updates:
        """Take a request; a prompt that cannot be built ends it at once."""
        try:
            prompt = self._prompts.build(request.messages, refuse_long_input=request.refuse_long_input)
        except (InputTooLong, SystemPromptTooLong, ContextFull, BadMessages) as refusal:
            return [(request.request_id, Finished(FinishReason.ERROR, 0, 0, 0, refusal.code))]
        owner = Owner.of(request.person, request.conversation) if request.conversation else None
        n_kept = self._n_reusable(owner, prompt)
        shortened = False
        if request.short_history and n_kept <= prompt.n_shared:
            short = self._prompts.build(request.messages, short_history=True)
            shortened = short.n_dropped_messages > prompt.n_dropped_messages
            prompt = short
        n_prompt = len(prompt.token_ids)
        now_s = self._clock()
        sampler = TokenSampler(request.sampling.over(self._backend.sampling))
        sampler.accept(prompt.token_ids)
        sequence = Sequence(
            request=request,
            token_ids=prompt.token_ids,
            n_prompt=n_prompt,
            max_tokens=min(request.max_tokens, self._config.max_answer_tokens, self._config.n_ctx_seq - n_prompt),
            sampler=sampler,
            detokenizer=Detokenizer(request.stop + self._backend.vocabulary.marker_texts),
            arrived_s=now_s,
            owner=owner,
            shared_ids=() if request.own_words else tuple(prompt.token_ids[: prompt.n_shared]),
        )
        if request.messages[-1].role == "assistant":  # its last token may have been the first part of a character
            tail = (self._backend.vocabulary.piece(i) for i in prompt.token_ids[-_N_CHARACTER_TOKENS:])
            sequence.detokenizer.resume(b"".join(tail))
        if owner is not None:
            last_s = self._last_answer_s.get(owner, float("-inf"))
            sequence.in_conversation = now_s - last_s <= self._config.priority_session_timeout_s
            sequence.n_reusable = n_kept
        self._sequences[request.request_id] = sequence
        self._scheduler.add(sequence)
        return [(request.request_id, Started(n_prompt, prompt.n_dropped_messages, prompt.input_cut, shortened))]

    def _n_reusable(self, owner: Owner | None, prompt: Prompt) -> int:
        """Tokens of the prompt that are kept from before as this conversation's."""
        if owner is None or self._cache is None:
            return 0
        return self._cache.n_reusable(owner, prompt.token_ids)

    def abort(self, request_id: str) -> Updates:
        """End a request now; unknown ids have already ended."""
        sequence = self._sequences.get(request_id)
        return [] if sequence is None else self._finish(sequence, FinishReason.ABORT)

    def forget(self, person: str, conversation: str) -> None:
        """Drop the parked KV state of one conversation, or with an empty one of all of a person's."""
        if self._cache is not None:
            owner = Owner.of(person, conversation)
            if conversation:
                self._cache.drop_conversation(owner)
            else:
                self._cache.drop_person(owner)

    def drop_expired(self) -> None:
        """Drop parked conversations that nobody came back to in time."""
        if self._cache is not None:
            self._cache.sweep()

    def persist_one(self) -> bool:
        """When idle: copy one parked conversation to disk; False when all are there."""
        return self._cache is not None and self._cache.persist_one()

    def close(self) -> None:
        """Park nothing more; what is parked goes to disk."""
        if self._cache is not None:
            self._cache.close()

    def step(self) -> Updates:
        """Place who waits, evaluate one batch, draw one token for everybody whose prompt is done."""
        while (sequence := self._scheduler.to_preempt(self._clock())) is not None:
            self._preempt(sequence)
        while (sequence := self._scheduler.place_next(now_s := self._clock())) is not None:
            if sequence.placed_s is None:
                sequence.placed_s = now_s
            self._resume(sequence)
            self._check_slot(sequence)
        step = self._scheduler.next_step(self._clock())
        if not step.rows:
            return []
        updates: Updates = []
        try:
            self._evaluate(step, updates)
        except NoRoom:
            # One victim, never a retry loop: whoever came last has the least to lose.
            victim = max((s for s, _ in step.rows), key=attrgetter("arrived_s"))
            log.warning("no room in the KV cells with %s rows: gave up the youngest request", len(step.rows))
            updates += self._finish(victim, FinishReason.ERROR, error="no_room")
        except DecodeFailed as failure:
            log.error("a step failed (%s): its %s requests end", failure, len(step.rows))
            updates += self._give_up(step)
        except CrossedSequence:
            raise
        except Exception as failure:  # noqa: BLE001 - fail this step's requests, keep going
            # The message could hold somebody's words, its class cannot.
            log.error("a step failed (%s): its %s requests end", type(failure).__name__, len(step.rows))
            updates += self._give_up(step)
        return updates

    def _give_up(self, step: Step) -> Updates:
        """End all requests of a step whose KV state is unknown."""
        updates: Updates = []
        for sequence, _ in step.rows:
            if sequence.slot is None:  # it ended before the failure
                continue
            self._backend.truncate(sequence.slot, 0)
            sequence.n_past = 0
            updates += self._finish(sequence, FinishReason.ERROR, error="engine_failed")
        return updates

    def _preempt(self, sequence: Sequence) -> None:
        """Take a running request out of its slot, with its KV state."""
        assert sequence.slot is not None
        self._check_slot(sequence)
        sequence.saved, sequence.n_saved, sequence.n_past = self._backend.save(sequence.slot), sequence.n_past, 0
        sequence.computes_shared = False
        self._backend.truncate(sequence.slot, 0)
        move = self._scheduler.preempt(sequence)
        if move is not None:
            self._backend.move(*move)

    def _resume(self, sequence: Sequence) -> None:
        """Fill the fresh slot with what is already computed: the conversation itself, else the system prompt."""
        n_reusable, sequence.n_reusable = sequence.n_reusable, 0  # from here on n_past tells
        if sequence.saved is not None:
            assert sequence.slot is not None
            known = sequence.token_ids[: sequence.n_saved]
            if self._backend.restore(sequence.slot, sequence.saved, known):
                sequence.n_past = sequence.n_saved
            sequence.saved, sequence.n_saved = None, 0
            return
        if self._cache is None:
            return
        n_shared = len(sequence.shared_ids)
        state, n_known = None, 0
        if sequence.owner is not None and n_reusable > n_shared:
            state = self._cache.take(sequence.owner)
            n_known = n_common(state.token_ids, sequence.token_ids) if state is not None else 0
        if state is None or n_known <= n_shared:
            state, n_known = self._cache.shared(sequence.shared_ids), n_shared
            sequence.computes_shared = state is None and n_shared >= _MIN_SHARED
        assert sequence.slot is not None
        if state is None or not self._backend.restore(sequence.slot, state.data, state.token_ids.tolist()):
            return
        # One prompt token is always left: there must be something to draw the first token from.
        sequence.n_past = sequence.n_cached = min(n_known, sequence.n_prompt - 1)
        self._backend.truncate(sequence.slot, sequence.n_past)

    def _evaluate(self, step: Step, updates: Updates) -> None:
        """Adds to `updates` as it goes: what was said before a failure stays said."""
        started_s = self._clock()
        batch, drawing = [], []
        for sequence, n_tokens in step.rows:
            assert sequence.slot is not None
            ids = sequence.token_ids[sequence.n_past : sequence.n_past + n_tokens]
            complete = sequence.n_past + n_tokens == len(sequence.token_ids)
            batch.append(Rows(sequence.slot, sequence.n_past, ids, wants_logits=complete))
            if complete:
                drawing.append(sequence)
        scratch = self._scratch_rows(step)
        try:
            logits = self._backend.decode([*batch, *scratch])[: len(drawing)]
        finally:
            for rows in scratch:
                self._backend.truncate(rows.slot, 0)
        for sequence, n_tokens in step.rows:
            sequence.n_past += n_tokens
            self._check_newest(sequence)
            if sequence.computes_shared and sequence.n_past == len(sequence.shared_ids):
                self._share(sequence)
        if drawing:
            now_s = self._clock()
            for sequence, token_id in zip(drawing, sample([s.sampler for s in drawing], logits), strict=True):
                updates += self._accept(sequence, token_id, now_s)
        self._cost.note(step.n_decoding, step.n_prompt, self._clock() - started_s)

    def _scratch_rows(self, step: Step) -> list[Rows]:
        """Rows of nobody that make a step of running answers one the kernels are faster with."""
        n_rows = len(step.rows)
        missing = -n_rows % ROW_GROUP
        if step.n_prompt or n_rows % BATCH not in self._padded_remainders or n_rows + missing > self._config.n_slots:
            return []
        ids = step.rows[0][0].token_ids[:1]
        return [Rows(slot, 0, ids, wants_logits=True) for slot in range(n_rows, n_rows + missing)]

    def _share(self, sequence: Sequence) -> None:
        assert self._cache is not None
        assert sequence.slot is not None
        self._check_slot(sequence)
        sequence.computes_shared = False
        self._cache.share(sequence.shared_ids, self._backend.save(sequence.slot))

    def _accept(self, sequence: Sequence, token_id: int, now_s: float) -> Updates:
        """Take one drawn token into the answer, or end it."""
        if self._backend.vocabulary.is_end(token_id):
            return self._finish(sequence, FinishReason.STOP)
        sequence.last_token_s = now_s
        if sequence.first_token_s is None:
            sequence.first_token_s = now_s
        sequence.token_ids.append(token_id)
        sequence.unsent_ids.append(token_id)
        sequence.sampler.accept((token_id,))
        self.n_decoded_total += 1
        text = sequence.detokenizer.feed(self._backend.vocabulary.piece(token_id))
        updates = self._send(sequence, text)
        if sequence.detokenizer.stopped:
            return updates + self._finish(sequence, FinishReason.STOP)
        if sequence.n_decoded >= sequence.max_tokens:
            return updates + self._finish(sequence, FinishReason.LENGTH)
        return updates

    def _send(self, sequence: Sequence, text: str) -> Updates:
        if not text:
            return []
        ids, sequence.unsent_ids = tuple(sequence.unsent_ids), []
        return [(sequence.request_id, Delta(text, ids))]

    def _finish(self, sequence: Sequence, reason: FinishReason, error: str = "") -> Updates:
        """Free the slot, say the rest of the text and why it ended."""
        updates: Updates = []
        rest = sequence.detokenizer.finish()
        if rest or sequence.unsent_ids:
            updates.append((sequence.request_id, Delta(rest, tuple(sequence.unsent_ids))))
        if sequence.slot is not None:
            self._check_slot(sequence)
            self._park(sequence, reason)
            self._backend.truncate(sequence.slot, 0)
        move = self._scheduler.remove(sequence)
        if move is not None:
            self._backend.move(*move)
        del self._sequences[sequence.request_id]
        counts = (sequence.n_prompt, sequence.n_cached, sequence.n_decoded)
        end = Finished(reason, *counts, error, sequence.timings())
        return [*updates, (sequence.request_id, end)]

    def _park(self, sequence: Sequence, reason: FinishReason) -> None:
        """Keep the KV state for the conversation's next turn."""
        if sequence.owner is None or sequence.slot is None or reason is FinishReason.ERROR:
            return
        self._last_answer_s[sequence.owner] = self._clock()
        self._last_answer_s.move_to_end(sequence.owner)
        if len(self._last_answer_s) > _MAX_REMEMBERED:
            self._last_answer_s.popitem(last=False)
        if self._cache is not None and sequence.n_past > len(sequence.shared_ids):
            self._cache.park(sequence.owner, sequence.token_ids[: sequence.n_past], self._backend.save(sequence.slot))

    def _check_slot(self, sequence: Sequence) -> None:
        """What the slot holds is what the conversation says, token by token."""
        assert sequence.slot is not None
        if self._backend.held(sequence.slot) != sequence.token_ids[: sequence.n_past]:
            raise CrossedSequence(f"slot {sequence.slot} holds other tokens than its conversation")

    def _check_newest(self, sequence: Sequence) -> None:
        """The same for what the last step added: cheap enough to come before every word that is shown."""
        assert sequence.slot is not None
        held = self._backend.held(sequence.slot)
        if len(held) != sequence.n_past or held[-1] != sequence.token_ids[sequence.n_past - 1]:
            raise CrossedSequence(f"slot {sequence.slot} was given another conversation's tokens")
