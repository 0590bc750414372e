"""Tuner: writes a model in the forms this CPU may compute faster, measures each, and keeps the best.

A plain object for a console or a page: `run` blocks its thread, `cancel` may be called from any other. Everything is
written into a folder of its own and moved into place at the very end, so that an interruption changes nothing.
"""

from __future__ import annotations

import errno
import logging
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from appliance.base.errors import ApplianceError, ModelFileError
from appliance.engine.config import EngineConfig
from appliance.engine.cpu import available_ram_bytes, cpu_identity, thread_count
from appliance.tuning.choices import Choice, Choices, cpu_key, fingerprint
from appliance.tuning.gguf_layout import EMBEDDING, HEAD, Layout, read_layout, write_with_head
from appliance.tuning.measure import Measurement, Part, measuring_config, reference_bytes
from appliance.tuning.verdict import LANGUAGES, Form, Row, choose, contenders, gain, summarise
from appliance.tuning.worker_jobs import Job, JobCancelled, JobFailed, Measure, Quantise, Result, TypeName, run_job

_log = logging.getLogger(__name__)

N_ROUNDS = 3
_TYPES: tuple[TypeName, ...] = ("Q4_0", "IQ4_NL", "Q8_0")
_HEAD_TYPE: TypeName = "IQ4_NL"
_BYTES_A_WEIGHT = {"Q4_0": 4.5 / 8, "IQ4_NL": 4.5 / 8, "Q8_0": 8.5 / 8}
_PLAIN_TYPES = (0, 1, 30)  # ggml's numbers of F32, F16 and BF16: such an embedding is written in 8 bits
_SPARE_BYTES = 200 * 2**20
_RUNNING_BYTES = 500 * 2**20
"""KV cells, buffers and Python beside a model that is measured."""
TEXTS = Path(__file__).parent / "texts"

RunJob = Callable[[Job, threading.Event], Result]


class TuningFailed(ApplianceError):
    """Tuning could not be done; nothing has changed. The sentence says why and what helps."""


@dataclass(frozen=True)
class Progress:
    """Where a tuning is. `step` is one of "head", "quantise", "measure", "keep"."""

    step: str
    form: Form
    number: int
    """From 1 to `n_steps`; forms that are given up make that smaller on the way."""
    n_steps: int
    left_s: float | None
    """Expected, once there is something to go by."""


@dataclass(frozen=True)
class Tuned:
    """What came out."""

    source: Path
    chosen: Row
    file: Path | None
    """The tuned file; None where the source itself is best."""
    gain: float
    rows: tuple[Row, ...]
    max_kl: float
    cpu_name: str
    n_threads: int
    n_streams: int
    took_s: float


