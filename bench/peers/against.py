"""A trace through our API or our page, and the same trace through peers."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
from collections.abc import Callable, Sequence
from typing import Final

from bench.command import Bench, model_file
from bench.interleave import interleaved
from bench.peers import trace
from bench.peers.build import peers as built_peers
from bench.peers.servers import Room
from bench.peers.sides import COMPILED, OURS, PEERS, Played, started
from bench.results import Findings, Row
from bench.stats import Target

NAME = "against"
HELP = "a trace of many people through our API or page, against llama-server and others"

_N_CTX = 1024
_SAVED = {"answer_cache_scope": "first"}
"""As our program is shipped. In the other traces nobody asks what was asked before."""
_MANY_USERS = (10, 20, 30)


_TIMES: Final = ("ttft p50", "ttft p90", "ttft p99", "answer's end p90", "gap p99")
MEASURES: Final[dict[str, tuple[str, Callable[[Played], float]]]] = {
    "speed": ("tokens/s", lambda played: played.tokens_per_s),
    "answers": ("requests/min", lambda played: 60 * played.requests_per_s),
    **{what: ("ms", functools.partial(lambda what, played: played.load.ms(what), what)) for what in _TIMES},
}
_NOT_STREAMED = ("speed", "answers", "answer's end p90")
"""What can be compared with an answer that comes in one piece."""


def target(what: str, peer: str, kind: str, n_users: int, *, is_same_file: bool) -> Target | None:
    """What issue 4 wants to be reached."""
    if kind != "closed":
        return None
    match what, peer:
        case "speed", "llama-server" if n_users in _MANY_USERS:
            return Target(at_least=1.05 if is_same_file else 1.7)
        case "speed", "example-server":
            return Target(at_least=3)
        case "answers", "llama" if n_users == 50:
            return Target(at_least=2.9)
        case "answer's end p90", "llama" if n_users == 50:
            return Target(at_most=0.5)
    return None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The trace and who lives through it."""
    parser.set_defaults(repeats=5)
    parser.add_argument("--trace", choices=trace.KINDS, default="closed")
    parser.add_argument("--users", type=int, default=30, help="people of the trace (default: %(default)s)")
    parser.add_argument("--each", type=int, default=1, help="questions, or turns, of each (default: %(default)s)")
    parser.add_argument("--tokens", type=int, default=48, help="mean length of an answer (default: %(default)s)")
    parser.add_argument("--slots", type=int, default=32, help="of both sides (default: %(default)s)")
    parser.add_argument("--peers", nargs="*", choices=PEERS, default=["llama-server"])
    parser.add_argument("--their-model", default="", help="the peers' file, where it is not the same")
    parser.add_argument("--protocol", choices=("api", "page"), default="api", help="how our people ask")


def run(bench: Bench) -> Findings:
    """Measure."""
    return asyncio.run(_run(bench))


async def _run(bench: Bench) -> Findings:
    options = bench.options
    names: list[str] = options.peers
    their_model = model_file(options.their_model, options.cache) if options.their_model else bench.model
    peers = built_peers(options.cache) if set(names) & set(COMPILED) else None
    traces = trace.Traces(bench.seed, n_tokens=options.tokens)
    drawn: list[trace.Trace] = []

    def draw() -> None:
        drawn[:] = [traces.draw(options.trace, options.users, options.each)]

    with contextlib.ExitStack() as stack:
        sides = {}
        for name in (OURS, *names):
            room = Room(
                bench.model if name in (OURS, "one-slot") else their_model, options.slots, _N_CTX, bench.n_threads
            )
            longest = 2 * options.tokens if options.protocol == "api" else options.tokens
            settings = _SAVED if options.trace == "repeated" else None
            side = started(name, room, max_tokens=longest, protocol=options.protocol, peers=peers, settings=settings)
            sides[name] = stack.enter_context(side)

        async def play(name: str) -> Played:
            return await sides[name].play(drawn[0])

        found = await interleaved(bench.n_repeats, {name: functools.partial(play, name) for name in sides}, draw)
    rows: list[Row] = []
    for name in names:
        is_same = name == "one-slot" or their_model == bench.model
        label = name if is_same else f"{name}, {their_model.stem}"
        rows += _compared(options, found[OURS], name, label, found[name], is_same_file=is_same)
    if not names:
        rows += [Row.figure(what, unit, [value(p) for p in found[OURS]]) for what, (unit, value) in MEASURES.items()]
    rows += _of_ours(found[OURS])
    part = "-".join(
        [options.trace, f"{options.users}", options.protocol, *names]
        + ([their_model.stem] if their_model != bench.model else [])
    )
    return Findings(tuple(rows), part=part, notes=(_note(options),))


def _compared(
    options: argparse.Namespace,
    ours: Sequence[Played],
    peer: str,
    label: str,
    theirs: Sequence[Played],
    *,
    is_same_file: bool,
) -> list[Row]:
    measures = _NOT_STREAMED if peer == "llama" else MEASURES
    rows = []
    for what in measures:
        unit, value = MEASURES[what]
        wanted = target(what, peer, options.trace, options.users, is_same_file=is_same_file)
        rows.append(Row.compared(what, unit, [value(p) for p in ours], label, [value(p) for p in theirs], wanted))
    answered = [100 * len(p.answered) / len(p.load.exchanges) for p in theirs]
    return [*rows, Row.figure(f"{label}: answered", "%", answered)]


def _of_ours(ours: Sequence[Played]) -> list[Row]:
    answered = [100 * len(p.answered) / len(p.load.exchanges) for p in ours]
    return [
        Row.figure("answered", "%", answered, Target(at_least=100)),
        Row.figure("CPU outside the engine", "ms a request", [p.outside_ms for p in ours]),
        Row.figure("CPU of the clients", "% of a core", [100 * p.load.client_cores for p in ours]),
    ]


def _note(options: argparse.Namespace) -> str:
    people = f"{options.users} people" if options.trace == "morning" else f"{options.users} people x {options.each}"
    return (
        f"Trace `{options.trace}`, {people}, answers of about {options.tokens} tokens, "
        f"{options.slots} slots of {_N_CTX} tokens each side."
    )
