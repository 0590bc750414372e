"""Which kernels failed, remembered for this CPU and this build of llama.cpp: on another one they may well run."""

from __future__ import annotations

import hashlib
import json
import logging
from dataclasses import asdict
from pathlib import Path
from typing import Final

from appliance.base.private_file import write_private
from appliance.engine.cpu import cpu_identity
from appliance.engine.kernels import Failure, build_identity

_log = logging.getLogger(__name__)

NAME: Final = "kernels.json"
"""In the folder of what tuning found."""


def remembered(folder: Path) -> tuple[Failure, ...]:
    """What failed here before. An unreadable file is as none: everything is tried."""
    try:
        kept = json.loads((folder / NAME).read_bytes())
        if kept["where"] == _where():
            return tuple(Failure(str(each["kernels"]), str(each["how"])) for each in kept["failures"])
    except FileNotFoundError:
        return ()
    except (OSError, ValueError, KeyError, TypeError) as error:
        _log.warning("which kernels failed cannot be read: all are tried (%s)", type(error).__name__)
    return ()


def remember(folder: Path, failures: tuple[Failure, ...]) -> None:
    """Write it down; where that fails it is known until the program ends."""
    content = json.dumps({"where": _where(), "failures": [asdict(failure) for failure in failures]}, indent=1)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_private(folder / NAME, content.encode())
    except OSError as error:
        _log.warning("which kernels failed is known until the program ends (%s)", error.strerror)


def _where() -> str:
    return hashlib.sha256(f"{cpu_identity()[1]}\n{build_identity()}".encode()).hexdigest()[:16]
