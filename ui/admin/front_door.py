"""The owner's section about the front door: the address to hand out, its QR code, what to do where it does not open.

Built first, wired after, as every part of a page: the admin page lists it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from html import escape

import gradio as gr

from appliance.network.front_door import DoorView, FrontDoor, qr_picture
from ui.session_link import SessionLink
from ui.words.messages import Language, say


@dataclass(frozen=True)
class FrontDoorSection:
    """Its components."""

    words: gr.Markdown
    look: gr.Button


def build(language: Language) -> FrontDoorSection:
    """Create the components inside the open Blocks. What they say comes with `FrontDoorHandlers.show`."""
    # Sanitising would take the picture's data: address away; every word here is ours, what is not is escaped.
    words = gr.Markdown("", elem_id="front_door", sanitize_html=False, latex_delimiters=[])
    look = gr.Button(say(language, "door_look"), elem_id="look_at_door", size="sm")
    return FrontDoorSection(words, look)


class FrontDoorHandlers:
    """What happens in the section."""

    def __init__(self, door: FrontDoor, link: SessionLink) -> None:
        self._door = door
        self._link = link

    def wire(self, section: FrontDoorSection, demo: gr.Blocks) -> None:
        """Connect the events; `demo` is the Blocks the section is in."""
        outputs = [section.words, section.look]
        demo.load(self.show, None, outputs, queue=False, show_progress="hidden", api_name="show_door")
        section.look.click(self.show, None, outputs, queue=False, show_progress="hidden", api_name="look_at_door")

    async def show(self, request: gr.Request) -> tuple[str, dict[str, object]]:
        """Everything as it is now, in the language of whoever asks."""
        language = self._link.language(request)
        view = await asyncio.to_thread(self._door.look)
        return door_html(language, view), gr.update(value=say(language, "door_look"))


def door_html(language: Language, view: DoorView) -> str:
    """The whole section as HTML."""
    parts = [f"<h2>{escape(say(language, 'door_heading'))}</h2>"]
    if view.changed_from:
        parts.append(_line(language, "door_changed", "alert", url=view.changed_from))
    if not view.is_shared:
        parts.append(_line(language, "door_not_shared"))
    elif not view.url:
        parts.append(_line(language, "door_none", "alert"))
    else:
        parts += _address_html(language, view)
    parts.append(_line(language, "door_own", url=view.own_url))
    if view.url:
        parts += _firewall_html(language, view)
    return "\n".join(parts)


def _address_html(language: Language, view: DoorView) -> list[str]:
    described = escape(say(language, "door_qr", url=view.url))
    parts = [
        f'<p class="address"><a href="{escape(view.url)}">{escape(view.url)}</a></p>',
        f'<p><img class="code" src="{qr_picture(view.url)}" alt="{described}"></p>',
        _line(language, "door_qr_hint"),
    ]
    if view.name_url:
        parts.append(_line(language, "door_name", url=view.name_url))
    if len(view.urls) > 1:
        parts.append(_line(language, "door_more", urls=", ".join(view.urls[1:])))
    if view.virtual_urls:
        parts.append(_line(language, "door_virtual", urls=", ".join(view.virtual_urls)))
    return parts


def _firewall_html(language: Language, view: DoorView) -> list[str]:
    rule = view.firewall
    port = view.own_url.rpartition(":")[2]
    parts = [
        f"<h3>{escape(say(language, 'door_firewall'))}</h3>",
        _line(language, "door_network"),
        _line(language, f"door_rule_{rule.kind}", port=port),
    ]
    if rule.command:
        parts.append(f"<pre><code>{escape(rule.command)}</code></pre>")
    return parts


def _line(language: Language, key: str, role: str = "", **values: str) -> str:
    mark = f' role="{role}"' if role else ""
    return f"<p{mark}>{escape(say(language, key, **values))}</p>"
