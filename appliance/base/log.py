"""The owner's log: a rotating file and the console. It never sees the text of a conversation."""

from __future__ import annotations

import asyncio
import logging
import logging.handlers
import sys
import traceback
from pathlib import Path

FILE_NAME = "office-chat.log"
_MAX_BYTES = 1_000_000
_N_OLD_FILES = 4
_LAYOUT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_TIME = "%Y-%m-%d %H:%M:%S %z"


def open_log(folder: Path) -> Path:
    """Send the program's log to the folder, warnings also to the console. Returns the log's path."""
    path = folder / FILE_NAME
    root = logging.getLogger()
    root.setLevel(logging.INFO)
    file = logging.handlers.RotatingFileHandler(path, maxBytes=_MAX_BYTES, backupCount=_N_OLD_FILES, encoding="utf-8")
    file.setFormatter(logging.Formatter(_LAYOUT, _TIME))
    root.addHandler(file)
    if sys.stderr is not None:  # windowed builds have none
        console = logging.StreamHandler(sys.stderr)
        console.setLevel(logging.WARNING)
        console.setFormatter(logging.Formatter("%(levelname)s: %(message)s"))
        root.addHandler(console)
    for handler in root.handlers:
        handler.addFilter(_without_texts)
    for chatty in ("httpx", "httpcore", "asyncio", "urllib3"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    return path


def where(error: BaseException) -> str:
    """Class and place of an error, without its message: that may carry words of a conversation."""
    frames = traceback.extract_tb(error.__traceback__)
    places = (f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in reversed(frames[-4:]))
    return f"{type(error).__name__} at " + " < ".join(places)


def report_failed_answer(task: asyncio.Task[None]) -> None:
    """For `add_done_callback`: a task that carries an answer has ended; say so if it failed."""
    if not task.cancelled() and (error := task.exception()) is not None:
        logging.getLogger(__name__).error("an answer failed: %s", where(error))


def _without_texts(record: logging.LogRecord) -> bool:
    """Replace a traceback by the class and place of its error, whoever logged it."""
    if record.exc_info and record.exc_info[1] is not None:
        record.msg = f"{record.getMessage()} [{where(record.exc_info[1])}]"
        record.args = None
        record.exc_info = None
        record.exc_text = None
    return True
