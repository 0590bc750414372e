"""How evenly running answers flow: while a long paste is read, and with a number of rows the kernels dislike."""

from __future__ import annotations

import argparse
import asyncio
import functools
import time
from dataclasses import dataclass
from itertools import pairwise

from appliance.engine.config import EngineConfig
from bench.command import Bench
from bench.direct import DirectEngine, engine, questions_to, read
from bench.exchange import all_beyond, gaps_between, together
from bench.interleave import interleaved
from bench.questions import SYSTEM_PROMPT, Questions
from bench.results import Findings, Row
from bench.stats import Target, percentile

NAME = "gaps"
HELP = "gaps of running answers while a full-length paste is read; a step of 15 streams against one of 16"

_SETTLED = 8
"""Tokens of every stream before the paste comes."""
_LOOK_S = 0.01
_FULL_STEP = 1.05
"""As fast, apart from noise."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """How many, how long."""
    parser.add_argument("--part", choices=("paste", "rows"), default="paste")
    parser.add_argument("--slots", type=int, default=16, help="of the engine (default: %(default)s)")
    parser.add_argument("--words", type=int, default=600, help="of the paste; cut to the longest message")
    parser.add_argument("--tokens", type=int, default=64, help="longest answer (default: %(default)s)")


def run(bench: Bench) -> Findings:
    """Measure the part asked for."""
    return asyncio.run(_paste(bench) if bench.options.part == "paste" else _rows(bench))


@dataclass(frozen=True)
class _Flow:
    """Gaps of the streams while the paste was read (or as long without one), s, and the paste's own ttft."""

    gaps_s: list[float]
    ttft_s: float


async def _paste(bench: Bench) -> Findings:
    options = bench.options
    questions = Questions(bench.seed)
    n_streams = options.slots - 1
    limit_ms = EngineConfig().max_itl_ms

    async def once(direct: DirectEngine, *, with_paste: bool) -> _Flow:
        arrivals: list[list[float]] = [[] for _ in range(n_streams)]
        streams = [
            direct.submit(questions_to(questions.short(), SYSTEM_PROMPT), options.tokens) for _ in range(n_streams)
        ]
        readers = [
            asyncio.create_task(read(stream, time.perf_counter(), times))
            for stream, times in zip(streams, arrivals, strict=True)
        ]
        while min(len(times) for times in arrivals) < _SETTLED:  # noqa: ASYNC110 -- an event a token would cost
            await asyncio.sleep(_LOOK_S)
        began_s = time.perf_counter()
        if with_paste:
            exchange = await direct.ask(questions_to(questions.words(options.words), SYSTEM_PROMPT), 1)
            ttft_s = exchange.ttft_s
        else:
            ttft_s = 0.0
            await asyncio.wait(readers, return_when=asyncio.FIRST_COMPLETED)
        ended_s = time.perf_counter()
        while not all_beyond(ended_s, readers, arrivals):  # noqa: ASYNC110 -- an event a token would cost
            await asyncio.sleep(_LOOK_S)
        for stream in streams:
            stream.abort()
        await asyncio.gather(*readers)
        return _Flow(gaps_between(arrivals, began_s, ended_s), ttft_s)

    async with engine(bench.model, bench.n_threads, n_slots=options.slots) as direct:
        variants = {
            "with a paste": functools.partial(once, direct, with_paste=True),
            "without": functools.partial(once, direct, with_paste=False),
        }
        found = await interleaved(bench.n_repeats, variants)

    def ms(name: str, share: float) -> list[float]:
        return [1000 * percentile(flow.gaps_s, share) for flow in found[name]]

    rows = (
        Row.figure(f"{n_streams} streams beside it: gap p99", "ms", ms("with a paste", 0.99), Target(at_most=limit_ms)),
        Row.compared("gap max", "ms", ms("with a paste", 1.0), "without the paste", ms("without", 1.0)),
        Row.compared("gap p50", "ms", ms("with a paste", 0.5), "without the paste", ms("without", 0.5)),
        Row.figure("the paste's own ttft", "ms", [1000 * flow.ttft_s for flow in found["with a paste"]]),
    )
    note = (
        f"A message of {options.words} words, cut to the longest; max_itl_ms = {limit_ms:g}. Gaps as the engine sends."
    )
    return Findings(rows, part="paste", notes=(note,))


async def _rows(bench: Bench) -> Findings:
    options = bench.options
    questions = Questions(bench.seed)

    async def step_ms(direct: DirectEngine, n_streams: int) -> float:
        """Median gap once all prompts are done."""
        texts = [questions.short() for _ in range(n_streams)]
        load = await together([direct.ask(questions_to(text, SYSTEM_PROMPT), options.tokens) for text in texts])
        all_begun_s = max(exchange.arrivals_s[0] for exchange in load.check().exchanges)
        gaps = [b - a for e in load.exchanges for a, b in pairwise(e.arrivals_s) if a >= all_begun_s]
        return 1000 * percentile(gaps, 0.5)

    counts = range(max(1, options.slots - 3), options.slots + 1)
    async with engine(bench.model, bench.n_threads, n_slots=options.slots) as direct:
        found = await interleaved(
            bench.n_repeats, {f"{n} streams": functools.partial(step_ms, direct, n) for n in counts}
        )
    full = f"{options.slots} streams"
    rows = tuple(
        Row.compared(
            f"step of {name}",
            "ms",
            found[name],
            full,
            found[full],
            Target(at_most=_FULL_STEP) if name != full else None,
        )
        for name in found
    )
    return Findings(rows, part="rows")
