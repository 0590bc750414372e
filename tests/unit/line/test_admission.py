"""Exact under bursts, and no place is ever lost."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from appliance.base.errors import AlreadyAnswering, Busy, Overloaded, SavedOnly
from appliance.line.admission import LEFT_QUEUE_S, NEVER_SEEN_S, Admission, Gate, Place
from appliance.line.load_shedding import LoadLevel
from tests.unit.engine_double import Clock, settle

CAPACITY = 5


def make(capacity: int = CAPACITY, max_per_person: int = 2) -> tuple[Admission, list[tuple[str, str]], Clock]:
    clock, waiting = Clock(), []
    admission = Admission(capacity, max_per_person, clock)
    admission.watch_queue(lambda: waiting)
    return admission, waiting, clock


def test_a_burst_of_twelve_fills_exactly_the_free_places():
    admission, _, _ = make()
    n_let_in = 0
    for number in range(12):
        try:
            admission.enter_page((f"p{number}", "t"))
            n_let_in += 1
        except Busy:
            pass
    assert n_let_in == CAPACITY


def test_page_and_api_share_the_bound():
    admission, _, _ = make(2)
    admission.enter_page(("a", "t"))
    place = admission.start_api("p")
    with pytest.raises(Busy):
        admission.start_api("p")
    with pytest.raises(Busy):
        admission.enter_page(("b", "t"))
    place.release()
    admission.start_api("p")


def test_a_ticket_becomes_a_place_and_is_not_counted_twice():
    admission, _, _ = make()
    admission.enter_page(("a", "t"))
    place = admission.start_page(("a", "t"))
    assert admission.n_taken == 1
    place.release()
    place.release()
    assert admission.n_taken == 0


def test_a_ticket_whose_event_never_comes_is_void():
    admission, _, clock = make(1)
    admission.enter_page(("a", "t"))
    clock.now += NEVER_SEEN_S
    admission.enter_page(("b", "t"))


def test_a_long_wait_in_the_queue_keeps_its_ticket():
    admission, waiting, clock = make(1)
    admission.enter_page(("a", "t"))
    waiting.append(("a", "t"))
    for _ in range(100):
        clock.now += 5
        admission.sweep()
    assert admission.n_tickets == 1


def test_a_tab_that_closes_while_queued_frees_its_place():
    admission, waiting, clock = make(1)
    admission.enter_page(("a", "t"))
    waiting.append(("a", "t"))
    admission.sweep()
    clock.now += 60
    waiting.clear()
    admission.sweep()
    assert admission.n_tickets == 1, "it may be about to start"
    clock.now += LEFT_QUEUE_S
    admission.sweep()
    assert admission.n_tickets == 0


def test_a_reloaded_tab_that_was_queued_may_ask_again_at_once():
    admission, waiting, _ = make()
    admission.enter_page(("a", "t"))
    waiting.append(("a", "t"))
    admission.sweep()
    waiting.clear()
    admission.enter_page(("a", "t"))
    assert admission.n_tickets == 1


def test_one_tab_has_one_answer():
    admission, waiting, _ = make()
    admission.enter_page(("a", "t"))
    with pytest.raises(AlreadyAnswering):
        admission.enter_page(("a", "t"))
    waiting.append(("a", "t"))
    with pytest.raises(AlreadyAnswering):
        admission.enter_page(("a", "t"))
    waiting.clear()
    admission.start_page(("a", "t"))
    with pytest.raises(AlreadyAnswering):
        admission.enter_page(("a", "t"))


def test_one_person_has_two_answers_and_programs_do_not_count():
    admission, _, _ = make()
    admission.start_api("p")
    admission.enter_page(("a", "t1"))
    admission.start_page(("a", "t1"))
    admission.enter_page(("a", "t2"))
    with pytest.raises(AlreadyAnswering):
        admission.enter_page(("a", "t3"))


def test_a_late_start_without_its_ticket_needs_a_free_place():
    admission, _, clock = make(1)
    admission.enter_page(("a", "t"))
    clock.now += NEVER_SEEN_S
    admission.enter_page(("b", "t"))
    with pytest.raises(Busy):
        admission.start_page(("a", "t"))


class AnyInterleaving(RuleBasedStateMachine):
    """Admit, join, start, finish, vanish in any order: the count is the truth, and never above capacity."""

    def __init__(self) -> None:
        super().__init__()
        self.admission, self.waiting, self.clock = make(3, max_per_person=2)
        self.promised: set[tuple[str, str]] = set()
        self.places: list[Place] = []

    keys = st.tuples(st.sampled_from("abcd"), st.sampled_from("xyz"))

    @rule(key=keys)
    def admit(self, key):
        n_before = self.admission.n_taken
        try:
            self.admission.enter_page(key)
        except Busy:
            assert self.admission.n_taken >= 3
        except AlreadyAnswering:
            pass
        else:
            assert n_before <= 3
            self.promised.add(key)

    @precondition(lambda self: self.promised)
    @rule(data=st.data())
    def join_the_queue(self, data):
        key = data.draw(st.sampled_from(sorted(self.promised)))
        self.promised.discard(key)
        if key not in self.waiting:
            self.waiting.append(key)

    @precondition(lambda self: self.waiting)
    @rule()
    def start(self):
        key = self.waiting.pop(0)
        with contextlib.suppress(Busy, AlreadyAnswering):
            self.places.append(self.admission.start_page(key))

    @rule()
    def start_program(self):
        try:
            self.places.append(self.admission.start_api("p"))
        except Busy:
            assert self.admission.n_taken >= 3

    @precondition(lambda self: self.places)
    @rule(data=st.data())
    def finish(self, data):
        place = data.draw(st.sampled_from(self.places))
        self.places.remove(place)
        place.release()

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def vanish_from_the_queue(self, data):
        self.waiting.remove(data.draw(st.sampled_from(self.waiting)))

    @precondition(lambda self: self.promised)
    @rule(data=st.data())
    def vanish_before_joining(self, data):
        self.promised.discard(data.draw(st.sampled_from(sorted(self.promised))))

    @rule(seconds=st.sampled_from([0.1, 0.5, 1.0, 3.0]))
    def time_passes(self, seconds):
        self.clock.now += seconds
        self.admission.sweep()

    @invariant()
    def never_above_capacity(self):
        assert self.admission.n_taken <= 3
        assert self.admission.n_taken == self.admission.n_tickets + len(self.places)

    def teardown(self):
        """Everybody leaves: nothing is left over."""
        self.waiting.clear()
        for place in self.places:
            place.release()
        self.admission.sweep()
        self.clock.now += NEVER_SEEN_S
        self.admission.sweep()
        assert self.admission.n_taken == 0


TestAnyInterleaving = AnyInterleaving.TestCase
TestAnyInterleaving.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)


async def test_the_gate_lets_in_by_order_of_arrival():
    gate = Gate(1)
    first, second, third = (gate.join(lambda: 4) for _ in range(3))
    assert await first.reached()
    assert (second.ahead, third.ahead, gate.n_waiting) == (4, 5, 2)
    first.leave()
    assert await second.reached()
    second.leave()
    second.leave()
    assert await third.reached()


async def test_a_turn_given_up_ends_the_wait_and_holds_nobody_up():
    gate = Gate(1)
    first, second, third = (gate.join(lambda: 0) for _ in range(3))
    second.abort()
    assert not await second.reached()
    second.leave()
    first.leave()
    await settle()
    assert await third.reached()
    assert gate.n_waiting == 0


class Valve:
    """A ladder on the level the test says."""

    def __init__(self, level: LoadLevel, *, takes: bool) -> None:
        self.level, self.takes = level, takes
        self.sent: list[str] = []
        self.let_in: list[str] = []

    def takes_for_model(self) -> bool:
        return self.takes

    def takes_anything(self) -> bool:
        return self.takes or self.level < LoadLevel.BUSY

    def sent_away(self, person: str) -> None:
        self.sent.append(person)

    def taken(self, person: str) -> None:
        self.let_in.append(person)


@pytest.mark.parametrize(("level", "refusal"), [(LoadLevel.SAVED_ONLY, SavedOnly), (LoadLevel.BUSY, Overloaded)])
def test_under_pressure_page_and_api_hear_why_although_there_are_places(level, refusal):
    valve = Valve(level, takes=False)
    admission = Admission(CAPACITY, 2, Clock(), valve)
    with pytest.raises(refusal):
        admission.enter_page(("ann", "t"))
    with pytest.raises(refusal):
        admission.start_api("program")
    assert valve.sent == ["ann", "program"]
    assert admission.n_taken == 0


def test_whoever_holds_a_ticket_is_answered_whatever_happens_meanwhile():
    valve = Valve(LoadLevel.NORMAL, takes=True)
    admission = Admission(CAPACITY, 2, Clock(), valve)
    admission.enter_page(("ann", "t"))
    valve.level, valve.takes = LoadLevel.BUSY, False
    assert admission.start_page(("ann", "t"))
    assert valve.let_in == ["ann"]


def test_what_costs_nothing_is_given_on_every_rung_but_the_last():
    valve = Valve(LoadLevel.SAVED_ONLY, takes=False)
    admission = Admission(CAPACITY, 2, Clock(), valve)
    admission.join(("ann", "t")).release()
    valve.level = LoadLevel.BUSY
    with pytest.raises(Overloaded):
        admission.join(("ann", "t"))
    assert admission.n_taken == 0


def test_a_place_knows_when_its_person_asked_not_only_when_it_began():
    admission, _, clock = make()
    admission.enter_page(("a", "t"))
    clock.now += 1.5
    assert admission.start_page(("a", "t")).asked_at == clock.now - 1.5
    assert admission.start_api("p").asked_at == clock.now
