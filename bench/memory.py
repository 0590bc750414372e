"""Memory of the whole program with every slot full."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Coroutine

from bench.clients import ApiClient, in_turns
from bench.command import Bench, add_program_argument
from bench.exchange import Exchange, Load, together
from bench.interleave import progress
from bench.limit import data_limit
from bench.program import Memory, Program
from bench.questions import Questions
from bench.results import Findings, Row
from bench.stats import Target

NAME = "memory"
HELP = "memory of the whole program with all slots full, under a limit"

_GB = 2**30
_MB = 2**20
_TARGET = Target(at_most=1.5 * _GB / _MB)
_LOOK_S = 0.5
_SPARE_TOKENS = 24
"""Left below the longest prompt: one token too many and half of the history is cut away."""
_N_TURNS = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The sizes; one repeat fills everything once."""
    parser.set_defaults(repeats=1)
    parser.add_argument("--slots", type=int, default=16, help="conversations at once (default: %(default)s)")
    parser.add_argument("--context", type=int, default=1024, help="tokens of one (default: %(default)s)")
    add_program_argument(parser)
    parser.add_argument("--limit-gb", type=float, default=2.0, help="bound for the program (default: %(default)s)")


def run(bench: Bench) -> Findings:
    """Measure."""
    return asyncio.run(_run(bench))


async def _run(bench: Bench) -> Findings:
    n_slots, n_context = bench.options.slots, bench.options.context
    limit = data_limit(int(bench.options.limit_gb * _GB))
    questions = Questions(bench.seed)
    peaks: list[Memory] = []
    before: list[Memory] = []
    loads: list[Load] = []
    settings = {"max_batch_size": n_slots, "max_context_tokens": n_context, "n_threads": bench.n_threads}
    n_answer = min(256, n_context // 2)
    settings |= {"max_answer_tokens": n_answer, "max_input_chars": 100_000}
    for _ in range(bench.n_repeats):
        with Program(bench.model, settings, limit=limit.apply, packaged=bench.program) as program:
            program.wait_ready()
            before.append(program.memory())
            api = ApiClient(program.url)
            n_words = await _words_of_full_prompt(api, questions, n_context - n_answer)
            progress(f"filling {n_slots} slots with {n_words} words each")
            asked = [_fill(api, questions, n_words, n_answer) for _ in range(n_slots)]
            load, peak = await _watched(program, together(asked))
            loads.append(load.check())
            peaks.append(peak)
            await api.close()
    filled = [min(e.n_prompt + e.n_tokens for e in load.exchanges) for load in loads]
    rows = (
        Row.figure("ready, nobody there: RSS of all processes", "MB", [m.rss / _MB for m in before]),
        Row.figure("full: RSS of all processes, peak", "MB", [m.rss / _MB for m in peaks], _TARGET),
        Row.figure("full: PSS of all processes, peak", "MB", [m.pss / _MB for m in peaks], _TARGET),
        Row.figure("cells filled by the emptiest conversation", "tokens", filled),
        Row.figure(
            "answered under the limit", "of all", [1 - load.n_failed / n_slots for load in loads], Target(at_least=1)
        ),
    )
    return Findings(rows, notes=(limit.says, f"{n_slots} slots of {n_context} tokens."))


async def _words_of_full_prompt(api: ApiClient, questions: Questions, n_tokens: int) -> int:
    """How many words make a prompt of nearly `n_tokens`: from the sizes of two smaller ones."""
    small, large = n_tokens // 10, n_tokens // 4
    n_small = (await _fill(api, questions, small, 1)).n_prompt
    n_large = (await _fill(api, questions, large, 1)).n_prompt
    per_word = (n_large - n_small) / (large - small)
    return small + int((n_tokens - _SPARE_TOKENS - n_small) / per_word)


async def _fill(api: ApiClient, questions: Questions, n_words: int, n_answer: int) -> Exchange:
    """A conversation of several turns with `n_words` in all: one message may not fill the context alone."""
    n_messages = 2 * _N_TURNS - 1
    texts = [questions.words(n_words // n_messages + (at < n_words % n_messages)) for at in range(n_messages)]
    return await api.ask(in_turns(texts), n_answer)


async def _watched(program: Program, loading: Coroutine[None, None, Load]) -> tuple[Load, Memory]:
    """The load's outcome and the highest sums seen while it ran."""
    task = asyncio.create_task(loading)
    rss = pss = 0
    while not task.done():
        await asyncio.wait({task}, timeout=_LOOK_S)
        now = program.memory()
        rss, pss = max(rss, now.rss), max(pss, now.pss)
    return task.result(), Memory(rss, pss)
