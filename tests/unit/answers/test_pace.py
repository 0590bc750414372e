"""When a page is painted: first text at once, then at clauses, at the latest after a bound that grows with load."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.answers.pace import FASTEST_S, Pacer, latest_s, min_tokens


def painted_at(now: float = 0.0) -> Pacer:
    pacer = Pacer()
    pacer.painted(now)
    return pacer


@pytest.mark.parametrize(("n_streams", "seconds"), [(0, 0.3), (1, 0.3), (8, 0.3), (12, 0.45), (16, 0.6), (64, 0.6)])
def test_the_latest_moment_grows_from_8_to_16_streams(n_streams, seconds):
    assert latest_s(n_streams) == pytest.approx(seconds)


def test_nothing_pending_is_never_due():
    assert Pacer().due_in_s(0, 1) is None
    assert painted_at().due_in_s(99, 1) is None


def test_the_first_text_is_due_at_once():
    pacer = Pacer()
    pacer.add("H", 1)
    assert pacer.due_in_s(0, 16) == 0
    assert pacer.is_eager(16)


def test_text_without_a_clause_waits_for_the_latest_moment():
    pacer = painted_at()
    pacer.add("more words", 4)
    assert pacer.due_in_s(0.1, 1) == pytest.approx(0.2)
    assert pacer.due_in_s(0.35, 1) == 0


@pytest.mark.parametrize("mark", [",", "。", "，", "\n", "？", "…"])
def test_a_clause_is_due_as_soon_as_a_reader_may_be_sent_the_next(mark):
    pacer = painted_at()
    pacer.add(f"yes{mark}", 2)
    assert pacer.due_in_s(0.05, 1) == pytest.approx(FASTEST_S - 0.05)
    assert pacer.due_in_s(0.2, 1) == 0


def test_a_single_token_is_not_worth_a_repaint():
    pacer = painted_at()
    pacer.add(",", 1)
    assert not pacer.is_eager(1)
    assert pacer.due_in_s(0.2, 1) == pytest.approx(0.1)
    pacer.add("a", 1)
    assert pacer.is_eager(1)


def test_under_load_it_takes_three_tokens():
    assert (min_tokens(8), min_tokens(9)) == (2, 3)


def test_tokens_that_show_nothing_yet_are_not_painted():
    pacer = painted_at()
    pacer.add("", 1)
    assert pacer.due_in_s(5, 1) is None


@given(st.lists(st.tuples(st.floats(0.001, 0.2), st.sampled_from(["a", "b,", "。"])), max_size=200), st.integers(1, 30))
def test_no_reader_is_sent_more_than_ten_updates_a_second_nor_waits_past_the_bound(tokens, n_streams):
    pacer, now, paints, oldest = painted_at(), 0.0, [0.0], None
    for gap, text in tokens:
        now += gap
        due = pacer.due_in_s(now - gap, n_streams)
        if due is not None and due <= gap:  # the reader woke up in between
            moment = now - gap + due
            assert oldest is None or moment - oldest <= latest_s(n_streams) + 1e-9
            paints.append(moment)
            pacer.painted(moment)
            oldest = None
        pacer.add(text, 1)
        oldest = now if oldest is None else oldest
    assert all(later - earlier >= FASTEST_S - 1e-9 for earlier, later in pairwise(paints))
