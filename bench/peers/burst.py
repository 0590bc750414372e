"""Thirty people at once: their first questions to servers that have just started, then their second ones."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
from dataclasses import dataclass
from typing import Final

from bench.command import Bench
from bench.exchange import Load
from bench.interleave import interleaved
from bench.peers.build import Peers
from bench.peers.build import peers as built_peers
from bench.peers.servers import Room
from bench.peers.sides import OURS, Side, started
from bench.peers.trace import Ask, Trace
from bench.questions import Questions
from bench.results import Findings, Row
from bench.stats import Target

NAME = "burst"
HELP = "ttft of many first questions at once (cold) and of as many later ones, against llama-server"

_PEER: Final = "llama-server"
_N_CTX = 1024
_TARGETS = {
    ("first", 0.5): Target(at_most=0.35),
    ("first", 0.99): Target(at_most=0.6),
    ("later", 0.5): Target(at_most=0.85),
    ("later", 0.99): Target(at_most=1.25),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """How many people, how long answers."""
    parser.set_defaults(repeats=5)
    parser.add_argument("--users", type=int, default=30, help="people at once (default: %(default)s)")
    parser.add_argument("--slots", type=int, default=32, help="of both sides (default: %(default)s)")
    parser.add_argument("--tokens", type=int, default=16, help="length of an answer (default: %(default)s)")


@dataclass(frozen=True)
class _Bursts:
    first: Load
    later: Load


def run(bench: Bench) -> Findings:
    """Measure."""
    return asyncio.run(_run(bench))


async def _run(bench: Bench) -> Findings:
    options = bench.options
    peers: Peers = built_peers(options.cache)
    questions = Questions(bench.seed)
    room = Room(bench.model, options.slots, _N_CTX, bench.n_threads)
    drawn: list[Trace] = []

    def draw() -> None:
        drawn[:] = [
            tuple((Ask(questions.short(), options.tokens, is_new=is_first),) for _ in range(options.users))
            for is_first in (True, False)
        ]

    async def once(kind: str) -> _Bursts:
        with contextlib.ExitStack() as stack:
            side: Side = stack.enter_context(
                started(kind, room, max_tokens=options.tokens, protocol="api", peers=peers)
            )
            async with side.people(options.users) as people:
                first = (await side.live(drawn[0], people)).load.check()
                later = (await side.live(drawn[1], people)).load.check()
        return _Bursts(first, later)

    found = await interleaved(bench.n_repeats, {name: functools.partial(once, name) for name in (OURS, _PEER)}, draw)
    rows = []
    for which in ("first", "later"):
        loads = {name: [getattr(bursts, which) for bursts in found[name]] for name in found}
        name = f"{options.users} {which} questions"
        for share in (0.5, 0.99):
            ours, theirs = ([1000 * load.ttft_s(share) for load in loads[side]] for side in (OURS, _PEER))
            what = f"{name}: ttft p{100 * share:g}"
            rows.append(Row.compared(what, "ms", ours, _PEER, theirs, _TARGETS[which, share]))
        ours, theirs = ([load.elapsed_s for load in loads[side]] for side in (OURS, _PEER))
        rows.append(Row.compared(f"{name}: until the last answer's end", "s", ours, _PEER, theirs))
    note = (
        f"{options.slots} slots, a system prompt of about 35 tokens, questions of about 22, answers of "
        f"{options.tokens}. First questions meet a server that has just started. Later ones go on with the same "
        "conversations: llama-server still has them in its slots, ours has parked them."
    )
    return Findings(tuple(rows), notes=(note,))
