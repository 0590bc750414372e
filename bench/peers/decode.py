"""Tokens a second once all prompts are read, sampler included, against llama-batched-bench, which does not sample."""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import time

from appliance.engine.request import Delta, Finished
from appliance.engine.stream import TokenStream
from bench.command import Bench
from bench.direct import DirectEngine, engine, questions_to
from bench.interleave import interleaved
from bench.peers.build import Peers
from bench.peers.build import peers as built_peers
from bench.questions import SYSTEM_PROMPT, Questions
from bench.results import Findings, Row
from bench.stats import Target

NAME = "decode"
HELP = "decode tokens/s of N streams in our engine, sampler included, against llama-batched-bench, which draws nothing"

_N_CTX = 1024
_N_PROMPT = 64
"""Tokens of the peer's prompts; ours have about as many."""
_TARGETS = {1: Target(at_least=0.95), 8: Target(at_least=0.97), 16: Target(at_least=0.97)}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """How many streams, how long."""
    parser.set_defaults(repeats=5)
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 8, 16], help="answers at the same time")
    parser.add_argument("--tokens", type=int, default=32, help="length of an answer (default: %(default)s)")


def run(bench: Bench) -> Findings:
    """Measure."""
    return asyncio.run(_run(bench))


async def _run(bench: Bench) -> Findings:
    counts: list[int] = sorted(bench.options.streams)
    n_tokens: int = bench.options.tokens
    peers = built_peers(bench.options.cache)
    questions = Questions(bench.seed)

    async def ours() -> dict[int, float]:
        return {n: await _decoded_per_s(direct, questions, n, n_tokens) for n in counts}

    async def theirs() -> dict[int, float]:
        return await asyncio.to_thread(_batched_bench, peers, bench, counts, n_tokens)

    async with engine(
        bench.model, bench.n_threads, n_slots=max(counts), n_ctx_seq=_N_CTX, max_answer_tokens=n_tokens
    ) as direct:
        found = await interleaved(bench.n_repeats, {"ours": ours, "theirs": theirs})
    rows = tuple(
        Row.compared(
            f"{n} stream{'s' if n > 1 else ''}",
            "tokens/s",
            [speed[n] for speed in found["ours"]],
            "llama-batched-bench",
            [speed[n] for speed in found["theirs"]],
            _TARGETS.get(n),
        )
        for n in counts
    )
    note = (
        f"{bench.n_threads} threads, {n_tokens} tokens after prompts of about {_N_PROMPT}. Ours draws and sends each."
    )
    return Findings(rows, notes=(note,))


async def _decoded_per_s(direct: DirectEngine, questions: Questions, n_streams: int, n_tokens: int) -> float:
    """From the moment everybody has begun until the first one ends."""
    texts = [questions.short() for _ in range(n_streams)]
    streams = [direct.submit(questions_to(text, SYSTEM_PROMPT), n_tokens) for text in texts]
    pieces = await asyncio.gather(*(_pieces(stream) for stream in streams))
    began_s = max(piece[0][0] for piece in pieces)
    ended_s = min(piece[-1][0] for piece in pieces)
    return sum(n for piece in pieces for at_s, n in piece if began_s < at_s <= ended_s) / (ended_s - began_s)


async def _pieces(stream: TokenStream) -> list[tuple[float, int]]:
    """(moment, tokens) of every piece of an answer."""
    found = []
    async for update in stream:
        match update:
            case Delta():
                found.append((time.perf_counter(), len(update.token_ids)))
            case Finished() if update.error:
                raise RuntimeError(f"an answer failed: {update.error}")
    return found


def _batched_bench(peers: Peers, bench: Bench, counts: list[int], n_tokens: int) -> dict[int, float]:
    options = {
        "--model": bench.model,
        "--ctx-size": max(counts) * _N_CTX,
        "--threads": bench.n_threads,
        "--threads-batch": bench.n_threads,
        "-npp": _N_PROMPT,
        "-ntg": n_tokens,
        "-npl": ",".join(map(str, counts)),
        "--output-format": "jsonl",
    }
    command = [str(peers.batched_bench), *(str(word) for option in options.items() for word in option)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return parsed_speeds(done.stdout)


def parsed_speeds(printed: str) -> dict[int, float]:
    """Decode tokens/s by number of streams, of llama-batched-bench's JSON lines among whatever else it says."""
    rows = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    return {int(row["pl"]): float(row["speed_tg"]) for row in rows}
