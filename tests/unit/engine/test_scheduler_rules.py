"""The rules of the scheduler, one by one, in the order its docstring states them."""

from __future__ import annotations

import pytest

from appliance.engine.detokenizer import Detokenizer
from appliance.engine.request import Message, Request, SamplingParams
from appliance.engine.sampler import TokenSampler
from appliance.engine.scheduler import Rules, Scheduler
from appliance.engine.sequence import Sequence
from appliance.engine.step_cost import StepCost

GREEDY = SamplingParams(0.0, 1, 1.0, 0.0, 1.0)


def sequence(
    name: str,
    *,
    person: str = "",
    n_prompt: int = 10,
    arrived_s: float = 0.0,
    in_conversation: bool = False,
    n_reusable: int = 0,
    shared_ids: tuple[int, ...] = (),
) -> Sequence:
    """A waiting request; everybody is a person of their own unless said otherwise."""
    request = Request(name, (Message("user", "x"),), 50, person=person or name)
    return Sequence(
        request=request,
        token_ids=list(range(n_prompt)),
        n_prompt=n_prompt,
        max_tokens=50,
        sampler=TokenSampler(GREEDY),
        detokenizer=Detokenizer(),
        arrived_s=arrived_s,
        in_conversation=in_conversation,
        n_reusable=n_reusable,
        shared_ids=shared_ids,
    )


def scheduler(cost: StepCost | None = None, **rules: object) -> Scheduler:
    return Scheduler(Rules(**rules), cost or costing())  # type: ignore[arg-type]


def names(sequences: list[Sequence]) -> list[str]:
    return [s.request_id for s in sequences]


def place_all(queue: Scheduler, now_s: float = 0.0) -> list[str]:
    placed = []
    while (one := queue.place_next(now_s)) is not None:
        placed.append(one.request_id)
    return placed


def prefilled(queue: Scheduler) -> None:
    """Pretend that everybody placed has the whole prompt evaluated."""
    for running in queue.running:
        running.n_past = running.n_prompt


def answering(queue: Scheduler, one: Sequence) -> None:
    """Its prompt is read and a token has been drawn."""
    queue.add(one)
    place_all(queue)
    prefilled(queue)
    one.token_ids.append(7)


def costing(*, decode_s: float = 0.0, prompt_row_s: float = 0.001, n_decoding: int = 1) -> StepCost:
    cost = StepCost()
    for _ in range(100):
        cost.note(n_decoding, 0, decode_s)
        cost.note(0, 100, 100 * prompt_row_s)
    cost.step_s = 0.0
    return cost


def test_people_in_mid_conversation_come_before_newcomers():
    queue = scheduler()
    queue.add(sequence("newcomer", arrived_s=0.0))
    queue.add(sequence("talking", arrived_s=0.1, in_conversation=True))
    assert names(queue.order(now_s=0.1)) == ["talking", "newcomer"]


def test_among_equals_the_shorter_prompt_comes_first():
    queue = scheduler()
    queue.add(sequence("long", n_prompt=400, arrived_s=0.0))
    queue.add(sequence("short", n_prompt=20, arrived_s=0.1))
    assert names(queue.order(now_s=0.1)) == ["short", "long"]


def test_what_is_parked_does_not_count_as_length():
    queue = scheduler()
    queue.add(sequence("parked", n_prompt=400, n_reusable=395))
    queue.add(sequence("fresh", n_prompt=20))
    assert names(queue.order(now_s=0.0)) == ["parked", "fresh"]


def test_whoever_has_waited_longer_than_the_limit_comes_before_mid_conversation_and_short_prompts():
    queue = scheduler(starvation_limit_s=0.15)
    queue.add(sequence("starved", n_prompt=500, arrived_s=0.0))
    queue.add(sequence("talking", arrived_s=0.19, in_conversation=True))
    assert names(queue.order(now_s=0.14)) == ["talking", "starved"]
    assert names(queue.order(now_s=0.2)) == ["starved", "talking"]


def test_the_starved_are_served_in_the_order_they_came():
    queue = scheduler(starvation_limit_s=0.15)
    queue.add(sequence("second", n_prompt=5, arrived_s=0.1))
    queue.add(sequence("first", n_prompt=500, arrived_s=0.0))
    assert names(queue.order(now_s=9.0)) == ["first", "second"]


