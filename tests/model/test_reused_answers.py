"""What is drawn from after a resumed conversation and a copied system prompt is what a cold engine draws from.

Both sides read prompts at most `CHUNK` tokens at a time: from 64 on llama.cpp takes another attention kernel, and with
this small model that alone, nothing being reused, moves a likely token's log probability by up to 0.4.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from appliance.engine import core
from appliance.engine.backend import Backend, Logits, Rows
from appliance.engine.config import EngineConfig
from appliance.engine.llama_backend import LlamaBackend
from appliance.engine.prefix_cache import PrefixCache
from appliance.engine.request import Delta, Finished, Message, Request, SamplingParams

MARGIN = 0.1
"""Nat between the two likeliest tokens, above which the likeliest has to be the same."""
LARGEST_DIFFERENCE = 0.05
"""Of the log probability of any of the likely tokens. The same position of two conversations differs by nats."""
N_LIKELY = 20
CHUNK = 32
N_POSITIONS = 500

GREEDY = SamplingParams(0.0, 1, 1.0, 0.0, 1.0)
N_SLOTS, N_CTX, N_ANSWER = 4, 1024, 48
SYSTEM = Message("system", "You are a helpful assistant in an office. Answer at length and with examples.")
QUESTIONS = (
    ("Describe the history of Paris.", "And of Rome?", "Which one is older?", "Tell me a story about it."),
    ("How do I bake bread?", "What about a cake?", "Explain every step again.", "Write it as a poem."),
    ("什么是人工智能？", "请详细说明。", "举三个例子。", "谢谢，请总结。"),
    ("Write a Python function that sorts a list.", "Explain it.", "Make it faster.", "Write tests for it."),
)


class Watched:
    """The backend, with what was computed at every position that was drawn from."""

    def __init__(self, backend: LlamaBackend) -> None:
        self._backend = backend
        self.log_p: dict[tuple[int, ...], NDArray[np.float32]] = {}

    def decode(self, batch: Sequence[Rows]) -> Logits:
        before = [tuple(self._backend.held(rows.slot)) for rows in batch]
        logits = self._backend.decode(batch)
        drawing = [(held, rows) for held, rows in zip(before, batch, strict=True) if rows.wants_logits]
        for (held, rows), row in zip(drawing, logits, strict=True):
            self.log_p[*held, *rows.token_ids] = log_softmax(row)
        return logits

    def __getattr__(self, name: str) -> object:
        return getattr(self._backend, name)


@dataclass(frozen=True)
class Turn:
    """One answered question: all its tokens, how many were the prompt and how many of those were not computed."""

    token_ids: tuple[int, ...]
    n_prompt: int
    n_cached: int


def log_softmax(row: NDArray[np.float32]) -> NDArray[np.float32]:
    shifted = row - row.max()
    result: NDArray[np.float32] = shifted - np.log(np.exp(shifted).sum())
    return result


@pytest.fixture(scope="module")
def backend(starter_model: Path) -> Iterator[LlamaBackend]:
    loaded = LlamaBackend(EngineConfig(model_path=starter_model, n_slots=N_SLOTS, n_ctx_seq=N_CTX, n_threads=1))
    yield loaded
    loaded.close()


@pytest.fixture(scope="module")
def small_steps() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(core, "N_BATCH", CHUNK + N_SLOTS)
        yield


@pytest.fixture(scope="module")
def warm(small_steps: None, backend: LlamaBackend) -> tuple[list[Turn], dict[tuple[int, ...], NDArray[np.float32]]]:
    """All conversations at once, turn after turn, with everything reused that can be."""
    watched = Watched(backend)
    as_backend: Backend = watched  # type: ignore[assignment]
    cache = PrefixCache(ram_bytes=2**28, ttl_s=600, shelf=None, wall_clock=time.time)
    config = EngineConfig(model_path=None, n_slots=N_SLOTS, n_ctx_seq=N_CTX)
    engine = core.BatchEngine(as_backend, config, time.monotonic, cache)
    histories: list[list[Message]] = [[SYSTEM] for _ in QUESTIONS]
    turns = []
    for n_turn in range(len(QUESTIONS[0])):
        for who, history in enumerate(histories):
            history.append(Message("user", QUESTIONS[who][n_turn]))
            name = f"person{who}"
            engine.submit(Request(f"{who}", tuple(history), N_ANSWER, GREEDY, person=name, conversation=name))
        answers = [("", ()) for _ in QUESTIONS]
        while engine.has_work:
            for request_id, update in engine.step():
                who = int(request_id)
                match update:
                    case Delta():
                        answers[who] = (answers[who][0] + update.text, (*answers[who][1], *update.token_ids))
                    case Finished():
                        text, ids = answers[who]
                        prompt = engine_prompt(engine, histories[who])
                        assert len(prompt) == update.n_prompt
                        turns.append(Turn((*prompt, *ids), update.n_prompt, update.n_cached))
                        histories[who].append(Message("assistant", text, ids))
    return turns, watched.log_p


def engine_prompt(engine: core.BatchEngine, messages: Sequence[Message]) -> list[int]:
    return engine._prompts.build(tuple(messages)).token_ids


def cold(backend: LlamaBackend, turn: Turn) -> Iterator[tuple[tuple[int, ...], NDArray[np.float32]]]:
    """The same positions, everything computed anew and alone: the prompt in chunks, then token by token."""
    ids = list(turn.token_ids)
    backend.truncate(0, 0)
    first = (turn.n_prompt - 1) // CHUNK * CHUNK
    for start in range(0, first, CHUNK):
        backend.decode([Rows(0, start, ids[start : start + CHUNK], False)])
    for n_past in range(turn.n_prompt, len(ids) + 1):
        logits = backend.decode([Rows(0, first, ids[first:n_past], True)])
        yield tuple(ids[:n_past]), log_softmax(logits[0])
        first = n_past
    backend.truncate(0, 0)


def test_over_500_positions_a_reused_state_says_the_same_as_a_cold_one(backend, warm):
    turns, log_p = warm
    n_positions = n_compared = 0
    for turn in turns:
        assert turn.n_cached > 0 or turn.n_prompt < 80, "every later turn is resumed, every first one but one copied"
        for key, expected in cold(backend, turn):
            if key not in log_p:  # the answer's last token was never evaluated
                assert len(key) == len(turn.token_ids)
                continue
            n_positions += 1
            found = log_p[key]
            likely = np.argsort(expected)[-N_LIKELY:]
            assert np.abs(found[likely] - expected[likely]).max() <= LARGEST_DIFFERENCE
            if expected[likely[-1]] - expected[likely[-2]] > MARGIN:
                n_compared += 1
                assert found.argmax() == expected.argmax()
    assert sum(turn.n_cached > 0 for turn in turns) >= len(turns) - 1
    assert n_positions >= N_POSITIONS
    assert n_compared >= N_POSITIONS * 0.5


def test_another_conversation_at_the_same_position_would_be_noticed(warm):
    turns, log_p = warm
    firsts = [log_p[turn.token_ids[: turn.n_prompt]] for turn in turns]
    for mine, other in itertools.pairwise(firsts):
        likely = np.argsort(mine)[-N_LIKELY:]
        assert np.abs(mine[likely] - other[likely]).max() > 10 * LARGEST_DIFFERENCE
