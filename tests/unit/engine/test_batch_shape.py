"""Which steps are filled up: those that were measured to gain by it, and never a single answer's."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from appliance.engine.backend import Rows
from appliance.engine.batch_shape import slow_remainders
from appliance.engine.echo_backend import EchoBackend
from tests.unit.engine.scripted import Bench


class TimedBackend(EchoBackend):
    """Takes as long as a computer would that is fast with whole groups of four, from some number of rows on."""

    def __init__(self, n_slots: int, cost_s: Callable[[int], float]) -> None:
        super().__init__(n_slots, 0.0)
        self.now_s = 0.0
        self._cost_s = cost_s

    def decode(self, batch: Sequence[Rows]):
        self.now_s += self._cost_s(len(batch))
        return super().decode(batch)


def as_measured(n_rows: int) -> float:
    """A real processor's times, s: docs/engine.md."""
    return {9: 0.069, 10: 0.078, 11: 0.087, 12: 0.074, 13: 0.089, 14: 0.097, 15: 0.104, 16: 0.078}[n_rows]


@pytest.mark.parametrize(
    ("n_slots", "slow"), [(32, {13, 14, 15}), (16, {13, 14, 15}), (12, {10, 11}), (8, set()), (1, set())]
)
def test_only_counts_that_are_slower_than_the_full_batch_are_filled_up(n_slots, slow):
    backend = TimedBackend(n_slots, as_measured)
    assert slow_remainders(backend, n_slots, lambda: backend.now_s) == slow
    assert [backend.held(slot) for slot in range(n_slots)] == [[]] * n_slots


def test_nothing_is_filled_up_where_more_rows_take_longer():
    backend = TimedBackend(16, lambda n_rows: 0.005 * n_rows)
    assert slow_remainders(backend, 16, lambda: backend.now_s) == frozenset()


@pytest.mark.parametrize(
    ("n_answers", "n_rows"), [(1, 1), (5, 5), (9, 9), (13, 16), (15, 16), (16, 16), (17, 17), (29, 32)]
)
def test_a_single_answer_is_never_filled_up_because_a_batch_is(n_answers, n_rows):
    bench = Bench(n_slots=32, padded_remainders=frozenset({13, 14, 15}))
    bench.row_s = 0.0
    for i in range(n_answers):
        bench.ask(f"r{i}", f"{i} hello hello")
    bench.step(4)
    assert len(bench.backend.batches[-1]) == n_rows
