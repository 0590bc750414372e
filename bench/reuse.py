"""What reusing KV state is worth: a burst of first questions, long conversations, and one restored from RAM or disk."""

from __future__ import annotations

import argparse
import asyncio
import functools
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from bench.clients import ApiClient, as_messages, close_all, open_pages
from bench.command import Bench
from bench.exchange import Exchange, Load, together
from bench.interleave import interleaved
from bench.peers.people import ApiPerson
from bench.program import Program, programs
from bench.questions import SYSTEM_PROMPT, Questions
from bench.restore import measure_restore
from bench.results import Findings, Row
from bench.stats import Target, percentile

NAME = "reuse"
HELP = "KV reuse on against off: a burst of first questions, conversations of six turns, restoring a parked one"

_TURN_WORDS = 22
_ON, _OFF = "reuse on", "reuse off"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which part, in which protocol, how large."""
    parser.add_argument("--part", choices=("burst", "turns", "restore"), default="burst")
    parser.add_argument("--protocol", choices=("page", "api"), default="page")
    parser.add_argument("--users", type=int, help="people at once (default: 30 in the burst, 4 with turns)")
    parser.add_argument("--slots", type=int, help="of the engine (default: 32 in the burst, 16 with turns)")
    parser.add_argument("--turns", type=int, default=6, help="of a conversation (default: %(default)s)")
    parser.add_argument("--tokens", type=int, default=24, help="longest answer (default: %(default)s)")
    parser.add_argument("--restored", type=int, default=1000, help="tokens of the parked one (default: %(default)s)")


def run(bench: Bench) -> Findings:
    """Measure the part asked for."""
    match bench.options.part:
        case "burst":
            return asyncio.run(_burst(bench))
        case "turns":
            return asyncio.run(_turns(bench))
        case _:
            return measure_restore(bench)


def _variants(bench: Bench, n_slots: int) -> dict[str, dict[str, object]]:
    common = {
        "max_batch_size": n_slots,
        "max_answer_tokens": bench.options.tokens,
        "n_threads": bench.n_threads,
        "system_prompt": SYSTEM_PROMPT,
    }
    return {_ON: {**common, "reuse_kv": True}, _OFF: {**common, "reuse_kv": False}}


# -- a burst of first questions -----------------------------------------------------------------------------------


async def _burst(bench: Bench) -> Findings:
    options = bench.options
    n_users, n_slots = options.users or 30, options.slots or 32
    questions = Questions(bench.seed)

    async def once(program: Program) -> Load:
        texts = [questions.short() for _ in range(n_users)]
        if options.protocol == "page":
            pages = await open_pages(program.url, n_users)
            load = await together([page.ask(text) for page, text in zip(pages, texts, strict=True)])
            await close_all(pages)
            return load.check()
        api = ApiClient(program.url)
        load = await together(
            [api.ask(as_messages(text), options.tokens, user=f"user {i}") for i, text in enumerate(texts)]
        )
        await api.close()
        return load.check()

    with programs(bench.model, _variants(bench, n_slots)) as started:
        found = await interleaved(
            bench.n_repeats, {name: functools.partial(once, program) for name, program in started.items()}
        )
    on, off = found[_ON], found[_OFF]
    name = f"{n_users} first questions"

    def ttft(loads: list[Load], share: float) -> list[float]:
        return [1000 * load.ttft_s(share) for load in loads]

    rows = (
        Row.compared(f"{name}: ttft p50", "ms", ttft(on, 0.5), _OFF, ttft(off, 0.5), Target(at_most=0.6)),
        Row.compared(f"{name}: ttft max", "ms", ttft(on, 1.0), _OFF, ttft(off, 1.0)),
        Row.compared("until the last answer's end", "s", [x.elapsed_s for x in on], _OFF, [x.elapsed_s for x in off]),
        Row.figure("CPU of the clients", "% of a core", [100 * load.client_cores for load in on]),
    )
    note = f"{n_slots} slots, answers of up to {options.tokens} tokens, the system prompt of questions.py."
    return Findings(rows, part=f"burst-{options.protocol}", notes=(note,))


# -- conversations ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Conversations:
    """One repeat: everybody's turns, in step."""

    ttfts_s: tuple[float, ...]
    """Median of all people, by turn."""
    took_s: float
    hit_rates: tuple[float, ...]
    """Prompt tokens that were not computed, by turn."""
    whole_hit_rate: float
    n_prompt: float
    """Mean of the last turn."""


Ask = Callable[[str], Awaitable[Exchange]]


async def _turns(bench: Bench) -> Findings:
    options = bench.options
    n_users, n_slots = options.users or 4, options.slots or 16
    questions = Questions(bench.seed)

    async def once(program: Program) -> _Conversations:
        if options.protocol == "page":
            pages = await open_pages(program.url, n_users)
            found = await _converse(program, questions, [page.ask for page in pages], options.turns)
            await close_all(pages)
            return found
        api = ApiClient(program.url)
        people = [ApiPerson(api, f"user {i}", system_prompt="") for i in range(n_users)]
        asks = [functools.partial(person.ask, max_tokens=options.tokens) for person in people]
        found = await _converse(program, questions, asks, options.turns)
        await api.close()
        return found

    with programs(bench.model, _variants(bench, n_slots)) as started:
        found = await interleaved(
            bench.n_repeats, {name: functools.partial(once, program) for name, program in started.items()}
        )
    on, off = found[_ON], found[_OFF]
    last = options.turns
    first_ms = [1000 * one.ttfts_s[0] for one in on]
    last_ms = [1000 * one.ttfts_s[-1] for one in on]
    rows = (
        Row.compared(f"turn {last}: ttft", "ms", last_ms, "turn 1, as much new text", first_ms, Target(at_most=1.3)),
        Row.compared(
            f"turn {last}: ttft", "ms", last_ms, f"turn {last}, {_OFF}", [1000 * one.ttfts_s[-1] for one in off]
        ),
        Row.figure(
            f"turn {last}: prefix_hit_rate", "of the prompt", [one.hit_rates[-1] for one in on], Target(at_least=0.8)
        ),
        Row.figure("whole conversation: prefix_hit_rate", "of the prompts", [one.whole_hit_rate for one in on]),
        Row.compared(
            "whole conversation", "s", [x.took_s for x in on], _OFF, [x.took_s for x in off], Target(at_most=0.6)
        ),
        Row.figure(f"turn {last}: prompt", "tokens", [one.n_prompt for one in on]),
    )
    note = f"{n_users} people in step, {_TURN_WORDS} new words a turn, answers of up to {options.tokens} tokens."
    return Findings(rows, part=f"turns-{options.protocol}", notes=(note,))


async def _converse(program: Program, questions: Questions, people: Sequence[Ask], n_turns: int) -> _Conversations:
    n_before = len(program.counts())
    ttfts: list[float] = []
    hit_rates: list[float] = []
    took_s = 0.0
    all_cached = all_prompt = n_prompt = 0
    for turn in range(n_turns):
        load = (await together([ask(questions.words(_TURN_WORDS)) for ask in people])).check()
        ttfts.append(percentile(load.ttfts_s, 0.5))
        took_s += load.elapsed_s
        counts = program.counts_since(n_before + turn * len(people), len(people))
        n_prompt, n_cached = sum(count[0] for count in counts), sum(count[1] for count in counts)
        hit_rates.append(n_cached / n_prompt)
        all_prompt += n_prompt
        all_cached += n_cached
    whole = all_cached / all_prompt
    return _Conversations(tuple(ttfts), took_s, tuple(hit_rates), whole, n_prompt / len(people))
