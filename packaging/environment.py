"""An environment of the checkout: where it is, what is in it, and the stamps that say what each part was made from."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

NEEDED_PYTHON = (3, 11)
PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)(?: ; sys_platform == '(\w+)')?", re.MULTILINE)
LOCKS = {
    "runtime": "requirements.lock",
    "dev": "requirements-dev.lock",
    "freeze": "packaging/freeze.lock",
    "starter": "packaging/starter.lock",
}


def pins(lock: str) -> dict[str, str]:
    """Name (as in installed metadata: lower case, `_`) to version, of the text of a lock file, for this system."""
    return {_metadata_name(name): version for name, version, only in PIN.findall(lock) if only in ("", sys.platform)}


def _metadata_name(name: str) -> str:
    return re.sub(r"[-_.]+", "_", name).lower()


def installed(site_packages: Path) -> dict[str, str]:
    """Name to version of what pip finished installing: RECORD is the last file it writes."""
    found = {}
    for folder in site_packages.glob("*.dist-info"):
        name, _, version = folder.name.removesuffix(".dist-info").rpartition("-")
        if (folder / "RECORD").exists():
            found[_metadata_name(name)] = version
    return found


def venv_key() -> str:
    """An environment fits one minor version of Python on one kind of machine."""
    return "{} {}.{} {}".format(sys.implementation.name, *sys.version_info[:2], platform.machine())


def wheel_folders(root: Path, named: str | None) -> tuple[Path, ...]:
    """Where ready wheels are looked for; a compiled one is kept in the first."""
    own = root / "wheels"
    return (Path(named).expanduser().resolve(), own) if named else (own,)


def pip_command(python: Path) -> list[str]:
    """pip of the environment that `python` belongs to; its settings and variables stay as the owner has them."""
    return [str(python), "-E", "-s", "-m", "pip", "--disable-pip-version-check", "--no-input"]


@dataclass(frozen=True)
class Environment:
    """Paths below the checkout `root`, and the state of an environment in `folder` there as files tell it."""

    root: Path
    wheels: tuple[Path, ...]
    folder: str = ".venv"
    any_cpu: bool = False
    """Its llama.cpp is for every CPU, not for this one."""

    @property
    def venv(self) -> Path:
        return self.root / self.folder

    @property
    def packaging(self) -> Path:
        return self.root / "packaging"

    @property
    def logs(self) -> Path:
        return self.root / "build" / "setup"

    @property
    def python(self) -> Path:
        return self.venv / ("Scripts/python.exe" if os.name == "nt" else "bin/python")

    @property
    def site_packages(self) -> Path:
        if os.name == "nt":
            return self.venv / "Lib" / "site-packages"
        return self.venv / "lib" / "python{}.{}".format(*NEEDED_PYTHON) / "site-packages"

    @property
    def _stamps_file(self) -> Path:
        return self.venv / "office-chat-setup.json"

    @property
    def _unfinished(self) -> Path:
        return self.venv / "office-chat-setup.unfinished"

    def lock_text(self, part: str) -> str:
        return (self.root / LOCKS[part]).read_text()

    def lock_digest(self, part: str) -> str:
        return hashlib.sha256(self.lock_text(part).encode()).hexdigest()

    def installed(self) -> dict[str, str]:
        return installed(self.site_packages)

    def stamps(self) -> dict[str, str]:
        """What each finished part was made from; empty when the environment cannot be trusted."""
        try:
            stamps = json.loads(self._stamps_file.read_text())
        except (OSError, ValueError):
            return {}
        usable = self.python.exists() and (self.venv / "pyvenv.cfg").exists() and not self._unfinished.exists()
        return stamps if usable and isinstance(stamps, dict) and stamps.get("venv") == venv_key() else {}

    def begin_stamps(self) -> None:
        """The first stamp, of a fresh environment with nothing in it."""
        self._stamps_file.write_text(json.dumps({"venv": venv_key()}))

    def stamp(self, **stamps: str) -> None:
        """Record finished parts, by a rename, so that the file is never half written."""
        fresh = self._stamps_file.with_suffix(".part")
        fresh.write_text(json.dumps({**self.stamps(), **stamps}, indent=1))
        fresh.replace(self._stamps_file)

    @contextlib.contextmanager
    def being_changed(self) -> Iterator[None]:
        """A mark that stays when we fail or are killed in between: half an installation is never trusted."""
        self._unfinished.touch()
        yield
        self._unfinished.unlink()

    def was_not_changed(self) -> None:
        """Take the mark back after a failure that came before anything was written."""
        self._unfinished.unlink()
