"""The newest lines of the log, and starting the program again."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final

import gradio as gr

from appliance.settings.schema import Settings
from ui.admin.section import Problem, SectionContext, Shown, said, words
from ui.words.settings import name_of

LOG_EVERY_S: Final = 5.0
N_LINES: Final = 200
_PROBLEMS: Final = (" WARNING ", " ERROR ", " CRITICAL ")


def build(context: SectionContext) -> None:
    """Make the section."""
    with gr.Column(elem_classes="part"):
        context.heading("restart_title", "restart_detail")
        _build_restart(context)
    with gr.Column(elem_classes="part"):
        context.heading("log_title", "log_detail")
        _build_log(context)


def _build_restart(context: SectionContext) -> None:
    pending = words("", "pending", "pending")
    with gr.Row(elem_classes="actions"):
        ask = context.button("restart", "restart")
    status = context.status("restart-status")
    with gr.Row(elem_classes="actions", elem_id="restart-sure", visible=False) as sure:
        yes = context.button("restart-yes", "restart_yes", primary=True)
        no = context.button("restart-no", "cancel")
    admin_service = context.admin_service

    async def show() -> Shown:
        store = admin_service.settings
        keys = [k for k in Settings.model_fields if getattr(store.saved, k) != getattr(store.in_force, k)]
        names = ", ".join(name_of(context.language, key) for key in keys)
        return [f"<p>{escape(context.tell('pending_list', names=names) if keys else context.tell('pending_none'))}</p>"]

    async def ask_first() -> Shown:
        if admin_service.start_again is None:
            raise Problem(context.tell("restart_cannot"))
        return [gr.update(visible=True), said(context.tell("restart_sure", n=admin_service.chat.n_answers))]

    async def restart() -> Shown:
        admin_service.restart()
        return [gr.update(visible=False), f"<div data-restarting>{said(context.tell('restarting'))}</div>"]

    async def rather_not() -> Shown:
        return [gr.update(visible=False), ""]

    context.on([context.demo.load, gr.Timer(LOG_EVERY_S).tick], show, (), [pending], "pending")
    context.on([ask.click], ask_first, (), [sure], "restart_ask", status=status)
    context.on([yes.click], restart, (), [sure], "restart", status=status)
    context.on([no.click], rather_not, (), [sure], "restart_cancel", status=status)


def _build_log(context: SectionContext) -> None:
    choices = [(context.tell("log_all"), "all"), (context.tell("log_problems"), "problems")]
    which = gr.Radio(choices, value="all", elem_id="log-which", show_label=False)
    lines = words("", "log", "log-lines")

    async def show(wanted: str) -> Shown:
        found = await context.admin_service.log_lines(2000)
        if wanted == "problems":
            found = [line for line in found if any(level in line for level in _PROBLEMS)]
        return [_log_html(found[-N_LINES:]) or f"<p>{escape(context.tell('log_none'))}</p>"]

    context.on([context.demo.load, which.input, gr.Timer(LOG_EVERY_S).tick], show, [which], [lines], "log")


def _log_html(lines: Sequence[str]) -> str:
    """Newest first: nothing has to be scrolled to see what has just happened."""
    marked = (
        f'<span class="{"problem" if any(level in line for level in _PROBLEMS) else "plain"}">{escape(line)}</span>'
        for line in reversed(lines)
    )
    body = "".join(marked)
    return f'<div class="lines" tabindex="0">{body}</div>' if body else ""
