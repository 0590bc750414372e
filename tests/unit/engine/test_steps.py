"""Step by step: who is computed when, what readers get, and that nobody's request delays or ends another's."""

from __future__ import annotations

import pytest

from appliance.engine.backend import N_BATCH, Rows
from appliance.engine.echo_backend import ByteVocabulary
from appliance.engine.request import Delta, FinishReason, Message, Request, SamplingParams, Started
from tests.unit.engine.scripted import Bench, WatchedEcho


def test_an_answer_is_started_then_said_then_ended():
    bench = Bench()
    bench.ask("a", "hello 你好")
    bench.finish()
    assert isinstance(bench.updates["a"][0], Started)
    assert bench.text("a") == "hello 你好"
    end = bench.end("a")
    assert end is not None
    assert (end.reason, end.error) == (FinishReason.STOP, "")
    assert end.n_decoded == len("hello 你好".encode())
    assert bytes(bench.token_ids("a")).decode() == "hello 你好"


def test_a_full_house_is_answered_each_with_its_own_text():
    bench = Bench(n_slots=16)
    texts = {f"r{i}": f"answer number {i}, " + "龘\U00020bb7" * (i % 5) for i in range(40)}
    for request_id, text in texts.items():
        bench.ask(request_id, text)
    bench.finish()
    assert {r: bench.text(r) for r in texts} == texts
    assert all(bench.end(r).reason is FinishReason.STOP for r in texts)


@pytest.mark.parametrize("when", ["waiting", "unevaluated", "prefilling", "writing"])
def test_an_aborted_request_ends_at_once_and_gives_its_slot_to_the_next(when):
    bench = Bench(n_slots=1, n_ctx_seq=8192, max_input_tokens=8000)
    if when == "waiting":
        bench.ask("first", "x" * 20)
        bench.step()
    bench.ask("a", "word " * (1000 if when == "prefilling" else 40))
    bench.step({"waiting": 1, "unevaluated": 0, "prefilling": 2, "writing": 20}[when])
    assert bool(bench.text("a")) is (when == "writing")
    bench.abort("a")
    end = bench.end("a")
    assert end is not None
    assert end.reason is FinishReason.ABORT
    assert end.n_decoded == len(bench.token_ids("a"))
    bench.abort("first")
    bench.ask("next", "hi")
    bench.step(2)
    assert bench.text("next") == "hi"


def test_an_abort_of_somebody_unknown_or_already_gone_does_nothing():
    bench = Bench()
    bench.abort("nobody")
    bench.ask("a", "hi")
    bench.finish()
    bench.abort("a")
    assert bench.end("a").reason is FinishReason.STOP
    assert not bench.updates.get("nobody")


def test_one_persons_stop_leaves_every_other_answer_alone():
    texts = {f"r{i}": f"{i} says " + "abcdefgh" * (i + 1) for i in range(4)}
    for victim in texts:
        bench = Bench(n_slots=4)
        for request_id, text in texts.items():
            bench.ask(request_id, text)
        bench.step(5)
        bench.abort(victim)
        bench.finish()
        for request_id, text in texts.items():
            if request_id != victim:
                assert bench.text(request_id) == text
                assert bench.end(request_id).reason is FinishReason.STOP


@pytest.mark.parametrize("n_long", [1, 5])
@pytest.mark.parametrize("row_s", [0.0005, 0.004, 0.02])
def test_a_long_prompt_never_keeps_a_token_from_somebody_being_answered(n_long, row_s):
    bench = Bench(n_slots=8, n_ctx_seq=8192, max_input_tokens=8000, max_answer_tokens=2000)
    bench.row_s = row_s
    bench.ask("a", "abcdefgh" * 200, 2000)
    while len(bench.token_ids("a")) < 5:
        bench.step()
    for i in range(n_long):
        bench.ask(f"long{i}", "0123456789" * 300)
    gaps_s = []
    while not all(bench.text(f"long{i}") for i in range(n_long)):
        n_before, before_s = len(bench.token_ids("a")), bench.clock.now_s
        bench.step()
        gaps_s.append(bench.clock.now_s - before_s)
        assert len(bench.token_ids("a")) == n_before + 1
        assert sum(len(rows.token_ids) for rows in bench.backend.batches[-1]) <= N_BATCH
        assert len(gaps_s) < 2_000
    assert len(gaps_s) >= 4  # else there was no long prompt
    # The first steps may misjudge this computer; 16 rows are the least that is computed of a prompt.
    longest_s = max(bench.config.max_itl_ms / 1000, bench.step_s + (8 + 16) * row_s)
    assert max(gaps_s[3:]) <= longest_s
    assert max(gaps_s) <= 4 * longest_s


