"""The newest lines of the log, and starting the program again."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final

import gradio as gr

from appliance.settings.schema import Settings
from ui.admin.section import Place, Problem, Shown, said, words
from ui.words.settings import name_of

LOG_EVERY_S: Final = 5.0
N_LINES: Final = 200
_PROBLEMS: Final = (" WARNING ", " ERROR ", " CRITICAL ")


def build(place: Place) -> None:
    """Make the section."""
    with gr.Column(elem_classes="part"):
        place.heading("restart_title", "restart_detail")
        _build_restart(place)
    with gr.Column(elem_classes="part"):
        place.heading("log_title", "log_detail")
        _build_log(place)


def _build_restart(place: Place) -> None:
    pending = words("", "pending", "pending")
    with gr.Row(elem_classes="actions"):
        ask = place.button("restart", "restart")
    status = place.status("restart-status")
    with gr.Row(elem_classes="actions", elem_id="restart-sure", visible=False) as sure:
        yes = place.button("restart-yes", "restart_yes", primary=True)
        no = place.button("restart-no", "cancel")
    desk = place.desk

    async def show() -> Shown:
        store = desk.settings
        keys = [k for k in Settings.model_fields if getattr(store.saved, k) != getattr(store.in_force, k)]
        names = ", ".join(name_of(place.language, key) for key in keys)
        return [f"<p>{escape(place.tell('pending_list', names=names) if keys else place.tell('pending_none'))}</p>"]

    async def ask_first() -> Shown:
        if desk.start_again is None:
            raise Problem(place.tell("restart_cannot"))
        return [gr.update(visible=True), said(place.tell("restart_sure", n=desk.chat.n_answers))]

    async def restart() -> Shown:
        desk.restart()
        return [gr.update(visible=False), f"<div data-restarting>{said(place.tell('restarting'))}</div>"]

    async def rather_not() -> Shown:
        return [gr.update(visible=False), ""]

    place.on([place.demo.load, gr.Timer(LOG_EVERY_S).tick], show, (), [pending], "pending")
    place.on([ask.click], ask_first, (), [sure], "restart_ask", status=status)
    place.on([yes.click], restart, (), [sure], "restart", status=status)
    place.on([no.click], rather_not, (), [sure], "restart_cancel", status=status)


def _build_log(place: Place) -> None:
    choices = [(place.tell("log_all"), "all"), (place.tell("log_problems"), "problems")]
    which = gr.Radio(choices, value="all", elem_id="log-which", show_label=False)
    lines = words("", "log", "log-lines")

    async def show(wanted: str) -> Shown:
        found = await place.desk.log_lines(2000)
        if wanted == "problems":
            found = [line for line in found if any(level in line for level in _PROBLEMS)]
        return [_log_html(found[-N_LINES:]) or f"<p>{escape(place.tell('log_none'))}</p>"]

    place.on([place.demo.load, which.input, gr.Timer(LOG_EVERY_S).tick], show, [which], [lines], "log")


def _log_html(lines: Sequence[str]) -> str:
    """Newest first: nothing has to be scrolled to see what has just happened."""
    marked = (
        f'<span class="{"problem" if any(level in line for level in _PROBLEMS) else "plain"}">{escape(line)}</span>'
        for line in reversed(lines)
    )
    body = "".join(marked)
    return f'<div class="lines" tabindex="0">{body}</div>' if body else ""
