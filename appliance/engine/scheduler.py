"""Who is computed next: waiting requests to slots, and the rows of every step.

Pure: no model, no clock, no input or output. Slots are kept dense (0 .. n_running - 1), because llama.cpp splits a
batch wherever the slot numbers have a hole and then reads all weights once more.
"""

from __future__ import annotations

from dataclasses import dataclass

from appliance.engine.sequence import Sequence


@dataclass(frozen=True)
class Step:
    """What one step evaluates: for each sequence, in the order of the slots, how many of its pending tokens."""

    rows: tuple[tuple[Sequence, int], ...]


class Scheduler:
    """Mutable, owned by the engine's thread. `running[i]` sits in slot i."""

    def __init__(
        self, *, n_slots: int, prefill_chunk: int, n_batch: int, max_wait_s: float, min_batch_size: int
    ) -> None:
        self._n_slots = n_slots
        self._prefill_chunk = prefill_chunk
        self._n_batch = n_batch
        self._max_wait_s = max_wait_s
        self._min_batch_size = min_batch_size
        self.waiting: list[Sequence] = []
        self.running: list[Sequence] = []

    def add(self, sequence: Sequence) -> None:
        """Put a new request at the end of the waiting list."""
        self.waiting.append(sequence)

    def wait_s(self, now_s: float) -> float:
        """How long an idle engine still waits for company for the first request; never once a batch is running."""
        if self.running or not self.waiting or len(self.waiting) >= self._min_batch_size:
            return 0.0
        return max(0.0, self.waiting[0].arrived_s + self._max_wait_s - now_s)

    def admit(self) -> list[Sequence]:
        """Move waiting requests into free slots; returns the newly placed ones."""
        placed = self.waiting[: self._n_slots - len(self.running)]
        del self.waiting[: len(placed)]
        for sequence in placed:
            sequence.slot = len(self.running)
            self.running.append(sequence)
        return placed

    def next_step(self) -> Step:
        """One token for everybody being answered, then prompt tokens of the others within the chunk, oldest first.

        The first prompt token goes in with the decoding rows, so the chunk is bounded in all, not for each.
        """
        decoding = sum(not s.is_prefilling for s in self.running)
        budget = min(self._prefill_chunk, self._n_batch - decoding) if decoding else self._n_batch
        counts: dict[Sequence, int] = {}
        for sequence in sorted((s for s in self.running if s.is_prefilling), key=_arrival):
            counts[sequence] = min(sequence.n_pending, budget)
            budget -= counts[sequence]
        rows = ((s, counts.get(s, 1)) for s in self.running)
        return Step(tuple((s, n) for s, n in rows if n > 0))

    def remove(self, sequence: Sequence) -> tuple[int, int] | None:
        """Take a request out of the lists; returns the (source, target) move that closes the hole it leaves."""
        if sequence in self.waiting:
            self.waiting.remove(sequence)
            return None
        hole, sequence.slot = sequence.slot, None
        assert hole is not None  # running sequences have a slot
        last = self.running.pop()
        if last is sequence:
            return None
        source, last.slot = last.slot, hole
        self.running[hole] = last
        assert source is not None
        return source, hole


def _arrival(sequence: Sequence) -> float:
    return sequence.arrived_s
