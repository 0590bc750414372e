"""What a section of the admin page is built with: the admin service, a language, and one way to wire a handler.

A section is a function `build(context)` that makes its components inside the open Blocks and wires them with
`context.on` and `context.on_load`. Only texts go in (ui/site/page_gate.py lets nothing else through), and no event is
queued: each takes milliseconds, and a full chat queue must never keep the owner out. Who may ask at all has been
decided before: the doorkeeper lets nobody but the admin to anything under /admin.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

import gradio as gr

from appliance.access.rights import Caller, caller_of
from appliance.base.errors import ApplianceError, StartFailed
from appliance.base.log import where
from appliance.operate.admin_service import NothingThere
from ui.words.admin_messages import tell
from ui.words.messages import Language
from ui.words.problems import disk_problem

if TYPE_CHECKING:
    from appliance.lifecycle import Appliance
    from appliance.operate.admin_service import AdminService

_log = logging.getLogger(__name__)

Shown = Sequence[Any]
"""The new values of a handler's outputs, in order."""
Handler = Callable[..., Awaitable[Shown]]
"""Takes the texts of its inputs; gives the new values of its outputs, in order."""


class Problem(Exception):
    """What a handler tells its reader instead of doing what was asked: a sentence in their language."""


@dataclass(frozen=True)
class SectionContext:
    """Where a section is built."""

    appliance: Appliance
    language: Language
    demo: gr.Blocks

    @property
    def admin_service(self) -> AdminService:
        """What there is to see and to do."""
        return self.appliance.admin_service

    def tell(self, key: str, **values: object) -> str:
        """A sentence of the admin page."""
        return tell(self.language, key, **values)

    def heading(self, title: str, detail: str) -> gr.Markdown:
        """The beginning of a part, by the keys of its two sentences."""
        return words(f"<h2>{escape(self.tell(title))}</h2><p>{escape(self.tell(detail))}</p>", "heading")

    def status(self, elem_id: str) -> gr.Markdown:
        """Where a handler says how it went."""
        return gr.Markdown("", elem_id=elem_id, elem_classes="status", sanitize_html=False, latex_delimiters=[])

    def text(self, elem_id: str, label: str, **options: Any) -> gr.Textbox:
        """A text to be typed."""
        return gr.Textbox("", elem_id=elem_id, label=label, **{"lines": 1, "max_lines": 1} | options)

    def button(self, elem_id: str, key: str, *, primary: bool = False) -> gr.Button:
        """Something to press."""
        return gr.Button(
            self.tell(key),
            elem_id=elem_id,
            variant="primary" if primary else "secondary",
            size="sm",
            scale=0,
            min_width=0,
        )

    def on_load(self, handler: Handler, outputs: Sequence[Any], name: str) -> None:
        """What the page shows when it is opened."""
        self.on([self.demo.load], handler, (), outputs, name)

    def on(
        self,
        events: Sequence[Callable[..., Any]],
        handler: Handler,
        inputs: Sequence[Any],
        outputs: Sequence[Any],
        name: str,
        *,
        status: gr.Markdown | None = None,
        as_typed: bool = False,
    ) -> None:
        """Wire a handler. What it refuses or fails at is said in `status`, and then nothing else changes.

        A handler with a parameter `caller` is told who asks. `as_typed`: of many events only the latest counts.
        """
        told = [*outputs, status] if status is not None else list(outputs)
        wants_caller = "caller" in handler.__code__.co_varnames if hasattr(handler, "__code__") else False

        async def run(request: gr.Request, *values: str) -> Any:
            try:
                assert request.request is not None
                extra: dict[str, Caller] = {"caller": caller_of(request.request)} if wants_caller else {}
                results = list(await handler(*values, **extra))
                results += [""] * (len(told) - len(results))
            except Exception as error:  # noqa: BLE001  error class to sentence, as everywhere in ui/
                problem = said(self._sentence(error), is_problem=True)
                results = [gr.skip()] * len(outputs) + ([problem] if status is not None else [])
            return results if len(results) != 1 else results[0]

        for number, event in enumerate(events):
            event(
                run,
                inputs=list(inputs) or None,
                outputs=told,
                queue=False,
                show_progress="hidden",
                preprocess=False,
                postprocess=False,
                trigger_mode="always_last" if as_typed else "multiple",
                api_visibility="private",
                api_name=name if number == 0 else f"{name}_{number}",
            )

    def _sentence(self, error: Exception) -> str:
        if isinstance(error, Problem):
            return str(error)
        disk = error.__cause__ if isinstance(error, StartFailed) else error
        if isinstance(disk, OSError):
            return disk_problem(self.language, disk)
        if isinstance(error, NothingThere):
            return self.tell("gone")
        if not isinstance(error, ApplianceError):
            _log.error("an event of the admin page failed: %s", where(error))
            return self.tell("failed")
        return str(error)  # for the owner; those a section foresees have sentences in both languages


def words(html: str, elem_class: str, elem_id: str | None = None) -> gr.Markdown:
    """Words of ours, written as HTML in one piece without empty lines."""
    # Not gr.HTML, which evaluates its value as a template: our Content-Security-Policy forbids that.
    return gr.Markdown(html, elem_id=elem_id, elem_classes=elem_class, sanitize_html=False, latex_delimiters=[])


def said(sentence: str, *, is_problem: bool = False) -> str:
    """What a status shows."""
    kind, role = ("problem", "alert") if is_problem else ("fine", "status")
    return f'<p class="{kind}" role="{role}">{escape(sentence)}</p>'
