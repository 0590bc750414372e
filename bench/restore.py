"""Getting a parked conversation back, from RAM and from disk, against computing it again. Straight on the backend."""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from appliance.engine.backend import N_BATCH, Logits, Rows
from appliance.engine.config import EngineConfig
from appliance.engine.llama_backend import LlamaBackend
from appliance.engine.parked_disk import DiskShelf
from appliance.engine.prefix_cache import KvState, Owner, PrefixCache
from appliance.engine.sampler import TokenSampler, sample
from bench.command import Bench
from bench.interleave import progress
from bench.results import Findings, Row
from bench.stats import Target

_N_NEW = 20
"""Tokens of the next question."""
_OWNER = Owner.of("somebody", "a conversation")
_ROOM_BYTES = 2**30
_TTL_S = 3600.0
_COMPUTED, _RESTORED = 0, 1


@dataclass(frozen=True)
class _Times:
    """Seconds of one repeat."""

    compute: float
    compute_first: float
    """With the new question, to its first token."""
    save: float
    ram: float
    ram_first: float
    disk: float
    disk_first: float
    n_bytes: int


def measure_restore(bench: Bench) -> Findings:
    """Restore and recompute in turn, with new tokens every time."""
    n_tokens: int = bench.options.restored
    random = np.random.default_rng(bench.seed)
    config = EngineConfig(model_path=bench.model, n_slots=2, n_ctx_seq=n_tokens + 2 * _N_NEW, n_threads=bench.n_threads)
    backend = LlamaBackend(config)
    times: list[_Times] = []
    try:
        for repeat in range(bench.n_repeats):
            progress(f"repeat {repeat + 1} of {bench.n_repeats}")
            ids = random.integers(0, 10_000, n_tokens + _N_NEW).tolist()
            times.append(_once(backend, ids[:n_tokens], ids[n_tokens:]))
    finally:
        backend.close()
    again = "computing it again"

    def ms(name: str) -> list[float]:
        return [1000 * getattr(one, name) for one in times]

    rows = (
        Row.compared(
            f"{n_tokens} tokens from RAM",
            "ms",
            ms("ram"),
            again,
            ms("compute"),
            Target(at_most=0.002),
        ),
        Row.compared(
            f"{n_tokens} tokens from disk",
            "ms",
            ms("disk"),
            again,
            ms("compute"),
            Target(at_most=0.01),
        ),
        Row.compared(
            f"from RAM to the first token after {_N_NEW} new ones",
            "ms",
            ms("ram_first"),
            again,
            ms("compute_first"),
            Target(at_most=0.05),
        ),
        Row.compared(
            f"from disk to the first token after {_N_NEW} new ones",
            "ms",
            ms("disk_first"),
            again,
            ms("compute_first"),
            Target(at_most=0.05),
        ),
        Row.figure("reading it out of the cells", "ms", ms("save")),
        Row.figure("its size", "MB", [t.n_bytes / 2**20 for t in times]),
    )
    return Findings(rows, part="restore", notes=("The file is in the system's cache: it was written a moment before.",))


def _once(backend: LlamaBackend, ids: list[int], new_ids: list[int]) -> _Times:
    began_s = time.perf_counter()
    _evaluate(backend, _COMPUTED, 0, ids)
    compute_s = time.perf_counter() - began_s
    began_s = time.perf_counter()
    data = backend.save(_COMPUTED)
    save_s = time.perf_counter() - began_s
    first_s = _first_token_s(backend, _COMPUTED, len(ids), new_ids)
    backend.truncate(_COMPUTED, 0)

    in_ram = PrefixCache(ram_bytes=_ROOM_BYTES, ttl_s=_TTL_S, shelf=None, wall_clock=time.time)
    in_ram.park(_OWNER, ids, data)
    ram_s, ram_first_s = _restored(backend, in_ram, new_ids)

    with tempfile.TemporaryDirectory(prefix="office-chat-bench-") as folder:
        shelf = DiskShelf(Path(folder), backend.fingerprint, limit_bytes=_ROOM_BYTES)
        leaving = PrefixCache(ram_bytes=0, ttl_s=_TTL_S, shelf=shelf, wall_clock=time.time)
        leaving.park(_OWNER, ids, data)
        leaving.close()  # waits until it is written
        shelf = DiskShelf(Path(folder), backend.fingerprint, limit_bytes=_ROOM_BYTES)
        on_disk = PrefixCache(ram_bytes=_ROOM_BYTES, ttl_s=_TTL_S, shelf=shelf, wall_clock=time.time)
        disk_s, disk_first_s = _restored(backend, on_disk, new_ids)
        on_disk.close()
    return _Times(compute_s, compute_s + first_s, save_s, ram_s, ram_first_s, disk_s, disk_first_s, data.nbytes)


def _restored(backend: LlamaBackend, cache: PrefixCache, new_ids: list[int]) -> tuple[float, float]:
    """Seconds until the state is in its cells, and until the first token of the next answer."""
    began_s = time.perf_counter()
    state: KvState | None = cache.take(_OWNER)
    if state is None or not backend.restore(_RESTORED, state.data, state.token_ids.tolist()):
        raise RuntimeError("the parked conversation did not come back")
    restored_s = time.perf_counter() - began_s
    first_s = _first_token_s(backend, _RESTORED, len(state.token_ids), new_ids)
    backend.truncate(_RESTORED, 0)
    return restored_s, restored_s + first_s


def _first_token_s(backend: LlamaBackend, slot: int, n_past: int, new_ids: list[int]) -> float:
    began_s = time.perf_counter()
    logits = _evaluate(backend, slot, n_past, new_ids)
    sample([TokenSampler(backend.sampling)], logits)
    return time.perf_counter() - began_s


def _evaluate(backend: LlamaBackend, slot: int, n_past: int, ids: list[int]) -> Logits:
    logits = None
    for at in range(0, len(ids), N_BATCH):
        part = ids[at : at + N_BATCH]
        logits = backend.decode([Rows(slot, n_past + at, part, wants_logits=at + len(part) == len(ids))])
    assert logits is not None  # there is at least one token
    return logits
