"""What travels between the web process and the engine process."""

from __future__ import annotations

from dataclasses import dataclass

from appliance.base.errors import ApplianceError
from appliance.engine.request import EngineInfo, Request, Update


@dataclass(frozen=True)
class Submit:
    """Web to engine: take this request."""

    request: Request


@dataclass(frozen=True)
class Abort:
    """Web to engine: end this request within one step."""

    request_id: str


@dataclass(frozen=True)
class Forget:
    """Web to engine: drop parked KV state; an empty conversation means all of the person's."""

    person: str
    conversation: str


@dataclass(frozen=True)
class Close:
    """Web to engine: end now."""


@dataclass(frozen=True)
class Kernels:
    """Engine to web, while it loads: about to try these; then, once more, that they are right."""

    name: str
    are_right: bool = False


@dataclass(frozen=True)
class Ready:
    """Engine to web: loaded and warmed up."""

    info: EngineInfo


@dataclass(frozen=True)
class LoadFailed:
    """Engine to web: the model cannot be used; the process ends."""

    error: ApplianceError


@dataclass(frozen=True)
class Report:
    """Engine to web, after every step: what happened and who waits, in order."""

    updates: tuple[tuple[str, Update], ...]
    waiting_ids: tuple[str, ...]
    n_running: int
    n_decoded_total: int
    """Tokens generated since the engine started."""


ToEngine = Submit | Abort | Forget | Close
FromEngine = Kernels | Ready | LoadFailed | Report
