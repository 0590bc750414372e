"""What a failing step costs: its own requests and nobody else's, and never a reader left without an end (case 7)."""

from __future__ import annotations

import logging

import pytest

from appliance.engine.backend import DecodeFailed, NoRoom
from appliance.engine.core import CrossedSequence
from appliance.engine.echo_backend import ByteVocabulary
from appliance.engine.request import FinishReason
from tests.unit.engine.scripted import Bench, WatchedEcho

FAILURES = [
    DecodeFailed("llama_decode answered -3"),
    RuntimeError("out of luck"),
    MemoryError(),
    ValueError("broken"),
    KeyError("x"),
]


def asked(n: int, **config: object) -> tuple[Bench, dict[str, str]]:
    """`n` requests, a few steps into their answers."""
    bench = Bench(n_slots=n, **config)
    texts = {f"r{i}": f"{i}: " + "abcdefgh" * (2 + i) for i in range(n)}
    for request_id, text in texts.items():
        bench.ask(request_id, text)
    bench.step(6)
    return bench, texts


def test_no_room_gives_up_one_request_and_the_others_finish():
    bench, texts = asked(4)
    bench.backend.fail_next = NoRoom()
    bench.step()
    given_up = [r for r in texts if bench.end(r) is not None]
    assert len(given_up) == 1
    assert bench.end(given_up[0]).reason is FinishReason.ERROR
    assert bench.end(given_up[0]).error == "no_room"
    assert texts[given_up[0]].startswith(bench.text(given_up[0]))
    bench.finish()
    assert all(bench.text(r) == texts[r] for r in texts if r not in given_up)


def test_no_room_for_ever_ends_everybody_instead_of_looping():
    class Full(WatchedEcho):
        n_tries = 0

        def decode(self, batch):
            self.n_tries += 1
            raise NoRoom

    backend = Full(4)
    bench = Bench(backend)
    for i in range(10):
        bench.ask(f"r{i}", "hello")
    bench.finish(n_steps=10)
    assert all(bench.end(f"r{i}").error == "no_room" for i in range(10))
    assert backend.n_tries == 10


@pytest.mark.parametrize("failure", FAILURES, ids=[type(f).__name__ for f in FAILURES])
@pytest.mark.parametrize("kv_is_unknown", [False, True])
def test_a_failed_step_ends_its_requests_keeps_their_text_and_the_engine_serves_on(failure, kv_is_unknown):
    bench, texts = asked(4)
    said = {r: bench.text(r) for r in texts}
    assert all(said.values())
    if kv_is_unknown:
        bench.backend.break_next = failure
    else:
        bench.backend.fail_next = failure
    bench.step()
    for request_id in texts:
        assert bench.end(request_id).reason is FinishReason.ERROR
        assert bench.end(request_id).error == "engine_failed"
        assert bench.text(request_id) == said[request_id]
        assert len(bench.token_ids(request_id)) == bench.end(request_id).n_decoded
    assert bench.engine.n_running == 0
    bench.ask("next", "still here")
    bench.finish()
    assert bench.text("next") == "still here"


def test_a_failed_step_spares_those_who_wait_and_those_it_did_not_touch():
    """Their KV state is as it was: only the rows of the step are in doubt."""
    bench = Bench(n_slots=3, n_ctx_seq=8192, max_input_tokens=8000)
    bench.ask("a", "abcdefgh" * 4)
    bench.step(2)
    bench.ask("b", "x" * 900)
    bench.ask("c", "y" * 900)
    bench.ask("waits", "hello")
    bench.step()
    touched: set[int] = set()
    bench.backend.before_decode = lambda batch: touched.update(rows.slot for rows in batch)
    bench.backend.break_next = DecodeFailed()
    bench.step()
    bench.backend.before_decode = None
    texts = {"a": "", "b": "x" * 256, "c": "y" * 256, "waits": "hello"}
    ended = [r for r in texts if bench.end(r) is not None]
    assert len(ended) == len(touched) < len(texts)
    bench.finish()
    for request_id, text in texts.items():
        if request_id not in ended:
            assert bench.text(request_id) == text


