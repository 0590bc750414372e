"""Which numbers of rows this computer's kernels are slow with.

The repacked kernels take rows in groups of four and the rest one by one, so that three single rows can cost more than a
full group (measured: 15 rows 105 ms, 16 rows 80 ms). Whether they do depends on the processor and the file.
"""

from __future__ import annotations

from collections.abc import Callable

from appliance.engine.backend import Backend, Rows

ROW_GROUP = 4
_MAX_GROUPS = 4
_MIN_GROUPS = 3
_REPEATS = 2
_WORTH_IT = 0.97
"""A full group must be at least this much faster, or noise would decide."""


def slow_remainders(backend: Backend, n_slots: int, clock: Callable[[], float]) -> frozenset[int]:
    """Remainders (rows modulo 4) for which a step gets faster when it is filled up to the next full group."""
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
    return frozenset(r for r in range(1, ROW_GROUP) if full_s < _WORTH_IT * step_s(full - ROW_GROUP + r))
