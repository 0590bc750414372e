"""A model is loaded on trial before the one that answers makes room for it: a bad file then costs nobody a pause."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from pathlib import Path

from appliance.base.errors import EngineFailed
from appliance.engine.client import EngineClient
from appliance.engine.config import EngineConfig
from appliance.engine.cpu import available_ram_bytes
from appliance.engine.kernels import Failure
from appliance.engine.step_down import StepDown

_log = logging.getLogger(__name__)

_LOAD_S = 600.0
"""As long as the engine itself may take."""
_WORK_BYTES = 300_000_000
"""Of a process with one conversation, beside the weights."""


async def try_out(config: EngineConfig, failures: tuple[Failure, ...] = ()) -> None:
    """Load this model in a process of its own, for one conversation and at low priority, and end that again.

    Where memory does not allow two models at once nothing is tried: loading it for good will show.

    Args:
        failures: kernels that failed here before.

    Raises:
        ModelFileError: of the file.
        EngineFailed: the process ended while it was loading, or took too long.
    """
    if config.model_path is None or not _fits_beside(config.model_path):
        _log.info("the other model is not tried first: memory does not allow two at once")
        return
    small = replace(config, n_slots=1, n_threads=1, priority="low", mlock=False, parked_dir=None)
    engine = EngineClient(small, StepDown(failures))
    try:
        async with asyncio.timeout(_LOAD_S):
            await engine.start()
            await engine.wait_ready()
    except TimeoutError:
        raise EngineFailed(f"the engine was not ready after {_LOAD_S:.0f} s") from None
    finally:
        await engine.close()


def _fits_beside(path: Path) -> bool:
    try:
        return path.stat().st_size + _WORK_BYTES <= available_ram_bytes()
    except OSError:
        return True  # that it cannot be read is for the engine to say
