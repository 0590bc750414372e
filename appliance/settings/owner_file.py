"""A text file of the owner's rules: read again when it changes. What cannot be read leaves the last good rules."""

from __future__ import annotations

import logging
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from appliance.base.private_file import good_copy, is_cut_off, keep_good, write_sound

_log = logging.getLogger(__name__)

MAX_FILE_BYTES = 1_000_000
_LINE = re.compile(r"at line (\d+)")
_RULES = {
    "extra_forbidden": "key",
    "missing": "missing",
    "string_too_short": "missing",
    "list_type": "list",
    "string_type": "text",
    "bool_type": "switch",
}
"""What pydantic calls it, and what we do."""
_TABLE = re.compile(r"^[ \t]*\[\[[ \t]*rule[ \t]*\]\]", re.MULTILINE)

Rules = TypeVar("Rules")
Model = TypeVar("Model", bound=BaseModel)


@dataclass(frozen=True)
class Location:
    """Where in a file of rules. `number` counts them from 1, 0: none of them; `line` is where it begins, 0: unknown."""

    number: int = 0
    line: int = 0

    def __str__(self) -> str:
        return f"line {self.line}" if self.line else f"rule {self.number}" if self.number else "at the top"


class BadRules(ValueError):
    """Rules that cannot be used: the sentence names the line.

    `rule`, `place` and `values` say the same for the admin page, which has its own sentences.
    """

    def __init__(self, sentence: str, rule: str, place: Location | None = None, **values: object) -> None:
        super().__init__(sentence)
        self.rule = rule
        self.place = place
        self.values: Mapping[str, object] = values


class StrictModel(BaseModel):
    """A table of such a file: what it does not know is refused, and nothing is converted."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class OwnerFile(Generic[Rules]):
    """One file. `refresh` and `write` touch the disk: call them in a thread. `rules` may be read from any."""

    def __init__(self, path: Path, parse: Callable[[str], Rules]) -> None:
        """`parse` makes rules of the file's text, "" for a missing file; raises BadRules."""
        self.path = path
        self.rules = parse("")
        self.error: BadRules | None = None
        """Why the file as it is now is not in use."""
        self._parse = parse
        self._seen: tuple[int, ...] | None = ()
        self.is_last_good = False
        """Whether the rules are those that could last be read before this start: the file was damaged since."""
        if _state(path) is not None:
            self._read_at_start()
        self.refresh()

    def _read_at_start(self) -> None:
        """What could last be read of the file is in force where it cannot be, or is cut off, until it is mended."""
        try:
            content = self.path.read_bytes()
            self._parse(_read(self.path))
            is_damaged = is_cut_off(content, self.path)
        except (BadRules, OSError):
            is_damaged = True
        try:
            if is_damaged:
                self.rules, self.is_last_good = self._parse(_read(good_copy(self.path))), True
                if is_cut_off(content := self.path.read_bytes(), self.path):
                    self.error = BadRules("it is cut off", "cut_off")
                    self._seen = _state(self.path)
            else:
                keep_good(self.path, content)
        except (BadRules, OSError) as error:
            _log.warning("%s: nothing is kept to fall back on (%s)", self.path.name, type(error).__name__)

    def refresh(self) -> None:
        """Read the file if it has changed. A bad one is named in the log, once."""
        seen = _state(self.path)
        if seen == self._seen:
            return
        self._seen = seen
        try:
            self.rules = self._parse("" if seen is None else _read(self.path))
            self.error, self.is_last_good = None, False
        except BadRules as error:
            self.error = error
            _log.error("%s; the rules read before stay in use", self.problem)

    @property
    def problem(self) -> str:
        """The error as a sentence with the file's name; "" for none."""
        return f"{self.path.name}: {self.error}" if self.error is not None else ""

    def check(self, text: str) -> None:
        """Whether it could be written. Raises BadRules."""
        self._parse(text)

    def text(self) -> str:
        """The file's text as it is now; "" for a missing one. Touches the disk. Raises BadRules."""
        return "" if _state(self.path) is None else _read(self.path)

    def write(self, text: str) -> None:
        """Replace the file, all or nothing, and use it. Raises BadRules or OSError, and then nothing has changed."""
        self._parse(text)
        write_sound(self.path, text.encode())
        self.refresh()


def parse_rules(text: str, model: type[Model]) -> tuple[Model, list[int]]:
    """The text as `model`, and the line every `[[rule]]` begins in. Raises BadRules with the line."""
    lines = [text.count("\n", 0, match.start()) + 1 for match in _TABLE.finditer(text)]
    try:
        return model.model_validate(tomllib.loads(text)), lines
    except tomllib.TOMLDecodeError as error:
        raise not_toml(error, text) from None
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise _no_rules(first, lines) from None


def place_of(lines: list[int], index: int) -> Location:
    """Of the rule at `index`; rules can be written in ways that have no line of their own."""
    return Location(index + 1, lines[index] if index < len(lines) else 0)


def not_toml(error: Exception, text: str) -> BadRules:
    """What a parser of TOML says of `text`."""
    return BadRules(f"not valid TOML: {error}", "toml", Location(line=line_in(error, text)))


def line_in(error: Exception, text: str) -> int:
    """The line of `text` a parser of TOML stopped at; it names none for the last."""
    found = _LINE.search(str(error))
    return int(found[1]) if found else text.rstrip().count("\n") + 1


def _no_rules(error: Any, lines: list[int]) -> BadRules:
    location, place = list(error["loc"]), Location()
    if len(location) > 1 and location[0] == "rule":
        place, location = place_of(lines, location[1]), location[2:]
    name = ".".join(str(part) for part in location)
    rule = _RULES.get(error["type"], "wrong")
    what = "there is no such key" if rule == "key" else error["msg"]
    sentence = f"{place}: {name}: {what}" if name else f"{place}: {what}"
    return BadRules(sentence, rule, place, name=name or "rule")


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
            raise BadRules(f"longer than {MAX_FILE_BYTES} bytes", "too_long", most=MAX_FILE_BYTES)
        return data.decode("utf-8-sig")
    except OSError as error:
        raise BadRules(f"cannot be read ({error.strerror or type(error).__name__})", "unreadable") from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise BadRules(f"line {line}: not UTF-8 text", "utf8", Location(line=line)) from None