class Tuner:
    """One tuning of one model. Use once."""

    def __init__(
        self,
        source: Path,
        folder: Path,
        config: EngineConfig,
        max_kl: float,
        on_progress: Callable[[Progress], None] = lambda _progress: None,
        run: RunJob = run_job,
        clock: Callable[[], float] = time.monotonic,
        n_rounds: int = N_ROUNDS,
    ) -> None:
        """`config` is what the engine runs with; `max_kl` the owner's bound in nats; `folder` ours alone."""
        self._source = source
        self._choices = Choices(folder)
        self._config = measuring_config(config, source)
        self._max_kl = max_kl
        self._on_progress = on_progress
        self._run_job = run
        self._clock = clock
        self._n_rounds = n_rounds
        self._cancelled = threading.Event()
        self._plan = _Plan(clock)

    def cancel(self) -> None:
        """Make `run` end soon with JobCancelled; from any thread."""
        self._cancelled.set()

    def run(self) -> Tuned:
        """Do it all.

        Raises TuningFailed or ModelFileError with a sentence, JobCancelled; in each case nothing has changed.
        """
        began_s = self._clock()
        try:
            layout = self._checked()
            with self._scratch() as scratch:
                files, problems = self._write_forms(layout, scratch)
                rows = [*self._measure(files, scratch), *problems]
                chosen = choose(rows, self._max_kl)
                return self._keep(chosen, files[chosen.form], rows, began_s)
        except OSError as error:
            raise _explained(error, self._choices.folder) from error

    def _checked(self) -> Layout:
        """Refuse before any work what cannot end well."""
        other = self._choices.running()
        if other is not None or self._choices.unfinished().exists():
            where = f"process {other}" if other else "in this program"
            raise TuningFailed(f"Another tuning is running ({where}). Wait until it is through, or end it.")
        layout = read_layout(self._source)
        if layout.n_parts > 1:
            raise ModelFileError(self._source, "is one part of several", "Join the parts into one file first.")
        sizes = _estimated_sizes(layout, self._source.stat().st_size)
        self._choices.folder.mkdir(parents=True, exist_ok=True)
        self._choices.sweep()
        embedding = layout.tensors.get(EMBEDDING)
        n_vocab = embedding.shape[-1] if embedding else 0
        need = sum(sizes.values()) + reference_bytes(self._config.n_slots, n_vocab) + _SPARE_BYTES
        free = shutil.disk_usage(self._choices.folder).free
        if free < need:
            raise TuningFailed(
                f"Tuning {self._source.name} needs {_mb(need)} MB of free disk for a while, and there are {_mb(free)} "
                f"MB where {self._choices.folder} is. Make room there, or choose another folder with --data-dir."
            )
        need, free = int(max(sizes.values())) + _RUNNING_BYTES, available_ram_bytes()
        if free < need:
            raise TuningFailed(
                f"Tuning {self._source.name} needs {_mb(need)} MB of free memory, and there are {_mb(free)} MB. "
                "Close other programs, this chat if it is running too, and try again."
            )
        return layout

    @contextmanager
    def _scratch(self) -> Iterator[Path]:
        folder = self._choices.unfinished()
        folder.mkdir(mode=0o700)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _write_forms(self, layout: Layout, scratch: Path) -> tuple[dict[Form, Path], list[Row]]:
        """Every form that can be made, the source first, and rows about the others."""
        tied = layout.has_tied_head
        forms = [Form(kind) for kind in _TYPES] + ([Form.HEAD] if tied else [])
        self._plan.expect(
            head=2 if tied else 0, quantise=len(_TYPES), measure=self._n_rounds * (len(forms) + 1), keep=1
        )
        files, problems = {Form.SOURCE: self._source}, []
        headed = self._source
        if tied:
            headed = scratch / "with-head.gguf"
            with self._step("head", Form.SOURCE):
                write_with_head(layout, layout.tensors[EMBEDDING], layout, headed)
        embedding = layout.tensors.get(EMBEDDING)
        embedding_type = embedding.type_id if embedding and embedding.type_id not in _PLAIN_TYPES else None
        for kind in _TYPES:
            form, target = Form(kind), scratch / f"{kind}.gguf"
            try:
                with self._step("quantise", form):
                    self._run_job(Quantise(headed, target, kind, embedding_type, self._config), self._cancelled)
                files[form] = target
            except (ModelFileError, JobFailed) as error:
                _refuse_full_disk(scratch)
                problems.append(self._given_up(form, error))
                self._plan.drop("measure", self._n_rounds)
        if tied and Form(_HEAD_TYPE) in files:
            headed.unlink()
            with self._step("head", Form.HEAD):
                giver = read_layout(files[Form(_HEAD_TYPE)])
                files[Form.HEAD] = scratch / "head.gguf"
                write_with_head(layout, giver.tensors[HEAD], giver, files[Form.HEAD])
        elif tied:
            self._plan.drop("measure", self._n_rounds)
            self._plan.drop("head", 1)
        return files, problems

    def _measure(self, files: dict[Form, Path], scratch: Path) -> list[Row]:
        """Rounds over all forms, so that what the machine does meanwhile does to all of them."""
        texts = tuple((TEXTS / f"{name}.txt").read_text(encoding="utf-8") for name in LANGUAGES)
        reference = scratch / "reference.npy"
        runs: dict[Form, list[Measurement]] = {form: [] for form in files}
        rows: dict[Form, Row] = {}
        running = list(files)
        for number in range(self._n_rounds):
            # The source comes first, for its logits; the others in turns from either end.
            for form in running[:1] + (running[1:] if number % 2 == 0 else running[:0:-1]):
                part = Part(number, self._n_rounds)
                config = measuring_config(self._config, files[form])
                size_bytes = files[form].stat().st_size
                try:
                    with self._step("measure", form):
                        job = Measure(config, texts, part, reference, form is Form.SOURCE)
                        result = self._run_job(job, self._cancelled)
                except (ModelFileError, JobFailed) as error:
                    if form is Form.SOURCE:
                        raise
                    rows[form] = self._given_up(form, error, size_bytes)
                else:
                    assert isinstance(result, Measurement)
                    runs[form].append(result)
                    rows[form] = summarise(form, size_bytes, runs[form])
            left = contenders(list(rows.values()), self._max_kl)
            left |= {Form.SOURCE} if left else set()
            self._plan.drop("measure", (self._n_rounds - 1 - number) * (len(running) - len(left)))
            running = [form for form in running if form in left]
        return [rows[form] for form in files]

    def _keep(self, chosen: Row, written: Path, rows: list[Row], began_s: float) -> Tuned:
        source = rows[0]
        n_threads = thread_count(self._config)
        cpu_name = cpu_identity()[0]
        with self._step("keep", chosen.form):
            model = fingerprint(self._source)
            kept, digest = None, ""
            if chosen.form is not Form.SOURCE:
                # The source's own name: it is what people see as the model's.
                kept = self._choices.folder / f"{model}-{chosen.form}" / self._source.name
                digest = fingerprint(written)
                kept.parent.mkdir(exist_ok=True)
                written.replace(kept)
            self._choices.keep(
                Choice(
                    model=model,
                    cpu=cpu_key(n_threads),
                    cpu_name=cpu_name,
                    source_name=self._source.name,
                    form=chosen.form,
                    file=kept.relative_to(self._choices.folder).as_posix() if kept else "",
                    file_fingerprint=digest,
                    gain=gain(chosen, source),
                    kl=chosen.quality.worst_kl if chosen.quality else 0.0,
                    measured={row.form: asdict(row) for row in rows},
                )
            )
        took_s = self._clock() - began_s
        _log.info(
            "tuned %s in %.0f s: %s, %.2f times as fast", self._source.name, took_s, chosen.form, gain(chosen, source)
        )
        return Tuned(
            source=self._source,
            chosen=chosen,
            file=kept,
            gain=gain(chosen, source),
            rows=tuple(rows),
            max_kl=self._max_kl,
            cpu_name=cpu_name,
            n_threads=n_threads,
            n_streams=self._config.n_slots,
            took_s=took_s,
        )

    @contextmanager
    def _step(self, step: str, form: Form) -> Iterator[None]:
        self._check_cancelled()
        self._on_progress(self._plan.begin(step, form))
        try:
            yield
        finally:
            self._plan.end(step)
        self._check_cancelled()

    def _check_cancelled(self) -> None:
        if self._cancelled.is_set():
            raise JobCancelled("The tuning was cancelled.")

    def _given_up(self, form: Form, error: Exception, size_bytes: int = 0) -> Row:
        _log.warning("tuning leaves out %s: %s", form, error)
        return Row(form, size_bytes, problem=str(error))


