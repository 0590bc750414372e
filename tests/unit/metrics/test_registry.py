"""What is counted, how it is said, and that it does not grow."""

from __future__ import annotations

import os

import pytest

from appliance.answers.answer import Answer, Origin
from appliance.chat.watch import Counts, Watch
from appliance.engine.request import Delta, Finished, FinishReason, Started, Timings
from appliance.metrics.health import ProcessUse, use_of
from appliance.metrics.registry import Metrics, Situation
from appliance.settings.schema import Settings
from tests.unit.engine_double import Clock, ScriptedEngine


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def metrics(clock) -> Metrics:
    return Metrics(clock, lambda: Situation(is_ready=True, n_slots=16, web=ProcessUse(1000, 2.5)))


def values(metrics: Metrics) -> dict[str, float]:
    lines = metrics.text().decode().splitlines()
    pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return {name.removeprefix("office_chat_"): float(value) for name, value in pairs}


def test_an_answer_is_counted_with_its_time_by_who_gave_it_and_how_it_ended(metrics):
    metrics.answered("model", FinishReason.STOP, "", 0.3, by_model=True)
    metrics.answered("saved", FinishReason.STOP, "", 0.001, by_model=False)
    metrics.answered("model", FinishReason.ABORT, "", None, by_model=True)
    found = values(metrics)
    assert found['answers_total{end="stop",origin="model"}'] == 1
    assert found['answers_total{end="abort",origin="model"}'] == 1
    assert found['ttft_server_seconds_bucket{le="0.5",origin="model"}'] == 1
    assert found['ttft_server_seconds_bucket{le="0.02",origin="saved"}'] == 1
    assert found["answer_hit_rate"] == pytest.approx(1 / 3)


def test_tokens_and_the_time_each_takes(metrics):
    metrics.generated(Finished(FinishReason.STOP, 100, 80, 11, timings=Timings(0, 0.2, 1.0)))
    metrics.generated(Finished(FinishReason.STOP, 100, 0, 1, timings=Timings(0, 0.2, 0.0)))
    found = values(metrics)
    assert found["prefix_hit_rate"] == pytest.approx(0.4)
    assert found["prompt_tokens_total"] == 200
    assert found["tpot_seconds_sum"] == pytest.approx(0.1)
    assert found["tpot_seconds_count"] == 1


def test_the_speed_is_that_of_the_last_ten_seconds(metrics, clock):
    for second in range(60):
        metrics.tick(100 * second)
        clock.now += 1
    assert metrics.snapshot().tokens_per_s == pytest.approx(100)
    for _ in range(60):
        metrics.tick(5900)
        clock.now += 1
    assert metrics.snapshot().tokens_per_s == 0


def test_the_quantiles_of_a_snapshot_are_those_of_the_last_answers(metrics):
    assert metrics.snapshot().ttft_p50_s is None
    for number in range(1000):
        metrics.answered("model", FinishReason.STOP, "", number / 1000, by_model=True)
    assert metrics.snapshot().ttft_p50_s == pytest.approx(0.9, abs=0.01)
    assert metrics.snapshot().ttft_p99_s == pytest.approx(0.998, abs=0.01)


def test_what_is_kept_does_not_grow(metrics, clock):
    def lines() -> int:
        return len(metrics.text().splitlines())

    metrics.answered("model", FinishReason.STOP, "", 1.0, by_model=True)
    for number in range(50):
        metrics.refused(f"code_{number}")
    before = lines()
    for number in range(5000):
        metrics.answered("model", FinishReason.STOP, "", 1.0, by_model=True)
        metrics.refused(f"other_code_{number}")
        metrics.tick(number)
        clock.now += 0.5
    assert lines() == before
    assert values(metrics)['errors_total{code="other"}'] == 5010
    assert len(metrics._ttfts) == 200
    assert len(metrics._decoded) <= 21


def test_the_figures_of_a_process_are_those_of_the_system():
    assert use_of().rss_bytes > 10_000_000
    assert use_of(os.getpid()).cpu_s > 0
    assert use_of(2**22 - 1) == ProcessUse()


class Occupancy:
    not_ready_code = ""

    def counts(self) -> Counts:
        return Counts(3, 5, 7)


def finished_answer(clock: Clock, origin: Origin, timings: Timings) -> Answer:
    answer = Answer("id", "question", clock, lambda: 1)
    answer.comes_from(origin, None)
    answer.take(Started(10, 0, False))
    clock.now += 4
    answer.take(Delta("text", (1, 2)))
    clock.now += 1
    answer.take(Finished(FinishReason.STOP, 10, 5, 2, timings=timings))
    answer.settle()
    return answer


def test_the_wait_is_what_is_left_of_the_first_words_time_without_reading_the_prompt(clock):
    engine = ScriptedEngine()
    watch = Watch(Occupancy(), engine, Settings(), clock)
    asked_at = clock.now - 2
    watch.answered(finished_answer(clock, Origin.MODEL, Timings(1.0, 1.5, 1.0)), asked_at)
    found = values(watch.metrics)
    assert found["queue_wait_seconds_sum"] == pytest.approx(4.5)
    assert found['ttft_server_seconds_sum{origin="model"}'] == pytest.approx(6)
    watch.answered(finished_answer(clock, Origin.SAVED, Timings()), clock.now)
    assert values(watch.metrics)["queue_wait_seconds_count"] == 1


def test_now_is_read_from_the_house_and_the_engine(clock):
    engine = ScriptedEngine()
    watch = Watch(Occupancy(), engine, Settings(), clock)
    engine.n_running, engine.n_decoded_total, engine.n_restarts = 2, 1234, 1
    clock.now += 10
    found = values(watch.metrics)
    assert (found["waiting"], found["places_taken"], found["conversations"]) == (3, 5, 7)
    assert (found["slots"], found["slots_used"], found["ready"]) == (16, 2, 1)
    assert (found["generated_tokens_total"], found["engine_restarts_total"]) == (1234, 1)
    assert found["uptime_seconds"] == 10
    assert found['memory_bytes{process="web"}'] > 1e7


@pytest.mark.parametrize(
    ("code", "counts"), [("engine_failed", True), ("too_long", False), ("bad_conversation", False)]
)
def test_only_what_the_engine_did_wrong_is_pressure(clock, code, counts):
    engine = ScriptedEngine()
    watch = Watch(Occupancy(), engine, Settings(), clock)
    for _ in range(40):
        engine.on_finished(Finished(FinishReason.ERROR, 0, 0, 0, code))
    for _ in range(60):
        clock.now += 0.5
        watch.tick()
    assert (watch.load_shedding.level > 0) is counts


def test_while_a_line_waits_the_time_between_two_answers_counts_into_the_promise(clock):
    engine = ScriptedEngine()
    watch = Watch(Occupancy(), engine, Settings(max_batch_size=2, max_answer_tokens=100), clock)
    for _ in range(200):
        engine.on_finished(Finished(FinishReason.STOP, 100, 0, 20))
    for tick in range(200):
        engine.n_running = 1 + tick % 2
        engine.n_decoded_total += 10
        clock.now += 0.5
        watch.tick()
    ten_more_s = watch.load_shedding.wait_s(20) - watch.load_shedding.wait_s(10)
    assert ten_more_s == pytest.approx(10, rel=0.05)
