"""The model library: which models are there, which one answers, bringing another one in and letting it answer.

What touches the disk blocks: call it in a thread. What changes the running engine belongs to the event loop.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import shutil
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal

from appliance.base.errors import EngineFailed, ModelFileError, NotReady
from appliance.base.log import where
from appliance.base.paths import Paths
from appliance.engine.cpu import available_ram_bytes, thread_count
from appliance.engine.request import EngineInfo
from appliance.metrics.capacity import Speed
from appliance.metrics.health import use_of
from appliance.models.catalogue import first_files, part_paths, starter_model, write_choice
from appliance.models.model_download import OFFERS, DownloadFailed, ModelDownload, Offer
from appliance.models.model_file import ModelFacts, inspect
from appliance.models.model_upload import take_upload
from appliance.settings.schema import Settings
from appliance.tuning.choices import Choices
from appliance.tuning.threads import for_this_cpu

_log = logging.getLogger(__name__)

_SPARE_BYTES: Final = 200 * 2**20
_PIECE_BYTES: Final = 2**22
_SMALLEST, _SMALL, _MIDDLE = 3 * 10**8, 10**9, 4 * 10**9
"""Weights from which a model does for more."""

Quality = Literal["smallest", "small", "middle", "large"]


@dataclass(frozen=True)
class Entry:
    """One model that is there."""

    path: Path
    name: str
    facts: ModelFacts | None
    """None for a file that is no usable model: then `problem` says why."""
    problem: ModelFileError | None = None
    answers: bool = False
    """Whether it is the one that answers now."""
    is_starter: bool = False
    memory_bytes: int = 0
    """What it needs at least with the present settings."""
    fits: bool = True
    """Whether that is free, the present model's own counted in."""
    form: str = ""
    """What tuning chose for this CPU; "" where it was not tuned."""
    speed: Speed | None = None
    people: int = 0
    """Who can ask at once comfortably, by that speed."""

    @property
    def key(self) -> str:
        """Names it to a page, which is told no path."""
        return hashlib.sha256(str(self.path).encode("utf-8", errors="surrogateescape")).hexdigest()[:16]


@dataclass(frozen=True)
class News:
    """What became of the last thing the owner asked for. `code` names a sentence, `models_<code>`."""

    code: str = ""
    values: dict[str, object] = field(default_factory=dict)
    problem: ModelFileError | None = None
    """Says why, in front of that sentence."""
    is_bad: bool = False


class PresentModel:
    """The model that answers, as the library sees it."""

    def __init__(
        self,
        source: Callable[[], Path | None],
        info: Callable[[], EngineInfo | None],
        use: Callable[[Path], Awaitable[EngineInfo]],
    ) -> None:
        """`use` lets another file answer and raises when it does not; then the present one goes on."""
        self.source = source
        self.info = info
        self.use = use


