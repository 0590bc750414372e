"""Whether memory stays where it is while conversations come and go."""

from __future__ import annotations

import argparse
import asyncio

from bench.clients import close_all, open_pages
from bench.command import Bench
from bench.exchange import together
from bench.interleave import progress
from bench.program import Program
from bench.questions import Questions
from bench.results import Findings, Row
from bench.stats import Target, slope

NAME = "growth"
HELP = "memory over many conversations, each parked when its answer ends"

_MB = 2**20
_KB = 2**10
_TARGET = Target(at_most=1536)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """How many conversations of which length."""
    parser.set_defaults(repeats=1)
    parser.add_argument("--conversations", type=int, default=200, help="in all (default: %(default)s)")
    parser.add_argument("--words", type=int, default=70, help="of each question (default: %(default)s)")
    parser.add_argument("--tokens", type=int, default=8, help="longest answer (default: %(default)s)")
    parser.add_argument("--users", type=int, default=20, help="at the same time (default: %(default)s)")


def run(bench: Bench) -> Findings:
    """Measure."""
    return asyncio.run(_run(bench))


async def _run(bench: Bench) -> Findings:
    options = bench.options
    n_blocks = options.conversations // options.users
    if n_blocks < 4:
        raise SystemExit("--conversations must be at least four times --users: a slope needs points")
    questions = Questions(bench.seed)
    slopes: dict[str, list[float]] = {"web": [], "engine": []}
    pss: list[float] = []
    tokens: list[float] = []
    settings = {"max_answer_tokens": options.tokens, "n_threads": bench.n_threads, "look_ahead": options.users}
    for _ in range(bench.n_repeats):
        with Program(bench.model, settings) as program:
            program.wait_ready()
            rss: dict[str, list[float]] = {"web": [], "engine": []}
            for block in range(n_blocks):
                pages = await open_pages(program.url, options.users)
                (await together([page.ask(questions.words(options.words)) for page in pages])).check()
                await close_all(pages)
                for name, values in rss.items():
                    values.append(program.processes()[name].memory_info().rss)
                progress(f"{(block + 1) * options.users} conversations: " + _shown(rss))
            half = n_blocks // 2  # by then the memory for parked conversations is full
            at = [float(options.users * block) for block in range(half, n_blocks)]
            for name, values in rss.items():
                slopes[name].append(slope(at, values[half:]) / _KB)
            pss.append(program.memory().pss / _MB)
            tokens.append(sum(n_prompt + n_decoded for n_prompt, _, n_decoded in program.counts()))
    n = n_blocks * options.users
    rows = (
        *(
            Row.figure(f"{name}: slope over the last half", "KB a conversation", found)
            for name, found in slopes.items()
        ),
        Row.figure(f"PSS of all processes after {n} conversations", "MB", pss, _TARGET),
        Row.figure("tokens of all conversations", "tokens", tokens),
    )
    return Findings(
        rows, notes=(f"{n} conversations of different people through the page, {options.users} at a time.",)
    )


def _shown(rss: dict[str, list[float]]) -> str:
    return ", ".join(f"{name} {values[-1] / _MB:.0f} MB" for name, values in rss.items())
