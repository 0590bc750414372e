"""Decode speed of the packaged program, llama.cpp for every CPU, against app.py with this environment's llama.cpp."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools

from bench.clients import ApiClient, as_messages
from bench.command import Bench, add_program_argument
from bench.interleave import interleaved
from bench.program import Program
from bench.questions import Questions
from bench.results import Findings, Row
from bench.stats import Target

NAME = "frozen"
HELP = "decode speed of the packaged program against app.py with this environment's llama.cpp"

_TARGET = Target(at_least=0.97)
_PACKAGED, _SOURCE = "packaged", "app.py"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What is compared, and how long one answer is."""
    parser.set_defaults(repeats=9)
    add_program_argument(parser, needed=True)
    parser.add_argument("--tokens", type=int, default=192, help="of an answer (default: %(default)s)")


def run(bench: Bench) -> Findings:
    """Measure."""
    return asyncio.run(_run(bench))


async def _run(bench: Bench) -> Findings:
    n_tokens: int = bench.options.tokens
    settings = {"n_threads": bench.n_threads, "max_answer_tokens": n_tokens}
    questions, text = Questions(bench.seed), ""

    def ask_anew() -> None:
        nonlocal text
        text = questions.short()

    async def decode(api: ApiClient) -> float:
        exchange = await api.ask(as_messages(text), n_tokens, temperature=0)
        if not exchange.is_ok or len(exchange.arrivals_s) < 2:
            raise RuntimeError(f"no answer to measure: {exchange.failure or 'it came in one piece'}")
        # The first piece may hold several tokens; it does so on both sides.
        return (exchange.n_tokens - 1) / (exchange.end_s - exchange.arrivals_s[0])

    async with contextlib.AsyncExitStack() as stack:
        sides = {}
        for name, packaged in ((_PACKAGED, bench.program), (_SOURCE, None)):
            program = stack.enter_context(Program(bench.model, settings, packaged=packaged))
            program.wait_ready()
            api = ApiClient(program.url)
            stack.push_async_callback(api.close)
            await api.ask(as_messages(questions.short()), n_tokens)  # the model's pages are read
            sides[name] = functools.partial(decode, api)
        found = await interleaved(bench.n_repeats, sides, ask_anew)
    rows = (Row.compared("one stream, decoding", "tokens/s", found[_PACKAGED], _SOURCE, found[_SOURCE], _TARGET),)
    note = f"{bench.n_threads} threads each, the same questions, answers of up to {n_tokens} tokens, temperature 0."
    return Findings(rows, notes=(note,))
