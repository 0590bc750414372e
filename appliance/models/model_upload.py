"""A model file that a browser sends: taken piece by piece, looked at, and put among the others when it is whole."""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

from appliance.base.errors import ModelFileError
from appliance.models.catalogue import SPLIT, verify
from appliance.models.model_file import check_whole, inspect

_log = logging.getLogger(__name__)

_NAME: Final = re.compile(r"[^\W_][\w.+()-]{0,180}\.gguf", re.IGNORECASE)
_PIECE_BYTES: Final = 2**22
_SPARE_BYTES: Final = 200 * 2**20
_ENDING: Final = ".upload"


async def take_upload(folder: Path, name: str, n_bytes: int, chunks: AsyncIterator[bytes]) -> Path:
    """Write it into the models folder under its own name.

    Args:
        n_bytes: how much was announced; more or less is refused.
    Raises:
        ModelFileError: what is sent is no whole model file, or there is no room. Nothing of it stays.
    """
    shown, target = Path(name), folder / name
    if _NAME.fullmatch(name) is None:
        raise ModelFileError(shown, "has an unusual name", "Use letters, digits, dots and hyphens.", "name")
    if target.exists():
        raise ModelFileError(shown, "is there already", "Rename it, or remove the other.", "there")
    free = shutil.disk_usage(folder).free
    if free < n_bytes + _SPARE_BYTES:
        values: dict[str, object] = {"need_mb": (n_bytes + _SPARE_BYTES) // 10**6, "free_mb": free // 10**6}
        raise ModelFileError(shown, "does not fit on the disk", "Make room there.", "disk", values)
    draft = folder / f"{name}.{secrets.token_hex(4)}{_ENDING}"
    try:
        n_written = await _write(draft, n_bytes, chunks)
        if n_written != n_bytes:
            raise ModelFileError(shown, "did not come whole", "Send it again.", "broken_off")
        await asyncio.to_thread(check_whole if SPLIT.fullmatch(name) else inspect, draft)
        draft.replace(target)
    except ModelFileError as error:
        raise ModelFileError(shown, error.problem, error.remedy, error.code, error.values) from error
    except OSError as error:
        problem = f"cannot be written ({error.strerror or type(error).__name__})"
        raise ModelFileError(shown, problem, "Check the disk.", "copy") from error
    finally:
        draft.unlink(missing_ok=True)
    _log.info("the model file %s was uploaded, %s bytes", name, n_bytes)
    return target


def sweep_uploads(folder: Path) -> None:
    """Remove what an earlier run of the program left half done."""
    for ending in (_ENDING, ".copy"):
        for draft in folder.glob(f"*{ending}"):
            draft.unlink(missing_ok=True)


async def _write(draft: Path, n_bytes: int, chunks: AsyncIterator[bytes]) -> int:
    """Gather and write in a thread; raises ModelFileError as soon as it is clear that this is no model."""
    n_written, gathered = 0, bytearray()
    with draft.open("wb") as file:
        async for chunk in chunks:
            gathered += chunk
            if len(gathered) >= _PIECE_BYTES:
                n_written += len(gathered)
                await asyncio.to_thread(file.write, bytes(gathered))
                gathered.clear()
                if n_written > n_bytes:
                    return n_written
                if n_written <= 2 * _PIECE_BYTES:
                    file.flush()
                    verify(draft)
        await asyncio.to_thread(file.write, bytes(gathered))
    return n_written + len(gathered)