def test_slots_in_use_are_always_the_lowest_and_never_shared():
    bench = Bench(n_slots=6)

    def check(batch: tuple[Rows, ...]) -> None:
        slots = [rows.slot for rows in batch]
        assert len(set(slots)) == len(slots)
        assert max(slots) < bench.engine.n_running

    bench.backend.before_decode = check
    for i in range(20):
        bench.ask(f"r{i}", "abc" * (1 + 7 * i % 5))
        bench.step(i % 3)
        if i % 4 == 0:
            bench.abort(f"r{i - 2}")
    bench.finish()
    assert bench.engine.n_running == 0


def test_everybody_waiting_is_listed_until_placed():
    bench = Bench(n_slots=2)
    for i in range(5):
        bench.ask(f"r{i}", "abcd")
    bench.step()
    assert bench.engine.n_running == 2
    assert len(bench.engine.waiting_ids()) == 3
    bench.finish()
    assert bench.engine.waiting_ids() == ()


def test_nothing_to_do_is_no_step_of_the_model():
    bench = Bench()
    assert bench.engine.step() == []
    bench.ask("a", "hi")
    bench.abort("a")
    bench.step(3)
    assert bench.backend.batches == []
    assert not bench.engine.has_work


def test_an_answer_ends_at_max_tokens_and_says_so():
    bench = Bench()
    bench.ask("a", "abcdefgh", max_tokens=5)
    bench.finish()
    assert bench.text("a") == "abcde"
    assert bench.end("a").reason is FinishReason.LENGTH
    assert bench.end("a").n_decoded == 5


def test_no_answer_is_longer_than_the_engine_allows():
    bench = Bench(max_answer_tokens=7)
    bench.ask("a", "abcdefghijkl", max_tokens=10_000)
    bench.finish()
    assert bench.text("a") == "abcdefg"


def test_prompt_and_answer_never_outgrow_the_conversations_cells():
    bench = Bench(n_ctx_seq=128, max_answer_tokens=64, max_input_tokens=500)
    longest = 0

    def watch(batch: tuple[Rows, ...]) -> None:
        nonlocal longest
        longest = max(longest, *(rows.first_position + len(rows.token_ids) for rows in batch))

    bench.backend.before_decode = watch
    for i in range(4):
        bench.ask(f"r{i}", "x" * 500)
    bench.finish()
    for i in range(4):
        assert bench.end(f"r{i}").reason in (FinishReason.LENGTH, FinishReason.STOP)
    assert 100 < longest <= 128


def test_an_answer_cut_inside_a_character_shows_no_box_and_keeps_its_tokens():
    bench = Bench()
    bench.ask("a", "ok 龘", max_tokens=5)
    bench.finish()
    assert bench.text("a") == "ok "
    assert bytes(bench.token_ids("a")) == "ok 龘".encode()[:5]


@pytest.mark.parametrize("max_tokens", range(1, 12))
def test_a_continued_answer_loses_no_character_where_it_was_cut(max_tokens):
    text = "ok 龘\U00020bb7!"
    bench = Bench()
    question = Message("user", text)
    bench.ask("a", text, max_tokens)
    bench.finish()
    kept = Message("assistant", bench.text("a"), tuple(bench.token_ids("a")))
    bench.submit(Request("b", (question, kept), 256))
    bench.finish()
    assert bench.text("a") + bench.text("b") == text
    assert bench.token_ids("a") + bench.token_ids("b") == list(text.encode())


def test_a_stop_string_ends_the_answer_and_is_never_shown():
    bench = Bench()
    bench.ask("a", "one two END three", stop=("END",))
    bench.finish()
    assert bench.text("a") == "one two "
    assert bench.end("a").reason is FinishReason.STOP
    assert not any("E" in u.text for u in bench.updates["a"] if isinstance(u, Delta))


def test_a_turn_marker_that_is_spelled_out_ends_the_answer_like_a_real_one():
    class Marked(ByteVocabulary):
        marker_texts = ("<|im_end|>",)

    backend = WatchedEcho(4)
    backend.vocabulary = Marked()  # type: ignore[misc]
    bench = Bench(backend)
    bench.ask("a", "Paris<|im_end|>\n<|im_start|>user")
    bench.finish()
    assert bench.text("a") == "Paris"
    assert bench.end("a").reason is FinishReason.STOP