class ModelLibrary:
    """See the module."""

    def __init__(self, settings: Settings, paths: Paths, running: PresentModel) -> None:
        self._settings = settings
        self._paths = paths
        self._running = running
        self.download = ModelDownload(paths.models, settings.download_endpoint, settings.download_proxy)
        self.changing_to = ""
        """Name of the model that is being loaded; "" while none is."""
        self._news = News()
        self._asked_at = 0.0
        self._n_copied = self._n_to_copy = 0
        self.n_changes = 0
        """Counts what changes the list or the news, for pages that look now and then."""
        self._facts: dict[tuple[Path, int, int], ModelFacts] = {}
        self._work: set[asyncio.Task[None]] = set()

    @property
    def news(self) -> News:
        """What became of the last thing the owner asked for; while it goes on, how far it is."""
        so_far: dict[str, object] = {}
        if self._news.code == "changing":
            so_far["seconds"] = int(time.monotonic() - self._asked_at)
        elif self._news.code == "bringing":
            so_far["percent"] = 100 * self._n_copied // max(1, self._n_to_copy)
        return replace(self._news, values=self._news.values | so_far)

    @property
    def is_at_work(self) -> bool:
        """Whether something goes on that says how far it is."""
        is_told = self._news.code in ("changing", "bringing")
        return is_told or bool(self.changing_to) or self.download.state.is_running

    @property
    def is_locked(self) -> bool:
        """Whether the setting `model` decides, so that a choice made here would not outlast a restart."""
        return bool(self._settings.model)

    def entries(self) -> list[Entry]:
        """Every model that is there, the one that answers first, then by size. Blocks."""
        present, starter = self._running.source(), _starter()
        paths = [*first_files(self._paths.models), *filter(None, [starter, present])]
        found = [self._entry(path, present, starter) for path in dict.fromkeys(paths)]
        return sorted(found, key=_order)

    def offers(self) -> list[Offer]:
        """What can be downloaded and is not there."""
        return [offer for offer in OFFERS if not (self._paths.models / offer.file).exists()]

    def bring(self, text: str) -> Path:
        """Copy a model, all its parts, from elsewhere on this PC into the models folder. Blocks.

        Raises:
            ModelFileError: it is no usable model, one of this name is there, or it cannot be copied.
        """
        source = Path(text.strip().strip("\"'")).expanduser()
        if not source.is_absolute():
            raise ModelFileError(source, "is no full path", "Give the whole path.", "not_absolute")
        facts = inspect(source)
        folder = self._paths.models
        parts = part_paths(source)
        if any((folder / part.name).exists() for part in parts):
            raise ModelFileError(source, "is there already", "Rename it, or remove the other.", "there")
        free = shutil.disk_usage(folder).free
        if free < facts.size_bytes + _SPARE_BYTES:
            values: dict[str, object] = {
                "need_mb": (facts.size_bytes + _SPARE_BYTES) // 10**6,
                "free_mb": free // 10**6,
            }
            raise ModelFileError(source, "does not fit on the disk", "Make room there.", "disk", values)
        drafts = [(folder / f"{part.name}.copy", folder / part.name) for part in parts]
        try:
            self._n_to_copy = facts.size_bytes
            for part, (draft, _) in zip(parts, drafts, strict=True):
                self._copy_file(part, draft)
            for draft, target in reversed(drafts):  # the first part last: before it, there is no model
                draft.replace(target)
        except OSError as error:
            for draft, target in drafts:
                draft.unlink(missing_ok=True)
                target.unlink(missing_ok=True)
            problem = f"cannot be copied ({error.strerror or type(error).__name__})"
            raise ModelFileError(source, problem, "Check the disk.", "copy") from error
        _log.info("the model %s was brought in", facts.name)
        return folder / parts[0].name

    def _copy_file(self, source: Path, target: Path) -> None:
        """Raises OSError."""
        with source.open("rb") as read, target.open("wb") as written:
            while piece := read.read(_PIECE_BYTES):
                written.write(piece)
                self._n_copied += len(piece)

    # -- what the owner asks for: it goes on whoever leaves the page -----------------------------------------------

    async def begin_change(self, key: str) -> None:
        """Let the model of that key answer; how it goes is in `news`."""
        entries = await asyncio.to_thread(self.entries)
        entry = next((entry for entry in entries if entry.key == key and entry.problem is None), None)
        if entry is None:
            self._tell(News("none_chosen", is_bad=True))
        elif self.changing_to:
            self._tell(News("busy", is_bad=True))
        else:
            self._asked_at = time.monotonic()
            self._tell(News("changing", {"name": entry.name}))
            self._go_on(self._change(entry))

    def begin_copy(self, text: str) -> None:
        """Bring in the model at that path; how it goes is in `news`."""
        self._n_copied = self._n_to_copy = 0
        self._tell(News("bringing"))
        self._go_on(self._copy(text))

    def begin_download(self, file: str) -> None:
        """Get that file of the short list; how it goes is in the download's own state."""
        offer = next((offer for offer in self.offers() if offer.file == file), None)
        if offer is None:
            self._tell(News("none_chosen", is_bad=True))
        elif not self.download.state.is_running:
            self._tell(News())
            self._go_on(self._download(offer))

    async def _change(self, entry: Entry) -> None:
        try:
            info = await self.choose(entry.path)
            self._tell(News("changed", {"name": info.model_name}))
        except ModelFileError as error:
            self._tell(News("kept", problem=error, is_bad=True))
        except EngineFailed:
            self._tell(News("engine_failed", is_bad=True))
        except NotReady:
            self._tell(News("busy", is_bad=True))

    async def _copy(self, text: str) -> None:
        try:
            path = await asyncio.to_thread(self.bring, text)
            self._tell(News("brought", {"name": path.stem}))
        except ModelFileError as error:
            self._tell(News(problem=error, is_bad=True))

    async def _download(self, offer: Offer) -> None:
        try:
            await self.download.run(offer)
        except DownloadFailed as error:
            _log.info("the owner is told of the download: %s", error.code)
        self._tell(News())

    def _tell(self, news: News) -> None:
        self._news = news
        self.n_changes += 1

    def _go_on(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._work.add(task)
        task.add_done_callback(self._over)

    def _over(self, task: asyncio.Task[None]) -> None:
        self._work.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("what was asked of the model library failed: %s", where(error))
            self._tell(News("failed", is_bad=True))

    async def take_upload(self, name: str, n_bytes: int, chunks: AsyncIterator[bytes]) -> Path:
        """See model_upload.py. Raises ModelFileError."""
        path = await take_upload(self._paths.models, name, n_bytes, chunks)
        self._tell(News("brought", {"name": path.stem}))
        return path

    async def choose(self, path: Path) -> EngineInfo:
        """Let this model answer from now on, after a restart too. Nothing changes when it raises.

        Raises:
            ModelFileError: the file, or the memory for it, will not do.
            NotReady: the engine is not ready, or another change is on its way.
            EngineFailed: the engine could not run it.
        """
        if self.changing_to:
            raise NotReady("another model is being loaded")
        self.changing_to = path.name
        try:
            await asyncio.to_thread(self._check, path)
            info = await self._running.use(path)
            if not self.is_locked:
                await asyncio.to_thread(self._remember, path)
        finally:
            self.changing_to = ""
        return info

    def _check(self, path: Path) -> None:
        """Refuse what cannot be loaded before anybody has to wait for it."""
        facts = inspect(path)
        need, free = self._memory(facts), self._free_bytes()
        if need > free:
            values: dict[str, object] = {"need_mb": need // 10**6, "free_mb": free // 10**6}
            remedy = "Choose a smaller model, or lower max_batch_size or max_context_tokens."
            raise ModelFileError(path, "needs more memory than is free", remedy, "memory", values)

    def _remember(self, path: Path) -> None:
        try:
            write_choice(self._paths.model_choice, self._paths.models, path)
        except OSError as error:
            _log.error("the choice of %s is forgotten at the next start (%s)", path.name, error.strerror)

    def _entry(self, path: Path, present: Path | None, starter: Path | None) -> Entry:
        answers, is_starter = path == present, path == starter
        try:
            facts = self._inspected(path)
        except ModelFileError as error:
            return Entry(path, path.name, None, error, answers, is_starter)
        memory = self._memory(facts)
        form, speed = self._measured(path)
        people = speed.comfortable(self._settings.max_batch_size) if speed is not None else 0
        fits = answers or memory <= self._free_bytes()
        return Entry(path, facts.name, facts, None, answers, is_starter, memory, fits, form, speed, people)

    def _inspected(self, path: Path) -> ModelFacts:
        """`inspect`, once for every state of a file: pages look again and again."""
        try:
            states = [part.stat() for part in part_paths(path)]
        except OSError:
            return inspect(path)  # says what is wrong
        key = (path, sum(state.st_size for state in states), max(state.st_mtime_ns for state in states))
        if key not in self._facts:
            self._facts[key] = inspect(path)
        return self._facts[key]

    def _memory(self, facts: ModelFacts) -> int:
        return facts.memory_bytes(self._settings.max_batch_size, self._settings.max_context_tokens)

    def _free_bytes(self) -> int:
        """Memory for a model in the present one's place. What is only mapped of its file counts as free already."""
        info, source = self._running.info(), self._running.source()
        held = use_of(info.pid).rss_bytes if info is not None else 0
        mapped = sum(part.stat().st_size for part in part_paths(source) if part.exists()) if source is not None else 0
        return available_ram_bytes() + max(0, held - mapped)

    def _measured(self, path: Path) -> tuple[str, Speed | None]:
        """What tuning found for this file on this CPU."""
        n_threads = thread_count(for_this_cpu(self._settings.engine_config(path), self._paths.tuned))
        try:
            choice = Choices(self._paths.tuned).find(path, n_threads)
            if choice is None:
                return "", None
            speed = choice.measured[choice.form]["speed"]
            return choice.form, Speed(float(speed["one"]), float(speed["many"]), float(speed["prefill"]))
        except (OSError, KeyError, TypeError, ValueError) as error:
            _log.warning("what tuning found of %s cannot be read (%s)", path.name, type(error).__name__)
            return "", None


def quality_of(n_weights: int) -> Quality:
    """What a model of that size does for; names a sentence, `model_quality_...`."""
    if n_weights < _SMALLEST:
        return "smallest"
    if n_weights < _SMALL:
        return "small"
    return "middle" if n_weights < _MIDDLE else "large"


def _starter() -> Path | None:
    try:
        return starter_model()
    except ModelFileError as error:
        _log.info("no starter model: %s", error)
        return None


def _order(entry: Entry) -> tuple[bool, int, str]:
    return not entry.answers, -(entry.facts.size_bytes if entry.facts is not None else 0), entry.name
