"""Reads the settings: file < environment < flags; an unknown key or a bad value stops the start with a sentence."""

from __future__ import annotations

import difflib
import json
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pydantic import ValidationError

from appliance.base.errors import SettingsError
from appliance.base.paths import CONFIG_NAME, default_data_dir
from appliance.base.private_file import is_cut_off, read_sound
from appliance.network.hosts import is_label, parse_host_list
from appliance.settings.owner_file import line_in
from appliance.settings.presets import PRESETS, parse_presets
from appliance.settings.schema import Settings, expected, parse_cores

ENV_PREFIX = "OFFICE_CHAT_"
NOT_SETTINGS = frozenset({"OFFICE_CHAT_WHEELS", "OFFICE_CHAT_CONFIG", "OFFICE_CHAT_RESTARTED"})
"""Variables with our prefix that are no settings: wheels for the set-up, the settings file, a start by ourselves."""


@dataclass(frozen=True)
class Above:
    """A value that stands above the file, and where: "the environment" or "the command line"."""

    value: Any
    source: str


@dataclass(frozen=True)
class Sources:
    """Where the settings of this run come from. The file may change while the program runs, the rest does not."""

    path: Path
    data_dir: Path
    must_exist: bool = False
    """Whether the file was asked for by name."""
    above: Mapping[str, Above] = field(default_factory=dict)


def load_settings(env: Mapping[str, str], flags: Mapping[str, Any], config: Path | None = None) -> Settings:
    """Read file, environment and flags; see `find_sources` and `read_settings`."""
    return read_settings(find_sources(env, flags, config))


def find_sources(env: Mapping[str, str], flags: Mapping[str, Any], config: Path | None = None) -> Sources:
    """Environment and flags (values of flags that were not given are left out by the caller), and which file to read.

    Args:
        env: the process environment.
        flags: setting name to value as typed.
        config: the TOML file to read; it must exist. None: office-chat.toml in the data directory, if there is one.
    Raises:
        SettingsError: with the key, the value, its source and what would be right.
    """
    from_env = _environment(env)
    data_dir = Path(flags.get("data_dir") or from_env.get("data_dir") or default_data_dir(env)).expanduser()
    config = config or (Path(env["OFFICE_CHAT_CONFIG"]) if env.get("OFFICE_CHAT_CONFIG") else None)
    above: dict[str, Above] = {}
    for source, values in (("the environment", from_env), ("the command line", flags)):
        checked = _check(values, source, strict=False)
        above.update({key: Above(value, source) for key, value in checked.items()})
    return Sources(config or data_dir / CONFIG_NAME, data_dir, config is not None, above)


def read_settings(sources: Sources) -> Settings:
    """The settings of a start. Where a power cut has spoilt the file it is the last good one. Raises SettingsError.

    A file that was asked for by name is its owner's: nothing is kept beside it.
    """
    path = sources.path
    if sources.must_exist or not path.exists():
        return combine(sources, parse_file(read_file(sources), path))

    def parse(content: bytes) -> dict[str, Any]:
        if is_cut_off(content, path):
            raise ValueError("it is cut off")
        return tomllib.loads(content.decode("utf-8-sig"))

    try:
        return combine(sources, read_sound(path, parse))
    except (OSError, ValueError):  # there is no good copy: say what is wrong with the file
        return combine(sources, parse_file(read_file(sources), path))


def combine(sources: Sources, in_file: Mapping[str, Any]) -> Settings:
    """What stands in the file and above it. Raises SettingsError, also for values that do not go together."""
    name = sources.path.name
    checked = _check(in_file, name, strict=True)
    origins = dict.fromkeys(checked, name) | {key: above.source for key, above in sources.above.items()}
    merged = checked | {key: above.value for key, above in sources.above.items()}
    merged["data_dir"] = str(Path(merged.get("data_dir") or sources.data_dir).expanduser().absolute())
    settings = Settings(**merged)
    _cross_check(settings, origins)
    return settings


def read_file(sources: Sources) -> str:
    """The file's text; "" where there is none and none was asked for. Raises SettingsError."""
    path = sources.path
    try:
        return path.read_text(encoding="utf-8-sig")
    except (FileNotFoundError, NotADirectoryError):
        if sources.must_exist:
            sentence = f"--config {path}: there is no such file."
            raise SettingsError(sentence, rule="no_file", name=path.name) from None
        return ""
    except (OSError, UnicodeDecodeError) as error:
        problem = f"cannot be read ({type(error).__name__}); it must be a UTF-8 text file"
        raise SettingsError(f"{path}: {problem}.", rule="unreadable") from error


