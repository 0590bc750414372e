"""Which numbers of rows this computer's kernels are slow with.

The repacked kernels take rows in groups of four and the rest one by one, and sixteen at a time best of all: 13, 14, 15
and 16 rows take 89, 97, 104 and 78 ms. Whether they do depends on the processor and the file. With few rows it is the
other way round, 1 row 15 ms and 4 rows 35 ms: a single answer must never be filled up because fifteen should be.
"""

from __future__ import annotations

from collections.abc import Callable

from appliance.engine.backend import Backend, Rows

ROW_GROUP = 4
BATCH = 16
"""What holds for 13 rows is taken to hold for 29, and never for 1, 5 or 9."""
_MAX_GROUPS = 4
_MIN_GROUPS = 3
_REPEATS = 2
_WORTH_IT = 0.97
"""A full group must be at least this much faster, or noise would decide."""


def slow_remainders(backend: Backend, n_slots: int, clock: Callable[[], float]) -> frozenset[int]:
    """Remainders (rows modulo BATCH) for which a step gets faster when it is filled up to the next full group."""
    full = min(_MAX_GROUPS, n_slots // ROW_GROUP) * ROW_GROUP
    if full < _MIN_GROUPS * ROW_GROUP:
        return frozenset()
    token_ids = backend.vocabulary.tokenize("\n", markers=False)[:1]

    def step_s(n_rows: int) -> float:
        times = []
        for _ in range(_REPEATS):
            started_s = clock()
            backend.decode([Rows(slot, 0, token_ids, wants_logits=True) for slot in range(n_rows)])
            times.append(clock() - started_s)
            for slot in range(n_rows):
                backend.truncate(slot, 0)
        return min(times)

    full_s = step_s(full)
    return frozenset(n for n in range(full - ROW_GROUP + 1, full) if full_s < _WORTH_IT * step_s(n))
