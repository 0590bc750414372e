"""How long running answers stand still while somebody's full-length paste is read, as programs on the API see it."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import time
from dataclasses import dataclass

from bench.clients import ApiClient
from bench.command import Bench
from bench.exchange import all_beyond, gaps_between
from bench.interleave import interleaved
from bench.peers.build import peers as built_peers
from bench.peers.people import ApiPerson
from bench.peers.servers import Room, llama_server
from bench.peers.sides import our_program
from bench.peers.trace import PASTE_WORDS
from bench.questions import Questions
from bench.results import Findings, Row
from bench.stats import Target

NAME = "paste"
HELP = "largest gap of running answers while a full-length paste is read, through the API, against llama-server"

_N_CTX = 1024
_SETTLED = 4
"""Pieces of every answer before the paste comes."""
_OF_PASTE = 8
"""Tokens of the paste's own answer: enough for a first visible character."""
_LOOK_S = 0.01
_CLEARED_S = 2.0
"""Until a server has noticed that its clients are gone."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """How many answers are running."""
    parser.set_defaults(repeats=5)
    parser.add_argument("--slots", type=int, default=16, help="of both sides (default: %(default)s)")


def run(bench: Bench) -> Findings:
    """Measure."""
    return asyncio.run(_run(bench))


@dataclass(frozen=True)
class _Read:
    """What the others saw while it was read, and when its own first word came, s."""

    largest_gap: float
    ttft: float


async def _run(bench: Bench) -> Findings:
    n_streams: int = bench.options.slots - 1
    questions = Questions(bench.seed)
    room = Room(bench.model, bench.options.slots, _N_CTX, bench.n_threads)
    longest = _N_CTX // 4

    async def once(url: str) -> _Read:
        api = ApiClient(url)
        arrivals: list[list[float]] = [[] for _ in range(n_streams)]
        running = [
            asyncio.create_task(ApiPerson(api, f"user {i}").ask(questions.short(), longest, moments))
            for i, moments in enumerate(arrivals)
        ]
        while min(len(moments) for moments in arrivals) < _SETTLED:
            if any(task.done() for task in running):
                raise RuntimeError("an answer ended before the paste came")
            await asyncio.sleep(_LOOK_S)
        began_s = time.perf_counter()
        pasted = await ApiPerson(api, "who pastes").ask(questions.words(PASTE_WORDS), _OF_PASTE)
        ended_s = began_s + pasted.ttft_s if pasted.is_ok else time.perf_counter()
        while not all_beyond(ended_s, running, arrivals):  # noqa: ASYNC110 -- an event a token would cost
            await asyncio.sleep(_LOOK_S)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await api.close()
        await asyncio.sleep(_CLEARED_S)
        if not pasted.is_ok:
            raise RuntimeError(f"the paste failed: {pasted.failure or 'no text'}")
        return _Read(max(gaps_between(arrivals, began_s, ended_s)), pasted.ttft_s)

    with contextlib.ExitStack() as stack:
        ours = stack.enter_context(our_program(room, longest))
        theirs = stack.enter_context(llama_server(built_peers(bench.options.cache), room))
        ours.wait_ready()
        theirs.wait_ready()
        variants = {"ours": functools.partial(once, ours.url), "theirs": functools.partial(once, theirs.url)}
        found = await interleaved(bench.n_repeats, variants)

    def compared(what: str, target: Target | None = None) -> Row:
        name = what.partition(":")[0]
        values = {
            side: [1000 * (read.largest_gap if name == "largest gap" else read.ttft) for read in found[side]]
            for side in found
        }
        return Row.compared(what, "ms", values["ours"], "llama-server", values["theirs"], target)

    rows = (
        compared(f"largest gap: {n_streams} running answers", Target(at_most=0.7)),
        compared("ttft: the paste itself"),
    )
    return Findings(rows, notes=(f"A paste of {PASTE_WORDS} words while {n_streams} answers are running.",))
