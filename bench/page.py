"""What page and web server cost: the same questions through the page, the API and straight to the engine."""

from __future__ import annotations

import argparse
import asyncio
import time

from bench.clients import ApiClient, as_messages, close_all, open_pages
from bench.command import Bench
from bench.direct import DirectEngine, engine, questions_to
from bench.exchange import Exchange, together
from bench.interleave import interleaved
from bench.program import Program, cpu_share
from bench.questions import SYSTEM_PROMPT, Questions
from bench.results import Findings, Row
from bench.stats import Target

NAME = "page"
HELP = "tokens/s of many users through the page's own protocol, and through the API, against our engine without either"

_TARGET = Target(at_least=0.93)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """How many, how long."""
    parser.add_argument("--users", type=int, default=16, help="people at the same time (default: %(default)s)")
    parser.add_argument("--tokens", type=int, default=64, help="longest answer (default: %(default)s)")


def run(bench: Bench) -> Findings:
    """Measure."""
    return asyncio.run(_run(bench))


async def _run(bench: Bench) -> Findings:
    n_users, n_tokens = bench.options.users, bench.options.tokens
    questions = Questions(bench.seed)
    settings = {
        "max_batch_size": n_users,
        "max_answer_tokens": n_tokens,
        "system_prompt": SYSTEM_PROMPT,
        "n_threads": bench.n_threads,
    }
    runs = _Runs(questions, n_users, n_tokens)
    with Program(bench.model, settings) as program:
        program.wait_ready()
        api = ApiClient(program.url)
        async with engine(bench.model, bench.n_threads, n_slots=n_users, max_answer_tokens=n_tokens) as direct:
            found = await interleaved(
                bench.n_repeats,
                {
                    "page": lambda: runs.page(program),
                    "api": lambda: runs.api(program, api),
                    "engine": lambda: runs.engine(direct),
                },
            )
        await api.close()
    speed = {name: [run.tokens_per_s for run in found[name]] for name in found}
    rows = [
        Row.compared(f"page, {n_users} users", "tokens/s", speed["page"], "engine alone", speed["engine"], _TARGET),
        Row.compared(f"API, {n_users} users", "tokens/s", speed["api"], "engine alone", speed["engine"]),
    ]
    for name in ("page", "api"):
        rows += [
            Row.figure(f"{name}: CPU of the web process", "% of a core", [100 * r.web_cores for r in found[name]]),
            Row.figure(f"{name}: CPU of the clients", "% of a core", [100 * r.client_cores for r in found[name]]),
        ]
    return Findings(
        tuple(rows), notes=("Clients and program share the cores; on a network the clients' part is free.",)
    )


class _Run:
    """One repeat of one way."""

    def __init__(self, n_tokens: int, elapsed_s: float, web_cores: float, client_cores: float) -> None:
        self.tokens_per_s = n_tokens / elapsed_s
        self.web_cores = web_cores
        self.client_cores = client_cores


class _Runs:
    """The three ways to ask the same number of fresh questions at once."""

    def __init__(self, questions: Questions, n_users: int, n_tokens: int) -> None:
        self._questions = questions
        self._n_users = n_users
        self._n_tokens = n_tokens

    async def page(self, program: Program) -> _Run:
        pages = await open_pages(program.url, self._n_users)
        n_before = len(program.counts())
        before_s, began_s = program.cpu_s(), time.perf_counter()
        load = (await together([page.ask(self._questions.short()) for page in pages])).check()
        web = cpu_share(before_s, program.cpu_s(), time.perf_counter() - began_s, ("web",))
        counts = program.counts_since(n_before, self._n_users)
        await close_all(pages)
        return _Run(sum(n_decoded for _, _, n_decoded in counts), load.elapsed_s, web, load.client_cores)

    async def api(self, program: Program, api: ApiClient) -> _Run:
        before_s, began_s = program.cpu_s(), time.perf_counter()
        load = (await together([self._by_api(api) for _ in range(self._n_users)])).check()
        web = cpu_share(before_s, program.cpu_s(), time.perf_counter() - began_s, ("web",))
        return _Run(sum(e.n_tokens for e in load.exchanges), load.elapsed_s, web, load.client_cores)

    async def engine(self, direct: DirectEngine) -> _Run:
        texts = [self._questions.short() for _ in range(self._n_users)]
        load = await together([direct.ask(questions_to(text, SYSTEM_PROMPT), self._n_tokens) for text in texts])
        return _Run(sum(e.n_tokens for e in load.check().exchanges), load.elapsed_s, 0.0, load.client_cores)

    async def _by_api(self, api: ApiClient) -> Exchange:
        return await api.ask(as_messages(self._questions.short()), self._n_tokens)
