"""One rule at a time in a file of the owner's rules: read, put in, replaced, taken out. Everything else in it stays.

Knows no meaning of a rule: what it may hold is checked where the file is compiled.
"""

from __future__ import annotations

import asyncio
import hashlib
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import AoT

from appliance.base.errors import ChangedMeanwhile
from appliance.settings.owner_file import BadRules, OwnerFile, not_toml

Rule = Mapping[str, Any]


@dataclass(frozen=True)
class RuleText:
    """A file as it was read."""

    text: str
    revision: str
    """Another one as soon as the text is."""
    error: BadRules | None = None
    """Why it is not in use; None when it is."""


class RuleFiles:
    """The owner's files of rules, changed by one at a time. Belongs to the event loop's thread."""

    def __init__(self, files: Mapping[str, OwnerFile[Any]]) -> None:
        self._files = files
        self._one_at_a_time = asyncio.Lock()

    def on_last_good(self) -> list[str]:
        """Files that were damaged before this start, so that the rules read before are in force."""
        return [file.path.name for file in self._files.values() if file.is_last_good]

    async def read(self, name: str) -> RuleText:
        """The file as it is now; an empty text where there is none. Raises BadRules where it cannot be read."""
        text = await asyncio.to_thread(self._files[name].text)
        return RuleText(text, hashlib.sha256(text.encode()).hexdigest()[:16], self._files[name].error)

    async def check(self, name: str, text: str) -> None:
        """Whether the file could be replaced by `text`. Raises BadRules."""
        await asyncio.to_thread(self._files[name].check, text)

    async def write(self, name: str, text: str, revision: str) -> None:
        """Replace the file as it was at `revision` and use it, all or nothing.

        Raises ChangedMeanwhile, BadRules with the line, OSError.
        """
        await self._change(name, revision, lambda _before: text)

    async def put(self, name: str, index: int | None, rule: Rule, revision: str) -> None:
        """Add a rule, or replace the one at `index`. Raises as `write`."""
        await self._change(name, revision, lambda before: with_rule(before, index, rule))

    async def remove(self, name: str, index: int, revision: str) -> None:
        """Take a rule out. Raises as `write`."""
        await self._change(name, revision, lambda before: without_rule(before, index))

    async def _change(self, name: str, revision: str, change: Callable[[str], str]) -> None:
        async with self._one_at_a_time:
            before = await self.read(name)
            if before.revision != revision:
                raise ChangedMeanwhile(name)
            await asyncio.to_thread(self._files[name].write, change(before.text))


def rules_in(text: str) -> Sequence[Rule]:
    """The rules of a file's text, in order. Raises BadRules."""
    try:
        rules = tomllib.loads(text).get("rule", [])
    except tomllib.TOMLDecodeError as error:
        raise not_toml(error, text) from None
    return rules if isinstance(rules, list) else []


def with_rule(text: str, index: int | None, rule: Rule) -> str:
    """The text with `rule` at the end, or in place of the one at `index`: keys that are empty are left out.

    Raises BadRules: the text is no TOML, or has no such rule.
    """
    document, rules = _parsed(text)
    if index is None:
        table = tomlkit.table()
        rules.append(table)
    else:
        _check(rules, index)
        table = rules[index]
    for key, value in rule.items():
        if value in ("", [], None):
            table.pop(key, None)
        else:
            table[key] = tomlkit.string(value, multiline="\n" in value) if isinstance(value, str) else value
    if index is None and "rule" not in document:
        document.append("rule", rules)
    return tomlkit.dumps(document)


def without_rule(text: str, index: int) -> str:
    """The text without the rule at `index`. Raises BadRules."""
    document, rules = _parsed(text)
    _check(rules, index)
    del rules[index]
    if not len(rules):
        document.pop("rule")
    return tomlkit.dumps(document)


def _parsed(text: str) -> tuple[tomlkit.TOMLDocument, AoT]:
    try:
        tomllib.loads(text)  # tomlkit is less strict
        document = tomlkit.parse(text)
    except (tomllib.TOMLDecodeError, TOMLKitError) as error:
        raise not_toml(error, text) from None
    rules = document.get("rule")
    if rules is not None and not isinstance(rules, AoT):
        raise BadRules("rules that are written in one line cannot be changed one by one", "inline")
    return document, tomlkit.aot() if rules is None else rules


def _check(rules: AoT, index: int) -> None:
    if not 0 <= index < len(rules):
        raise BadRules("there is no such rule any more", "gone")
