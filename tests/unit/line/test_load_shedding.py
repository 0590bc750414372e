"""The ladder: climbed under too much to do or too many failures, left when it is over, and never up and down."""

from __future__ import annotations

import random

import pytest

from appliance.engine.request import Running
from appliance.line.forecast import Forecast
from appliance.line.load_shedding import (
    CALM_S,
    COME_BACK_S,
    FAILING_S,
    FAILURE_WINDOW_S,
    OVER_S,
    Ladder,
    LoadLevel,
    LoadShedding,
)
from tests.unit.engine_double import Clock

THRESHOLDS = (10, 20, 30, 40)
TICK_S = 0.5


def climb(ladder: Ladder, clock: Clock, seconds: float, wait_s: float, *, failing: bool = False) -> list[LoadLevel]:
    """The levels it was on, each once, in order."""
    seen = [ladder.level]
    for _ in range(round(seconds / TICK_S)):
        clock.now += TICK_S
        level = ladder.update(clock.now, wait_s, failing=failing)
        if level != seen[-1]:
            seen.append(level)
    return seen


def test_a_long_wait_climbs_rung_by_rung_and_calm_leads_down_the_same_way():
    ladder, clock = Ladder(THRESHOLDS), Clock()
    assert climb(ladder, clock, 20, 100) == [0, 1, 2, 3, 4]
    assert climb(ladder, clock, 60, 1) == [4, 3, 2, 1, 0]
    assert ladder.n_moves == 8


def test_only_as_far_as_the_wait_reaches():
    ladder, clock = Ladder(THRESHOLDS), Clock()
    assert climb(ladder, clock, 60, 25) == [0, 1, 2]


def test_a_moment_over_the_threshold_is_nothing():
    ladder, clock = Ladder(THRESHOLDS), Clock()
    for _ in range(10):
        assert climb(ladder, clock, OVER_S - TICK_S, 100) == [0]
        assert climb(ladder, clock, 1, 9) == [0]


def test_between_half_the_threshold_and_the_threshold_nothing_moves():
    ladder, clock = Ladder(THRESHOLDS), Clock()
    climb(ladder, clock, 5, 11)
    assert ladder.level is LoadLevel.SHORT_ANSWERS
    assert climb(ladder, clock, 60, 6) == [1]
    assert climb(ladder, clock, 60, 9.9) == [1]
    assert climb(ladder, clock, CALM_S + 1, 4.9) == [1, 0]


def test_a_rung_whose_threshold_is_zero_is_left_out():
    ladder, clock = Ladder((10, 0, 30, 0)), Clock()
    assert climb(ladder, clock, 30, 100) == [0, 1, 3]
    assert climb(ladder, clock, 60, 1) == [3, 1, 0]
    assert climb(Ladder((0, 0, 0, 0)), clock, 60, 1000, failing=True) == [0]


def test_failures_climb_slowly_and_go_all_the_way():
    ladder, clock = Ladder(THRESHOLDS), Clock()
    assert climb(ladder, clock, FAILING_S - 1, 0, failing=True) == [0]
    assert climb(ladder, clock, 2, 0, failing=True) == [0, 1]
    assert climb(ladder, clock, FAILING_S * 4, 0, failing=True) == [1, 2, 3, 4]
    assert climb(ladder, clock, 60, 0) == [4, 3, 2, 1, 0]


class Town:
    """People at an engine that finishes an answer every `1 / capacity` seconds. Asked open loop, `rate` a second."""

    def __init__(self, n_slots: int = 4, seconds_each: float = 4.0) -> None:
        self.clock = Clock()
        self.forecast = Forecast(n_slots, 100)
        self.n_slots, self.seconds_each = n_slots, seconds_each
        for _ in range(200):
            self.forecast.note_answer(100, 0.2)
            self.forecast.note_speed(n_slots, round(n_slots * 100 / seconds_each), 1.0)
        self.running: list[float] = []
        self.waiting = 0
        self.rng = random.Random(3)
        self.load_shedding = LoadShedding(THRESHOLDS, self.forecast, self.clock, self.who_runs, lambda: self.waiting)
        self.levels = [LoadLevel.NORMAL]
        self.n_served = self.n_turned_away = 0
        self._due = 0.0

    def who_runs(self) -> list[Running]:
        done = [(self.clock.now - began) / self.seconds_each * 100 for began in self.running]
        return [Running(i, int(n)) for i, n in enumerate(done)]

    def play(self, seconds: float, rate: float, n_places: int = 1000) -> None:
        for _ in range(round(seconds / 0.1)):
            self.clock.now += 0.1
            self._due += rate * 0.1
            while self._due >= 1:
                self._due -= 1
                person = f"p{self.rng.randrange(10**6)}"
                if self.waiting >= n_places or not self.load_shedding.takes_for_model():
                    self.load_shedding.sent_away(person)
                    self.n_turned_away += 1
                else:
                    self.load_shedding.taken(person)
                    self.waiting += 1
            length = self.seconds_each * (0.5 if self.load_shedding.level else 1.0)
            done = [began for began in self.running if self.clock.now - began >= length]
            self.n_served += len(done)
            for began in done:
                self.running.remove(began)
            while self.waiting and len(self.running) < self.n_slots:
                self.waiting -= 1
                self.running.append(self.clock.now)
            if round(self.clock.now * 10) % 5 == 0:
                self.load_shedding.tick()
                if self.load_shedding.level != self.levels[-1]:
                    self.levels.append(self.load_shedding.level)


