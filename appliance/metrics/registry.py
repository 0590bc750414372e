"""Counters and timings for the owner: what /metrics says and the admin page will show.

Nothing here names a person or holds a word of a conversation, and every label has few values. What changes all the time
(slots, memory, processor time) is read when somebody looks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from appliance.engine.request import Finished, FinishReason
from appliance.metrics.health import ProcessUse

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
PREFIX = "office_chat_"

_TTFT_S = (0.02, 0.05, 0.1, 0.25, 0.5, 1, 2, 3, 5, 10, 20, 40, 90, 180)
_WAIT_S = (0.1, 0.25, 0.5, 1, 2, 5, 10, 20, 40, 90, 180)
_TPOT_S = (0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.15, 0.2, 0.3, 0.5, 1, 2)
_N_RECENT = 200
"""Answers the quantiles of a snapshot are taken from."""
_N_CODES = 40
"""Codes of errors are names in our own source; should one ever not be, the rest is counted together."""
_RATE_S = 10.0
"""The speed of a snapshot is that of so many seconds."""


@dataclass(frozen=True)
class Situation:
    """What is true of the program at this moment."""

    is_ready: bool = False
    n_slots: int = 0
    n_slots_used: int = 0
    n_waiting: int = 0
    """Questions without a slot: in the page's queue, before the engine, at the engine."""
    n_places: int = 0
    n_places_taken: int = 0
    n_conversations: int = 0
    n_decoded_total: int = 0
    """Tokens generated since the program started."""
    n_engine_restarts: int = 0
    wait_s: float = 0.0
    """What somebody who asks now is expected to wait."""
    level: int = 0
    n_level_moves: int = 0
    uptime_s: float = 0.0
    web: ProcessUse = field(default_factory=ProcessUse)
    engine: ProcessUse = field(default_factory=ProcessUse)


@dataclass(frozen=True)
class Snapshot:
    """The same for a reader inside the program, with what was counted."""

    now: Situation
    n_answers: int
    n_answers_without_model: int
    """Of these, the ones nothing had to be computed for."""
    n_prompt_tokens: int
    n_prompt_tokens_reused: int
    n_errors: int
    tokens_per_s: float
    ttft_p50_s: float | None
    """Of the last 200 answers, as the next; None where there is none."""
    ttft_p99_s: float | None

    @property
    def prefix_hit_rate(self) -> float:
        """Share of all prompt tokens that did not have to be computed."""
        return self.n_prompt_tokens_reused / self.n_prompt_tokens if self.n_prompt_tokens else 0.0

    @property
    def answer_hit_rate(self) -> float:
        """Share of all answers for which the model did not write anew."""
        return self.n_answers_without_model / self.n_answers if self.n_answers else 0.0


