"""How the program is doing: numbers that keep themselves up to date, and charts of the last hour and day."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from html import escape
from typing import Any, Final

import gradio as gr

from appliance.base.errors import ApplianceError, EngineFailed, ModelFileError
from appliance.metrics.health import PcUse, pc_use
from appliance.metrics.history import Sample
from appliance.metrics.registry import Snapshot
from ui.admin.charts import Line, chart_html
from ui.admin.models import problem_text
from ui.admin.section import SectionContext, said, words
from ui.words.admin_messages import span_of

NUMBERS_EVERY_S: Final = 2.0
CHARTS_EVERY_S: Final = 10.0
_GB: Final = 1e9


def build(context: SectionContext) -> None:
    """Make the section."""
    overview = Overview(context)
    numbers = words("", "numbers", "numbers")
    span = gr.Radio(
        [(context.tell("last_hour"), "hour"), (context.tell("last_day"), "day")],
        value="hour",
        elem_id="span",
        label=context.tell("span"),
    )
    retry = context.button("retry-kernels", "retry_kernels")
    retried = context.status("retried")
    charts = words("", "charts", "charts")
    context.on([context.demo.load, gr.Timer(NUMBERS_EVERY_S).tick], overview.numbers, (), [numbers, retry], "numbers")
    context.on([retry.click], overview.retry_kernels, (), [retry], "retry_kernels", status=retried)
    context.on(
        [context.demo.load, gr.Timer(CHARTS_EVERY_S).tick, span.input], overview.charts, [span], [charts], "charts"
    )


class Overview:
    """The handlers of this section."""

    def __init__(self, context: SectionContext) -> None:
        self._context = context

    async def numbers(self) -> Sequence[Any]:
        """Everything that is true now."""
        admin_service = self._context.admin_service
        pc = await asyncio.to_thread(pc_use, admin_service.data_dir)
        has_failed = bool(self._context.appliance.kernels.failures)
        return [self._numbers_html(admin_service.snapshot(), pc), gr.Button(visible=has_failed)]

    async def retry_kernels(self) -> Sequence[Any]:
        """Load the model again with the best kernels."""
        self._context.appliance.retry_kernels()
        return [gr.Button(visible=False), said(self._context.tell("retrying_kernels"))]

    async def charts(self, span: str) -> Sequence[Any]:
        """What was measured."""
        history = self._context.admin_service.history
        return [self._charts_html(history.day if span == "day" else history.hour)]

    def _numbers_html(self, snapshot: Snapshot, pc: PcUse) -> str:
        tell, language, now, admin_service = (
            self._context.tell,
            self._context.language,
            snapshot.now,
            self._context.admin_service,
        )
        last = admin_service.history.hour[-1] if admin_service.history.hour else None
        first, p99 = (self._seconds(value) for value in (snapshot.ttft_p50_s, snapshot.ttft_p99_s))
        used_bytes = now.web.rss_bytes + now.engine.rss_bytes
        cards = (
            ("people", str(admin_service.n_people()), tell("people_detail")),
            ("writing", str(now.n_slots_used), tell("writing_detail", n=now.n_slots)),
            ("waiting", str(now.n_waiting), tell("waiting_detail", n=now.n_places_taken, most=now.n_places)),
            ("wait", tell("seconds", n=f"{now.wait_s:.0f}"), tell("wait_detail")),
            ("speed", f"{snapshot.tokens_per_s:.0f} <small>{escape(tell('speed_unit'))}</small>", tell("speed_detail")),
            ("first_words", first or "–", tell("first_words_detail", p99=p99) if p99 else tell("none_yet")),
            ("without_model", f"{snapshot.answer_hit_rate:.0%}", tell("without_model_detail", n=snapshot.n_answers)),
            ("reused", f"{snapshot.prefix_hit_rate:.0%}", tell("reused_detail")),
            (
                "memory",
                _gigabytes(used_bytes),
                tell("memory_detail", free=_gigabytes(pc.memory_free_bytes), total=_gigabytes(pc.memory_bytes)),
            ),
            (
                "cpu",
                f"{last.cpu_cores if last else 0:.1f} <small>{escape(tell('cpu_unit'))}</small>",
                tell("cpu_detail", n=pc.n_cores),
            ),
            ("disk_free", _gigabytes(pc.disk_free_bytes), tell("disk_free_detail")),
            ("errors", str(snapshot.n_errors), tell("errors_detail", n=now.n_engine_restarts)),
        )
        shown = "".join(
            f'<li class="card" data-number="{key}"><p class="name">{escape(tell(key))}</p>'
            f'<p class="value">{value}</p><p class="detail">{escape(detail)}</p></li>'
            for key, value, detail in cards
        )
        up_for = tell("up_for", time=span_of(language, now.uptime_s))
        return f"{self._state_html(up_for)}{self._notes_html(now.level)}<ul class='cards'>{shown}</ul>"

    def _state_html(self, up_for: str) -> str:
        """One line: whether it answers, which model, since when."""
        chat = self._context.admin_service.chat
        code, info, failure = chat.not_ready_code, chat.engine.info, self._context.appliance.engine.failure
        keys = {"": "ready", "closing": "closing", "failed": "engine_failed", "restarting": "engine_restarting"}
        key = keys.get(code, "loading")
        sentence = (
            self._context.tell(key, model=info.model_name if info else "")
            if key == "ready"
            else self._context.tell(key)
        )
        if key == "engine_failed" and failure is not None:
            sentence = self._failure(failure)
        mood = {"ready": "good", "engine_failed": "bad"}.get(key, "soon")
        return f'<p class="state {mood}" data-state="{key}"><b>{escape(sentence)}</b> <span>{escape(up_for)}</span></p>'

    def _notes_html(self, level: int) -> str:
        admin_service = self._context.admin_service
        notes = [self._context.tell(f"crowded_{level}")] if level else []
        notes += self._engine_notes()
        if admin_service.damaged:
            notes.append(self._context.tell("damaged", names=", ".join(admin_service.damaged)))
        notes += [self._context.tell("rules_last_good", name=name) for name in admin_service.rules.on_last_good()]
        if admin_service.settings.n_pending:
            notes.append(self._context.tell("pending", n=admin_service.settings.n_pending))
        if not admin_service.access.passwords.is_set("admin"):
            notes.append(self._context.tell("no_password"))
        return "".join(f'<p class="note">{escape(note)}</p>' for note in notes)

    def _failure(self, failure: ApplianceError) -> str:
        """Why there is no engine, and what to do."""
        if isinstance(failure, EngineFailed) and failure.key:
            return self._context.tell(f"engine_{failure.key}", **failure.values)
        if isinstance(failure, ModelFileError):
            return problem_text(self._context.language, failure)
        return self._context.tell("engine_failed")

    def _engine_notes(self) -> list[str]:
        """What is not as the owner asked for it: simpler kernels, another model."""
        appliance, info, notes = self._context.appliance, self._context.admin_service.chat.engine.info, []
        if appliance.kernels.failures and info is not None:
            failed = "; ".join(map(str, appliance.kernels.failures))
            notes.append(self._context.tell("simpler_kernels", now=info.kernels, failed=failed))
        if appliance.failed_model is not None and info is not None:
            problem = problem_text(self._context.language, appliance.failed_model)
            notes.append(self._context.tell("model_replaced", problem=problem, model=info.model_name))
        return notes

    def _seconds(self, value: float | None) -> str:
        return "" if value is None else self._context.tell("seconds", n=f"{value:.{2 if value < 10 else 0}f}")

    def _charts_html(self, samples: Sequence[Sample]) -> str:
        tell = self._context.tell
        if not samples:
            return f'<p class="none">{escape(tell("chart_empty"))}</p>'
        times_s = [sample.at_s for sample in samples]

        def chart(title: str, *lines: tuple[str, list[float | None]]) -> str:
            return chart_html(tell(title), times_s, [Line(name, values) for name, values in lines], tell("now"))

        return (
            '<div class="figures">'
            + chart(
                "chart_people",
                (tell("line_people"), [sample.n_people for sample in samples]),
                (tell("line_running"), [sample.n_running for sample in samples]),
                (tell("line_waiting"), [sample.n_waiting for sample in samples]),
            )
            + chart("chart_speed", ("", [sample.tokens_per_s for sample in samples]))
            + chart(
                "chart_first",
                (tell("line_p50"), [sample.ttft_p50_s for sample in samples]),
                (tell("line_p99"), [sample.ttft_p99_s for sample in samples]),
            )
            + chart("chart_cpu", ("", [sample.cpu_cores for sample in samples]))
            + chart("chart_memory", ("", [sample.memory_bytes / _GB for sample in samples]))
            + "</div>"
        )


def _gigabytes(n_bytes: float) -> str:
    return f"{n_bytes / _GB:.1f} GB"
