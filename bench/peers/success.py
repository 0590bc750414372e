"""What becomes of everybody's question: within the places, and beyond them."""

from __future__ import annotations

import argparse
import asyncio
import functools

from bench.command import Bench
from bench.interleave import interleaved
from bench.peers.servers import Room
from bench.peers.sides import OurSide, Played, our_program
from bench.peers.trace import Traces
from bench.results import Findings, Row
from bench.stats import Target

NAME = "success"
HELP = "how many are answered at 30 users, and answered or told busy beyond the places there are"

_N_CTX = 1024
_BUSY = "HTTP 503"
_PLACES = {"max_batch_size": 32, "look_ahead": 8, "queue_size": 8}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """How many people."""
    parser.add_argument("--users", type=int, nargs="+", default=[30, 64], help="people at once")
    parser.add_argument("--tokens", type=int, default=16, help="mean length of an answer (default: %(default)s)")


def run(bench: Bench) -> Findings:
    """Measure."""
    return asyncio.run(_run(bench))


async def _run(bench: Bench) -> Findings:
    options = bench.options
    n_places = sum(_PLACES.values())
    traces = Traces(bench.seed, n_tokens=options.tokens)
    room = Room(bench.model, _PLACES["max_batch_size"], _N_CTX, bench.n_threads)
    with our_program(room, 2 * options.tokens, _PLACES) as program:
        program.wait_ready()
        side = OurSide(program, "api")

        async def once(n_users: int) -> Played:
            return await side.play(traces.closed(n_users, 1))

        found = await interleaved(bench.n_repeats, {str(n): functools.partial(once, n) for n in options.users})
    rows = []
    for n in options.users:
        runs = found[str(n)]
        answered = [100 * len(played.answered) / n for played in runs]
        told = [100 * sum(e.failure == _BUSY for e in played.load.exchanges) / n for played in runs]
        within = Target(at_least=100) if n <= n_places else None
        rows += [
            Row.figure(f"{n} users: answered", "%", answered, within),
            Row.figure(f"{n} users: told busy", "%", told),
            Row.figure(
                f"{n} users: answered or told busy",
                "%",
                [a + b for a, b in zip(answered, told, strict=True)],
                Target(at_least=100),
            ),
        ]
    note = (
        f"{n_places} places: {room.n_slots} slots, {n_places - room.n_slots} in line. All ask within the same moment."
    )
    return Findings(tuple(rows), notes=(note,))
