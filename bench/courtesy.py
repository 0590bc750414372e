"""What stepping back for other programs costs us and gives them."""

from __future__ import annotations

import argparse
import asyncio
import functools
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from bench.command import Bench
from bench.competitor import Competitor
from bench.direct import DirectEngine, engine, questions_to
from bench.exchange import together
from bench.interleave import interleaved
from bench.questions import SYSTEM_PROMPT, Questions
from bench.results import Findings, Row

NAME = "courtesy"
HELP = "yield_to_others on against off, beside a busy program"

_NOTICE_S = 5.0
"""The engine looks around every 2 s."""
_ALONE_S = 3.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The load on both sides."""
    parser.add_argument("--streams", type=int, default=16, help="answers at the same time (default: %(default)s)")
    parser.add_argument("--tokens", type=int, default=32, help="longest answer (default: %(default)s)")
    parser.add_argument("--share", type=float, default=1.0, help="of a core the other program wants")


def run(bench: Bench) -> Findings:
    """Measure."""
    return asyncio.run(_run(bench))


@dataclass(frozen=True)
class _Side:
    """One repeat."""

    tokens_per_s: float
    others_speed: float
    """Loops a second of the other program."""


async def _run(bench: Bench) -> Findings:
    options = bench.options
    questions = Questions(bench.seed)

    async def ours(direct: DirectEngine) -> float:
        texts = [questions.short() for _ in range(options.streams)]
        asked = [direct.ask(questions_to(text, SYSTEM_PROMPT), options.tokens) for text in texts]
        return (await together(asked)).check().tokens_per_s

    async def once(*, yields: bool) -> _Side:
        async with engine(bench.model, bench.n_threads, n_slots=options.streams, yields=yields) as direct:
            with Competitor(options.share) as other:
                await asyncio.sleep(_NOTICE_S)
                began_s, n_before = time.perf_counter(), other.n_done
                tokens_per_s = await ours(direct)
                return _Side(tokens_per_s, (other.n_done - n_before) / (time.perf_counter() - began_s))

    async def alone() -> _Side:
        async with engine(bench.model, bench.n_threads, n_slots=options.streams) as direct:
            tokens_per_s = await ours(direct)
        with Competitor(options.share) as other:
            began_s, n_before = time.perf_counter(), other.n_done
            await asyncio.sleep(_ALONE_S)
            return _Side(tokens_per_s, (other.n_done - n_before) / (time.perf_counter() - began_s))

    variants: dict[str, Callable[[], Awaitable[_Side]]] = {
        "alone": alone,
        "on": functools.partial(once, yields=True),
        "off": functools.partial(once, yields=False),
    }
    found = await interleaved(bench.n_repeats, variants)
    speed = {name: [side.tokens_per_s for side in sides] for name, sides in found.items()}
    others = {name: [side.others_speed for side in sides] for name, sides in found.items()}
    rows = tuple(
        Row.compared(f"{what}, yield_to_others {state}", unit, values[state], "alone on the machine", values["alone"])
        for what, unit, values in (("our engine", "tokens/s", speed), ("the other program", "loops/s", others))
        for state in ("on", "off")
    )
    return Findings(
        rows, notes=(f"{options.streams} streams beside a program that wants {options.share:g} of a core.",)
    )
