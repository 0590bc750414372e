"""The data folder's schema number: an older folder is brought up to date step by step, a newer one is refused.

What a step touches is copied first. A step that was cut off is undone from that copy and begun again.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from appliance.base.errors import StartFailed
from appliance.base.private_file import read_sound, write_sound

_log = logging.getLogger(__name__)

NUMBER_NAME = "schema"


@dataclass(frozen=True)
class Migration:
    """From the schema before it to `number`. `touches`: names in the data folder that it makes, changes or removes."""

    number: int
    touches: tuple[str, ...]
    run: Callable[[Path], None]
    """Called with the data folder; raises OSError or ValueError."""


MIGRATIONS: Final[tuple[Migration, ...]] = ()
"""In order, without gaps; the first leads to 2. Schema 1 is what programs wrote before there was a number."""


def is_up_to_date(data_dir: Path, migrations: Sequence[Migration] = MIGRATIONS) -> bool:
    """Whether the folder is as this program writes it. Raises StartFailed where its number cannot be read."""
    return schema_of(data_dir) == _known(migrations)


def bring_up_to_date(data_dir: Path, migrations: Sequence[Migration] = MIGRATIONS) -> None:
    """Run the missing steps in order. The caller sees to it that nobody else uses the folder.

    Raises:
        StartFailed: a newer program has written there (nothing is changed then), or a step failed (it is undone).
    """
    found = schema_of(data_dir)
    known = _known(migrations)
    if found > known:
        raise StartFailed(
            f"{data_dir} was written by a newer version of Office Chat (its schema is {found}, this program knows "
            f"{known}). Start the newer program, or choose another folder with --data-dir."
        )
    try:
        for step in migrations:
            if step.number > found:
                _take(step, data_dir)
        if not (data_dir / NUMBER_NAME).exists():
            _write_number(data_dir, known)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise StartFailed(
            f"{data_dir} could not be brought from schema {found} to {known} ({reason}); it is as it was. "
            "Make room on the disk and start again, or go on with the older program."
        ) from error


def schema_of(data_dir: Path) -> int:
    """The folder's number; 1 where there is none. Raises StartFailed for one that cannot be read."""
    path = data_dir / NUMBER_NAME
    try:
        return read_sound(path, int)
    except FileNotFoundError:
        return 1
    except (OSError, ValueError) as error:
        raise StartFailed(
            f"{path}: cannot be read as a number ({type(error).__name__}). Put a back-up there."
        ) from error


def _known(migrations: Sequence[Migration]) -> int:
    return migrations[-1].number if migrations else 1


def _take(step: Migration, data_dir: Path) -> None:
    kept = data_dir / f"backup-of-schema-{step.number - 1}"
    running = kept.with_name(kept.name + ".in-use")
    if running.exists():  # the step was cut off
        _restore(running, data_dir, step.touches)
    else:
        _copy(data_dir, step.touches, running)
    try:
        step.run(data_dir)
    except (OSError, ValueError):
        _restore(running, data_dir, step.touches)
        raise
    _write_number(data_dir, step.number)
    shutil.rmtree(kept, ignore_errors=True)
    running.rename(kept)
    _log.info("data folder brought to schema %s; what it was before is in %s", step.number, kept.name)


def _copy(source: Path, names: Sequence[str], target: Path) -> None:
    """Whole or not at all, and for this account alone."""
    unfinished = target.with_name(target.name + ".part")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(mode=0o700)
    for name in names:
        _copy_one(source / name, unfinished / name)
    unfinished.rename(target)


def _restore(backup: Path, data_dir: Path, names: Sequence[str]) -> None:
    for name in names:
        path = data_dir / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
        _copy_one(backup / name, path)


def _copy_one(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target)
    elif source.exists():
        shutil.copy2(source, target)


def _write_number(data_dir: Path, number: int) -> None:
    write_sound(data_dir / NUMBER_NAME, f"{number}\n".encode())
