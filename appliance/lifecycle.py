"""Appliance: the parts without a browser, built, started, drained and closed in one fixed order."""

from __future__ import annotations

import asyncio
import logging
from datetime import datetime
from functools import partial
from pathlib import Path

from appliance.access.person import Persons, load_secret
from appliance.access.rate_limits import RateLimits
from appliance.access.rights import Access
from appliance.answers.answer_cache import AnswerCache
from appliance.answers.block_list import BlockList
from appliance.answers.quick_answers import QuickAnswers
from appliance.answers.replies import Known
from appliance.base.errors import EngineFailed, ModelFileError, NotReady, StartFailed
from appliance.base.janitor import keep_house
from appliance.base.log import where
from appliance.base.paths import CONFIG_NAME, Paths
from appliance.chat.service import ChatService
from appliance.engine.client import EngineClient, EngineState
from appliance.engine.config import EngineConfig
from appliance.engine.cpu import thread_count
from appliance.engine.request import EngineInfo
from appliance.engine.step_down import StepDown
from appliance.engine.try_out import try_out
from appliance.models.catalogue import find_model, read_choice, write_choice
from appliance.models.model_file import inspect
from appliance.models.model_library import ModelLibrary, PresentModel
from appliance.models.model_upload import sweep_uploads
from appliance.network.front_door import FrontDoor
from appliance.operate.admin_service import AdminService
from appliance.operate.self_test import SelfTest
from appliance.settings.files import Sources
from appliance.settings.schema import Settings
from appliance.settings.store import SettingsStore
from appliance.tuning.choices import Choices, tuned_file
from appliance.tuning.kernel_file import remember, remembered
from appliance.tuning.threads import for_this_cpu

_log = logging.getLogger(__name__)

DRAIN_S = 2.0
"""How long running answers may go on after the program was told to end."""


