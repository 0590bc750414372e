"""What tuning found, kept in the data folder: a file a model and CPU, found again at the next start.

Whatever is wrong there (no such choice, a file that is gone or changed) means the owner's own file, never an error.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from appliance.engine.cpu import cpu_identity, process_began_at

_log = logging.getLogger(__name__)
_NAME = "choices.json"
_VERSION = 1
_UNFINISHED = "unfinished-"
_ENDS_BYTES = 2**20
_SAMPLE_BYTES = 2**14
_N_SAMPLES = 64


@dataclass(frozen=True)
class Choice:
    """Which form serves this model best on this CPU."""

    model: str
    """Fingerprint of the source file."""
    cpu: str
    """See `cpu_key`."""
    cpu_name: str
    source_name: str
    form: str
    file: str
    """Relative to the folder; "" where the source itself is best."""
    file_fingerprint: str
    gain: float
    kl: float
    measured: dict[str, Any]
    """Every form's numbers, for whoever shows them."""


def fingerprint(path: Path) -> str:
    """Digest of the size, of both ends and of samples all over the file: 3 MB read of any size. Raises OSError."""
    size = path.stat().st_size
    digest = hashlib.sha256(str(size).encode())
    with path.open("rb") as file:
        digest.update(file.read(_ENDS_BYTES))
        for number in range(_N_SAMPLES):
            file.seek(size * number // _N_SAMPLES)
            digest.update(file.read(_SAMPLE_BYTES))
        file.seek(max(0, size - _ENDS_BYTES))
        digest.update(file.read())
    return digest.hexdigest()[:16]


def cpu_key(n_threads: int) -> str:
    """Two computers, or two numbers of threads, that may differ in speed have different keys."""
    return f"{hashlib.sha256(cpu_identity()[1].encode()).hexdigest()[:12]}-{n_threads}"


class Choices:
    """The folder of tuned files and its list. Written by one tuning at a time: `unfinished` marks its process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def all(self) -> list[Choice]:
        """Every choice that can be read."""
        return self._read() or []

    def find(self, source: Path, n_threads: int) -> Choice | None:
        """The choice for this file on this CPU. Raises OSError when the source cannot be read."""
        choices = self.all()
        if not choices:
            return None
        wanted = (fingerprint(source), cpu_key(n_threads))
        return next((choice for choice in choices if (choice.model, choice.cpu) == wanted), None)

    def keep(self, choice: Choice) -> None:
        """Add it in place of an older one, whose file stays until the next sweep: it may be in use. Raises OSError."""
        others = [old for old in self.all() if (old.model, old.cpu) != (choice.model, choice.cpu)]
        self._write([*others, choice])

    def unfinished(self) -> Path:
        """The folder for this process's work in progress."""
        return self.folder / f"{_UNFINISHED}{os.getpid()}"

    def running(self) -> int | None:
        """Number of another process that is tuning here."""
        for path in self._unfinished():
            pid = path.name.removeprefix(_UNFINISHED)
            if not pid.isdecimal() or int(pid) == os.getpid():
                continue
            began = process_began_at(int(pid))
            if began is not None and began <= path.stat().st_mtime:  # else its number has passed to another program
                return int(pid)
        return None

    def sweep(self) -> None:
        """Remove what an interrupted tuning left behind and files no choice names; only before a model is loaded."""
        if self.running() is not None:
            return
        for path in self._unfinished():
            _log.info("removing what an interrupted tuning left: %s", path.name)
            shutil.rmtree(path, ignore_errors=True)
        self._remove_orphans()

    def _unfinished(self) -> list[Path]:
        return sorted(self.folder.glob(f"{_UNFINISHED}*"))

    def _write(self, choices: Iterable[Choice]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"version": _VERSION, "choices": [asdict(c) for c in choices]}, ensure_ascii=False, indent=1)
        draft = self.folder / f"{_NAME}.{os.getpid()}"
        with draft.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self.folder / _NAME)

    def _read(self) -> list[Choice] | None:
        """None when there is a list and it cannot be understood."""
        try:
            content = json.loads((self.folder / _NAME).read_text(encoding="utf-8"))
            if content["version"] == _VERSION:
                return [Choice(**entry) for entry in content["choices"]]
            problem = f"version {content['version']}"
        except FileNotFoundError:
            return []
        except (OSError, ValueError, TypeError, KeyError) as error:
            problem = type(error).__name__
        _log.warning("what tuning found cannot be read (%s): tune again", problem)
        return None

    def _remove_orphans(self) -> None:
        choices = self._read()
        if choices is None:
            return  # nobody knows which files those are
        named = {choice.file for choice in choices}
        for path in self.folder.glob("*/*.gguf"):
            if path.relative_to(self.folder).as_posix() in named:
                continue
            try:
                path.unlink()
                path.parent.rmdir()
            except OSError as error:
                _log.info("a tuned file that is out of use stays: %s", error.strerror)


def tuned_file(source: Path, folder: Path, n_threads: int, max_kl: float) -> Path | None:
    """The file to load instead of `source`; None where there is none, or none the owner's bound allows."""
    try:
        choice = Choices(folder).find(source, n_threads)
        if choice is None or not choice.file:
            return None
        if choice.kl > max_kl:
            _log.info("the tuned file loses %.3f nats, more than tuning_max_kl: not used", choice.kl)
            return None
        path = folder / choice.file
        if fingerprint(path) != choice.file_fingerprint:
            _log.warning("the tuned file %s has changed: the model's own file is used; tune again", path.name)
            return None
    except OSError as error:
        _log.warning("the tuned file cannot be used (%s): the model's own is; tune again", error.strerror)
        return None
    _log.info("%s answers as %s, tuned for this CPU: %.2f times as fast", source.name, choice.form, choice.gain)
    return path
