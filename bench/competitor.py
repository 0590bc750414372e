"""Another program that wants the processor, and how far it gets."""

from __future__ import annotations

import multiprocessing
import time
from types import TracebackType
from typing import Any

_SLICE_S = 0.05


class Competitor:
    """A process that computes for a share of the time, in turns of 50 ms."""

    def __init__(self, share: float = 1.0) -> None:
        context = multiprocessing.get_context("spawn")
        self._count: Any = context.Value("q", 0, lock=False)
        self._process = context.Process(target=_work, args=(self._count, share), daemon=True)

    def __enter__(self) -> Competitor:
        self._process.start()
        while not self.n_done:
            time.sleep(_SLICE_S)
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.join()

    @property
    def n_done(self) -> int:
        """Loops it got through so far."""
        return int(self._count.value)


def _work(count: Any, share: float) -> None:
    while True:
        end_s = time.perf_counter() + _SLICE_S * share
        while time.perf_counter() < end_s:
            for _ in range(1000):
                pass
            count.value += 1
        time.sleep(_SLICE_S * (1 - share))
