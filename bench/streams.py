"""Tokens a second of many at once, against the same questions one after another through the plain `Llama` object."""

from __future__ import annotations

import argparse
import asyncio

from appliance.engine.request import SamplingParams
from bench.clients import as_messages
from bench.command import Bench
from bench.direct import DirectEngine, engine, questions_to
from bench.exchange import Load, together
from bench.interleave import interleaved
from bench.one_at_a_time import Answered, OneAtATime, Sampling
from bench.questions import SYSTEM_PROMPT, Questions
from bench.results import Findings, Row
from bench.stats import Target

NAME = "streams"
HELP = "tokens/s of N streams in one batch against one question after another through llama-cpp-python's Llama"

SAMPLING = Sampling()
OURS = SamplingParams(SAMPLING.temperature, SAMPLING.top_k, SAMPLING.top_p, SAMPLING.min_p, SAMPLING.repeat_penalty)
_MANY = 16
_TARGET = Target(at_least=1.7)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """How many, how long."""
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 4, 8, 16], help="answers at the same time")
    parser.add_argument("--tokens", type=int, default=48, help="longest answer (default: %(default)s)")


def run(bench: Bench) -> Findings:
    """Measure."""
    return asyncio.run(_run(bench))


async def _run(bench: Bench) -> Findings:
    counts: list[int] = sorted(bench.options.streams)
    n_tokens: int = bench.options.tokens
    questions = Questions(bench.seed)
    texts: list[str] = []

    def ask_anew() -> None:
        # The smaller numbers of streams ask the first of the same questions: without a conversation's id nothing of a
        # question is kept.
        texts[:] = [questions.short() for _ in range(counts[-1])]

    loads: dict[int, list[Load]] = {n: [] for n in counts}
    answers: list[list[Answered]] = []

    async def ours() -> None:
        for n in counts:
            loads[n].append((await _batched(ours_engine, texts[:n], n_tokens)).check())

    async def theirs() -> None:
        conversations = [as_messages(text, SYSTEM_PROMPT) for text in texts]
        answers.append(await plain.answer(conversations, n_tokens, SAMPLING))

    async with engine(bench.model, bench.n_threads, n_slots=max(counts)) as ours_engine:
        with OneAtATime(bench.model, bench.n_threads) as plain:
            await interleaved(bench.n_repeats, {"ours": ours, "one after another": theirs}, ask_anew)
    rows = [
        Row.compared(
            f"{n} stream{'s' if n > 1 else ''}",
            "tokens/s",
            [load.tokens_per_s for load in loads[n]],
            "the same questions one after another",
            [_tokens_per_s(answered[:n]) for answered in answers],
            _TARGET if n == _MANY else None,
        )
        for n in counts
    ]
    last = loads[counts[-1]]
    rows.append(Row.figure("client CPU beside it", "% of a core", [100 * load.client_cores for load in last]))
    return Findings(tuple(rows), notes=(f"{bench.n_threads} threads each, answers of up to {n_tokens} tokens.",))


async def _batched(asked: DirectEngine, texts: list[str], n_tokens: int) -> Load:
    return await together([asked.ask(questions_to(text, SYSTEM_PROMPT), n_tokens, sampling=OURS) for text in texts])


def _tokens_per_s(answered: list[Answered]) -> float:
    return sum(one.n_tokens for one in answered) / sum(one.took_s for one in answered)
