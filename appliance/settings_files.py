"""Reads the settings: file < environment < flags; an unknown key or a bad value stops the start with a sentence."""

from __future__ import annotations

import difflib
import json
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pydantic import ValidationError

from appliance.errors import SettingsError
from appliance.hosts import is_label, parse_host_list
from appliance.paths import CONFIG_NAME, default_data_dir
from appliance.settings import Settings, expected, parse_cores

ENV_PREFIX = "OFFICE_CHAT_"
NOT_SETTINGS = frozenset({"OFFICE_CHAT_WHEELS", "OFFICE_CHAT_CONFIG"})
"""Variables with our prefix that are no settings: a folder of wheels for the set-up, and the settings file itself."""


def load_settings(env: Mapping[str, str], flags: Mapping[str, Any], config: Path | None = None) -> Settings:
    """Read file, environment and flags (values of flags that were not given are left out by the caller).

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
    path = config or data_dir / CONFIG_NAME
    origins: dict[str, str] = {}
    merged: dict[str, Any] = {}
    for source, values in (
        (path.name, _file(path, required=config is not None)),
        ("the environment", from_env),
        ("the command line", flags),
    ):
        checked = _check(values, source, strict=source == path.name)
        merged.update(checked)
        origins.update(dict.fromkeys(checked, source))
    merged["data_dir"] = str(Path(merged.get("data_dir") or data_dir).expanduser().absolute())
    settings = Settings(**merged)
    _cross_check(settings, origins)
    return settings


def _environment(env: Mapping[str, str]) -> dict[str, str]:
    names = (name for name in env if name.startswith(ENV_PREFIX) and name not in NOT_SETTINGS)
    return {name.removeprefix(ENV_PREFIX).lower(): env[name] for name in names}


def _file(path: Path, *, required: bool) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (FileNotFoundError, NotADirectoryError):
        if required:
            raise SettingsError(f"--config {path}: there is no such file.") from None
        return {}
    except (OSError, UnicodeDecodeError) as error:
        problem = f"cannot be read ({type(error).__name__}); it must be a UTF-8 text file"
        raise SettingsError(f"{path}: {problem}.") from error
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{path}: is not valid TOML: {error}.") from error


def _check(values: Mapping[str, Any], source: str, *, strict: bool) -> dict[str, Any]:
    """The values as their types; text from flags and environment is converted, a file must have the types right."""
    for key in values:
        if key not in Settings.model_fields:
            near = difflib.get_close_matches(key, Settings.model_fields, n=1, cutoff=0.5)
            hint = f" Did you mean {near[0]}?" if near else " docs/settings.md lists them all."
            raise SettingsError(f"{_spell(key, source)} in {source}: there is no such setting.{hint}")
    try:
        checked = Settings.model_validate(dict(values), strict=strict)
    except ValidationError as error:
        key = str(error.errors()[0]["loc"][0])
        shown = json.dumps(values[key], ensure_ascii=False, default=str)
        raise SettingsError(f"{_spell(key, source)} = {shown} in {source}: expected {expected(key)}") from None
    return {key: getattr(checked, key) for key in checked.model_fields_set}


def _spell(key: str, source: str) -> str:
    """The key as it is written in that source."""
    if source == "the environment":
        return ENV_PREFIX + key.upper()
    return "--" + key.replace("_", "-") if source == "the command line" else key


def _cross_check(settings: Settings, origins: Mapping[str, str]) -> None:
    """Rules between two settings. Each names both keys, both values and what would be right."""
    half = settings.max_context_tokens // 2
    if settings.max_answer_tokens > half:
        right = f"at most {half}, half of max_context_tokens = {settings.max_context_tokens}"
        raise _conflict("max_answer_tokens", settings, origins, right)
    cores = parse_cores(settings.engine_cores)
    n_cores = os.cpu_count() or 1
    if cores is None or any(core >= n_cores for core in cores):
        right = f"processor numbers from 0 to {n_cores - 1}, like 0,2-3"
        raise _conflict("engine_cores", settings, origins, right)
    if parse_host_list(settings.allowed_hosts) is None:
        raise _conflict("allowed_hosts", settings, origins, "names or addresses without ports, like chat.example")
    for key in ("download_endpoint", "download_proxy"):
        value = getattr(settings, key)
        if value and not _is_web_address(value):
            raise _conflict(key, settings, origins, "an address that begins with http:// or https://")
    if settings.lan_name and not is_label(settings.lan_name):
        right = "small letters, digits and hyphens, like office-chat, without .local"
        raise _conflict("lan_name", settings, origins, right)
    if settings.engine_priority == "realtime" and not 0 < len(cores) < n_cores:
        right = "another one, or engine_cores that leave at least one core to other programs"
        raise _conflict("engine_priority", settings, origins, right)
    if settings.min_batch_size > settings.max_batch_size:
        right = f"at most max_batch_size = {settings.max_batch_size}"
        raise _conflict("min_batch_size", settings, origins, right)
    if settings.disconnect_grace_busy_s > settings.disconnect_grace_s:
        right = f"at most disconnect_grace_s = {settings.disconnect_grace_s:g}"
        raise _conflict("disconnect_grace_busy_s", settings, origins, right)


def _is_web_address(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _conflict(key: str, settings: Settings, origins: Mapping[str, str], right: str) -> SettingsError:
    source = origins.get(key, "the defaults")
    return SettingsError(f"{_spell(key, source)} = {getattr(settings, key)} in {source}: expected {right}")