@pytest.mark.parametrize(
    ("messages", "code"),
    [
        ((Message("user", "x" * 600),), "too_long"),
        ((Message("system", "x" * 900), Message("user", "q")), "system_prompt_too_long"),
        ((Message("user", "q"), Message("assistant", "", (65,) * 1019)), "context_full"),
        ((Message("assistant", "q"),), "bad_conversation"),
        ((), "bad_conversation"),
    ],
)
def test_a_prompt_that_cannot_be_built_ends_with_a_reason_and_evaluates_nothing(messages, code):
    bench = Bench()
    bench.submit(Request("a", messages, 10, refuse_long_input=True))
    end = bench.end("a")
    assert end is not None
    assert (end.reason, end.error, end.n_decoded) == (FinishReason.ERROR, code, 0)
    assert not bench.engine.has_work
    bench.step()
    assert bench.backend.batches == []


def test_messages_the_template_cannot_render_end_that_request_only():
    backend = WatchedEcho(4)
    backend.chat_template = (
        "{% for m in messages %}{% if m['role'] != 'system' or loop.first %}"
        "\x02{{ m['role'][0] }}{{ m['content'] }}\x03{% endif %}{% endfor %}\x02a"
    )
    bench = Bench(backend)
    bench.ask("good", "hello")
    bench.submit(Request("bad", (Message("system", "1"), Message("system", "2"), Message("user", "q")), 10))
    assert bench.end("bad").error == "bad_conversation"
    bench.finish()
    assert bench.text("good") == "hello"


def test_a_negative_seed_is_a_seed():
    bench = Bench()
    bench.ask("a", "hello", sampling=SamplingParams(seed=-1, temperature=0.5))
    bench.finish()
    assert bench.text("a") == "hello"


def test_the_request_decides_before_the_model():
    class Undecided(WatchedEcho):
        """Two tokens, A a little likelier than B; the model's own way is to draw from both."""

        sampling = SamplingParams(1.0, 2, 1.0, 0.0, 1.0)

        def decode(self, batch):
            logits = super().decode(batch)
            logits[:] = 0
            logits[:, ord("A")], logits[:, ord("B")] = 5.1, 5.0
            return logits

    def letters(asked: SamplingParams) -> set[str]:
        bench = Bench(Undecided(4))
        bench.ask("a", "q", 100, sampling=asked)
        bench.finish()
        return set(bench.text("a"))

    assert letters(SamplingParams()) == {"A", "B"}
    assert letters(SamplingParams(temperature=0.0)) == {"A"}


def test_the_batching_window_waits_in_front_of_an_idle_engine_and_no_longer_than_it_may():
    bench = Bench(max_wait_ms=50.0, min_batch_size=3)
    assert bench.engine.window_s() == 0.0
    bench.ask("a", "hello")
    assert bench.engine.window_s() == pytest.approx(0.05)
    bench.clock.now_s += 0.03
    assert bench.engine.window_s() == pytest.approx(0.02)
    bench.clock.now_s += 0.02
    assert bench.engine.window_s() == 0.0


def test_the_batching_window_closes_early_when_enough_have_come():
    bench = Bench(max_wait_ms=50.0, min_batch_size=3)
    bench.ask("a", "hello")
    bench.ask("b", "hello")
    assert bench.engine.window_s() > 0
    bench.ask("c", "hello")
    assert bench.engine.window_s() == 0.0


def test_nobody_waits_for_company_once_a_batch_is_running():
    bench = Bench(n_slots=2, max_wait_ms=1e6, min_batch_size=16)
    bench.ask("a", "hello")
    bench.step()
    bench.ask("b", "hello")
    assert bench.engine.window_s() == 0.0
    bench.step()
    bench.ask("c", "hello")  # no slot is free for it
    assert bench.engine.window_s() == 0.0


def test_an_abort_inside_the_batching_window_leaves_the_next_its_whole_window():
    bench = Bench(max_wait_ms=50.0, min_batch_size=3)
    bench.ask("a", "hello")
    bench.clock.now_s += 0.04
    bench.abort("a")
    assert bench.engine.window_s() == 0.0
    bench.ask("b", "hello")
    assert bench.engine.window_s() == pytest.approx(0.05)
