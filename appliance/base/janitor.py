"""Named jobs that come round again while the program runs. One that fails never stops the others."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from appliance.base.log import where

_log = logging.getLogger(__name__)

TICK_S = 0.5


@dataclass(frozen=True)
class Job:
    """What is done, and how often at most. What touches the disk is a coroutine that lets a thread do it."""

    name: str
    every_s: float
    run: Callable[[], Awaitable[None] | None]


async def keep_house(jobs: Sequence[Job]) -> None:
    """Do the jobs until cancelled."""
    due_at_s = dict.fromkeys(jobs, 0.0)
    while True:
        await asyncio.sleep(TICK_S)
        for job in jobs:
            now_s = time.monotonic()
            if now_s < due_at_s[job]:
                continue
            due_at_s[job] = now_s + job.every_s
            try:
                outcome = job.run()
                if outcome is not None:
                    await outcome
            except Exception as error:  # noqa: BLE001 -- one failing job must not stop the others
                _log.error("housekeeping (%s) failed: %s", job.name, where(error))
