"""How long a usual answer takes with other numbers of threads: one load of the model, the numbers in turns."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from appliance.engine.backend import Rows
from appliance.engine.config import USUAL_ANSWER_TOKENS, USUAL_PROMPT_TOKENS, EngineConfig
from appliance.engine.llama_backend import LlamaBackend

_N_READ = 64
_N_STEPS = 6
_N_ROUNDS = 5
_LEAST_ROUNDS = 3
_LONGEST_S = 15.0
"""No further round is begun after that, where the least number of them is through."""


def measure_threads(
    config: EngineConfig, counts: Sequence[int], clock: Callable[[], float] = time.perf_counter
) -> dict[int, tuple[float, ...]]:
    """Seconds of the engine for a usual answer with every slot at work, one a round, for each number of threads.

    Raises ModelFileError when the file does not load, DecodeFailed or NoRoom.
    """
    backend = LlamaBackend(config)
    try:
        ids = backend.vocabulary.tokenize("\n" * 8, markers=False)[:1] or [0]
        found: dict[int, list[float]] = {count: [] for count in counts}
        began_s = clock()
        for number in range(_N_ROUNDS):
            if number >= _LEAST_ROUNDS and clock() - began_s > _LONGEST_S:
                break
            for count in counts if number % 2 == 0 else reversed(counts):  # whatever else goes on meets all of them
                backend.use_threads(count)
                found[count].append(_answer_s(backend, config.n_slots, ids[0], clock))
        return {count: tuple(times) for count, times in found.items()}
    finally:
        backend.close()


def _answer_s(backend: LlamaBackend, n_slots: int, token_id: int, clock: Callable[[], float]) -> float:
    """With the present number of threads. Leaves every slot empty."""

    def step_s(position: int, n_tokens: int, slots: Sequence[int]) -> float:
        batch = [Rows(slot, position, [token_id] * n_tokens, wants_logits=True) for slot in slots]
        began_s = clock()
        backend.decode(batch)
        return clock() - began_s

    slots = range(n_slots)
    step_s(0, 1, slots)  # new threads are started here, and not in what is measured
    read_s = step_s(1, _N_READ, slots[:1])
    backend.truncate(0, 1)
    steps_s = sorted(step_s(1 + number, 1, slots) for number in range(_N_STEPS))
    for slot in slots:
        backend.truncate(slot, 0)
    return USUAL_PROMPT_TOKENS * read_s / _N_READ + USUAL_ANSWER_TOKENS * steps_s[_N_STEPS // 2] / n_slots