def test_the_limit_is_never_less_than_a_few_steps():
    cost = StepCost()
    cost.step_s = 0.2
    queue = scheduler(cost, starvation_limit_s=0.15)
    queue.add(sequence("newcomer", arrived_s=0.0))
    queue.add(sequence("talking", arrived_s=1.0, in_conversation=True))
    assert names(queue.order(now_s=1.0)) == ["talking", "newcomer"]
    assert names(queue.order(now_s=2.0)) == ["newcomer", "talking"]


def test_one_person_with_three_tabs_holds_one_share_while_others_wait():
    queue = scheduler()
    for tab in "123":
        queue.add(sequence(f"eve{tab}", person="eve", arrived_s=0.0, in_conversation=True))
    queue.add(sequence("bob", arrived_s=0.1))
    assert names(queue.order(now_s=0.1)) == ["eve1", "bob", "eve2", "eve3"]


def test_a_running_answer_counts_as_the_persons_share():
    queue = scheduler(n_slots=2)
    queue.add(sequence("eve1", person="eve"))
    assert place_all(queue) == ["eve1"]
    queue.add(sequence("eve2", person="eve", arrived_s=0.0))
    queue.add(sequence("bob", arrived_s=5.0))
    assert names(queue.order(now_s=6.0)) == ["bob", "eve2"]


def test_a_second_tab_is_served_when_nobody_else_waits():
    queue = scheduler(n_slots=2)
    for tab in "12":
        queue.add(sequence(f"eve{tab}", person="eve"))
    assert place_all(queue) == ["eve1", "eve2"]


def test_a_request_gets_its_slot_only_when_the_step_has_room_for_its_prompt():
    queue = scheduler(costing(prompt_row_s=0.35 / 42.5))  # 42 prompt rows a step while nobody is being answered
    for i in range(5):
        queue.add(sequence(f"p{i}", n_prompt=30, arrived_s=i / 100))
    assert place_all(queue) == ["p0", "p1"]
    queue.add(sequence("talking", n_prompt=30, arrived_s=0.05, in_conversation=True))
    prefilled(queue)
    assert place_all(queue, now_s=0.06)[0] == "talking"


def test_prompts_leave_a_running_answer_its_longest_gap():
    cost = costing(decode_s=0.1, prompt_row_s=0.005)
    queue = scheduler(cost, max_itl_s=0.5, n_slots=2)
    answering(queue, sequence("running"))
    queue.add(sequence("paste", n_prompt=500))
    place_all(queue)
    step = queue.next_step(0.0)
    assert {s.request_id: n for s, n in step.rows}["running"] == 1
    assert 0.1 + step.n_prompt * 0.005 <= 0.5


def test_a_step_with_prompts_takes_three_times_its_answers_so_that_first_words_leave_in_small_lots():
    queue = scheduler(costing(decode_s=0.13, prompt_row_s=0.002), max_itl_s=0.5, n_slots=2)
    answering(queue, sequence("running"))
    queue.add(sequence("paste", n_prompt=500))
    place_all(queue)
    assert 120 <= queue.next_step(0.0).n_prompt <= 130


def test_a_slow_computer_still_reads_some_of_a_prompt_in_every_step():
    queue = scheduler(costing(decode_s=3.0, prompt_row_s=0.5), n_slots=2)
    answering(queue, sequence("running"))
    queue.add(sequence("paste", n_prompt=500))
    place_all(queue)
    assert queue.next_step(0.0).n_prompt > 0


def test_prompts_are_read_one_after_another_so_that_first_words_leave_early():
    queue = scheduler(costing(prompt_row_s=0.35 / 42.5))  # 42 prompt rows a step while nobody is being answered
    for i in range(2):
        queue.add(sequence(f"p{i}", n_prompt=40, arrived_s=i / 100))
    place_all(queue)
    counts = {s.request_id: n for s, n in queue.next_step(0.0).rows}
    assert counts == {"p0": 40, "p1": 2}


@pytest.mark.parametrize(("n_pastes", "n_filling"), [(1, 0), (2, 0), (3, 12)])
def test_a_long_prompt_does_not_keep_shorter_ones_from_a_slot_and_is_read_after_them(n_pastes, n_filling):
    """One or two do not even lengthen the step of the short one; where there are more, everybody's time counts."""
    queue = scheduler(costing(prompt_row_s=0.35 / 42.5))  # 42 prompt rows a step while nobody is being answered
    for i in range(n_pastes):
        queue.add(sequence(f"paste{i}", n_prompt=500))
    place_all(queue)
    queue.add(sequence("short", n_prompt=30, arrived_s=0.1))
    assert place_all(queue, now_s=0.1) == ["short"]
    counts = {s.request_id: n for s, n in queue.next_step(0.1).rows}
    assert counts.pop("short") == 30
    assert sum(counts.values()) == n_filling


