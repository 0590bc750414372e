"""A model is loaded on trial before the one that answers makes room for it: a bad file then costs nobody a pause."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

from appliance.base.errors import EngineFailed
from appliance.engine.client import EngineClient
from appliance.engine.config import EngineConfig
from appliance.engine.cpu import available_ram_bytes
from appliance.engine.kernels import Failure
from appliance.engine.step_down import StepDown

_log = logging.getLogger(__name__)

_LOAD_S = 120.0
"""At low priority beside a busy engine; what is not loaded by then is loaded without a trial."""


async def try_out(config: EngineConfig, memory_bytes: int, failures: tuple[Failure, ...] = ()) -> None:
    """Load this model in a process of its own, for one conversation and at low priority, and end that again.

    Nothing is tried where memory does not allow two models at once, and a trial that says nothing of the file (too slow
    beside a busy engine, out of memory after all) decides nothing: loading it for good will show.

    Args:
        memory_bytes: what the model needs with one conversation.
        failures: kernels that failed here before.

    Raises:
        ModelFileError: of the file.
    """
    if memory_bytes > available_ram_bytes():
        _log.info("the other model is not tried first: memory does not allow two at once")
        return
    small = replace(config, n_slots=1, n_threads=1, priority="low", mlock=False, parked_dir=None)
    engine = EngineClient(small, StepDown(failures))
    try:
        async with asyncio.timeout(_LOAD_S):
            await engine.start()
            await engine.wait_ready()
    except (TimeoutError, EngineFailed) as error:
        _log.info("the trial of the other model says nothing (%s)", str(error) or "it takes too long")
    finally:
        await engine.close()
