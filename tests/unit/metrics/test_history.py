"""The measurements of the last hour and day: bounded, and true."""

from __future__ import annotations

import pytest

from appliance.metrics.health import ProcessUse
from appliance.metrics.history import EVERY_S, N_SAMPLES, N_TOGETHER, History
from appliance.metrics.registry import Situation, Snapshot


class Program:
    """What is looked at, and a clock."""

    def __init__(self) -> None:
        self.now_s, self.cpu_s, self.n_answers, self.n_waiting, self.n_people = 1000.0, 0.0, 0, 0, 1
        self.ttft_s: float | None = None
        self.history = History(self.look, lambda: self.n_people, lambda: self.now_s)

    def look(self) -> Snapshot:
        use = ProcessUse(rss_bytes=500, cpu_s=self.cpu_s / 2)
        now = Situation(n_waiting=self.n_waiting, n_slots_used=2, web=use, engine=use)
        return Snapshot(now, self.n_answers, 0, 0, 0, 0, 12.5, self.ttft_s, self.ttft_s)

    def take(self, n: int = 1) -> None:
        for _ in range(n):
            self.now_s += EVERY_S
            self.cpu_s += 5
            self.history.take()


def test_a_sample_says_what_was_seen():
    program = Program()
    program.n_answers, program.ttft_s = 1, 0.7
    program.take(2)
    first, second = program.history.hour
    assert (second.n_people, second.n_running, second.tokens_per_s, second.memory_bytes) == (1, 2, 12.5, 1000)
    assert (first.cpu_cores, second.cpu_cores) == (0, 0.5)


def test_a_wait_is_only_shown_while_answers_end():
    program = Program()
    program.take()
    program.n_answers, program.ttft_s = 1, 0.7
    program.take(2)
    assert [sample.ttft_p50_s for sample in program.history.hour] == [None, 0.7, None]


def test_neither_span_grows_beyond_its_bound():
    program = Program()
    program.take(N_SAMPLES * N_TOGETHER + 100)
    assert (len(program.history.hour), len(program.history.day)) == (N_SAMPLES, N_SAMPLES)
    assert program.history.hour[-1].at_s == program.now_s
    assert program.history.hour[-1].at_s - program.history.hour[0].at_s == 3600 - EVERY_S


def test_the_day_keeps_the_busiest_moment():
    program = Program()
    program.take(3)
    program.n_waiting = 9
    program.take()
    program.n_waiting = 0
    program.take(N_TOGETHER - 4)
    (together,) = program.history.day
    assert (together.n_waiting, together.cpu_cores > 0) == (9, True)


def test_the_charts_go_on_after_a_restart_and_forget_what_is_too_old():
    before = Program()
    before.take(N_TOGETHER * 2)
    after = Program()
    after.now_s = before.now_s + 30
    after.history.load(before.history.dumped())
    assert (after.history.hour, after.history.day) == (before.history.hour, before.history.day)
    late = Program()
    late.now_s = before.now_s + 3601
    late.history.load(before.history.dumped())
    assert (late.history.hour, late.history.day) == ((), before.history.day)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"hour": [[1]], "day": []}', '{"hour": 5, "day": 5}', "null"])
def test_a_file_that_is_no_history_is_left_alone(text):
    program = Program()
    program.history.load(text)
    assert program.history.hour == ()


def test_an_engine_that_was_started_again_and_a_clock_set_back_give_no_nonsense():
    program = Program()
    program.take(2)
    program.cpu_s, program.now_s = 0, 10.0
    program.take(2)
    assert all(0 <= sample.cpu_cores <= 1 for sample in program.history.hour)
