"""The settings while the program runs: what is in force, what the file says, and changing it without losing anything.

A change is compared with what its maker saw, checked whole, written whole and only then used. The owner's own comments
in the file stay. Decides nothing about who may change something, and knows no sentences for people.
"""

from __future__ import annotations

import asyncio
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import tomlkit
from pydantic import ValidationError

from appliance.base.errors import ChangedMeanwhile, SettingsError
from appliance.base.private_file import write_private, write_sound
from appliance.settings.files import Sources, combine, parse_file, read_file
from appliance.settings.schema import Settings, expected, is_live

_HEAD: Final = "Settings of Office Chat, changed on the admin page or here. Comments stay."


@dataclass(frozen=True)
class Shown:
    """One setting as an owner sees it; values as they are typed, "" for one that is not set."""

    key: str
    saved: str
    """What holds from the next start on; for a live setting, what holds now."""
    in_force: str
    default: str
    is_live: bool
    locked_by: str
    """What stands above the file: "the environment", "the command line", or "" """


@dataclass(frozen=True)
class Saved:
    """What a save has done."""

    now: tuple[str, ...]
    """Keys that act already."""
    at_restart: tuple[str, ...]


class SettingsStore:
    """Belongs to the event loop's thread; one save at a time."""

    def __init__(self, settings: Settings, sources: Sources) -> None:
        """`settings`: what the program was started with."""
        self.in_force = settings
        self.saved = settings
        """As the file was when it was last read."""
        self.users: list[Callable[[Settings], None]] = []
        """Told of every change of what is in force, in this order."""
        self.objections: list[Callable[[Settings, Settings], None]] = []
        """Asked before a save with the old and the new; raise SettingsError for what this PC cannot do."""
        self._sources = sources
        self._one_at_a_time = asyncio.Lock()

    @property
    def n_pending(self) -> int:
        """How many settings are saved and wait for a restart."""
        return sum(getattr(self.saved, key) != getattr(self.in_force, key) for key in Settings.model_fields)

    def shown(self) -> dict[str, Shown]:
        """Every setting, in the order of the table."""
        return {
            key: Shown(
                key=key,
                saved=as_text(getattr(self.saved, key)),
                in_force=as_text(getattr(self.in_force, key)),
                default=as_text(row.default),
                is_live=is_live(key),
                locked_by=self._sources.above[key].source if key in self._sources.above else "",
            )
            for key, row in Settings.model_fields.items()
        }

    async def refresh(self) -> None:
        """Read the file again, which may have been edited by hand. Raises SettingsError."""
        self.saved = (await self._read())[1]

    async def check(self, changes: Mapping[str, str]) -> None:
        """Whether these values, as typed, could be saved. Raises SettingsError."""
        _, saved = await self._read()
        self._combined(saved, _values(changes))

    async def save(self, changes: Mapping[str, str], seen: Mapping[str, str]) -> Saved:
        """Write these values, as typed, and use those that are live. All of them or none.

        Args:
            seen: what stood there when they were typed.
        Raises:
            ChangedMeanwhile: with the settings that are no longer as seen.
            SettingsError: a value that cannot be used, or one that the environment or a flag decides.
            OSError: the file cannot be written.
        """
        async with self._one_at_a_time:
            text, before = await self._read()
            values = _values(changes)
            for key in values:
                if key in self._sources.above:
                    raise SettingsError(f"{key} is set by {self._sources.above[key].source}", key, "locked")
            lost = [key for key in values if key in seen and as_text(getattr(before, key)) != seen[key]]
            if lost:
                self.saved = before
                raise ChangedMeanwhile(*lost)
            new = self._combined(before, values)
            for object_to in self.objections:
                object_to(before, new)
            changed = [key for key in values if getattr(new, key) != getattr(before, key)]
            if changed:
                draft = _written(text, {key: values[key] for key in changed})
                # Read as the next start will read it: what cannot be started with is not written.
                new = combine(self._sources, parse_file(draft, self._sources.path))
                await asyncio.to_thread(self._write, draft.encode())
            self.saved = new
            self._use_live(new)
            now = tuple(key for key in changed if is_live(key))
            return Saved(now, tuple(key for key in changed if not is_live(key)))

    def _write(self, content: bytes) -> None:
        path = self._sources.path.resolve()
        (write_private if self._sources.must_exist else write_sound)(path, content)

    def _use_live(self, new: Settings) -> None:
        live = {key: getattr(new, key) for key in Settings.model_fields if is_live(key)}
        changed = self.in_force.model_copy(update=live)
        if changed != self.in_force:
            self.in_force = changed
            for use in self.users:
                use(changed)

    def _combined(self, before: Settings, values: Mapping[str, Any]) -> Settings:
        """Both together, checked against each other."""
        in_file = {key: getattr(before, key) for key in Settings.model_fields if key not in self._sources.above}
        in_file |= values
        return combine(self._sources, {key: value for key, value in in_file.items() if value is not None})

    async def _read(self) -> tuple[str, Settings]:
        text = await asyncio.to_thread(read_file, self._sources)
        return text, combine(self._sources, parse_file(text, self._sources.path))


def as_text(value: object) -> str:
    """A value as it is typed; "" for one that is not set."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:.10g}" if isinstance(value, float) else str(value)


def _values(changes: Mapping[str, str]) -> dict[str, Any]:
    """The typed values as what they stand for. Raises SettingsError with the first that cannot be used."""
    values: dict[str, Any] = {}
    for key, typed in changes.items():
        row = Settings.model_fields.get(key)
        if row is None:
            raise SettingsError(f"{key}: there is no such setting", key, "unknown")
        if row.annotation is str:
            values[key] = typed
        else:
            # An input method writes the same digits in full width.
            text = unicodedata.normalize("NFKC", typed).strip()
            values[key] = None if not text and row.default is None else text
        try:
            values[key] = getattr(Settings.model_validate({key: values[key]}), key)
        except ValidationError:
            raise SettingsError(f"{key} = {typed!r}: expected {expected(key)}", key, "expected") from None
    return values


def _written(text: str, values: Mapping[str, Any]) -> str:
    """The file's text with these values in it; one that is not set is taken out."""
    document = tomlkit.parse(text) if text.strip() else tomlkit.document().add(tomlkit.comment(_HEAD))
    for key, value in values.items():
        if value is None:
            document.pop(key, None)
        else:
            document[key] = value
    return tomlkit.dumps(document)
