"""What the engine tests share: an echo backend that is watched and fails on demand, and a clock set by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from appliance.engine.backend import Logits, Rows
from appliance.engine.config import EngineConfig
from appliance.engine.core import BatchEngine
from appliance.engine.echo_backend import EchoBackend
from appliance.engine.prefix_cache import PrefixCache
from appliance.engine.request import Delta, Finished, Message, Request, SamplingParams, Update


class FakeClock:
    """Seconds that pass only when a test says so."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


class WatchedEcho(EchoBackend):
    """Echo that keeps every batch it was given and can fail in the next one.

    `fail_next` raises before anything is evaluated (as NoRoom does); `break_next` leaves every slot of the batch
    in an unknown state first, as a real evaluation that failed half-way does.
    """

    def __init__(self, n_slots: int) -> None:
        super().__init__(n_slots)
        self.batches: list[tuple[Rows, ...]] = []
        self.fail_next: Exception | None = None
        self.break_next: Exception | None = None
        self.on_decode: Callable[[Sequence[Rows]], None] | None = None
        self.before_decode: Callable[[Sequence[Rows]], None] | None = None

    def decode(self, batch: Sequence[Rows]) -> Logits:
        if self.on_decode is not None:
            self.on_decode(batch)
        if self.before_decode is not None:
            self.before_decode(batch)
        if self.fail_next is not None:
            failure, self.fail_next = self.fail_next, None
            raise failure
        if self.break_next is not None:
            failure, self.break_next = self.break_next, None
            for rows in batch:
                self._held[rows.slot] += [255] * 3
            raise failure
        self.batches.append(tuple(Rows(r.slot, r.first_position, tuple(r.token_ids), r.wants_logits) for r in batch))
        return super().decode(batch)


class Bench:
    """An engine over WatchedEcho with the log of everything it said. A step takes time by the number of its rows."""

    step_s = 0.02
    row_s = 0.0005

    def __init__(
        self,
        backend: WatchedEcho | None = None,
        *,
        reuses: bool = False,
        cache: PrefixCache | None = None,
        clock: FakeClock | None = None,
        padded_remainders: frozenset[int] = frozenset(),
        **config: object,
    ) -> None:
        """`reuses` keeps KV state for the next turn, `cache` in one of the caller's; the rest is EngineConfig's."""
        self.config = EngineConfig(**({"backend": "echo", "n_slots": 4} | config))  # type: ignore[arg-type]
        self.backend = backend if backend is not None else WatchedEcho(self.config.n_slots)
        self.backend.on_decode = self._let_time_pass
        self.clock = clock if clock is not None else FakeClock()
        self.cache = cache
        if reuses and cache is None:
            self.cache = PrefixCache(ram_bytes=100_000, ttl_s=1e6, shelf=None, wall_clock=self.clock)
        self.engine = BatchEngine(self.backend, self.config, self.clock, self.cache, padded_remainders)
        self.updates: dict[str, list[Update]] = {}
        self.n_steps = 0

    def _let_time_pass(self, batch: Sequence[Rows]) -> None:
        self.clock.now_s += self.step_s + self.row_s * sum(len(rows.token_ids) for rows in batch)

    def ask(
        self,
        request_id: str,
        text: str,
        max_tokens: int = 256,
        *,
        stop: tuple[str, ...] = (),
        sampling: SamplingParams | None = None,
        refuse_long_input: bool = False,
    ) -> None:
        self.submit(
            Request(
                request_id,
                (Message("user", text),),
                max_tokens,
                sampling or SamplingParams(),
                stop,
                refuse_long_input=refuse_long_input,
            )
        )

    def submit(self, request: Request) -> None:
        self.clock.now_s += 0.001
        self._note(self.engine.submit(request))

    def abort(self, request_id: str) -> None:
        self._note(self.engine.abort(request_id))

    def step(self, n: int = 1) -> None:
        for _ in range(n):
            self.n_steps += 1
            self._note(self.engine.step())

    def finish(self, n_steps: int = 2_000) -> None:
        """Step until nothing is left to do."""
        for _ in range(n_steps):
            if self.engine.has_work:
                self.step()
        assert not self.engine.has_work, f"still at work after {n_steps} steps"

    def text(self, request_id: str) -> str:
        return "".join(u.text for u in self.updates.get(request_id, ()) if isinstance(u, Delta))

    def token_ids(self, request_id: str) -> list[int]:
        return [i for u in self.updates.get(request_id, ()) if isinstance(u, Delta) for i in u.token_ids]

    def end(self, request_id: str) -> Finished | None:
        """How it ended; None while it runs. Fails where something follows the end, or it ended twice."""
        updates = self.updates.get(request_id, [])
        ends = [u for u in updates if isinstance(u, Finished)]
        assert len(ends) <= 1, f"{request_id} ended {len(ends)} times"
        assert not ends or updates[-1] is ends[0], f"{request_id} went on after its end"
        return ends[0] if ends else None

    def _note(self, updates: Iterable[tuple[str, Update]]) -> None:
        for request_id, update in updates:
            self.updates.setdefault(request_id, []).append(update)
