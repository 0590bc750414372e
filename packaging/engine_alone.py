"""The engine's own entry in this very process, asked one question: an emulator does not follow into another process.

`python packaging/engine_alone.py MODEL N` passes the first N levels of kernels over; it prints which kernels it tries,
what llama.cpp uses, which file of kernels is loaded, and the answer.
"""

from __future__ import annotations

import multiprocessing
import re
import sys
import threading
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import cast

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from appliance.engine.config import EngineConfig
from appliance.engine.process import main
from appliance.engine.request import Delta, Finished, Message, Request, SamplingParams
from appliance.engine.wire import Close, Kernels, LoadFailed, Ready, Report, Submit

_N_TOKENS = 3


class Saying:
    """The engine's end of the pipe. Prints which kernels it tries before it does: they may end this process."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.poll, self.recv = connection.poll, connection.recv

    def send(self, message: object) -> None:
        """As a Connection's."""
        if isinstance(message, Kernels):
            print(f"{'right' if message.are_right else 'tried'}: {message.name}", flush=True)
        self._connection.send(message)


def ask(connection: Connection) -> None:
    """Wait for the engine, ask, print what comes, let it end."""
    while isinstance(ready := connection.recv(), Kernels):
        pass
    if isinstance(ready, LoadFailed):
        print(f"failed: {ready.error}")
        return
    assert isinstance(ready, Ready)
    print(f"instructions: {ready.info.instructions}", flush=True)
    connection.send(Submit(Request("1", (Message("user", "Hi"),), _N_TOKENS, SamplingParams(temperature=0.0))))
    text = ""
    while True:
        message = connection.recv()
        for _, update in message.updates if isinstance(message, Report) else ():
            if isinstance(update, Delta):
                text += update.text
            elif isinstance(update, Finished):
                print(f"answer: {text!r}{update.error and f', failed: {update.error}'}", flush=True)
                connection.send(Close())
                return


if __name__ == "__main__":
    ours, theirs = multiprocessing.Pipe()
    threading.Thread(target=ask, args=(ours,), daemon=True).start()
    model = Path(sys.argv[1])
    config = EngineConfig(model, n_slots=1, n_ctx_seq=256, max_answer_tokens=_N_TOKENS, padded_remainders=frozenset())
    main(cast("Connection", Saying(theirs)), replace(config, yields=False, n_kernels_passed_over=int(sys.argv[2])))
    loaded = re.findall(r"ggml-cpu-(\w+)\.", Path("/proc/self/maps").read_text(encoding="utf-8"))
    print(f"kernels: {' '.join(sorted(set(loaded)))}")
