"""What happens when somebody presses something: the handlers of the chat page and their wiring.

The running answer streams into one light component and the Chatbot gets the conversation once the answer is over: a
Chatbot among a streaming event's outputs costs 7 ms of CPU an update, even when it is skipped.
The handlers hold no state of their own: conversations belong to the chat service.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final, cast

import gradio as gr

from appliance.base.errors import ApplianceError, Closing, Refused
from appliance.base.log import where
from appliance.chat.browser_history import BadConversation, take
from appliance.chat.sessions import Conversation
from appliance.http.page_routes import head_of
from ui.chat import conversation_view as view
from ui.chat.page import ChatPage, ModelStatus, header_html, labels
from ui.chat.queue_policy import ATTACH_GROUP, CHAT_GROUP, QueuePolicy
from ui.chat.welcome import Offers, welcome_html
from ui.session_link import SessionLink
from ui.words.messages import Language, known, say

if TYPE_CHECKING:
    from appliance.access.rate_limits import RateLimits
    from appliance.answers.answer import Answer
    from appliance.chat.service import ChatService

_log = logging.getLogger(__name__)

LEAVER_CHECK_S: Final = 0.25
"""How soon a page that has gone is noticed while there is nothing new to show."""

Shown = tuple[Any, Any]
"""New values of the Chatbot and of the live component."""


class ChatHandlers:
    """One method an event. What a person may see of an error is a sentence of messages.py, never the error itself."""

    def __init__(
        self,
        chat: ChatService,
        link: SessionLink,
        policy: QueuePolicy,
        limits: RateLimits,
        max_input_chars: int,
    ) -> None:
        self._chat = chat
        self._link = link
        self._policy = policy
        self._limits = limits
        self._max_input_chars = max_input_chars

    # -- validators: inside queue/join, before an event is queued; the sentence appears above the box ----------

    async def may_ask(self, text: str, request: gr.Request) -> dict[str, Any]:
        """Take a ticket for a new question, or say why not."""
        return await self._admit(text, request)

    async def may_repeat(self, _text: str, request: gr.Request) -> dict[str, Any]:
        """Take a ticket for Ask again or Continue, or say why not."""
        return await self._admit(None, request)

    # -- streaming handlers: the values of the live component --------------------------------------------------

    async def ask(self, text: str, request: gr.Request) -> AsyncGenerator[str, None]:
        """Answer what was typed."""

        def begin(person: str, tab: str) -> Awaitable[Answer]:
            return self._chat.ask(person, tab, text, self._link.n_kept(request), self._link.wishes(request))

        async with aclosing(self._stream(begin, request)) as shown:
            async for value in shown:
                yield value

    async def again(self, _text: str, request: gr.Request) -> AsyncGenerator[str, None]:
        """Answer the last question anew."""

        def begin(person: str, tab: str) -> Awaitable[Answer]:
            return self._chat.again(person, tab, self._link.wishes(request))

        async with aclosing(self._stream(begin, request)) as shown:
            async for value in shown:
                yield value

    async def go_on(self, _text: str, request: gr.Request) -> AsyncGenerator[str, None]:
        """Write on where the last answer ended."""

        def begin(person: str, tab: str) -> Awaitable[Answer]:
            return self._chat.go_on(person, tab, self._link.wishes(request))

        async with aclosing(self._stream(begin, request)) as shown:
            async for value in shown:
                yield value

    async def attach(self, request: gr.Request) -> AsyncGenerator[str, None]:
        """After a reload: read on in an answer that is still being written."""

        async def running(person: str, tab: str) -> Answer | None:
            return self._chat.conversation(person, tab).running

        async with aclosing(self._stream(running, request)) as shown:
            async for value in shown:
                yield value

    # -- plain handlers ------------------------------------------------------------------------------------------

    async def restore(self, request: gr.Request) -> tuple[Any, Any, str, str]:
        """A page was loaded: the conversation of its tab, who answers, and what the owner put on the empty page."""
        self._policy.sign_of_life()
        welcome = welcome_html(self._link.language(request), self._offers())
        return *await self._show(None, request), await self.hello(request), welcome

    async def show_kept(self, text: str, request: gr.Request) -> Shown:
        """What the browser has kept of a conversation, as messages. Nothing of it stays here."""
        try:
            turns = take(text, self._max_input_chars)
        except BadConversation:
            turns = []
        language = self._link.language(request)
        return view.finished(Conversation(tuple(turns)), language, self._max_input_chars), ""

    async def commit(self, request: gr.Request) -> Shown:
        """An answer is over: it moves from the live component into the conversation."""
        self._policy.sign_of_life()
        conversation, live = await self._show(None, request)
        # After Stop the reader ends before the answer does. Stop shows what becomes of it, and may have done so already
        # when this arrives.
        return (gr.skip(), gr.skip()) if live else (conversation, live)

    async def stop(self, request: gr.Request) -> Shown:
        """End the answer of this tab, waiting or being written."""
        return await self._show(self._chat.stop, request)

    async def new_chat(self, request: gr.Request) -> Shown:
        """Stop and begin an empty conversation."""
        return await self._show(self._chat.new_chat, request)

    async def forget(self, request: gr.Request) -> Shown:
        """Stop and drop everything of this person, here and in Gradio's own memory."""

        async def forget_person(person: str, _tab: str) -> None:
            await self._chat.forget(person)
            self._policy.forget_pages()

        return await self._show(forget_person, request)

    async def hello(self, request: gr.Request) -> str:
        """The box was entered, or typing goes on after a long pause: somebody is there. Gives the header."""
        self._policy.sign_of_life()
        return self._header(self._link.language(request))

    async def relabel(self, request: gr.Request) -> list[Any]:
        """The language was switched: everything that is written on the page."""
        language = self._link.language(request)
        conversation, _live = await self._show(None, request)
        # A conversation that only the browser has stays on the page; history.js shows it once more.
        shown = conversation or gr.skip()
        return [shown, self._header(language), *labels(language, self._offers())]

    # -- wiring --------------------------------------------------------------------------------------------------

    def wire(self, page: ChatPage, demo: gr.Blocks) -> None:
        """Connect the components with the handlers. Called once, inside the Blocks."""
        shown = [page.conversation, page.live]
        quick: dict[str, Any] = {
            "queue": False,
            "show_progress": "hidden",
            "postprocess": False,
            "api_visibility": "private",
        }
        streamed: dict[str, Any] = quick | {"queue": True, "outputs": page.live}
        # "once": while an answer runs a second Enter does nothing and its text stays in the box.
        asked: dict[str, Any] = streamed | {
            "inputs": page.box,
            "concurrency_id": CHAT_GROUP,
            "concurrency_limit": self._policy.n_engine_places,
            "trigger_mode": "once",
        }
        runs = [
            gr.on([page.box.submit, page.send.click], self.ask, validator=self.may_ask, api_name="ask", **asked),
            page.again.click(self.again, validator=self.may_repeat, api_name="again", **asked),
            page.go_on.click(self.go_on, validator=self.may_repeat, api_name="go_on", **asked),
        ]
        demo.load(self.restore, outputs=[*shown, page.header, page.welcome], api_name="restore", **quick)
        # Pressed by page.js when the restored page shows a running answer. Not chained to the load: a question sent
        # just as another event of its page ends can miss Gradio's stream, which is then being closed.
        runs.append(
            page.attach.click(
                self.attach, api_name="attach", concurrency_id=ATTACH_GROUP, concurrency_limit=None, **streamed
            )
        )
        for run, name in zip(runs, ("ask", "again", "go_on", "attach"), strict=True):
            run.then(self.commit, outputs=shown, api_name=f"commit_{name}", **quick)
        # A question that waits must be out of the queue before its ticket is given up: Gradio runs what hangs on one
        # click in the order it was registered.
        for button, handler in ((page.stop, self.stop), (page.new_chat, self.new_chat), (page.forget, self.forget)):
            button.click(None, cancels=runs, api_visibility="private")
            button.click(handler, outputs=shown, api_name=handler.__name__, **quick)
        page.show_kept.click(self.show_kept, inputs=page.kept, outputs=shown, api_name="show_kept", **quick)
        page.box.focus(self.hello, outputs=page.header, api_name="hello", **quick)
        page.language.click(
            self.relabel, outputs=[page.conversation, page.header, *page.labelled()], api_name="relabel", **quick
        )

    # -- shared by the above -------------------------------------------------------------------------------------

    async def _admit(self, text: str | None, request: gr.Request) -> dict[str, Any]:
        try:
            self._policy.sign_of_life()
            person, tab = self._link.who(request)
            self._limits.question(self._link.caller(request))
            if not await self._chat.admit(person, tab, text, self._link.n_kept(request), self._link.wishes(request)):
                self._policy.let_pass(person, tab)
        except Exception as error:  # noqa: BLE001  error class to sentence: what a validator raises, Gradio prints
            return cast("dict[str, Any]", gr.validate(False, self._sentence(error, self._link.language(request))))
        return cast("dict[str, Any]", gr.validate(True, ""))

    async def _stream(
        self, begin: Callable[[str, str], Awaitable[Answer | None]], request: gr.Request
    ) -> AsyncGenerator[str, None]:
        """Follow an answer while its page is there. A refusal appears as a toast, and the text stays in the box."""
        language = self._link.language(request)
        try:
            answer = await begin(*self._link.who(request))
            if answer is None:
                return
            shown = ""
            async with aclosing(answer.follow(heartbeat_s=LEAVER_CHECK_S)) as updates:
                async for update in updates:
                    if not self._policy.is_read():
                        return
                    value = view.running(update, language, self._max_input_chars, self._wait_s(update))
                    if value != shown:
                        shown = value
                        yield shown
        except Exception as error:  # noqa: BLE001  error class to sentence: Gradio would show and print what it is given
            # That the program ends stands above the box already: page.js asks when a question comes back unanswered.
            if not isinstance(error, Closing):
                gr.Warning(self._sentence(error, language), title=say(language, "toast_title"))

    async def _show(self, change: Callable[[str, str], Awaitable[None]] | None, request: gr.Request) -> Shown:
        """Make a change, if any, then give what is now to be seen of this tab's conversation."""
        language = self._link.language(request)
        try:
            person, tab = self._link.who(request)
            if change is not None:
                await change(person, tab)
            conversation = self._chat.conversation(person, tab)
        except Exception as error:  # noqa: BLE001  error class to sentence: an event without queue cannot even show a toast
            self._sentence(error, language)
            return [], ""
        running = conversation.running
        live = "" if running is None else view.running(running, language, self._max_input_chars)
        return view.finished(conversation, language, self._max_input_chars), live

    def _offers(self) -> Offers:
        settings = self._chat.settings
        return Offers.of(settings.starter_questions, settings.presets)

    def _wait_s(self, answer: Answer) -> float:
        return self._chat.watch.load_shedding.wait_s(answer.ahead) if answer.ahead else 0

    def _header(self, language: Language) -> str:
        return header_html(language, self._model_status(), self._chat.settings.notice, head_of(self._chat))

    def _model_status(self) -> ModelStatus:
        info = self._chat.engine.info
        return ModelStatus(info.model_name if info else None, failed=self._chat.not_ready_code == "failed")

    def _sentence(self, error: Exception, language: Language) -> str:
        """What a person reads of an error. What the owner reads of one nobody foresaw goes to the log."""
        code = getattr(error, "code", "")
        self._chat.watch.metrics.refused(code or "internal_error")
        if isinstance(error, ApplianceError) and known(code):
            return say(language, code, **(error.values if isinstance(error, Refused) else {}))
        _log.error("a page event failed: %s", where(error))
        return say(language, "failed")