def test_a_failure_after_the_evaluation_takes_nothing_from_those_already_served():
    """Answers that ended, and text that was drawn, in the same step before it."""

    class Cursed(ByteVocabulary):
        def piece(self, token_id):
            if token_id == ord("!"):
                raise RuntimeError("no piece")
            return super().piece(token_id)

    backend = WatchedEcho(3)
    backend.vocabulary = Cursed()  # type: ignore[misc]
    bench = Bench(backend, n_slots=3)
    bench.ask("ends", "ab")
    bench.ask("goes on", "abcdef")
    bench.ask("cursed", "ab!")
    bench.finish()
    assert bench.text("ends") == "ab"
    assert bench.end("ends").reason is FinishReason.STOP
    assert bench.text("goes on").startswith("abc")
    assert bench.end("goes on") is not None
    assert bench.end("cursed").reason is FinishReason.ERROR


def test_a_failure_is_logged_without_a_word_of_anybody(caplog):
    bench, _ = asked(2)
    bench.backend.fail_next = ValueError("my secret question")
    with caplog.at_level(logging.DEBUG):
        bench.step()
    assert "ValueError" in caplog.text
    assert "secret" not in caplog.text


class CrossedOnce(WatchedEcho):
    """Evaluates one batch with the first two slots' rows exchanged: what a slot mix-up would do."""

    cross_next = False

    def decode(self, batch):
        if self.cross_next:
            self.cross_next = False
            other = {0: 1, 1: 0}
            batch = [type(r)(other.get(r.slot, r.slot), r.first_position, r.token_ids, r.wants_logits) for r in batch]
        return super().decode(batch)


def crossed(at_step: int) -> Bench:
    backend = CrossedOnce(4)
    bench = Bench(backend)
    bench.ask("a", "alpha alpha")
    bench.ask("b", "omego omego")  # as long as the first: nothing but the tokens themselves can tell
    bench.step(at_step)
    backend.cross_next = True
    return bench


@pytest.mark.parametrize("at_step", [0, 1, 5])
def test_a_crossed_sequence_is_noticed_at_the_latest_when_its_slot_is_freed(at_step):
    bench = crossed(at_step)
    with pytest.raises(CrossedSequence):
        bench.finish()


def test_a_crossed_answer_is_noticed_before_a_word_of_it_is_shown():
    bench = crossed(3)
    said = bench.text("a"), bench.text("b")
    with pytest.raises(CrossedSequence):
        bench.step(1)
    assert (bench.text("a"), bench.text("b")) == said


def test_a_slot_that_still_holds_something_is_noticed_when_it_is_given_away():
    class Forgetful(WatchedEcho):
        def truncate(self, slot, n_tokens):
            """Loses the order to forget."""

    bench = Bench(Forgetful(1), n_slots=1)
    bench.ask("a", "hello")
    bench.ask("b", "hello")
    with pytest.raises((CrossedSequence, AssertionError)):
        bench.finish()


def test_uncrossed_sequences_pass_the_same_check():
    bench = crossed(3)
    assert isinstance(bench.backend, CrossedOnce)
    bench.backend.cross_next = False
    bench.finish()
    assert bench.text("a") == "alpha alpha"


@pytest.mark.parametrize("failure", [NoRoom(), DecodeFailed(), RuntimeError()])
def test_a_failed_step_leaves_nothing_in_the_slots_that_only_filled_it_up(failure):
    """Else the next person to get such a slot would end the whole engine."""
    bench = Bench(n_slots=4, padded_remainders=frozenset({1, 2, 3}))
    bench.ask("a", "abcdef")
    bench.step(3)
    assert len(bench.backend.batches[-1]) == 4
    if isinstance(failure, NoRoom):
        bench.backend.fail_next = failure
    else:
        bench.backend.break_next = failure
    bench.step()
    assert [bench.backend.held(slot) for slot in range(4)] == [[]] * 4
    for i in range(4):
        bench.ask(f"r{i}", f"{i} hello")
    bench.finish()
    assert [bench.text(f"r{i}") for i in range(4)] == [f"{i} hello" for i in range(4)]