def parse_file(text: str, path: Path) -> dict[str, Any]:
    """The values of a settings file's text. Raises SettingsError."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{path}: is not valid TOML: {error}.", rule="toml", line=line_in(error, text)) from error


def _environment(env: Mapping[str, str]) -> dict[str, str]:
    names = (name for name in env if name.startswith(ENV_PREFIX) and name not in NOT_SETTINGS)
    return {name.removeprefix(ENV_PREFIX).lower(): env[name] for name in names}


def _check(values: Mapping[str, Any], source: str, *, strict: bool) -> dict[str, Any]:
    """The values as their types; text from flags and environment is converted, a file must have the types right."""
    for key in values:
        if key not in Settings.model_fields:
            near = difflib.get_close_matches(key, Settings.model_fields, n=1, cutoff=0.5)
            hint = f" Did you mean {near[0]}?" if near else " docs/settings.md lists them all."
            sentence = f"{_spell(key, source)} in {source}: there is no such setting.{hint}"
            raise SettingsError(sentence, rule="file_unknown", name=key)
    try:
        checked = Settings.model_validate(dict(values), strict=strict)
    except ValidationError as error:
        key = str(error.errors()[0]["loc"][0])
        shown = json.dumps(values[key], ensure_ascii=False, default=str)
        sentence = f"{_spell(key, source)} = {shown} in {source}: expected {expected(key)}"
        raise SettingsError(sentence, key, "expected") from None
    return {key: getattr(checked, key) for key in checked.model_fields_set}


def _spell(key: str, source: str) -> str:
    """The key as it is written in that source."""
    if source == "the environment":
        return ENV_PREFIX + key.upper()
    return "--" + key.replace("_", "-") if source == "the command line" else key


def _cross_check(settings: Settings, origins: Mapping[str, str]) -> None:
    """Rules between two settings. Each names both keys, both values and what would be right."""

    def refuse(key: str, right: str, rule: str, **values: object) -> SettingsError:
        source = origins.get(key, "the defaults")
        sentence = f"{_spell(key, source)} = {getattr(settings, key)} in {source}: expected {right}"
        return SettingsError(sentence, key, rule, **values)

    half = settings.max_context_tokens // 2
    if settings.max_answer_tokens > half:
        right = f"at most {half}, half of max_context_tokens = {settings.max_context_tokens}"
        raise refuse("max_answer_tokens", right, "half_of_context", most=half)
    cores = parse_cores(settings.engine_cores)
    n_cores = os.cpu_count() or 1
    if cores is None or any(core >= n_cores for core in cores):
        right = f"processor numbers from 0 to {n_cores - 1}, like 0,2-3"
        raise refuse("engine_cores", right, "cores", most=n_cores - 1)
    if parse_host_list(settings.allowed_hosts) is None:
        raise refuse("allowed_hosts", "names or addresses without ports, like chat.example", "hosts")
    for key in ("download_endpoint", "download_proxy"):
        value = getattr(settings, key)
        if value and not _is_web_address(value):
            raise refuse(key, "an address that begins with http:// or https://", "web_address")
    if settings.lan_name and not is_label(settings.lan_name):
        right = "small letters, digits and hyphens, like office-chat, without .local"
        raise refuse("lan_name", right, "label")
    if parse_presets(settings.presets) is None:
        ours = ", ".join(preset.name for preset in PRESETS)
        raise refuse("presets", f"{ours}, or Name: beginning, separated by |", "presets")
    if settings.engine_priority == "realtime" and not 0 < len(cores) < n_cores:
        right = "another one, or engine_cores that leave at least one core to other programs"
        raise refuse("engine_priority", right, "realtime")
    if settings.min_batch_size > settings.max_batch_size:
        right = f"at most max_batch_size = {settings.max_batch_size}"
        raise refuse("min_batch_size", right, "batch", most=settings.max_batch_size)
    if settings.disconnect_grace_busy_s > settings.disconnect_grace_s:
        right = f"at most disconnect_grace_s = {settings.disconnect_grace_s:g}"
        raise refuse("disconnect_grace_busy_s", right, "grace", most=f"{settings.disconnect_grace_s:g}")


def _is_web_address(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
