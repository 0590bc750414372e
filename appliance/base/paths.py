"""Where things live, from source or frozen: the only module that knows. It creates folders, never files."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from appliance.base.errors import StartFailed

FOLDER_NAME = "office-chat"
CONFIG_NAME = "office-chat.toml"


def default_data_dir(env: Mapping[str, str], platform: str = sys.platform, home: Path | None = None) -> Path:
    """The folder this platform keeps a user's program data in."""
    xdg = env.get("XDG_DATA_HOME", "")
    # The XDG specification: a relative path there is to be ignored.
    if platform not in ("win32", "darwin") and Path(xdg).is_absolute():
        return Path(xdg) / FOLDER_NAME
    home = home or _home()
    if platform == "win32":
        return Path(env.get("LOCALAPPDATA") or home / "AppData" / "Local") / FOLDER_NAME
    if platform == "darwin":
        return home / "Library" / "Application Support" / FOLDER_NAME
    return home / ".local" / "share" / FOLDER_NAME


def program_folder() -> Path | None:
    """Where the frozen program lies; None from source."""
    return Path(sys.executable).absolute().parent if getattr(sys, "frozen", False) else None


def shipped_models() -> Path | None:
    """The models that came with the frozen program or were put beside it; None from source."""
    folder = program_folder()
    return folder / "models" if folder else None


@dataclass(frozen=True)
class Paths:
    """The places inside one data directory."""

    data_dir: Path

    @property
    def models(self) -> Path:
        """GGUF files the owner put there."""
        return self.data_dir / "models"

    @property
    def logs(self) -> Path:
        """The rotating log."""
        return self.data_dir / "logs"

    @property
    def parked(self) -> Path:
        """KV state of conversations between two questions; the engine makes it, for this account alone."""
        return self.data_dir / "parked"

    @property
    def answers(self) -> Path:
        """Saved answers, and those the owner pinned; the answer cache makes it, for this account alone."""
        return self.data_dir / "answers"

    @property
    def quick_answers(self) -> Path:
        """The owner's quick answers."""
        return self.data_dir / "quick_answers.toml"

    @property
    def shipped_quick_answers(self) -> Path:
        """The quick answers that come with the program."""
        return Path(__file__).parents[1] / "answers" / "quick_answers.toml"

    @property
    def block_list(self) -> Path:
        """The owner's block list."""
        return self.data_dir / "block_list.toml"

    @property
    def tuned(self) -> Path:
        """Forms of models that are faster on this CPU, and the list of them; tuning makes it."""
        return self.data_dir / "tuned"

    @property
    def front_door(self) -> Path:
        """Port and address, remembered from start to start."""
        return self.data_dir / "front-door.json"

    @property
    def model_choice(self) -> Path:
        """Which model the owner chose on the page."""
        return self.data_dir / "model.json"

    @property
    def links(self) -> Path:
        """Digests of the links that let the owner's browser in."""
        return self.data_dir / "links.json"

    @property
    def last_model(self) -> Path:
        """The model that answered last."""
        return self.data_dir / "last-model.json"

    @property
    def self_test(self) -> Path:
        """What the last self-test found."""
        return self.data_dir / "self-test.json"

    @property
    def set_up(self) -> Path:
        """There once the owner is through with the first run."""
        return self.data_dir / "set-up-done"

    @property
    def temp(self) -> Path:
        """For Gradio's own files: the system's folder of that kind may belong to another user."""
        return self.data_dir / "temp"

    @property
    def running(self) -> Path:
        """The claim of the program that runs on this folder, with its address."""
        return self.data_dir / "running"

    @property
    def secret(self) -> Path:
        """The key that signs cookies; readable by its owner only, as the next three are."""
        return self.data_dir / "secret.key"

    @property
    def passwords(self) -> Path:
        """Hashes of passcode and admin password."""
        return self.data_dir / "passwords.json"

    @property
    def api_keys(self) -> Path:
        """Digests of the API keys."""
        return self.data_dir / "api-keys.json"

    @property
    def history(self) -> Path:
        """What the charts of the admin page draw."""
        return self.data_dir / "history.json"

    @property
    def ended_logins(self) -> Path:
        """Logins that were ended before their time."""
        return self.data_dir / "ended-logins.json"

    def prepare(self) -> None:
        """Make the folders and try a write; raises StartFailed with the folder and the remedy."""
        try:
            for folder in (self.data_dir, self.models, self.logs):
                folder.mkdir(parents=True, exist_ok=True)
                probe = folder / f".write-test-{os.getpid()}"
                probe.write_bytes(b"")
                probe.unlink()
        except OSError as error:
            raise StartFailed(
                f"data_dir = {self.data_dir}: cannot write there ({error.strerror or type(error).__name__}). "
                "Choose a folder you may write to with --data-dir."
            ) from error


def _home() -> Path:
    try:
        return Path.home()
    except RuntimeError:
        raise StartFailed("This account has no home folder. Choose a folder for the data with --data-dir.") from None
