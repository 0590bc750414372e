"""Gradio's queue as our request scheduler: how many questions run at once, who is ahead of whom, who has left, how
often an idle program wakes. The only module that knows the inside of Gradio's queue (gradio is pinned exactly).

Everything here runs on the one event loop of the web process.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from gradio.context import LocalContext
from gradio.queueing import EventQueue

if TYPE_CHECKING:
    import gradio as gr
    from fastapi import Request
    from gradio.queueing import Event, Queue
    from gradio.state_holder import StateHolder

CHAT_GROUP: Final = "chat"
ATTACH_GROUP: Final = "attach"
"""Waits for nobody: readers coming back after a reload, whose place is paid for, and questions that need none."""

N_SPARE_EVENTS: Final = 64
"""Room, beside the chat group, for events that do not wait: coming back after a reload, and later the admin page."""

LIVELY_POLL_S: Final = 0.02
QUIET_POLL_S: Final = 0.1
"""How often the queue looks for new events while somebody is there, and while nobody is."""
PROGRESS_POLL_S: Final = 0.5
"""Gradio's progress bars, which no event of ours uses."""
QUIET_AFTER_S: Final = 90.0
"""Without a sign of life from any page for so long, nobody is there. Typing is a sign (see page.js)."""
N_KEPT_PAGES: Final = 256
"""Pages of which Gradio keeps the last values. It keeps 10,000 by default, each with the text it showed last."""
KEEP_PAGE_S: Final = 1800.0

Identity = tuple[str, str]
"""Person and tab."""


class QueuePolicy:
    """The chat group of one Blocks. Made before the chat service, which asks it; bound to the Blocks afterwards."""

    def __init__(
        self,
        n_engine_places: int,
        identify: Callable[[Request], Identity | None],
        keep_page_s: float = KEEP_PAGE_S,
    ) -> None:
        """`n_engine_places`: slots and look-ahead. `identify`: person and tab of a request, None for a stranger."""
        self.n_engine_places = n_engine_places
        self._identify = identify
        self.keep_page_s = keep_page_s
        self._demo: gr.Blocks | None = None
        self._passing: set[Identity] = set()
        self._quieting: asyncio.TimerHandle | None = None

    def open_queue(self, demo: gr.Blocks) -> None:
        """Give `demo` its queue, with our bound instead of Gradio's and its polling as for an empty house.

        Admission is asked before an event joins, and `max_size` never: it counts all groups and answers in English.
        `max_threads` bounds the events that run at once, whatever their limits say.
        """
        demo.max_threads = self.n_engine_places + N_SPARE_EVENTS
        demo.queue(api_open=False, max_size=None)
        demo.state_session_capacity = N_KEPT_PAGES
        queue = demo._queue
        queue.sleep_when_free = QUIET_POLL_S
        queue.progress_update_sleep_when_free = PROGRESS_POLL_S
        # After every event Gradio builds a pandas summary of all earlier ones for a page we do not show.
        queue.ANAYLTICS_CACHE_FREQUENCY = 2**62
        queue.ANALYTICS_MAX_EVENTS = 1
        groups = queue.event_queue_per_concurrency_id
        groups[ATTACH_GROUP] = EventQueue(ATTACH_GROUP, None)
        groups[CHAT_GROUP] = EventQueue(CHAT_GROUP, self.n_engine_places)
        groups[CHAT_GROUP].queue = _Line(self._divert)
        self._demo = demo

    def resize(self, n_engine_places: int) -> None:
        """Another bound, from the next question on. It may grow and shrink while the program runs."""
        self.n_engine_places = n_engine_places
        group = self._queue.event_queue_per_concurrency_id[CHAT_GROUP]
        if group.concurrency_limit is not None:  # else the program is ending, see let_all_start
            group.concurrency_limit = n_engine_places
        jobs = self._queue.active_jobs  # a place each for what Gradio runs at once; empty before it starts
        if jobs:
            jobs += [None] * (n_engine_places + N_SPARE_EVENTS - len(jobs))

    def is_somebody_there(self) -> bool:
        """Whether a page has given a sign of life lately."""
        return self._quieting is not None

    def sign_of_life(self) -> None:
        """Somebody is there: look for events often, until nobody has been there for QUIET_AFTER_S."""
        if self._quieting is not None:
            self._quieting.cancel()
        self._queue.sleep_when_free = LIVELY_POLL_S
        self._quieting = asyncio.get_running_loop().call_later(QUIET_AFTER_S, self._quieten)

    def waiting(self) -> list[Identity]:
        """Person and tab of every question in Gradio's queue, the next one first. Its index is its place."""
        if self._demo is None:
            return []
        group = self._queue.event_queue_per_concurrency_id.get(CHAT_GROUP)
        identities = (self._identify(event.request) for event in (group.queue if group else ()))
        return [identity for identity in identities if identity is not None]

    def let_pass(self, person: str, tab: str) -> None:
        """The validator's word: the question this tab is about to queue needs no place, so it waits for nobody."""
        self._passing.add((person, tab))

    def is_read(self) -> bool:
        """Whether the page whose event is running is still there.

        Gradio notices a departed page only when a handler yields; the event itself knows at once.
        """
        event = self._queue.event_ids_to_events.get(LocalContext.event_id.get(None) or "")
        return event is None or event.alive

    def is_open(self, session: str) -> bool:
        """Whether Gradio has messages, or will have, for that session of its own."""
        return session in self._queue.pending_messages_per_session

    def let_all_start(self) -> None:
        """Everybody's turn at once: when the chat service takes nothing new, that tells those who wait."""
        group = self._queue.event_queue_per_concurrency_id.get(CHAT_GROUP)
        if group is not None:
            group.concurrency_limit = None

    def close(self) -> None:
        """Start no more events."""
        self._queue.close()  # type: ignore[no-untyped-call]

    def forget_pages(self) -> None:
        """Drop the last values Gradio keeps of every page: none is needed, and text may be among them."""
        holder = self._holder()
        with holder.lock:
            holder.session_data.clear()
            holder.time_last_used.clear()

    def _divert(self, event: Event) -> bool:
        """Send an event that may pass to the group without a limit; whether it was one."""
        identity = self._identify(event.request)
        if identity not in self._passing:
            return False
        self._passing.discard(identity)
        event.concurrency_id = ATTACH_GROUP
        self._queue.event_queue_per_concurrency_id[ATTACH_GROUP].queue.append(event)
        return True

    @property
    def _queue(self) -> Queue:
        if self._demo is None:
            raise RuntimeError("open_queue has not been called")
        return self._demo._queue

    def _holder(self) -> StateHolder:
        if self._demo is None:
            raise RuntimeError("open_queue has not been called")
        return self._demo.state_holder

    def _quieten(self) -> None:
        self._quieting = None
        self._queue.sleep_when_free = QUIET_POLL_S
        self._drop_old_pages()

    def _drop_old_pages(self) -> None:
        holder = self._holder()
        oldest = time.time() - self.keep_page_s
        with holder.lock:
            for page, last_used in list(holder.time_last_used.items()):
                if last_used.timestamp() < oldest:
                    holder.session_data.pop(page, None)
                    del holder.time_last_used[page]


class _Line(list["Event"]):
    """The list in which Gradio keeps the waiting of one group: some are told to go elsewhere when they are put in."""

    def __init__(self, divert: Callable[[Event], bool]) -> None:
        super().__init__()
        self._divert = divert

    def append(self, event: Event) -> None:
        """Put it last, unless it is diverted."""
        if not self._divert(event):
            super().append(event)
