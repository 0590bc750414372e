"""What the page's own script asks beside Gradio's events: the text of its conversation, to keep it in the browser;
putting it back after the server has forgotten it; whether there is room for a question, which run of the program
this is and what the head of the page is to show; a thumb up or down.

All of it is about the conversation of the cookie and tab that ask, and of nobody else.
"""

from __future__ import annotations

import hashlib
from typing import Final

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from appliance.access.person import Persons
from appliance.base.errors import Closing
from appliance.chat import browser_history as kept
from appliance.chat.service import ChatService
from appliance.chat.sessions import Verdict
from appliance.line.admission import Key
from appliance.network.hosts import counted_address
from appliance.settings.schema import Settings

_NO_STORE: Final = {"cache-control": "no-store"}


class _Rating(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    turn: int = Field(ge=0)
    verdict: Verdict


def make_page_router(chat: ChatService, persons: Persons, settings: Settings) -> APIRouter:
    """The routes; everything they need is passed in."""
    router = APIRouter()

    def key_of(request: Request) -> Key | None:
        person, tab = persons.of(request.cookies), persons.tab_of(request.headers)
        return (person, tab) if person and tab else None

    @router.get("/conversation")
    async def give(request: Request) -> JSONResponse:
        key = key_of(request)
        conversation = chat.conversation(*key) if key else None
        body = {
            "turns": [kept.give(turn) for turn in conversation.turns] if conversation else [],
            "running": conversation is not None and conversation.running is not None,
            "forgotten_in_s": round(chat.sessions.forgotten_in_s(key)) if key else 0,
        }
        return JSONResponse(body, headers=_NO_STORE)

    @router.put("/conversation")
    async def take(request: Request) -> Response:
        key = key_of(request)
        if key is None:
            return _refused(404)
        try:
            turns = kept.take(await request.body(), settings.max_input_chars)
            chat.sessions.put_back(key, turns, counted_address(request.client.host if request.client else None))
        except kept.BadConversation:
            return _refused(422)
        return Response(status_code=204)

    @router.delete("/conversation")
    async def forget(request: Request) -> Response:
        if key := key_of(request):
            await chat.new_chat(*key)
        return Response(status_code=204)

    @router.get("/room")
    async def room() -> JSONResponse:
        free = chat.counts().n_places_taken < chat.settings.n_places and chat.watch.load_shedding.takes_for_model()
        closing = chat.not_ready_code == Closing.code
        body = {"free": free, "run": chat.watch.run, "closing": closing, "head": head_of(chat)}
        return JSONResponse(body, headers=_NO_STORE)

    @router.post("/rating")
    async def rate(request: Request) -> Response:
        key = key_of(request)
        session = chat.sessions.find(key) if key else None
        try:
            rating = _Rating.model_validate_json(await request.body())
            if session is None:
                return _refused(404)
            before = session.rate(rating.turn, rating.verdict)
        except ValidationError:
            return _refused(422)
        except IndexError:
            return _refused(404)
        for verdict, n in ((before, -1), (rating.verdict, 1)):
            if verdict:
                chat.watch.metrics.rated(verdict, n)
        return Response(status_code=204)

    return router


def head_of(chat: ChatService) -> str:
    """Names what the head of the page shows: another one as soon as the model or the owner's notice is."""
    info = chat.engine.info
    shown = (info.model_name if info is not None else "", chat.not_ready_code == "failed", chat.settings.notice)
    return hashlib.blake2b(repr(shown).encode(), digest_size=4).hexdigest()


def _refused(status: int) -> JSONResponse:
    return JSONResponse({"detail": "There is no such thing to keep or rate."}, status_code=status)
