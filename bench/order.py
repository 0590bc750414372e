"""Who waits for whom: people in mid-conversation beside newcomers, and many people beside one with many jobs."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator
from dataclasses import dataclass

from bench.clients import ApiClient, PageClient, close_all, in_turns, open_pages
from bench.command import Bench
from bench.exchange import Exchange, Load, together
from bench.interleave import interleaved
from bench.program import Program, programs
from bench.questions import SYSTEM_PROMPT, Questions
from bench.results import Findings, Row
from bench.stats import Target, percentile

NAME = "order"
HELP = "the order of the waiting: mid-conversation beside newcomers, many people beside one with ten jobs"

_WORDS = 22
_JOB_WORDS = 80
"""Times the messages of a job: near the longest prompt."""
_JOB_MESSAGES = 5
_OURS, _IN_TURN = "our rules", "first come, first served"
_IN_TURN_SETTINGS: dict[str, object] = {"starvation_limit_ms": 0, "priority_session_timeout_s": 0}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which part, how many."""
    parser.add_argument("--part", choices=("newcomers", "jobs"), default="newcomers")
    parser.add_argument("--slots", type=int, default=16, help="of the engine (default: %(default)s)")
    parser.add_argument("--tokens", type=int, default=24, help="longest answer (default: %(default)s)")
    parser.add_argument("--newcomers", type=int, default=20, help="newcomers: how many (default: %(default)s)")
    parser.add_argument("--talking", type=int, default=6, help="newcomers: people in mid-conversation")
    parser.add_argument("--lag-ms", type=float, default=50, help="newcomers: how much later the latter ask")
    parser.add_argument("--people", type=int, default=19, help="jobs: people beside the one (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=10, help="jobs: of the one person at once (default: %(default)s)")
    parser.add_argument("--lead-s", type=float, default=0.0, help="jobs: how long they have been running by then")


def run(bench: Bench) -> Findings:
    """Measure the part asked for."""
    return asyncio.run(_newcomers(bench) if bench.options.part == "newcomers" else _jobs(bench))


def _settings(bench: Bench) -> dict[str, object]:
    options = bench.options
    return {
        "max_batch_size": options.slots,
        "look_ahead": 64,
        "max_answer_tokens": options.tokens,
        "n_threads": bench.n_threads,
        "system_prompt": SYSTEM_PROMPT,
    }


# -- newcomers ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Meeting:
    """One repeat."""

    newcomers: Load
    talking: Load


async def _newcomers(bench: Bench) -> Findings:
    options = bench.options
    questions = Questions(bench.seed)

    async def once(program: Program) -> _Meeting:
        talking = await open_pages(program.url, options.talking)
        newcomers = await open_pages(program.url, options.newcomers)
        (await together([page.ask(questions.words(_WORDS)) for page in talking])).check()
        asked = together([page.ask(questions.words(_WORDS)) for page in newcomers])
        later = together([_after(options.lag_ms / 1000, page, questions.words(_WORDS)) for page in talking])
        meeting = _Meeting(*await asyncio.gather(asked, later))
        await close_all([*talking, *newcomers])
        return meeting

    variants = {_OURS: _settings(bench), _IN_TURN: {**_settings(bench), **_IN_TURN_SETTINGS}}
    with programs(bench.model, variants) as started:
        calls = {name: functools.partial(once, program) for name, program in started.items()}
        found = await interleaved(bench.n_repeats, calls)
    ours, in_turn = found[_OURS], found[_IN_TURN]

    def ms(loads: list[Load], share: float) -> list[float]:
        return [1000 * load.check().ttft_s(share) for load in loads]

    talking_ms = ms([x.talking for x in ours], 0.5)
    new_ms, oldest_ms = ms([x.newcomers for x in ours], 0.5), ms([x.newcomers for x in ours], 1.0)
    rows = (
        Row.compared(
            "mid-conversation: ttft p50", "ms", talking_ms, "newcomers beside them", new_ms, Target(at_most=0.5)
        ),
        Row.compared(
            "longest wait of a newcomer",
            "ms",
            oldest_ms,
            _IN_TURN,
            ms([x.newcomers for x in in_turn], 1.0),
            Target(at_most=1.5),
        ),
        Row.compared("mid-conversation: ttft p50", "ms", talking_ms, _IN_TURN, ms([x.talking for x in in_turn], 0.5)),
        Row.compared("newcomers: ttft p50", "ms", new_ms, _IN_TURN, ms([x.newcomers for x in in_turn], 0.5)),
    )
    note = (
        f"{options.newcomers} newcomers at once, {options.talking} in mid-conversation {options.lag_ms:g} ms later, "
        f"{options.slots} slots, {_WORDS} words each. First come, first served: the same program with both limits at 0."
    )
    return Findings(rows, part="newcomers", notes=(note,))


async def _after(delay_s: float, page: PageClient, text: str) -> Exchange:
    await asyncio.sleep(delay_s)
    return await page.ask(text)


# -- one person with many jobs ------------------------------------------------------------------------------------


async def _jobs(bench: Bench) -> Findings:
    options = bench.options
    questions = Questions(bench.seed)

    async def once(program: Program, n_jobs: int) -> Load:
        pages = await open_pages(program.url, options.people)
        async with _working(program, questions, n_jobs, options.tokens):
            await asyncio.sleep(options.lead_s)
            load = await together([page.ask(questions.words(_WORDS)) for page in pages])
        await close_all(pages)
        return load.check()

    with programs(bench.model, {_OURS: _settings(bench)}) as started:
        beside = functools.partial(once, started[_OURS], options.jobs)
        alone = functools.partial(once, started[_OURS], 0)
        found = await interleaved(bench.n_repeats, {"with jobs": beside, "without": alone})

    def ms(name: str, share: float) -> list[float]:
        return [1000 * percentile(load.ttfts_s, share) for load in found[name]]

    against = "the same without the jobs"
    rows = (
        Row.compared(
            f"{options.people} people: ttft p95",
            "ms",
            ms("with jobs", 0.95),
            against,
            ms("without", 0.95),
            Target(at_most=1.25),
        ),
        Row.compared(f"{options.people} people: ttft p50", "ms", ms("with jobs", 0.5), against, ms("without", 0.5)),
    )
    note = (
        f"One person's {options.jobs} workers ask near-full prompts through the API without a pause, "
        f"begun {options.lead_s:g} s before. {options.people} people ask once each on the page. {options.slots} slots."
    )
    return Findings(rows, part=f"jobs-lead-{options.lead_s:g}s", notes=(note,))


@contextlib.asynccontextmanager
async def _working(program: Program, questions: Questions, n_jobs: int, n_tokens: int) -> AsyncIterator[None]:
    """One person's workers, each with one long request after another, until the block is left."""
    api = ApiClient(program.url)

    async def work() -> None:
        while True:
            texts = [questions.words(_JOB_WORDS) for _ in range(_JOB_MESSAGES)]
            await api.ask(in_turns(texts), n_tokens)

    workers = [asyncio.create_task(work()) for _ in range(n_jobs)]
    try:
        yield
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        await api.close()
