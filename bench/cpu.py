"""What priority, cores and locked memory do for people under load."""

from __future__ import annotations

import argparse
import asyncio
import functools
import os

from bench.clients import PageClient, close_all, open_pages
from bench.command import Bench
from bench.exchange import Exchange, Load, together
from bench.interleave import interleaved
from bench.program import Program
from bench.questions import SYSTEM_PROMPT, Questions
from bench.results import Findings, Row

NAME = "cpu"
HELP = "engine_priority, engine_cores and mlock: ttft and gap of many people on the page, against the defaults"

_DEFAULTS = "defaults"
_N_CORES = os.cpu_count() or 1
_ALL_BUT_ONE = f"0-{_N_CORES - 2}" if _N_CORES > 2 else "0"
VARIANTS: dict[str, dict[str, object]] = {
    _DEFAULTS: {},
    "high": {"engine_priority": "high"},
    "low": {"engine_priority": "low"},
    "cores": {"engine_cores": _ALL_BUT_ONE},
    "realtime": {"engine_cores": _ALL_BUT_ONE, "engine_priority": "realtime"},
    "mlock": {"mlock": True},
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which settings, under what load."""
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--users", type=int, default=16, help="people on the page (default: %(default)s)")
    parser.add_argument("--questions", type=int, default=1, help="each, one after another (default: %(default)s)")
    parser.add_argument("--tokens", type=int, default=24, help="longest answer (default: %(default)s)")


def run(bench: Bench) -> Findings:
    """Measure."""
    return asyncio.run(_run(bench))


async def _run(bench: Bench) -> Findings:
    options = bench.options
    questions = Questions(bench.seed)

    async def once(name: str) -> Load:
        settings = {
            "max_batch_size": options.users,
            "max_answer_tokens": options.tokens,
            "system_prompt": SYSTEM_PROMPT,
            "n_threads": bench.n_threads if "engine_cores" not in VARIANTS[name] else 0,
        }
        with Program(bench.model, {**settings, **VARIANTS[name]}) as program:
            program.wait_ready()
            pages = await open_pages(program.url, options.users)
            load = await together([_talk(page, questions, options.questions) for page in pages])
            await close_all(pages)
            return load.check()

    names = [_DEFAULTS, *(name for name in options.variants if name != _DEFAULTS)]
    found = await interleaved(bench.n_repeats, {name: functools.partial(once, name) for name in names})
    rows = []
    for name in names:
        for what in ("ttft p50", "ttft p99", "gap p50", "gap p99"):
            values = {key: [load.ms(what) for load in found[key]] for key in (name, _DEFAULTS)}
            rows.append(Row.compared(f"{name}: {what}", "ms", values[name], _DEFAULTS, values[_DEFAULTS]))
    notes = (
        f"{options.users} people on the page. Gaps are those a reader sees: the page shows several tokens at once.",
        f"cores and realtime: the engine has processors {_ALL_BUT_ONE} of {_N_CORES}, and as many threads.",
    )
    return Findings(tuple(rows), notes=notes)


async def _talk(page: PageClient, questions: Questions, n_questions: int) -> list[Exchange]:
    return [await page.ask(questions.short()) for _ in range(n_questions)]
