"""Runs what is compared in turn, so that a noisy minute meets all of it."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

T = TypeVar("T")


async def interleaved(
    n_repeats: int,
    variants: Mapping[str, Callable[[], Awaitable[T]]],
    before_each: Callable[[], None] | None = None,
) -> dict[str, list[T]]:
    """One value a repeat of every variant. Each repeat begins with another one: whoever is first has a cooler CPU.

    Args:
        before_each: called before a repeat, to draw what all of its variants are to share.
    """
    found: dict[str, list[T]] = {name: [] for name in variants}
    names = list(variants)
    for repeat in range(n_repeats):
        if before_each is not None:
            before_each()
        at = repeat % len(names)
        for name in names[at:] + names[:at]:
            progress(f"repeat {repeat + 1} of {n_repeats}: {name}")
            found[name].append(await variants[name]())
    return found


def progress(text: str) -> None:
    """What is being done, for whoever waits at the terminal."""
    print(f"  {text}", file=sys.stderr, flush=True)