def test_a_long_prompt_by_itself_is_read_in_short_steps_so_that_whoever_comes_does_not_wait():
    queue = scheduler(costing(prompt_row_s=0.002))
    queue.add(sequence("paste", n_prompt=500))
    place_all(queue)
    assert queue.next_step(0.0).n_prompt == 30  # 0.06 s


def test_a_long_prompt_in_mid_conversation_does_not_keep_newcomers_waiting():
    queue = scheduler(costing(prompt_row_s=0.005))
    queue.add(sequence("paste", n_prompt=500, in_conversation=True))
    place_all(queue)
    queue.add(sequence("new", n_prompt=30, arrived_s=0.1))
    assert place_all(queue, now_s=0.1) == ["new"]
    assert [s.request_id for s, _ in queue.next_step(0.1).rows] == ["new"]


def test_a_long_prompt_is_read_before_shorter_ones_once_it_waited_twice_its_reading_time():
    queue = scheduler(costing(prompt_row_s=0.005), starvation_limit_s=0.15)
    queue.add(sequence("paste", n_prompt=200))  # a second to read
    queue.add(sequence("short", n_prompt=30, arrived_s=2.0))
    place_all(queue, now_s=2.0)
    assert next(s.request_id for s, n in queue.next_step(2.1).rows if n == 30) == "short"
    counts = {s.request_id: n for s, n in queue.next_step(2.2).rows}
    assert counts == {"paste": 16, "short": 30}  # its own part of the step first


def test_a_persons_second_prompt_is_read_after_everybody_elses_first_however_long_it_waited():
    queue = scheduler(costing(prompt_row_s=0.35 / 50.5), n_slots=9)
    for i in range(3):
        queue.add(sequence(f"eve{i}", n_prompt=40, person="eve"))
        queue.place_next(0.0)
    queue.add(sequence("bob", n_prompt=40, arrived_s=9.0))
    assert place_all(queue, now_s=9.0) == ["bob"]
    assert {s.request_id: n for s, n in queue.next_step(9.0).rows} == {"eve0": 40, "bob": 10}


def test_people_in_mid_conversation_are_read_before_newcomers_with_shorter_prompts():
    queue = scheduler(costing(prompt_row_s=0.35 / 42.5))  # 42 prompt rows a step while nobody is being answered
    queue.add(sequence("newcomer", n_prompt=20))
    queue.add(sequence("another", n_prompt=30))
    place_all(queue)
    queue.add(sequence("talking", n_prompt=40, arrived_s=0.1, in_conversation=True))
    assert place_all(queue, now_s=0.1) == ["talking"]
    assert {s.request_id: n for s, n in queue.next_step(0.1).rows} == {"talking": 40, "newcomer": 2}


def test_whoever_has_several_requests_in_hand_is_as_much_more_patient():
    queue = scheduler(costing(prompt_row_s=0.005), starvation_limit_s=0.15)
    queue.add(sequence("paste", n_prompt=200, person="eve"))
    place_all(queue)
    queue.add(sequence("short", n_prompt=60, arrived_s=2.2))
    place_all(queue, now_s=2.2)
    assert {s.request_id: n for s, n in queue.next_step(2.2).rows} == {"paste": 16, "short": 54}
    queue.add(sequence("another", n_prompt=200, person="eve", arrived_s=2.2))
    assert place_all(queue, now_s=2.2) == []
    assert {s.request_id: n for s, n in queue.next_step(2.2).rows} == {"short": 60}


@pytest.mark.parametrize("n_long", [1, 2])
def test_a_long_prompt_that_has_waited_long_leaves_room_for_whoever_comes(n_long):
    queue = scheduler(costing(prompt_row_s=0.005), starvation_limit_s=0.15)
    for number in range(n_long):
        queue.add(sequence(f"paste{number}", n_prompt=600))
    place_all(queue)
    queue.add(sequence("short", n_prompt=30, arrived_s=20.0))
    assert place_all(queue, now_s=20.0) == ["short"]
    assert {s.request_id: n for s, n in queue.next_step(20.0).rows} == {"paste0": 16, "short": 30}


def test_beside_answers_a_long_prompt_still_gets_its_part_of_a_step():
    queue = scheduler(costing(decode_s=0.07, prompt_row_s=0.002))
    for number in range(3):
        answering(queue, sequence(f"answered{number}", person=f"p{number}"))
    queue.add(sequence("paste", n_prompt=500))
    place_all(queue)
    assert queue.next_step(0.0).n_prompt > 30  # 0.06 s, or five answers' time, on top of what the answers take


