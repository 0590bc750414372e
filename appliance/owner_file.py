"""A text file of the owner's rules: read again when it changes. What cannot be read leaves the last good rules."""

from __future__ import annotations

import logging
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from appliance.private_file import write_private

_log = logging.getLogger(__name__)

MAX_FILE_BYTES = 1_000_000
_TABLE = re.compile(r"^[ \t]*\[\[[ \t]*rule[ \t]*\]\]", re.MULTILINE)

Rules = TypeVar("Rules")
Model = TypeVar("Model", bound=BaseModel)


class BadRules(ValueError):
    """Rules that cannot be used: the sentence names the line."""


class StrictModel(BaseModel):
    """A table of such a file: what it does not know is refused, and nothing is converted."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class OwnerFile(Generic[Rules]):
    """One file. `refresh` and `write` touch the disk: call them in a thread. `rules` may be read from any."""

    def __init__(self, path: Path, parse: Callable[[str], Rules]) -> None:
        """`parse` makes rules of the file's text, "" for a missing file; raises BadRules."""
        self.path = path
        self.rules = parse("")
        self.problem = ""
        """Why the file as it is now is not in use; "" when it is."""
        self._parse = parse
        self._seen: tuple[int, ...] | None = ()
        self.refresh()

    def refresh(self) -> None:
        """Read the file if it has changed. A bad one is named in the log, once."""
        seen = _state(self.path)
        if seen == self._seen:
            return
        self._seen = seen
        try:
            self.rules = self._parse("" if seen is None else _read(self.path))
            self.problem = ""
        except BadRules as error:
            self.problem = f"{self.path.name}: {error}"
            _log.error("%s; the rules read before stay in use", self.problem)

    def text(self) -> str:
        """The file's text as it is now; "" for a missing one. Touches the disk. Raises BadRules."""
        return "" if _state(self.path) is None else _read(self.path)

    def write(self, text: str) -> None:
        """Replace the file, all or nothing, and use it. Raises BadRules or OSError, and then nothing has changed."""
        self._parse(text)
        write_private(self.path, text.encode())
        self.refresh()


def parse_rules(text: str, model: type[Model]) -> tuple[Model, list[int]]:
    """The text as `model`, and the line every `[[rule]]` begins in. Raises BadRules with the line."""
    lines = [text.count("\n", 0, match.start()) + 1 for match in _TABLE.finditer(text)]
    try:
        return model.model_validate(tomllib.loads(text)), lines
    except tomllib.TOMLDecodeError as error:
        raise BadRules(f"not valid TOML: {error}") from None
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise BadRules(_sentence(first, lines)) from None


def line_of(lines: list[int], index: int) -> str:
    """ "line 12", as far as it is known; rules can be written in ways that have no line of their own."""
    return f"line {lines[index]}" if index < len(lines) else f"rule {index + 1}"


def _sentence(error: Any, lines: list[int]) -> str:
    location = list(error["loc"])
    if len(location) > 1 and location[0] == "rule":
        place, location = line_of(lines, location[1]), location[2:]
    else:
        place = "at the top"
    name = ".".join(str(part) for part in location)
    what = "there is no such key" if error["type"] == "extra_forbidden" else error["msg"]
    return f"{place}: {name}: {what}" if name else f"{place}: {what}"


def _state(path: Path) -> tuple[int, ...] | None:
    """What changes when the file does; None for a missing one."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    except OSError:
        return (-1,)  # it is there, and reading it will say what is wrong
    return status.st_mtime_ns, status.st_size, status.st_ino


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
        if len(data) > MAX_FILE_BYTES:
            raise BadRules(f"longer than {MAX_FILE_BYTES} bytes")
        return data.decode("utf-8-sig")
    except OSError as error:
        raise BadRules(f"cannot be read ({error.strerror or type(error).__name__})") from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise BadRules(f"line {line}: not UTF-8 text") from None
