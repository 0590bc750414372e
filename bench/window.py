"""Whether waiting for company in front of an idle engine is worth it."""

from __future__ import annotations

import argparse
import asyncio
import functools
import random

from bench.command import Bench
from bench.direct import DirectEngine, engine, questions_to
from bench.exchange import Exchange, Load, together
from bench.interleave import interleaved
from bench.questions import SYSTEM_PROMPT, Questions
from bench.results import Findings, Row

NAME = "window"
HELP = "max_wait_ms with bursts of newcomers at an idle engine, against no window"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The windows and the bursts."""
    parser.add_argument("--waits-ms", type=float, nargs="+", default=[0, 5, 10, 20, 50], help="0 is always among them")
    parser.add_argument("--bursts", type=int, nargs="+", default=[4, 16], help="newcomers (default: 4 16)")
    parser.add_argument("--spread-ms", type=float, default=30.0, help="within which they come (default: %(default)s)")
    parser.add_argument("--tokens", type=int, default=24, help="longest answer (default: %(default)s)")


def run(bench: Bench) -> Findings:
    """Measure."""
    return asyncio.run(_run(bench))


async def _run(bench: Bench) -> Findings:
    options = bench.options
    waits: list[float] = sorted({0.0, *options.waits_ms})
    questions, arrivals = Questions(bench.seed), random.Random(bench.seed)
    loads: dict[tuple[float, int], list[Load]] = {(wait, n): [] for wait in waits for n in options.bursts}
    delays: dict[int, list[float]] = {}

    async def with_window(wait_ms: float) -> None:
        # The window ends early at min_batch_size, and a size of 1 would mean no window at all.
        settings = {"max_wait_ms": wait_ms, "min_batch_size": max(options.bursts)}
        async with engine(bench.model, bench.n_threads, n_slots=max(options.bursts), **settings) as direct:
            for n, delays_s in delays.items():
                asked = [_after(delay_s, direct, questions.short(), options.tokens) for delay_s in delays_s]
                loads[wait_ms, n].append((await together(asked)).check())

    def draw_moments() -> None:
        for n in options.bursts:
            delays[n] = [arrivals.uniform(0, options.spread_ms / 1000) for _ in range(n)]

    await interleaved(
        bench.n_repeats, {f"{wait:g} ms": functools.partial(with_window, wait) for wait in waits}, draw_moments
    )
    rows: list[Row] = []
    for n in options.bursts:
        for wait in waits:
            ours, base = loads[wait, n], loads[0.0, n]
            name = f"{n} newcomers, {wait:g} ms"
            for what, unit, share in (("ttft p50", "ms", 0.5), ("ttft max", "ms", 1.0)):
                ttft = [[1000 * load.ttft_s(share) for load in side] for side in (ours, base)]
                rows.append(Row.compared(f"{name}: {what}", unit, ttft[0], "no window", ttft[1]))
            speed = [[load.tokens_per_s for load in side] for side in (ours, base)]
            rows.append(Row.compared(f"{name}: speed", "tokens/s", speed[0], "no window", speed[1]))
    return Findings(
        tuple(rows), notes=(f"They come within {options.spread_ms:g} ms, at the same moments for each window.",)
    )


async def _after(delay_s: float, direct: DirectEngine, text: str, n_tokens: int) -> Exchange:
    await asyncio.sleep(delay_s)
    return await direct.ask(questions_to(text, SYSTEM_PROMPT), n_tokens)
