"""How the program was doing during the last hour and the last day. Bounded, and without a word of anybody."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple, dataclass
from typing import Final

from appliance.metrics.registry import Snapshot

EVERY_S: Final = 10.0
N_SAMPLES: Final = 360
"""Of each span: an hour every ten seconds, a day every four minutes."""
N_TOGETHER: Final = 24
"""So many samples of the hour make one of the day."""


@dataclass(frozen=True)
class Sample:
    """What is drawn."""

    at_s: float
    """Unix time."""
    n_people: float
    n_running: float
    n_waiting: float
    tokens_per_s: float
    ttft_p50_s: float | None
    """As the next: None where no answer has ended since the sample before."""
    ttft_p99_s: float | None
    cpu_cores: float
    """Processor time of this program a second, all cores together."""
    memory_bytes: float


class History:
    """Owned by the event loop's thread; `take` is called every EVERY_S."""

    def __init__(
        self, look: Callable[[], Snapshot], people: Callable[[], int], wall_clock: Callable[[], float]
    ) -> None:
        self._look = look
        self._people = people
        self._wall_clock = wall_clock
        self._hour: deque[Sample] = deque(maxlen=N_SAMPLES)
        self._day: deque[Sample] = deque(maxlen=N_SAMPLES)
        self._n_taken = 0
        self._before: tuple[float, float, int] | None = None
        """Time, processor time and answers at the last sample."""

    @property
    def hour(self) -> Sequence[Sample]:
        """Oldest first."""
        return tuple(self._hour)

    @property
    def day(self) -> Sequence[Sample]:
        """Oldest first; what is not yet a whole sample of the day is left out."""
        return tuple(self._day)

    def dumped(self) -> str:
        """Everything, to be loaded after a restart."""
        return json.dumps({"hour": [astuple(s) for s in self._hour], "day": [astuple(s) for s in self._day]})

    def load(self, dumped: str) -> None:
        """Go on with what an earlier program has dumped, as far as it is not too old. What is no such thing is left."""
        now_s = self._wall_clock()
        try:
            stored = json.loads(dumped)
            spans = [[Sample(*values) for values in stored[name]] for name in ("hour", "day")]
            hour, day = (
                [sample for sample in samples if now_s - span_s <= sample.at_s <= now_s]
                for samples, span_s in zip(spans, (N_SAMPLES * EVERY_S, N_SAMPLES * EVERY_S * N_TOGETHER), strict=True)
            )
        except (ValueError, TypeError, KeyError):
            return
        self._hour.extend(hour)
        self._day.extend(day)

    def take(self) -> None:
        """Look, and keep what is seen."""
        snapshot, now_s = self._look(), self._wall_clock()
        now = snapshot.now
        cpu_s = now.web.cpu_s + now.engine.cpu_s
        before_s, cpu_before_s, n_before = self._before or (now_s, cpu_s, snapshot.n_answers)
        self._before = (now_s, cpu_s, snapshot.n_answers)
        passed_s = now_s - before_s
        has_answers = snapshot.n_answers > n_before
        self._hour.append(
            Sample(
                at_s=now_s,
                n_people=self._people(),
                n_running=now.n_slots_used,
                n_waiting=now.n_waiting,
                tokens_per_s=snapshot.tokens_per_s,
                ttft_p50_s=snapshot.ttft_p50_s if has_answers else None,
                ttft_p99_s=snapshot.ttft_p99_s if has_answers else None,
                # An engine that was started again counts from nothing; a clock may be set back.
                cpu_cores=max(0.0, cpu_s - cpu_before_s) / passed_s if passed_s > 0 else 0.0,
                memory_bytes=now.web.rss_bytes + now.engine.rss_bytes,
            )
        )
        self._n_taken += 1
        if self._n_taken % N_TOGETHER == 0:
            self._day.append(_together(list(self._hour)[-N_TOGETHER:]))


def _together(samples: Sequence[Sample]) -> Sample:
    """The busiest of counts and waits, the mean of what is used."""
    return Sample(
        at_s=samples[-1].at_s,
        n_people=max(sample.n_people for sample in samples),
        n_running=max(sample.n_running for sample in samples),
        n_waiting=max(sample.n_waiting for sample in samples),
        tokens_per_s=max(sample.tokens_per_s for sample in samples),
        ttft_p50_s=_latest(sample.ttft_p50_s for sample in samples),
        ttft_p99_s=_latest(sample.ttft_p99_s for sample in samples),
        cpu_cores=sum(sample.cpu_cores for sample in samples) / len(samples),
        memory_bytes=sum(sample.memory_bytes for sample in samples) / len(samples),
    )


def _latest(values: Iterable[float | None]) -> float | None:
    return next((value for value in reversed(list(values)) if value is not None), None)