def test_three_times_capacity_climbs_each_rung_once_and_comes_down_once():
    town = Town()
    town.play(180, 3.0)
    assert town.levels == [0, 1, 2, 3, 4]
    assert town.n_served > 180 * 0.9, "the engine was left idle while people were sent away"
    town.play(COME_BACK_S + 5 * CALM_S, 0.1)
    assert town.levels == [0, 1, 2, 3, 4, 3, 2, 1, 0]


def test_the_same_with_few_places_where_those_sent_away_are_most_of_the_line():
    town = Town()
    town.play(180, 3.0, n_places=12)
    town.play(COME_BACK_S + 5 * CALM_S, 0.1, n_places=12)
    assert town.levels == [0, 1, 2, 3, 4, 3, 2, 1, 0]


def test_normal_use_moves_nothing():
    town = Town()
    town.play(600, 0.8)
    assert town.levels == [0]
    assert town.n_turned_away == 0


def make(clock: Clock, running: int = 0, waiting: int = 0, n_slots: int = 2) -> LoadShedding:
    forecast = Forecast(n_slots, 100)
    return LoadShedding(THRESHOLDS, forecast, clock, lambda: [Running(i, 0) for i in range(running)], lambda: waiting)


@pytest.mark.parametrize(("n_failed", "climbs"), [(1, False), (2, True)])
def test_more_than_five_percent_of_failures_in_a_minute_climb(n_failed, climbs):
    clock = Clock()
    load_shedding = make(clock)
    for number in range(20):
        load_shedding.request_ended(failed=number < n_failed)
    for _ in range(30):
        clock.now += TICK_S
        load_shedding.tick()
    assert (load_shedding.level > 0) is climbs


def test_a_few_failures_among_few_requests_say_nothing():
    clock = Clock()
    load_shedding = make(clock)
    for _ in range(19):
        load_shedding.request_ended(failed=True)
    for _ in range(100):
        clock.now += TICK_S
        load_shedding.tick()
    assert load_shedding.level is LoadLevel.NORMAL


def test_failures_are_forgotten_after_a_minute_and_the_ladder_is_left():
    clock = Clock()
    load_shedding = make(clock)
    for _ in range(40):
        load_shedding.request_ended(failed=True)
    for _ in range(round((FAILURE_WINDOW_S - 5) / TICK_S)):
        clock.now += TICK_S
        load_shedding.tick()
    assert load_shedding.level is LoadLevel.BUSY
    for _ in range(200):
        clock.now += TICK_S
        load_shedding.tick()
    assert load_shedding.level is LoadLevel.NORMAL


def test_while_requests_fail_one_at_a_time_finds_out_whether_they_still_do():
    clock = Clock()
    idle, busy = make(clock), make(clock, running=1)
    for load_shedding in (idle, busy):
        for _ in range(40):
            load_shedding.request_ended(failed=True)
        for _ in range(100):
            clock.now += 0.4
            load_shedding.tick()
    assert idle.takes_for_model()
    assert not busy.takes_for_model()


def test_each_who_is_sent_away_is_told_a_later_moment():
    clock = Clock()
    load_shedding = make(clock, running=2, waiting=3)
    told = []
    for number in range(8):
        load_shedding.sent_away(f"p{number}")
        told.append(load_shedding.retry_after_s())
    assert told == sorted(told)
    assert told[0] >= 1
    assert told[-1] > told[0]


def test_whoever_asks_again_counts_once_and_not_at_all_when_taken():
    clock = Clock()
    load_shedding = make(clock, running=2)
    load_shedding.sent_away("ann")
    first = load_shedding.retry_after_s()
    for _ in range(50):
        load_shedding.sent_away("ann")
    assert load_shedding.retry_after_s() == first
    load_shedding.sent_away("bob")
    assert load_shedding.retry_after_s() > first
    load_shedding.taken("bob")
    assert load_shedding.retry_after_s() == first


def test_what_is_kept_of_those_who_come_and_go_is_bounded():
    clock = Clock()
    load_shedding = make(clock, running=2)
    for number in range(20_000):
        load_shedding.sent_away(f"p{number}")
        load_shedding.request_ended(failed=False)
    assert len(load_shedding._sent_away) == 200
    assert len(load_shedding._outcomes) == 5000
    clock.now += 61
    load_shedding.tick()
    assert not load_shedding._sent_away
    assert not load_shedding._outcomes
