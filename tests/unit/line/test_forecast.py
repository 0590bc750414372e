"""What a person is told to wait, against traces that were played out."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from appliance.engine.request import Running
from appliance.line.forecast import Forecast

N_SLOTS = 16
LONGEST = 256
STEP_S = 0.05
LOOK_S = 0.5


@dataclass
class Office:
    """People at an engine whose tokens take longer the more answers it writes. Notes what each was told, and waited."""

    length: Callable[[random.Random], int]
    forecast: Forecast = field(default_factory=lambda: Forecast(N_SLOTS, LONGEST))
    rng: random.Random = field(default_factory=lambda: random.Random(1))
    now: float = 0.0
    line: list[tuple[float, float, int]] = field(default_factory=list)
    running: list[list[float]] = field(default_factory=list)
    """[number, prompt seconds left, tokens, length] of each."""
    told: list[tuple[float, float]] = field(default_factory=list)
    n_asked: int = 0

    def ask(self) -> None:
        running = [Running(int(number), int(n)) for number, _, n, _ in self.running]
        promise = self.forecast.turns(running, len(self.line) + 1)[-1]
        self.line.append((self.now, promise, self.length(self.rng)))

    def play(self, seconds: float, rate: float) -> None:
        """People come at random, `rate` a second."""
        for _ in range(round(seconds / LOOK_S)):
            n_before, n_tokens = len(self.running), 0.0
            for _ in range(round(LOOK_S / STEP_S)):
                for _ in range(sum(self.rng.random() < rate * STEP_S / 10 for _ in range(10))):
                    self.ask()
                n_tokens += self.step()
            if len(self.running) == n_before:
                self.forecast.note_speed(n_before, int(n_tokens), LOOK_S)

    def step(self) -> float:
        while self.line and len(self.running) < N_SLOTS:
            asked_at, promise, length = self.line.pop(0)
            if self.now > asked_at:
                self.told.append((promise, self.now - asked_at))
            self.n_asked += 1
            self.running.append([self.n_asked, self.rng.uniform(0.3, 1.5), 0.0, length])
        n_tokens = 0.0
        share = STEP_S / (0.018 * max(1, len(self.running)) ** 0.7)
        for answer in self.running:
            if answer[1] > 0:
                answer[1] -= STEP_S
            else:
                answer[2] += share
                n_tokens += share
        for answer in [answer for answer in self.running if answer[2] >= answer[3]]:
            self.running.remove(answer)
            self.forecast.note_answer(int(answer[3]), 1.0)
        self.now += STEP_S
        return n_tokens

    def median_error(self) -> float:
        errors = [abs(promise - waited) / waited for promise, waited in self.told if waited > 1]
        assert len(errors) > 50
        return statistics.median(errors)


def short_and_long(rng: random.Random) -> int:
    return max(3, min(LONGEST, int(rng.lognormvariate(0, 0.8) * 90)))


def mostly_at_the_limit(rng: random.Random) -> int:
    return LONGEST if rng.random() < 0.6 else rng.randint(5, LONGEST)


@pytest.mark.parametrize("length", [short_and_long, mostly_at_the_limit])
def test_promises_hold_while_people_come_all_the_time(length):
    office = Office(length)
    office.play(300, 1.3)
    assert office.median_error() < 0.2


@pytest.mark.parametrize("length", [short_and_long, mostly_at_the_limit])
def test_promises_hold_in_bursts_of_thirty(length):
    office = Office(length)
    for _ in range(12):
        for _ in range(30):
            office.ask()
        office.play(90, 0.02)
    assert office.median_error() < 0.3


def test_a_free_slot_is_no_wait():
    forecast = Forecast(4, 100)
    assert forecast.turns([Running(1, 5)], 4)[:3] == [0, 0, 0]
    assert forecast.turns([Running(1, 5)], 4)[3] > 0


def test_the_line_never_moves_backwards():
    forecast = Forecast(4, 100)
    turns = forecast.turns([Running(i, i) for i in range(4)], 50)
    assert turns == sorted(turns)


def test_an_answer_longer_than_any_known_is_given_half_of_what_is_left():
    forecast = Forecast(1, 100)
    for _ in range(300):
        forecast.note_answer(10, 0.1)
    forecast.note_speed(1, 10, 1.0)
    assert forecast.turns([Running(1, 60)], 1) == [pytest.approx(20 * 0.1)]
    assert forecast.turns([Running(1, 4)], 1) == [pytest.approx(6 * 0.1)]


def test_shorter_answers_move_the_line_faster():
    forecast = Forecast(1, 100)
    long, short = forecast.turns([], 9)[-1], forecast.turns([], 9, max_tokens=20)[-1]
    assert short < long / 2


def test_speed_is_scaled_from_the_nearest_load_that_was_measured():
    forecast = Forecast(16, 100)
    for _ in range(50):
        forecast.note_speed(4, 40, 1.0)
    assert forecast.slot_s(4) == pytest.approx(0.1)
    assert 0.2 < forecast.slot_s(16) < 0.4
    forecast.note_speed(16, 100, 1.0)
    assert forecast.slot_s(16) == pytest.approx(0.16)


def test_a_change_of_speed_is_learned_and_the_old_one_forgotten():
    forecast = Forecast(1, 100)
    for _ in range(1000):
        forecast.note_speed(1, 100, 1.0)
    for _ in range(200):
        forecast.note_speed(1, 10, 1.0)
    assert forecast.slot_s(1) == pytest.approx(0.1, rel=0.1)


def test_a_pause_without_tokens_and_an_idle_engine_do_no_harm():
    forecast = Forecast(2, 100)
    forecast.note_speed(0, 0, 10.0)
    forecast.note_speed(1, 0, 10.0)
    forecast.note_speed(1, 5, 0.0)
    assert forecast.slot_s(1) > 0


def test_what_was_asked_for_just_now_comes_before_the_line():
    forecast = Forecast(2, 100)
    for _ in range(200):
        forecast.note_answer(10, 0.1)
    forecast.note_speed(2, 20, 1.0)
    assert forecast.turns([Running(number, 0) for number in range(1, 5)], 1) == [pytest.approx(20 * 0.1)]
