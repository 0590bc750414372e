"""What waiting in a loop at OpenMP's barriers costs when something else wants the cores."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
from typing import Final

from bench.command import Bench
from bench.competitor import Competitor
from bench.direct import engine, questions_to
from bench.exchange import Load, together
from bench.interleave import interleaved
from bench.questions import SYSTEM_PROMPT, Questions
from bench.results import Findings, Row

NAME = "spin"
HELP = "environment variables of OpenMP on the engine, with and without a busy program beside it, against its default"

VARIANTS: Final[dict[str, dict[str, str]]] = {
    "default": {"GOMP_SPINCOUNT": "300000"},  # what libgomp does by itself; the engine asks for spin-1000
    "passive": {"OMP_WAIT_POLICY": "passive"},
    "active": {"OMP_WAIT_POLICY": "active"},
    "spin-1000": {"GOMP_SPINCOUNT": "1000"},
    "spin-10000": {"GOMP_SPINCOUNT": "10000"},
    "spin-100000": {"GOMP_SPINCOUNT": "100000"},
}
_DEFAULT = "default"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which, under what load."""
    parser.set_defaults(repeats=2)
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--shares", type=float, nargs="+", default=[0.0, 0.3, 1.0], help="of a core the other wants")
    parser.add_argument("--streams", type=int, default=8, help="answers at the same time (default: %(default)s)")
    parser.add_argument("--tokens", type=int, default=32, help="longest answer (default: %(default)s)")


def run(bench: Bench) -> Findings:
    """Measure."""
    return asyncio.run(_run(bench))


async def _run(bench: Bench) -> Findings:
    options = bench.options
    questions = Questions(bench.seed)
    names = [_DEFAULT, *(name for name in options.variants if name != _DEFAULT)]
    shares = [float(share) for share in options.shares]

    async def once(name: str) -> list[Load]:
        """The load beside every share, in one engine."""
        loads = []
        async with engine(bench.model, bench.n_threads, env=VARIANTS[name], n_slots=options.streams) as direct:
            for share in shares:
                with Competitor(share) if share else contextlib.nullcontext():
                    texts = [questions.short() for _ in range(options.streams)]
                    asked = [direct.ask(questions_to(text, SYSTEM_PROMPT), options.tokens) for text in texts]
                    loads.append((await together(asked)).check())
        return loads

    found = await interleaved(bench.n_repeats, {name: functools.partial(once, name) for name in names})
    rows = []
    for at, share in enumerate(shares):
        for name in names:
            for what, unit in (("speed", "tokens/s"), ("gap p50", "ms"), ("gap p99", "ms")):
                values = {key: [_value(what, loads[at]) for loads in found[key]] for key in (name, _DEFAULT)}
                label = f"beside {share:g} of a core, {name}: {what}"
                rows.append(Row.compared(label, unit, values[name], "no variable", values[_DEFAULT]))
    return Findings(tuple(rows), notes=(f"{options.streams} streams, answers of up to {options.tokens} tokens.",))


def _value(what: str, load: Load) -> float:
    return load.tokens_per_s if what == "speed" else load.ms(what)