def waiting_for_a_slot_behind_a_paste(person: str) -> Scheduler:
    """One answer and one long prompt take both slots; somebody waits."""
    queue = scheduler(costing(decode_s=0.1, prompt_row_s=0.005), n_slots=2)
    answering(queue, sequence("answered", person="ann"))
    queue.add(sequence("paste", n_prompt=500, person="eve"))
    place_all(queue)
    queue.add(sequence("next", person=person))
    return queue


def test_a_long_prompt_takes_one_row_while_somebody_without_a_share_waits_for_a_slot():
    assert waiting_for_a_slot_behind_a_paste("bob").next_step(0.0).n_prompt == 1


@pytest.mark.parametrize(("person", "now_s"), [("eve", 0.0), ("bob", 9.0)])
def test_it_takes_its_full_part_when_nobody_else_waits_or_it_has_waited_long(person, now_s):
    assert waiting_for_a_slot_behind_a_paste(person).next_step(now_s).n_prompt > 30


def test_a_shared_system_prompt_is_computed_by_one_while_the_others_wait_for_it():
    queue = scheduler()
    system = tuple(range(8))
    for i in range(3):
        queue.add(sequence(f"p{i}", shared_ids=system, arrived_s=i / 100))
    leader = queue.place_next(0.0)
    assert leader is not None
    leader.computes_shared = True
    assert queue.place_next(0.0) is None
    assert [(s.request_id, n) for s, n in queue.next_step(0.0).rows] == [("p0", len(system))]
    leader.n_past, leader.computes_shared = len(system), False
    assert place_all(queue) == ["p1", "p2"]


def test_other_system_prompts_and_parked_conversations_do_not_wait_for_it():
    queue = scheduler()
    system = tuple(range(8))
    queue.add(sequence("leader", shared_ids=system))
    leader = queue.place_next(0.0)
    assert leader is not None
    leader.computes_shared = True
    queue.add(sequence("parked", shared_ids=system, n_reusable=9))
    queue.add(sequence("other", shared_ids=(99, 98)))
    assert sorted(place_all(queue)) == ["other", "parked"]


def test_the_hole_of_one_who_leaves_is_filled_by_the_last():
    queue = scheduler(n_slots=3)
    for i in range(3):
        queue.add(sequence(f"p{i}", arrived_s=i / 100))
    place_all(queue)
    first, last = queue.running[0], queue.running[2]
    assert queue.remove(first) == (2, 0)
    assert last.slot == 0
    assert first.slot is None
    assert queue.remove(queue.running[1]) is None


@pytest.mark.parametrize("now_s", [0.0, 0.004])
def test_the_batching_window_is_for_an_idle_engine_only(now_s):
    queue = scheduler(max_wait_s=0.01, min_batch_size=2)
    assert queue.window_s(now_s) == 0.0
    queue.add(sequence("p0"))
    assert queue.window_s(now_s) == pytest.approx(0.01 - now_s)
    queue.place_next(now_s)
    queue.add(sequence("p1"))
    assert queue.window_s(now_s) == 0.0


def full_of_eve(n_slots: int = 3) -> Scheduler:
    """All slots taken by one person."""
    queue = scheduler(n_slots=n_slots)
    for i in range(n_slots):
        queue.add(sequence(f"eve{i}", person="eve", arrived_s=i / 100))
    place_all(queue)
    return queue


def test_a_person_without_a_share_gets_the_newest_slot_of_whoever_has_most():
    queue = full_of_eve()
    queue.add(sequence("bob", arrived_s=1.0))
    victim = queue.to_preempt(1.0)
    assert victim is not None
    assert victim.request_id == "eve2"
    queue.preempt(victim)
    assert place_all(queue, now_s=1.0) == ["bob"]
    assert queue.to_preempt(1.0) is None, "whoever was set aside sets nobody aside"
    assert names(queue.waiting) == ["eve2"]


def test_nobody_is_set_aside_while_a_slot_is_free_or_for_somebody_who_has_one():
    queue = full_of_eve()
    queue.add(sequence("eve9", person="eve"))
    assert queue.to_preempt(9.0) is None
    queue.remove(queue.running[0])
    queue.add(sequence("bob"))
    assert queue.to_preempt(9.0) is None


def test_nobodys_only_answer_is_set_aside():
    queue = scheduler(n_slots=3)
    for i in range(3):
        queue.add(sequence(f"p{i}"))
    place_all(queue)
    queue.add(sequence("bob"))
    assert queue.to_preempt(9.0) is None