class _Plan:
    """Steps still to come, by kind, and how long those that are through took."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._left: dict[str, int] = {}
        self._took_s: dict[str, list[float]] = {}
        self._began_s = 0.0
        self._n_done = 0

    def expect(self, **n_steps: int) -> None:
        self._left = dict(n_steps)

    def drop(self, step: str, n: int) -> None:
        self._left[step] -= n

    def begin(self, step: str, form: Form) -> Progress:
        self._began_s = self._clock()
        return Progress(step, form, self._n_done + 1, self._n_done + sum(self._left.values()), self._left_s())

    def end(self, step: str) -> None:
        self._took_s.setdefault(step, []).append(self._clock() - self._began_s)
        self._left[step] -= 1
        self._n_done += 1

    def _left_s(self) -> float | None:
        """None until a step of the longest kind has been seen."""
        if "measure" not in self._took_s:
            return None
        means = {step: sum(times) / len(times) for step, times in self._took_s.items()}
        return sum(n * means.get(step, 0.0) for step, n in self._left.items())


def _estimated_sizes(layout: Layout, source_bytes: int) -> dict[str, float]:
    """Bytes of every file that is written, by what it is."""
    matrices = [tensor for tensor in layout.tensors.values() if len(tensor.shape) > 1]
    n_weights = sum(tensor.n_elements for tensor in matrices)
    others = source_bytes - sum(tensor.size_bytes for tensor in matrices)
    embedding = layout.tensors.get(EMBEDDING)
    n_head = embedding.n_elements if embedding and layout.has_tied_head else 0
    sizes: dict[str, float] = {
        kind: others + n_weights * bytes_a_weight + n_head * _BYTES_A_WEIGHT["Q8_0"]
        for kind, bytes_a_weight in _BYTES_A_WEIGHT.items()
    }
    if n_head and embedding:
        sizes["with-head"] = source_bytes + embedding.size_bytes
    return sizes


def _refuse_full_disk(folder: Path) -> None:
    """llama.cpp does not say why it could not write."""
    if shutil.disk_usage(folder).free < _SPARE_BYTES // 4:
        raise OSError(errno.ENOSPC, "No space left on device")


def _explained(error: OSError, folder: Path) -> TuningFailed:
    where = error.filename or folder
    if error.errno == errno.ENOSPC:
        return TuningFailed(f"The disk is full where {folder} is. Make room there and tune again; nothing has changed.")
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return TuningFailed(f"{where}: may not be written ({error.strerror}). Choose another folder with --data-dir.")
    if isinstance(error, FileNotFoundError):
        return TuningFailed(f"{where}: is gone. Leave the files in place while tuning, and tune again.")
    return TuningFailed(f"{where}: {error.strerror or type(error).__name__}. Tune again; nothing has changed.")


def _mb(n_bytes: float) -> str:
    return f"{n_bytes / 1e6:,.0f}"
