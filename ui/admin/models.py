"""The owner's section about models: which are there, which one answers, another one, a download, a file from elsewhere.

Built first, wired after: the admin page lists it. No event is queued and none takes long: what does goes on in the
library, and the page looks at it now and then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Final

import gradio as gr

from appliance.base.errors import ModelFileError
from appliance.http.web import UPLOADS
from appliance.models.model_download import DownloadState, Offer
from appliance.models.model_library import Entry, ModelLibrary, News, quality_of
from ui.session_link import SessionLink
from ui.words.messages import Language, say, size_text

LOOK_EVERY_S: Final = 2.0


@dataclass(frozen=True)
class ModelsSection:
    """Its components. Whatever is sent is text."""

    words: gr.Markdown
    news: gr.Markdown
    """What goes on, or became of the last thing that was asked for."""
    choice: gr.Radio
    use: gr.Button
    look: gr.Button
    offer: gr.Radio
    hint: gr.Markdown
    download: gr.Button
    stop: gr.Button
    path: gr.Textbox
    bring: gr.Button
    upload: gr.Markdown
    """Its file is sent by upload.js, which the page's head has to bring."""
    seen: gr.Textbox
    """Never shown: how many changes this page has seen."""

    def labelled(self) -> list[gr.components.Component]:
        """Those whose words depend on the language alone, in the order of `_labels`."""
        return [self.use, self.look, self.hint, self.download, self.path, self.bring, self.upload]


def build(language: Language) -> ModelsSection:
    """Create the components inside the open Blocks. What is in them comes with the first look."""
    news = _words("models_news")
    words = _words("models")
    choice = gr.Radio([], value="", label=say(language, "models_choose"), elem_id="models_choice")
    with gr.Row():
        use = _button(language, "use", "primary")
        look = _button(language, "look")
    offer = gr.Radio([], value="", label=say(language, "models_download_choice"), elem_id="models_offer")
    hint = _words("models_hint")
    with gr.Row():
        download = _button(language, "download")
        stop = gr.Button(say(language, "models_stop"), elem_id="models_stop", size="sm", visible=False)
    path = gr.Textbox("", label=say(language, "models_path"), elem_id="models_path", max_lines=1)
    bring = _button(language, "bring")
    upload = _words("models_upload")
    seen = gr.Textbox("", elem_id="models_seen", visible="hidden")
    return ModelsSection(words, news, choice, use, look, offer, hint, download, stop, path, bring, upload, seen)


def _words(elem_id: str) -> gr.Markdown:
    return gr.Markdown("", elem_id=elem_id, sanitize_html=False, latex_delimiters=[])


def _button(language: Language, name: str, variant: Any = "secondary") -> gr.Button:
    return gr.Button(say(language, f"models_{name}"), elem_id=f"models_{name}", variant=variant, size="sm")


class ModelsHandlers:
    """What happens in the section. Every handler belongs to the event loop."""

    def __init__(self, library: ModelLibrary, link: SessionLink) -> None:
        self._library = library
        self._link = link

    def wire(self, section: ModelsSection, demo: gr.Blocks) -> None:
        """Connect the events; `demo` is the Blocks the section is in."""
        listed = [section.words, section.news, section.choice, section.offer, section.stop, section.seen]
        everything = [*listed, *section.labelled()]
        self._on(demo.load, self.show, [], everything, "show_models")
        self._on(section.look.click, self.show, [], everything, "look_at_models")
        self._on(section.use.click, self.use, [section.choice], listed, "use_model")
        self._on(section.download.click, self.download, [section.offer], listed, "download_model")
        self._on(section.stop.click, self.stop, [], listed, "stop_download")
        self._on(section.bring.click, self.bring, [section.path], listed, "bring_model")
        self._on(gr.Timer(LOOK_EVERY_S).tick, self.look, [section.seen], listed, "watch_models")

    @staticmethod
    def _on(event: Any, handler: Any, inputs: Sequence[Any], outputs: Sequence[Any], name: str) -> None:
        # As texts, in and out: what is chosen is judged by the library and not by what was shown at first.
        event(
            handler,
            inputs=list(inputs) or None,
            outputs=list(outputs),
            queue=False,
            show_progress="hidden",
            preprocess=False,
            postprocess=False,
            api_name=name,
        )

    async def show(self, request: gr.Request) -> list[Any]:
        """Everything as it is now, in the language of whoever asks."""
        language = self._link.language(request)
        return [*await self._listed(language), *_labels(language)]

    async def look(self, seen: str, request: gr.Request) -> list[Any]:
        """What has changed since the page was drawn."""
        language = self._link.language(request)
        if seen == str(self._library.n_changes):
            news = self._news(language) if self._library.is_at_work else gr.skip()
            return [gr.skip(), news, gr.skip(), gr.skip(), gr.skip(), gr.skip()]
        return await self._listed(language)

    async def use(self, key: str, request: gr.Request) -> list[Any]:
        """Let the chosen model answer."""
        await self._library.begin_change(key)
        return await self._listed(self._link.language(request))

    async def download(self, file: str, request: gr.Request) -> list[Any]:
        """Get a model of the short list."""
        self._library.begin_download(file)
        await asyncio.sleep(0)  # it notes that it runs
        return await self._listed(self._link.language(request))

    async def stop(self, request: gr.Request) -> list[Any]:
        """End the download."""
        self._library.download.stop()
        return await self._listed(self._link.language(request))

    async def bring(self, path: str, request: gr.Request) -> list[Any]:
        """Copy a model from elsewhere on this PC."""
        self._library.begin_copy(path)
        return await self._listed(self._link.language(request))

    async def _listed(self, language: Language) -> list[Any]:
        n_changes = self._library.n_changes
        entries = await asyncio.to_thread(self._library.entries)
        able = [(entry.name, entry.key) for entry in entries if entry.problem is None]
        offers = [(_offer_text(language, offer), offer.file) for offer in self._library.offers()]
        present = next((entry.key for entry in entries if entry.answers), "")
        offered = say(language, "models_download_choice" if offers else "models_all_there")
        return [
            models_html(language, entries, is_locked=self._library.is_locked),
            self._news(language),
            gr.update(choices=able, value=present, label=say(language, "models_choose")),
            gr.update(choices=offers, value=offers[0][1] if offers else "", label=offered),
            gr.update(value=say(language, "models_stop"), visible=self._library.download.state.is_running),
            str(n_changes),
        ]

    def _news(self, language: Language) -> str:
        news = self._library.news
        return news_html(language, news) or download_html(language, self._library.download.state)


