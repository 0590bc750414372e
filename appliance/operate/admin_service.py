"""The admin service: what the owner sees of the running program, and may do to it. Knows no page.

Nothing here shows a word of anybody's conversation, except saved answers that several people have asked for.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, Literal

from appliance.access.passwords import PasswordError, Role
from appliance.access.rate_limits import RateLimits
from appliance.access.rights import Access, Caller
from appliance.answers.answer_cache import AnswerCache, SavedAnswer
from appliance.answers.rule_edits import RuleFiles
from appliance.base.errors import ApplianceError, ModelFileError, SettingsError, StartFailed
from appliance.base.janitor import Job
from appliance.base.log import FILE_NAME
from appliance.base.paths import Paths
from appliance.base.private_file import damaged_files, write_private
from appliance.chat.service import ChatService
from appliance.metrics.history import EVERY_S, History
from appliance.metrics.registry import Snapshot
from appliance.models.catalogue import find_model
from appliance.network.front_door import FrontDoor
from appliance.network.server import bind
from appliance.settings.schema import Settings
from appliance.settings.store import SettingsStore

_log = logging.getLogger(__name__)

HERE_S: Final = 600.0
"""Whose conversation was touched since then counts as being here."""
RESTART_WAIT_S: Final = 30.0
"""How long a restart waits for running answers."""
_LOG_BYTES: Final = 65_536
_KEEP_EVERY_S: Final = 240.0

State = Literal["writing", "waiting", "idle"]


class NothingThere(ApplianceError):
    """What was to be changed is not there any more."""


class WrongPassword(PasswordError):
    """The present password was not given."""


@dataclass(frozen=True)
class SessionLine:
    """One conversation, without a word of it."""

    tag: str
    """Names it here until the program ends; says nothing of whose it is."""
    visitor: str
    """The same for all conversations of one browser."""
    n_turns: int
    state: State
    unused_s: float


class AdminService:
    """Belongs to the event loop's thread."""

    def __init__(
        self, chat: ChatService, access: Access, limits: RateLimits, store: SettingsStore, paths: Paths, door: FrontDoor
    ) -> None:
        self.chat = chat
        self.access = access
        self.door = door
        self.settings = store
        self.history = History(self.snapshot, self.n_people, time.time)
        self.history.load(_text(paths.history))
        self.start_again: Callable[[], None] | None = None
        """Ends the program so that it begins anew; None where nothing can start it again."""
        known = chat.known
        files = {"quick_answers": known.quick_answers, "block_list": known.block_list}
        self.rules = RuleFiles({name: rules.file for name, rules in files.items() if rules is not None})
        self.damaged = damaged_files(paths.data_dir)
        """Files that could not be read at the start, by name."""
        self._limits = limits
        self.data_dir = paths.data_dir
        self._paths = paths
        self._salt = secrets.token_bytes(16)
        self._restarting: asyncio.Task[None] | None = None
        store.objections.append(self._object_to)

    def jobs(self) -> list[Job]:
        """What has to be done again and again while the program runs."""
        return [Job("history", EVERY_S, self.history.take), Job("history file", _KEEP_EVERY_S, self.close)]

    async def close(self) -> None:
        """Write down what the charts draw, so that they go on after a restart."""
        try:
            await asyncio.to_thread(write_private, self._paths.history, self.history.dumped().encode())
        except OSError as error:
            _log.warning("the history could not be written (%s)", error.strerror or type(error).__name__)

    # -- looking ---------------------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """How the program is doing now."""
        return self.chat.watch.metrics.snapshot()

    def n_people(self) -> int:
        """Browsers with a conversation that was touched within HERE_S."""
        unused_s = self.chat.sessions.unused_s()
        return len({person for (person, _), seconds in unused_s.items() if seconds <= HERE_S})

    async def log_lines(self, n: int) -> list[str]:
        """The last lines of the log, oldest first."""
        return (await asyncio.to_thread(_tail, self._paths.logs / FILE_NAME))[-n:]

    # -- conversations ---------------------------------------------------------------------------------------

    def sessions(self) -> list[SessionLine]:
        """The conversations on this PC, those in use first."""
        lines = []
        for (person, tab), unused_s in self.chat.sessions.unused_s().items():
            session = self.chat.sessions.peek((person, tab))
            if session is None:
                continue
            state: State = "idle"
            if session.running is not None:
                state = "writing" if session.running.ahead is None else "waiting"
            n_turns = len(session.turns) + (session.running is not None)
            lines.append(SessionLine(self._tag(person, tab), self._tag(person), n_turns, state, unused_s))
        return sorted(lines, key=lambda line: (line.state == "idle", line.unused_s))

    async def end_session(self, tag: str) -> None:
        """Stop its answer and forget it here; its browser keeps what it has. Raises NothingThere."""
        for person, tab in self.chat.sessions.unused_s():
            if self._tag(person, tab) == tag:
                await self.chat.new_chat(person, tab)
                return
        raise NothingThere("no such conversation")

    # -- answers ---------------------------------------------------------------------------------------------

    async def saved_answers(self) -> dict[str, SavedAnswer]:
        """What the owner may see of them: asked by three or more people, or pinned."""
        return await self._saved.entries() if self.chat.known.saved is not None else {}

    async def pin_answer(self, digest: str, text: str | None = None) -> None:
        """Keep it until it is deleted, corrected where `text` is given. Raises NothingThere, OSError."""
        try:
            await self._saved.pin(digest, text)
        except KeyError:
            raise NothingThere("no such answer") from None

    async def delete_answer(self, digest: str) -> None:
        """Drop it, pinned or not. Raises OSError."""
        await self._saved.delete(digest)

    @property
    def _saved(self) -> AnswerCache:
        if self.chat.known.saved is None:
            raise NothingThere("no answers are kept")
        return self.chat.known.saved

    # -- who may ---------------------------------------------------------------------------------------------

    async def set_password(self, role: Role, new: str, *, present: str = "", caller: Caller) -> None:
        """Set passcode or admin password; logins made with the old one are over.

        Args:
            present: the admin password that is set now; asked for before it is replaced.
        Raises:
            WrongPassword, PasswordError, StartFailed, and TooFast or Busy where too much was guessed.
        """
        passwords = self.access.passwords
        if role == "admin" and passwords.is_set("admin"):
            may_try = partial(self._limits.check_guess, "admin", caller, caller.login.id if caller.login else None)
            may_try()
            if not await passwords.matches("admin", present, may_try):
                self._limits.wrong_guess("admin", caller, caller.login.id if caller.login else None)
                raise WrongPassword("the present password was not given")
        await asyncio.to_thread(passwords.set, role, new)
        _log.info("the %s was changed, from %s", "passcode" if role == "person" else "admin password", caller.address)

    # -- the program's own life ------------------------------------------------------------------------------

    def restart(self) -> None:
        """Take nothing new, let running answers end for RESTART_WAIT_S, then begin anew."""
        if self._restarting is None and self.start_again is not None:
            _log.info("a restart was asked for on the admin page")
            self.chat.refuse_new()
            self._restarting = asyncio.get_running_loop().create_task(self._restart(self.start_again))

    async def _restart(self, start_again: Callable[[], None]) -> None:
        await self.chat.drain(RESTART_WAIT_S)
        start_again()

    def _tag(self, *parts: str) -> str:
        return hashlib.blake2b("\0".join(parts).encode(), key=self._salt, digest_size=4).hexdigest()

    def _object_to(self, before: Settings, new: Settings) -> None:
        """What the next start would stumble over on this PC. Raises SettingsError."""
        if new.access == "passcode" and before.access != "passcode" and not self.access.passwords.is_set("person"):
            raise SettingsError("access = passcode: no passcode is set yet", "access", "no_passcode")
        if (new.host, new.port) != (before.host, before.port):
            self._try_address(before, new)
        if new.model != before.model and new.backend == "llama":
            try:
                find_model(new.model, self._paths.models)
            except ModelFileError as error:
                raise SettingsError(str(error), "model", "model", file=error.path.name) from None

    def _try_address(self, before: Settings, new: Settings) -> None:
        if new.port == self.door.port:
            return  # it is ours, so it cannot be tried
        try:
            bind(new.host, new.port).close()
        except StartFailed as error:
            key = "port" if new.port != before.port else "host"
            raise SettingsError(str(error), key, "address") from None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""


def _tail(path: Path) -> list[str]:
    try:
        with path.open("rb") as file:
            file.seek(0, os.SEEK_END)
            n_bytes = file.tell()
            file.seek(max(0, n_bytes - _LOG_BYTES))
            lines = file.read().decode("utf-8", errors="replace").splitlines()
    except OSError:
        return []
    return lines[1:] if n_bytes > _LOG_BYTES else lines
