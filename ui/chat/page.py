"""The components of the chat page and what is written on them. Knows no events: handlers.py wires them.

There is no gr.State here and no unload event: either makes every tab hold one of the browser's six connections.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from html import escape
from typing import Any, Literal

import gradio as gr

from ui.chat.conversation_view import LATEX_DELIMITERS
from ui.chat.preferences_panel import wishes_html
from ui.chat.welcome import NO_OFFERS, Offers, welcome_html
from ui.words.messages import Language, say


@dataclass(frozen=True)
class ChatPage:
    """Every component with an event or with words. The element ids are the names, for style sheets and scripts.

    What is pressed and has no event in handlers.py is the scripts' alone.
    """

    header: gr.Markdown
    menu: gr.Button
    hide: gr.Button
    wishes: gr.Markdown
    """Read by history.js alone; shown only where the owner lets people have wishes."""
    language: gr.Button
    temporary: gr.Button
    new_chat: gr.Button
    forget: gr.Button
    log_out: gr.Button
    """Pressed in page.js; seen only where people log in."""
    welcome: gr.Markdown
    conversation: gr.Chatbot
    live: gr.Markdown
    again: gr.Button
    go_on: gr.Button
    copy_all: gr.Button
    when_free: gr.Button
    not_now: gr.Button
    newest: gr.Button
    editing: gr.Markdown
    cancel: gr.Button
    box: gr.Textbox
    send: gr.Button
    stop: gr.Button
    hint: gr.Markdown
    attach: gr.Button
    kept: gr.Textbox
    show_kept: gr.Button
    """The last three are never seen; see handlers.py."""

    def labelled(self) -> list[gr.components.Component]:
        """The components whose text depends on the language alone, in the order of `labels`."""
        return [getattr(self, name) for name, _ in _labels("en")]


@dataclass(frozen=True)
class ModelStatus:
    """What the header says of the model. `name` None: not there yet, or never with `failed`."""

    name: str | None
    failed: bool = False


def header_html(language: Language, status: ModelStatus, notice: str = "", head: str = "") -> str:
    """Name of the page, who answers, and the owner's `notice`.

    `data-loading` makes page.js ask again, and so does another `head` than the program says is to be shown.
    """
    if status.failed:
        line, mark = say(language, "model_failed"), ' role="alert"'
    elif status.name is None:
        line, mark = say(language, "model_loading"), " data-loading"
    else:
        line, mark = say(language, "model", model=status.name), ""
    told = f'<p class="notice">{escape(" ".join(notice.split()))}</p>' if notice.strip() else ""
    heading = f"<h1>{escape(say(language, 'title'))}</h1>"
    return f'{heading}<p class="model"{mark} data-head="{head}" title="{escape(line)}">{escape(line)}</p>{told}'


def labels(language: Language, offers: Offers = NO_OFFERS) -> list[Any]:
    """What `ChatPage.labelled` becomes in another language."""
    return [update for _, update in _labels(language, offers)]


def _labels(language: Language, offers: Offers = NO_OFFERS) -> Iterator[tuple[str, Any]]:
    for name, key in _BUTTONS.items():
        yield name, gr.update(value=say(language, key))
    yield "welcome", gr.update(value=welcome_html(language, offers))
    yield "wishes", gr.update(value=wishes_html(language))
    yield "editing", gr.update(value=_line_html(language, "editing"))
    yield "hint", gr.update(value=_line_html(language, "hint"))
    yield "box", gr.update(placeholder=say(language, "placeholder"), label=say(language, "placeholder"))


_BUTTONS = {
    "menu": "history",
    "hide": "close",
    "temporary": "temporary",
    "copy_all": "copy_all",
    "when_free": "when_free",
    "not_now": "cancel",
    "newest": "newest",
    "cancel": "cancel",
    "language": "switch_language",
    "new_chat": "new_chat",
    "forget": "forget",
    "log_out": "log_out",
    "again": "again",
    "go_on": "go_on",
    "send": "send",
    "stop": "stop",
}


def build_page(language: Language, offers: Offers = NO_OFFERS) -> ChatPage:
    """Create the components, top to bottom, inside the open Blocks. `language` is what stands there at first."""
    with gr.Column(elem_id="side"):  # history.js puts the list of conversations into it
        hide = _button(language, "hide")
        wishes = _words(wishes_html(language), "wishes")
        forget = _button(language, "forget")
        log_out = _button(language, "log_out")
    with gr.Row(elem_id="top"):
        menu = _button(language, "menu")
        header = _words(header_html(language, ModelStatus(None)), "header")
        temporary = _button(language, "temporary")
        new_chat = _button(language, "new_chat")
        language_switch = _button(language, "language")
    with gr.Column(elem_id="talk"):
        welcome = _words(welcome_html(language, offers), "welcome")
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
            copy_all = _button(language, "copy_all")
    with gr.Column(elem_id="composer"):
        with gr.Row(elem_id="edit"):
            editing = _words(_line_html(language, "editing"), "editing")
            cancel = _button(language, "cancel")
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
        when_free = _button(language, "when_free")
        not_now = _button(language, "not_now")
        newest = _button(language, "newest")
        hint = _words(_line_html(language, "hint"), "hint")
        attach = gr.Button("", elem_id="attach")
        kept = gr.Textbox(elem_id="kept")
        show_kept = gr.Button("", elem_id="show_kept")
    components = locals() | {"language": language_switch}
    return ChatPage(**{field.name: components[field.name] for field in fields(ChatPage)})


def _words(html: str, elem_id: str) -> gr.Markdown:
    # Not gr.HTML: it evaluates its value as a template, which our Content-Security-Policy forbids. These words are ours
    # alone, and sanitising would take the attributes away that page.js looks for.
    return gr.Markdown(html, elem_id=elem_id, sanitize_html=False, latex_delimiters=[])


def _button(language: Language, name: str, variant: Literal["primary", "secondary"] = "secondary") -> gr.Button:
    return gr.Button(say(language, _BUTTONS[name]), elem_id=name, variant=variant, size="sm", scale=0, min_width=0)


def _line_html(language: Language, key: str) -> str:
    return f'<span class="line">{escape(say(language, key))}</span>'
