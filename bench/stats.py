"""Numbers of repeated runs: percentiles, medians with their spread, ratios of pairs, slopes."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which `share` (0 to 1) of `values` lie, interpolated between neighbours."""
    if not values:
        raise ValueError("a percentile of no values")
    ranked = sorted(values)
    at = share * (len(ranked) - 1)
    low = int(at)
    high = min(low + 1, len(ranked) - 1)
    return ranked[low] + (ranked[high] - ranked[low]) * (at - low)


def slope(xs: Sequence[float], ys: Sequence[float]) -> float:
    """Least squares: by how much y grows with one x."""
    return statistics.linear_regression(xs, ys).slope


@dataclass(frozen=True)
class Spread:
    """Median of the repeats, with the lowest and the highest of them."""

    median: float
    low: float
    high: float
    n: int
    values: tuple[float, ...] = field(default=(), compare=False)
    """One a repeat, so that later repeats can be added."""

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Of one value a repeat."""
        if not values:
            raise ValueError("the spread of no repeats")
        return cls(statistics.median(values), min(values), max(values), len(values), tuple(values))

    @classmethod
    def of_ratios(cls, ours: Sequence[float], theirs: Sequence[float]) -> Spread:
        """Of the ratios of values that were measured in the same repeat: what the machine did to both cancels out."""
        return cls.of([mine / other for mine, other in zip(ours, theirs, strict=True)])


@dataclass(frozen=True)
class Target:
    """What is to be reached."""

    at_most: float | None = None
    at_least: float | None = None

    def is_met(self, value: float) -> bool:
        """Whether the value is within both bounds."""
        return (self.at_most is None or value <= self.at_most) and (self.at_least is None or value >= self.at_least)

    def __str__(self) -> str:
        bounds = (("≤", self.at_most), ("≥", self.at_least))
        return " and ".join(f"{sign} {bound:g}" for sign, bound in bounds if bound is not None)
