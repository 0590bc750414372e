"""The plain way to answer: llama-cpp-python's own `Llama` in a process of its own, one question after another."""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any

_JOIN_S = 5.0


@dataclass(frozen=True)
class Sampling:
    """The same for both sides."""

    temperature: float = 0.7
    top_p: float = 0.8
    top_k: int = 20
    min_p: float = 0.0
    repeat_penalty: float = 1.1


@dataclass(frozen=True)
class Answered:
    """How long one question took, s, and its answer."""

    took_s: float
    n_tokens: int
    text: str


class OneAtATime:
    """A `Llama` object behind a pipe."""

    def __init__(self, model: Path, n_threads: int, n_ctx: int = 1024, *, reuses: bool = True) -> None:
        """`reuses` leaves on what it does by itself: keep what a prompt's beginning has in common with the last."""
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, str(model), n_threads, n_ctx, reuses), daemon=True)
        self._process.start()
        theirs.close()

    def __enter__(self) -> OneAtATime:
        self._connection.recv()  # loaded
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._connection.close()
        self._process.join(_JOIN_S)
        if self._process.is_alive():
            self._process.kill()

    async def answer(
        self, conversations: Sequence[Sequence[dict[str, str]]], max_tokens: int, sampling: Sampling
    ) -> list[Answered]:
        """Answer them in order. Ends with EOFError when the process dies."""
        self._connection.send((list(conversations), max_tokens, vars(sampling)))
        answered: list[Answered] = await asyncio.to_thread(self._connection.recv)
        return answered


def _serve(connection: Connection, model: str, n_threads: int, n_ctx: int, reuses: bool) -> None:
    """The process: load, then answer until the other side is gone."""
    from llama_cpp import Llama

    from appliance.engine.llama_library import make_ready

    make_ready()  # our llama.cpp has its kernels in modules of their own: one is loaded as the engine loads it
    llama: Any = Llama(model_path=model, n_ctx=n_ctx, n_threads=n_threads, n_threads_batch=n_threads, verbose=False)
    connection.send("loaded")
    while True:
        try:
            conversations, max_tokens, sampling = connection.recv()
        except EOFError:
            return
        answered = []
        for messages in conversations:
            if not reuses:
                llama.reset()
            answered.append(_answer(llama, messages, max_tokens, sampling))
        connection.send(answered)


def _answer(llama: Any, messages: list[dict[str, str]], max_tokens: int, sampling: dict[str, float]) -> Answered:
    began_s = time.perf_counter()
    reply = llama.create_chat_completion(messages=messages, max_tokens=max_tokens, **sampling)
    took_s = time.perf_counter() - began_s
    text = str(reply["choices"][0]["message"]["content"] or "")
    return Answered(took_s, int(reply["usage"]["completion_tokens"]), text)