class Appliance:
    """Engine, chat service, persons, rights and front door. Order: build, spawn, start, drain, close."""

    def __init__(self, settings: Settings, paths: Paths, sources: Sources | None = None) -> None:
        """Find the model; raises ModelFileError or StartFailed. Nothing runs yet.

        `sources`: where the settings came from; None: the file in the data folder, and nothing above it.
        """
        self.settings = settings
        self._paths = paths
        self.model_source: Path | None = None
        """The owner's file; `model_path` is that, or the form of it that was tuned for this CPU."""
        self.model_path: Path | None = None
        if settings.backend == "llama":
            self.model_source = find_model(settings.model, paths.models, paths.model_choice)
            Choices(paths.tuned).sweep()
            self.model_path = _form_to_load(self.model_source, settings, paths)
        self.failed_model: ModelFileError | None = None
        """Why the model that was asked for does not answer, where the last good one took its place."""
        self.kernels = StepDown(remembered(paths.tuned), partial(remember, paths.tuned))
        self.engine = EngineClient(self._engine_config(self.model_path), self.kernels)
        self.chat = ChatService(self.engine, settings, known=_known(settings, paths))
        self.engine.on_new_model = self.chat.model_changed
        secret = load_secret(paths.secret)
        self.persons = Persons(secret)
        self.door = FrontDoor(paths.front_door, settings.host, settings.port, settings.lan_name)
        self.access = Access.of(settings, paths, self.persons, secret, self._announced_name)
        self.limits = RateLimits(*_limits(settings))
        sweep_uploads(paths.models)
        self.models = ModelLibrary(
            settings, paths, PresentModel(self._present_source, self._engine_info, self.use_model)
        )
        self.self_test = SelfTest(self, paths)
        self._tasks: list[asyncio.Task[None]] = []
        sources = sources or Sources(paths.data_dir / CONFIG_NAME, paths.data_dir)
        self.store = SettingsStore(settings, sources)
        self.store.users += [self.chat.use, self.access.use, self._use_limits]
        self.admin_service = AdminService(self.chat, self.access, self.limits, self.store, paths, self.door)

    def spawn(self) -> None:
        """Start the engine's process; before slow imports, so that it loads beside them."""
        self.engine.spawn()

    def kill_engine(self) -> None:
        """End the engine's process however far the start had come; nothing happens after `close`."""
        self.engine.kill()

    async def start(self) -> None:
        """Attach to the running loop; does not wait for the engine."""
        await self.engine.start()
        for work in (keep_house([*self.chat.jobs(), *self.admin_service.jobs()]), self.door.announce()):
            task = asyncio.get_running_loop().create_task(work)
            task.add_done_callback(_report)
            self._tasks.append(task)

    async def wait_ready(self) -> EngineInfo:
        """Wait until the model is loaded and warmed up, or, where it cannot be used, the one that answered last.

        Raises ModelFileError or EngineFailed where none comes up.
        """
        try:
            info = await self.engine.wait_ready()
            await asyncio.to_thread(self._note_model)
            return info
        except ModelFileError as error:
            last = await asyncio.to_thread(read_choice, self._paths.last_model, self._paths.models)
            if last is None or last == self.model_source or not last.is_file():
                raise
            _log.error("%s The model that answered last takes its place: %s", error, last.name)
            info = await self.use_model(last)
            self.failed_model = error
            return info

    async def wait_recovered(self) -> EngineInfo:
        """After no model came up: wait until the owner has let another one answer."""
        return await self.engine.wait_until_ready()

    async def use_model(self, source: Path) -> EngineInfo:
        """Let another model answer; running answers end first, new ones wait, conversations stay.

        It is tried first while the present one answers. Raises as EngineClient.switch does; then the present goes on.
        """
        file = await asyncio.to_thread(_form_to_load, source, self.settings, self._paths)
        config = self._engine_config(file)
        if self.engine.state is EngineState.READY:
            facts = await asyncio.to_thread(inspect, file)
            await try_out(config, facts.memory_bytes(1, config.n_ctx_seq), self.kernels.failures)
        info = await self.engine.switch(config)
        self.model_source, self.model_path, self.failed_model = source, file, None
        await asyncio.to_thread(self._note_model)
        return info

    def retry_kernels(self) -> None:
        """Give those that failed another chance: load the model again with the best, after the running answers."""
        self.kernels.use(())
        task = asyncio.get_running_loop().create_task(self._reload())
        task.add_done_callback(_report)
        self._tasks.append(task)

    async def _reload(self) -> None:
        try:
            await self.engine.switch(self._engine_config(self.model_path))
        except (NotReady, EngineFailed, ModelFileError) as error:
            _log.error("the model was not loaded again: %s", error)

    def _note_model(self) -> None:
        """Remember which model answers, for a start at which another one cannot. Touches the disk."""
        if self.model_source is None:
            return
        try:
            write_choice(self._paths.last_model, self._paths.models, self.model_source)
        except (OSError, ModelFileError) as error:
            _log.warning("which model answers could not be written down (%s)", type(error).__name__)

    @property
    def is_first_run(self) -> bool:
        """Whether the owner has never been through the steps of the first run."""
        return not self._paths.set_up.exists()

    def finish_first_run(self) -> None:
        """From the next start on the chat page is opened. Touches the disk."""
        try:
            self._paths.set_up.touch()
        except OSError as error:
            _log.warning("the first run will be offered again (%s)", error.strerror)

    async def drain(self) -> None:
        """Take nothing new; let running answers end for a moment, then end them."""
        await self.chat.drain(DRAIN_S)

    async def close(self) -> None:
        """End what goes on in the background, and the engine's process."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self.admin_service.close()
        await self.chat.close()
        await self.engine.close()

    def _engine_config(self, file: Path | None) -> EngineConfig:
        return for_this_cpu(self.settings.engine_config(file, self._paths.parked), self._paths.tuned)

    def _present_source(self) -> Path | None:
        return self.model_source

    def _engine_info(self) -> EngineInfo | None:
        return self.engine.info

    def _announced_name(self) -> str:
        return self.door.local_name

    def _use_limits(self, settings: Settings) -> None:
        self.limits.use(*_limits(settings))


def _limits(settings: Settings) -> tuple[int, int, float]:
    share = settings.address_share / 100
    return settings.questions_per_minute, settings.questions_per_minute_and_address, share


def _known(settings: Settings, paths: Paths) -> Known:
    """Those who answer without the engine, as far as the settings want them.

    Raises:
        StartFailed: a block list cannot be read, and there are no rules from before to go on with.
    """
    saved = None
    quick = QuickAnswers(paths.quick_answers, paths.shipped_quick_answers, settings.office_name, _local_time)
    if settings.answer_cache_mb > 0:
        limit_bytes = settings.answer_cache_mb * 2**20
        saved = AnswerCache(paths.answers, limit_bytes=limit_bytes, ttl_s=settings.answer_cache_ttl_s)
    block_list = BlockList(paths.block_list)
    if block_list.file.problem and not block_list.file.is_last_good:
        raise StartFailed(f"{block_list.file.problem}. Nothing would be blocked: mend the file, or move it away.")
    return Known(block_list, quick, saved)


def _local_time() -> datetime:
    return datetime.now().astimezone()


def _form_to_load(source: Path, settings: Settings, paths: Paths) -> Path:
    """The model's file, or the form of it that was tuned for this CPU."""
    n_threads = thread_count(for_this_cpu(settings.engine_config(source), paths.tuned))
    return tuned_file(source, paths.tuned, n_threads, settings.tuning_max_kl) or source


def _report(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.error("what goes on in the background failed: %s", where(error))
