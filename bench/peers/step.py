"""Where the time of a step goes: llama.cpp, drawing tokens, bytes to text, the way to the web process, all the rest."""

from __future__ import annotations

import argparse
import functools
import multiprocessing
import os
import time
from collections import defaultdict
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, Final

from appliance.engine.config import EngineConfig
from appliance.engine.request import Delta, Message, Request
from appliance.engine.wire import Report
from bench.command import Bench
from bench.interleave import progress
from bench.questions import SYSTEM_PROMPT, Questions
from bench.results import Findings, Row

NAME = "step"
HELP = "where the time of one step of running answers goes"

LLAMA: Final = "llama.cpp"
SAMPLER: Final = "drawing the tokens"
TEXT: Final = "bytes to text"
PIPE: Final = "to the web process"
REST: Final = "everything else"
PARTS: Final = (LLAMA, SAMPLER, TEXT, PIPE, REST)
_WARM_STEPS = 4
_N_CTX = 1024


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """How many answers, how many steps."""
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 8, 16, 32], help="answers at the same time")
    parser.add_argument("--steps", type=int, default=24, help="looked at, of every number (default: %(default)s)")


def run(bench: Bench) -> Findings:
    """Measure, in a process like the engine's: OpenMP reads its environment once."""
    counts: list[int] = sorted(bench.options.streams)
    found: dict[int, list[dict[str, float]]] = {n: [] for n in counts}
    for repeat in range(bench.n_repeats):
        for n in counts:
            progress(f"repeat {repeat + 1} of {bench.n_repeats}: {n} streams")
            found[n].append(_profile(bench, n, bench.seed + repeat))
    rows = []
    for n in counts:
        whole = [sum(times.values()) for times in found[n]]
        name = f"{n} stream{'s' if n > 1 else ''}"
        rows += [
            Row.compared(f"{name}: {part}", "ms", [times[part] for times in found[n]], "the whole step", whole)
            for part in PARTS
        ]
    note = f"Mean of {bench.options.steps} steps after all prompts were read, clocks around the calls."
    return Findings(tuple(rows), notes=(note,))


def _profile(bench: Bench, n_streams: int, seed: int) -> dict[str, float]:
    """ms of every part of a step."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    config = EngineConfig(
        model_path=bench.model,
        n_slots=n_streams,
        n_ctx_seq=_N_CTX,
        n_threads=bench.n_threads,
        max_answer_tokens=_N_CTX // 2,
        padded_remainders=frozenset(),
    )
    process = context.Process(target=_serve, args=(theirs, config, seed, bench.options.steps), daemon=True)
    process.start()
    theirs.close()
    while isinstance(message := ours.recv(), Report):
        pass  # the web process, as far as the engine is concerned
    process.join()
    times: dict[str, float] = message
    return times


class _Clocks:
    """Seconds spent in calls, by part; a call inside another counts for itself alone."""

    def __init__(self) -> None:
        self.spent: defaultdict[str, float] = defaultdict(float)

    def around(self, owner: Any, name: str, part: str) -> None:
        """Replace `owner.name` by itself with a clock."""
        call: Callable[..., Any] = getattr(owner, name)

        @functools.wraps(call)
        def timed(*args: Any, **options: Any) -> Any:
            began_s = time.perf_counter()
            try:
                return call(*args, **options)
            finally:
                self.spent[part] += time.perf_counter() - began_s

        setattr(owner, name, timed)


def _serve(connection: Connection, config: EngineConfig, seed: int, n_steps: int) -> None:
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")  # as in appliance/engine/process.py
    from llama_cpp import llama_cpp as llama

    from appliance.engine import core
    from appliance.engine.detokenizer import Detokenizer
    from appliance.engine.llama_backend import LlamaBackend

    backend = LlamaBackend(config)
    engine = core.BatchEngine(backend, config, time.monotonic)
    questions = Questions(seed)
    for at in range(config.n_slots):
        messages = (Message("system", SYSTEM_PROMPT), Message("user", questions.short()))
        engine.submit(Request(f"{at}", messages, config.max_answer_tokens))
    begun: set[str] = set()
    while len(begun) < config.n_slots:  # until no prompt is left to be read
        begun |= {request_id for request_id, update in engine.step() if isinstance(update, Delta)}
    for _ in range(_WARM_STEPS):
        engine.step()
    clocks = _Clocks()
    clocks.around(llama, "llama_decode", LLAMA)
    clocks.around(llama, "llama_get_logits", LLAMA)  # waits for the end of the computation
    clocks.around(core, "sample", SAMPLER)
    clocks.around(Detokenizer, "feed", TEXT)
    clocks.around(connection, "send", PIPE)
    began_s = time.perf_counter()
    for _ in range(n_steps):
        updates = engine.step()
        connection.send(Report(tuple(updates), engine.waiting_ids(), engine.n_running, engine.n_decoded_total))
    whole_s = time.perf_counter() - began_s
    times = {part: 1000 * clocks.spent[part] / n_steps for part in PARTS}
    times[REST] = 1000 * whole_s / n_steps - sum(times.values())
    connection.send(times)
    backend.close()