def news_html(language: Language, news: News) -> str:
    """What became of the last thing that was asked for; "" for nothing."""
    parts = [problem_text(language, news.problem)] if news.problem is not None else []
    parts += [say(language, f"models_{news.code}", **news.values)] if news.code else []
    return _paragraph(" ".join(parts), "alert" if news.is_bad else "status") if parts else ""


def _labels(language: Language) -> list[Any]:
    """For `ModelsSection.labelled`."""
    use, look, download, bring = (
        gr.update(value=say(language, f"models_{name}")) for name in ("use", "look", "download", "bring")
    )
    hint = _paragraph(say(language, "models_download_hint"))
    path = gr.update(label=say(language, "models_path"))
    return [use, look, hint, download, path, bring, upload_html(language)]


def models_html(language: Language, entries: list[Entry], *, is_locked: bool = False) -> str:
    """Every model with what is known of it."""
    parts = [f"<h2>{escape(say(language, 'models_heading'))}</h2>"]
    if is_locked:
        parts.append(_paragraph(say(language, "models_locked")))
    return "\n".join([*parts, *(_entry_html(language, entry) for entry in entries)])


def upload_html(language: Language) -> str:
    """Where the file is picked; upload.js sends it."""
    words = {name: escape(say(language, f"models_upload_{name}")) for name in ("going", "lost")}
    return (
        f'<div class="upload"><label>{escape(say(language, "models_upload"))} '
        f'<input type="file" accept=".gguf" multiple data-upload="{UPLOADS}" data-going="{words["going"]}" '
        f'data-lost="{words["lost"]}"></label>'
        '<p class="upload-said" role="status"></p></div>'
    )


def download_html(language: Language, state: DownloadState) -> str:
    """How far a download is, or what became of it; "" before the first."""
    if state.phase == "idle":
        return ""
    key = state.code if state.code else state.phase
    percent = 100 * state.n_bytes // state.size_bytes if state.size_bytes else 0
    sizes = {
        "file": state.file,
        "done": size_text(state.n_bytes),
        "size": size_text(state.size_bytes),
        "percent": percent,
    }
    words = say(language, f"download_{key}", **{**sizes, **state.values})
    bar = f'<progress value="{percent}" max="100" aria-hidden="true"></progress>' if state.phase == "loading" else ""
    return _paragraph(words, "alert" if state.code else "") + bar


def problem_text(language: Language, error: ModelFileError) -> str:
    """Why a model file cannot be used. The file's name only: no path goes to a page."""
    return say(language, f"model_{error.code}", **{"file": error.path.name, **error.values})


def _entry_html(language: Language, entry: Entry) -> str:
    marks = [say(language, key) for key, is_so in _marks(entry) if is_so]
    name = escape(entry.name) + "".join(f" <em>({escape(mark)})</em>" for mark in marks)
    lines = [escape(line) for line in _lines(language, entry)]
    return f'<section class="model"><h3>{name}</h3><ul>{"".join(f"<li>{line}</li>" for line in lines)}</ul></section>'


def _marks(entry: Entry) -> list[tuple[str, bool]]:
    return [("models_answers", entry.answers), ("models_starter", entry.is_starter)]


def _lines(language: Language, entry: Entry) -> list[str]:
    """What is said of one model."""
    if entry.problem is not None:
        return [say(language, "models_broken", reason=problem_text(language, entry.problem))]
    assert entry.facts is not None
    facts, speed = entry.facts, entry.speed
    weights, memory = facts.n_weights // 10**6, size_text(entry.memory_bytes)
    size = say(language, "models_size", weights=weights, type=facts.quantisation, size=size_text(facts.size_bytes))
    several = [say(language, "models_files", n=facts.n_parts)] if facts.n_parts > 1 else []
    licence = (
        say(language, "models_licence", licence=facts.licence) if facts.licence else say(language, "models_no_licence")
    )
    measured = say(language, "models_not_tuned")
    if speed is not None:
        figures = {"one": f"{speed.one:.0f}", "many": f"{speed.many:.0f}", "people": entry.people}
        measured = say(language, "models_speed", **figures)
    return [
        say(language, f"model_quality_{quality_of(facts.n_weights)}"),
        size,
        *several,
        licence,
        say(language, "models_memory" if entry.fits else "models_no_room", size=memory),
        measured,
    ]


def _offer_text(language: Language, offer: Offer) -> str:
    name = offer.file.removesuffix(".gguf")
    return say(language, "models_offer", name=name, size=size_text(offer.size_bytes), licence=offer.licence)


def _paragraph(text: str, role: str = "") -> str:
    mark = f' role="{role}"' if role else ""
    return f"<p{mark}>{escape(text)}</p>"
