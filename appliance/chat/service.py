"""The life of one question, for page and API alike: admitted, asked, written, committed, or ended by whoever leaves.

Who writes the answer is decided in replies.py.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from appliance.answers.answer import Answer, AnswerState, Reply
from appliance.answers.engine_link import Engine
from appliance.answers.replies import Known, Replies
from appliance.base.errors import Closing, NothingToRepeat, NotReady, UnknownPerson
from appliance.base.janitor import Job
from appliance.base.log import report_failed_answer
from appliance.chat import guard
from appliance.chat.preferences import NO_WISHES, Wishes
from appliance.chat.sessions import Conversation, Session, SessionStore, Turn, program_conversation
from appliance.chat.watch import Counts, Watch
from appliance.engine.client import EngineState
from appliance.engine.request import FinishReason, Message, Request, SamplingParams
from appliance.line.admission import Admission, Key, Place
from appliance.settings.schema import Settings

_SWEEP_S = 2.0
"""How late a conversation past its TTL may be forgotten."""


class ChatService:
    """Conversations and their answers. Every method belongs to the event loop's thread."""

    def __init__(
        self,
        engine: Engine,
        settings: Settings,
        clock: Callable[[], float] = time.monotonic,
        known: Known | None = None,
    ) -> None:
        """`known`: who answers without the engine; None: nobody."""
        self._engine = engine
        self._settings = settings
        self._clock = clock
        self.watch = Watch(self, engine, settings, clock)
        self._admission = Admission(settings.n_places, settings.max_answers_per_person, clock, self.watch.load_shedding)
        self.known = known or Known()
        self._replies = Replies(engine, settings, self.known)
        self.sessions = SessionStore(settings.session_ttl_s, clock, engine.forget)
        self._answers: dict[Answer, asyncio.Task[None]] = {}
        self._closing = False

    # -- looking ---------------------------------------------------------------------------------------------

    @property
    def engine(self) -> Engine:
        """Who answers."""
        return self._engine

    @property
    def settings(self) -> Settings:
        """What is in force now."""
        return self._settings

    @property
    def n_answers(self) -> int:
        """Answers in hand: waiting for the engine or being written."""
        return len(self._answers)

    def counts(self) -> Counts:
        """How many there are of what."""
        n_waiting = self._admission.n_tickets + self._replies.n_waiting
        return Counts(n_waiting, self._admission.n_taken, len(self.sessions))

    @property
    def not_ready_code(self) -> str:
        """Why no question can be answered right now; "" when one can."""
        if self._closing:
            return Closing.code
        return "" if self._engine.state is EngineState.READY else self._engine.state.value

    def attach_page_queue(self, waiting: Callable[[], Sequence[Key]]) -> None:
        """Name the function that tells whose events wait in the page's queue, in order."""
        self._admission.watch_queue(waiting)

    def conversation(self, person: str | None, tab: str | None) -> Conversation:
        """What there is of this conversation; empty where it is not known."""
        session = self.sessions.find((person or "", tab or ""))
        return Conversation(tuple(session.turns), session.running) if session is not None else Conversation()

    def place(self, person: str | None, tab: str | None) -> int | None:
        """How many are served before this conversation's question; None if none of it waits."""
        key = (person or "", tab or "")
        rank = self._admission.rank(key)
        if rank is not None:
            return rank + self._replies.n_waiting
        session = self.sessions.find(key)
        return session.running.ahead if session is not None and session.running is not None else None

    # -- the page --------------------------------------------------------------------------------------------

    async def admit(
        self,
        person: str | None,
        tab: str | None,
        text: str | None,
        n_kept: int | None = None,
        wishes: Wishes = NO_WISHES,
    ) -> bool:
        """The validator's question, before anything is queued: may it be asked? Raises a Refused when not.

        Args:
            text: what is to be asked; None for Ask again and Continue.
            n_kept, wishes: as for `ask`.
        Returns:
            Whether it has to wait in line, for which it now holds a ticket.
        """
        key = _key(person, tab)
        self._check_open()
        if text is not None:
            question, _ = guard.cut(text, self._settings.max_input_chars)
            request = self._request(key, Turn(question, "", (), None), wishes, self._n_after(key, n_kept))
            if self._replies.can_join(request) or await self._replies.find(request) is not None:
                self._admission.check_join(key)
                return False
        elif not self.conversation(person, tab).turns:
            raise NothingToRepeat("there is nothing to repeat")
        self._check_engine()
        self._admission.enter_page(key)
        return True

    async def ask(
        self, person: str | None, tab: str | None, text: str, n_kept: int | None = None, wishes: Wishes = NO_WISHES
    ) -> Answer:
        """Begin to answer. A text that is too long is cut, with a notice.

        Args:
            n_kept: go on after so many turns and drop what came after them; None: after all.
            wishes: what this person wants of the answer, beside the question.
        """
        key = _key(person, tab)
        question, was_cut = guard.cut(text, self._settings.max_input_chars)
        turn = Turn(question, "", (), None, notices=("input_cut",) if was_cut else ())
        return await self._begin_turn(key, turn, wishes, n_replaced=self._n_after(key, n_kept))

    async def again(self, person: str | None, tab: str | None, wishes: Wishes = NO_WISHES) -> Answer:
        """Drop the last answer and ask its question anew."""
        key = _key(person, tab)
        turn = self._last_turn(key)
        notices = tuple(notice for notice in turn.notices if notice == "input_cut")
        anew = Turn(turn.question, "", (), None, notices=notices)
        return await self._begin_turn(key, anew, wishes, n_replaced=1, fresh=True)

    async def go_on(self, person: str | None, tab: str | None, wishes: Wishes = NO_WISHES) -> Answer:
        """Continue an answer that hit its limit, was stopped or was cut off by a failure of the engine."""
        key = _key(person, tab)
        turn = self._last_turn(key)
        if not turn.can_continue:
            raise NothingToRepeat("there is nothing to continue")
        return await self._begin_turn(key, replace(turn, notices=(), verdict=""), wishes, n_replaced=1, fresh=True)

    async def stop(self, person: str | None, tab: str | None) -> None:
        """End this conversation's answer; returns when what was written of it is committed."""
        key = (person or "", tab or "")
        self._admission.drop_ticket(key)
        session = self.sessions.find(key)
        if session is not None and session.running is not None:
            answer = session.running
            answer.end("stopped")
            await answer.wait_done()

    async def new_chat(self, person: str | None, tab: str | None) -> None:
        """Stop, and drop the text of this conversation."""
        await self.stop(person, tab)
        self.sessions.drop((person or "", tab or ""))

    async def forget(self, person: str | None) -> None:
        """Stop, and drop everything of this person."""
        for key in self.sessions.of_person(person or ""):
            await self.new_chat(*key)
        if person:
            streams = [answer for answer in self._answers if answer.person == person]  # of no conversation
            for answer in streams:
                answer.end("stopped")
                await answer.wait_done()
            self._engine.forget(person)
            self._replies.forget(person)

    # -- programs --------------------------------------------------------------------------------------------

    async def complete(
        self,
        messages: Sequence[Message],
        *,
        person: str,
        max_tokens: int | None,
        sampling: SamplingParams,
        stop: tuple[str, ...],
        is_page: bool = False,
        fresh: bool = False,
    ) -> Answer:
        """Answer a program. Everything it wants known is in `messages`; of it only KV state is kept, for its next turn.

        Args:
            person: who asks; a page's person only with `is_page`.
            is_page: it counts as one of the answers this person may have in hand.
            fresh: the model is to answer, whatever is saved.
        Raises:
            Busy: at once, when every place is taken.
        """
        request_id = secrets.token_hex(12)
        brings_its_own = messages[0].role == "system"
        asked = (*(() if brings_its_own else (Message("system", self._settings.system_prompt),)), *messages)
        request = Request(
            request_id=request_id,
            messages=asked,
            person=person,
            conversation=program_conversation(asked),
            max_tokens=max_tokens or self._settings.max_answer_tokens,
            sampling=sampling,
            stop=stop,
            refuse_long_input=True,
            model=self._replies.model,
        )
        found = await self._replies.find(request, fresh=fresh, whole=True)
        reply, place = self._reply(request, found, (person, request_id) if is_page else None, fresh=fresh)
        answer = Answer(request.request_id, "", self._clock, self._n_streams)
        self._start(answer, reply, place, session=None)
        return answer

    # -- the program's own life ------------------------------------------------------------------------------

    def jobs(self) -> list[Job]:
        """What has to be done again and again while the program runs."""
        return [
            Job("tickets", 0, self._admission.sweep),
            Job("unread answers", 0, self._end_unread),
            Job("watch", 0, self.watch.tick),
            Job("conversations", _SWEEP_S, self.sessions.sweep),
            *self._replies.jobs(),
        ]

    def model_changed(self) -> None:
        """Another model answers from now on: conversations stay, their token ids were the old one's."""
        self.sessions.drop_token_ids()
        for answer in self._answers:
            answer.drop_token_ids()

    def use(self, settings: Settings) -> None:
        """Go by these from the next question on; see `is_live` in settings/schema.py."""
        self._settings = settings
        self.watch.use(settings)
        self._admission.use(settings.n_places, settings.max_answers_per_person)
        self._replies.use(settings)
        self.sessions.ttl_s = settings.session_ttl_s

    def refuse_new(self) -> None:
        """From now on every new question hears that the program is shutting down."""
        self._closing = True

    async def drain(self, bound_s: float) -> None:
        """Take nothing new, let running answers end for `bound_s`, then end the rest and tell their readers."""
        self.refuse_new()
        if not self._answers:
            return
        await asyncio.wait(list(self._answers.values()), timeout=bound_s)
        tasks = list(self._answers.values())
        for answer in list(self._answers):
            answer.end(Closing.code)
        if tasks:
            await asyncio.wait(tasks, timeout=1.0)

    async def close(self) -> None:
        """After the drain: write what is to be kept."""
        await self._replies.close()

    def _check_open(self) -> None:
        if self._closing:
            raise Closing("the program is shutting down")

    def _check_engine(self) -> None:
        if self._engine.state in (EngineState.FAILED, EngineState.CLOSED):
            raise NotReady(f"the engine is {self._engine.state}")

    def _last_turn(self, key: Key) -> Turn:
        session = self.sessions.find(key)
        if session is None or not session.turns:
            raise NothingToRepeat("there is nothing to repeat")
        return session.turns[-1]

    def _n_after(self, key: Key, n_kept: int | None) -> int:
        """How many turns come after the first `n_kept`."""
        session = self.sessions.find(key)
        return 0 if session is None or n_kept is None else max(0, len(session.turns) - n_kept)

    async def _begin_turn(
        self, key: Key, turn: Turn, wishes: Wishes, n_replaced: int, *, fresh: bool = False
    ) -> Answer:
        """Find who answers `turn` in place of the last `n_replaced`; one that has text already is continued."""
        request = self._request(key, turn, wishes, n_replaced)
        found = await self._replies.find(request, fresh=fresh)
        now = self._request(key, turn, wishes, n_replaced)
        if now.messages != request.messages:  # New chat was pressed meanwhile, say
            request, found = now, None
        reply, place = self._reply(request, found, key, fresh=fresh)
        # From here on nothing raises: the place belongs to the answer.
        session = self.sessions.open(key)
        session.take_back(n_replaced)
        answer = Answer(
            request.request_id,
            turn.question,
            self._clock,
            self._n_streams,
            text=turn.text,
            token_ids=turn.token_ids,
            notices=(*turn.notices, "expired") if session.take_expired() else turn.notices,
        )
        session.running = answer
        self._start(answer, reply, place, session)
        return answer

    def _request(self, key: Key, turn: Turn, wishes: Wishes, n_replaced: int = 0) -> Request:
        """What the engine would be asked for `turn`."""
        session = self.sessions.find(key)
        messages = session.history(n_without=n_replaced) if session is not None else []
        messages.append(Message("user", turn.question))
        if turn.text:
            messages.append(Message("assistant", turn.text, turn.token_ids or None))
        return Request(
            request_id=secrets.token_hex(12),
            messages=(Message("system", wishes.system_prompt(self._settings.system_prompt)), *messages),
            max_tokens=wishes.max_tokens(self._settings.max_answer_tokens),
            sampling=wishes.sampling,
            own_words=wishes.instructions,
            person=key[0],
            conversation=key[1],
            model=self._replies.model,
        )

    def _reply(
        self, request: Request, found: Reply | None, key: Key | None, *, fresh: bool = False
    ) -> tuple[Reply, Place]:
        """Who answers, and the place for it. Room is taken only by what the engine has to do.

        Args:
            found: who answers at once.
            key: whose page asks; None for a program.
            fresh: the engine is to answer, whatever is known already.
        """
        self._check_open()
        reply = found or self._replies.join(request, fresh=fresh)
        if reply is not None:
            return reply, self._admission.join(key)
        self._check_engine()
        place = self._admission.start_api(request.person) if key is None else self._admission.start_page(key)
        asked = self.watch.load_shedding.relieved(request)
        return self._replies.generate(request, asked, place.hand_over_room(), fresh=fresh), place

    def _start(self, answer: Answer, reply: Reply, place: Place, session: Session | None) -> None:
        answer.wait_for(reply)
        answer.person = place.key[0] if place.key is not None else ""
        answer.comes_from(reply.origin, reply.saved_at)
        task = asyncio.get_running_loop().create_task(self._write(answer, reply, place, session))
        self._answers[answer] = task
        task.add_done_callback(report_failed_answer)

    async def _write(self, answer: Answer, reply: Reply, place: Place, session: Session | None) -> None:
        """Carry the reply into the answer, whoever reads it."""
        try:
            async for update in reply:
                answer.take(update)
        finally:
            answer.comes_from(reply.origin, reply.saved_at)
            answer.close(FinishReason.ERROR, "internal_error")  # counts only if nothing else ended it
            self.watch.explain(answer)
            place.release()
            del self._answers[answer]
            if session is not None:
                session.settle(answer, self._clock())
            answer.settle()
            self.watch.answered(answer, place.asked_at)

    def _end_unread(self) -> None:
        others_wait = self._replies.n_waiting > 0 or self._admission.n_tickets > 0
        grace_s = self._settings.disconnect_grace_busy_s if others_wait else self._settings.disconnect_grace_s
        now = self._clock()
        for answer in list(self._answers):
            if answer.alone_since is not None and now - answer.alone_since >= grace_s and not answer.is_stopped:
                answer.end("unread")

    def _n_streams(self) -> int:
        return sum(answer.state is AnswerState.WRITING for answer in self._answers)


def _key(person: str | None, tab: str | None) -> Key:
    if not person or not tab:
        raise UnknownPerson("the request names no person or no tab")
    return person, tab