class Metrics:
    """Owned by the event loop's thread; what it keeps does not grow."""

    def __init__(self, clock: Callable[[], float], look: Callable[[], Situation]) -> None:
        """`look` is asked at every reading. The clock is in seconds."""
        disable_created_metrics()  # type: ignore[no-untyped-call]  # the library's own extra series for every counter, of no use here
        self.registry = CollectorRegistry()
        self._clock = clock
        self._look = look
        self._ttfts: deque[float] = deque(maxlen=_N_RECENT)
        self._decoded: deque[tuple[float, int]] = deque()
        self._codes: set[str] = set()
        self._n_answers = self._n_without_model = self._n_errors = 0
        self._n_prompt = self._n_reused = 0

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(PREFIX + name, text, labels, registry=self.registry)

        self._ratings = Gauge(
            PREFIX + "ratings", "Thumbs that stand, by good and bad", ["verdict"], registry=self.registry
        )

        def histogram(name: str, text: str, buckets: Iterable[float], *labels: str) -> Histogram:
            return Histogram(PREFIX + name, text, labels, buckets=tuple(buckets), registry=self.registry)

        self._ttft = histogram(
            "ttft_server_seconds", "From taking a question to the first text of its answer", _TTFT_S, "origin"
        )
        self._wait = histogram("queue_wait_seconds", "From taking a question until its prompt is read", _WAIT_S)
        self._tpot = histogram("tpot_seconds", "Time per token of an answer after its first", _TPOT_S)
        self._answers = counter("answers", "Answers that ended", "origin", "end")
        self._errors = counter("errors", "Questions refused and answers that failed", "code")
        self._prompt = counter("prompt_tokens", "Tokens of all prompts")
        self._reused = counter("prompt_tokens_reused", "Of these, the ones whose KV state was kept from before")
        self.registry.register(_Now(self))

    # -- what happens ----------------------------------------------------------------------------------------

    def answered(self, origin: str, end: FinishReason, error: str, ttft_s: float | None, *, by_model: bool) -> None:
        """An answer is over for one reader. `by_model`: the model wrote it for this reader."""
        self._answers.labels(origin, end.value).inc()
        self._n_answers += 1
        self._n_without_model += not by_model
        if ttft_s is not None:
            self._ttft.labels(origin).observe(ttft_s)
            self._ttfts.append(ttft_s)
        if end is FinishReason.ERROR:
            self.refused(error)

    def waited(self, seconds: float) -> None:
        """A question for the model has got its slot."""
        self._wait.observe(seconds)

    def generated(self, finished: Finished) -> None:
        """The engine is done with a request, however many read it."""
        self._prompt.inc(finished.n_prompt)
        self._reused.inc(finished.n_cached)
        self._n_prompt += finished.n_prompt
        self._n_reused += finished.n_cached
        if finished.n_decoded > 1 and finished.timings.decode_s > 0:
            self._tpot.observe(finished.timings.decode_s / (finished.n_decoded - 1))

    def rated(self, verdict: str, n: int) -> None:
        """A thumb up or down was given (1) or taken back (-1)."""
        self._ratings.labels(verdict).inc(n)

    def refused(self, code: str) -> None:
        """A question was refused, or its answer failed."""
        if code not in self._codes:
            code = code if len(self._codes) < _N_CODES else "other"
            self._codes.add(code)
        self._errors.labels(code).inc()
        self._n_errors += 1

    def tick(self, n_decoded_total: int) -> None:
        """Now and then: how far the engine has come, for the speed."""
        now = self._clock()
        self._decoded.append((now, n_decoded_total))
        while now - self._decoded[0][0] > _RATE_S:
            self._decoded.popleft()

    # -- who looks -------------------------------------------------------------------------------------------

    def text(self) -> bytes:
        """Everything in Prometheus' text format."""
        return generate_latest(self.registry)

    def snapshot(self) -> Snapshot:
        """Everything that is true now, for a reader in this process."""
        ttfts = sorted(self._ttfts)
        return Snapshot(
            now=self._look(),
            n_answers=self._n_answers,
            n_answers_without_model=self._n_without_model,
            n_prompt_tokens=self._n_prompt,
            n_prompt_tokens_reused=self._n_reused,
            n_errors=self._n_errors,
            tokens_per_s=self._tokens_per_s(),
            ttft_p50_s=_quantile(ttfts, 0.5),
            ttft_p99_s=_quantile(ttfts, 0.99),
        )

    def _tokens_per_s(self) -> float:
        if len(self._decoded) < 2:
            return 0.0
        (began, before), (now, after) = self._decoded[0], self._decoded[-1]
        return (after - before) / (now - began) if now > began else 0.0


class _Now(Collector):
    """The values that are read when somebody looks."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        """Called by the registry at every reading."""
        snapshot = self._metrics.snapshot()
        now = snapshot.now
        gauges = (
            ("ready", "1 while a question can be answered", now.is_ready),
            ("slots", "Answers that can be written at the same time", now.n_slots),
            ("slots_used", "Answers being written", now.n_slots_used),
            ("waiting", "Questions without a slot", now.n_waiting),
            ("places", "Questions that may be in hand, waiting ones included", now.n_places),
            ("places_taken", "Questions in hand, waiting ones included", now.n_places_taken),
            ("conversations", "Conversations kept on the server", now.n_conversations),
            ("expected_wait_seconds", "What somebody who asks now is expected to wait", now.wait_s),
            (
                "pressure_rung",
                "0 normal, 1 short answers, 2 short history, 3 saved only, 4 busy",
                now.level,
            ),
            ("tokens_per_second", "Tokens generated a second, over the last ten seconds", snapshot.tokens_per_s),
            ("prefix_hit_rate", "Share of all prompt tokens that were reused", snapshot.prefix_hit_rate),
            ("answer_hit_rate", "Share of all answers the model did not write anew", snapshot.answer_hit_rate),
            ("uptime_seconds", "Since the program started", now.uptime_s),
        )
        for name, text, value in gauges:
            yield GaugeMetricFamily(PREFIX + name, text, value)
        yield CounterMetricFamily(PREFIX + "generated_tokens", "Tokens of all answers", now.n_decoded_total)
        yield CounterMetricFamily(PREFIX + "pressure_moves", "Levels climbed and left", now.n_level_moves)
        yield CounterMetricFamily(PREFIX + "engine_restarts", "Engines that ended by themselves", now.n_engine_restarts)
        memory = GaugeMetricFamily(PREFIX + "memory_bytes", "Resident memory", labels=["process"])
        cpu = CounterMetricFamily(PREFIX + "cpu_seconds", "Processor time of that process", labels=["process"])
        for process, use in (("web", now.web), ("engine", now.engine)):
            memory.add_metric([process], use.rss_bytes)
            cpu.add_metric([process], use.cpu_s)
        yield memory
        yield cpu


def _quantile(values: list[float], share: float) -> float | None:
    """Of sorted values."""
    return values[min(len(values) - 1, int(share * len(values)))] if values else None
