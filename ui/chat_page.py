"""The components of the chat page and what is written on them. Knows no events: chat_handlers.py wires them.

There is no gr.State here and no unload event: either makes every tab hold one of the browser's six connections.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from html import escape
from typing import Any, Literal

import gradio as gr

from ui.conversation_view import LATEX_DELIMITERS
from ui.messages import Language, say


@dataclass(frozen=True)
class ChatPage:
    """Every component an event reads or writes. The element ids are the names, for the style sheet and page.js."""

    header: gr.Markdown
    language: gr.Button
    new_chat: gr.Button
    forget: gr.Button
    log_out: gr.Button
    """Pressed in page.js; there only where people log in."""
    welcome: gr.Markdown
    conversation: gr.Chatbot
    live: gr.Markdown
    again: gr.Button
    go_on: gr.Button
    box: gr.Textbox
    send: gr.Button
    stop: gr.Button
    hint: gr.Markdown
    attach: gr.Button
    """Never seen; see chat_handlers.py."""

    def labelled(self) -> list[gr.components.Component]:
        """The components whose text depends on the language alone, in the order of `labels`."""
        return [getattr(self, name) for name, _ in _labels("en")]


@dataclass(frozen=True)
class ModelStatus:
    """What the header says of the model. `name` None: not there yet, or never with `failed`."""

    name: str | None
    failed: bool = False


def header_html(language: Language, status: ModelStatus) -> str:
    """Name of the page and who answers. `data-loading` makes page.js ask again."""
    if status.failed:
        line, mark = say(language, "model_failed"), ' role="alert"'
    elif status.name is None:
        line, mark = say(language, "model_loading"), " data-loading"
    else:
        line, mark = say(language, "model", model=status.name), ""
    return f'<h1>{escape(say(language, "title"))}</h1><p class="model"{mark} title="{escape(line)}">{escape(line)}</p>'


def labels(language: Language) -> list[Any]:
    """What `ChatPage.labelled` becomes in another language."""
    return [update for _, update in _labels(language)]


def _labels(language: Language) -> Iterator[tuple[str, Any]]:
    for name, key in _BUTTONS.items():
        yield name, gr.update(value=say(language, key))
    yield "welcome", gr.update(value=_welcome_html(language))
    yield "hint", gr.update(value=_hint_html(language))
    yield "box", gr.update(placeholder=say(language, "placeholder"), label=say(language, "placeholder"))


_BUTTONS = {
    "language": "switch_language",
    "new_chat": "new_chat",
    "forget": "forget",
    "log_out": "log_out",
    "again": "again",
    "go_on": "go_on",
    "send": "send",
    "stop": "stop",
}


def build_page(language: Language, *, has_login: bool = False) -> ChatPage:
    """Create the components, top to bottom, inside the open Blocks. `language` is what stands there at first."""
    with gr.Row(elem_id="top"):
        header = _words(header_html(language, ModelStatus(None)), "header")
        new_chat = _button(language, "new_chat")
        forget = _button(language, "forget")
        log_out = _button(language, "log_out", visible=has_login)
        language_switch = _button(language, "language")
    with gr.Column(elem_id="talk"):
        welcome = _words(_welcome_html(language), "welcome")
        conversation = gr.Chatbot(
            [],
            elem_id="conversation",
            label=say(language, "conversation"),
            show_label=False,
            container=False,
            height=None,
            autoscroll=False,
            buttons=[],
            feedback_options=None,
            latex_delimiters=LATEX_DELIMITERS,
            allow_tags=False,
            layout="bubble",
        )
        live = gr.Markdown("", elem_id="live", latex_delimiters=LATEX_DELIMITERS, line_breaks=True)
        with gr.Row(elem_id="afterwards"):
            again = _button(language, "again")
            go_on = _button(language, "go_on")
    with gr.Column(elem_id="composer"):
        with gr.Row(elem_id="writing"):
            # One line that grows: Gradio sends on Enter only with lines=1, and leaves Shift+Enter to the text area.
            box = gr.Textbox(
                elem_id="box",
                lines=1,
                max_lines=8,
                label=say(language, "placeholder"),
                placeholder=say(language, "placeholder"),
                show_label=False,
                container=False,
                autofocus=True,
                html_attributes=gr.InputHTMLAttributes(autocomplete="off", enterkeyhint="send"),
            )
            send = _button(language, "send", "primary")
            stop = _button(language, "stop")
        hint = _words(_hint_html(language), "hint")
        attach = gr.Button("", elem_id="attach")
    components = locals() | {"language": language_switch}
    return ChatPage(**{field.name: components[field.name] for field in fields(ChatPage)})


def _words(html: str, elem_id: str) -> gr.Markdown:
    # Not gr.HTML: it evaluates its value as a template, which our Content-Security-Policy forbids. These words are ours
    # alone, and sanitising would take the attributes away that page.js looks for.
    return gr.Markdown(html, elem_id=elem_id, sanitize_html=False, latex_delimiters=[])


def _button(
    language: Language, name: str, variant: Literal["primary", "secondary"] = "secondary", *, visible: bool = True
) -> gr.Button:
    return gr.Button(
        say(language, _BUTTONS[name]), elem_id=name, variant=variant, size="sm", scale=0, min_width=0, visible=visible
    )


def _welcome_html(language: Language) -> str:
    return f"<h2>{escape(say(language, 'welcome'))}</h2><p>{escape(say(language, 'welcome_detail'))}</p>"


def _hint_html(language: Language) -> str:
    return f'<span class="keys">{escape(say(language, "hint"))}</span>'
