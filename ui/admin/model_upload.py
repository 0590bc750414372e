"""The route a browser sends a model file to. Only the admin gets as far as /admin/..."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import APIRouter
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from appliance.base.errors import ModelFileError
from appliance.http.throttle import free_of_charge
from appliance.http.web import UPLOADS
from appliance.models.model_library import ModelLibrary
from ui.admin.models import problem_text
from ui.session_link import LANGUAGE_HEADER
from ui.words.messages import language_of, say


def make_upload_router(library: ModelLibrary, preset_language: Callable[[], str] = lambda: "auto") -> APIRouter:
    """`PUT /admin/models/<name>`: the file itself is the body. `preset_language`: the setting, as it is now."""
    router = APIRouter()

    @router.put(UPLOADS + "{name}")
    async def take(name: str, request: Request) -> Response:
        free_of_charge(request.scope)
        headers = request.headers
        language = language_of(headers.get(LANGUAGE_HEADER), headers.get("accept-language"), preset_language())
        announced = headers.get("content-length", "")
        if not announced.isdecimal():
            return _said(411, say(language, "model_broken_off", file=name))
        try:
            path = await library.take_upload(name, int(announced), request.stream())
        except ModelFileError as error:
            return _said(422, problem_text(language, error))
        except ClientDisconnect:
            return _said(400, say(language, "model_broken_off", file=name))
        return _said(201, say(language, "models_brought", name=path.stem))

    return router


def _said(status: int, sentence: str) -> JSONResponse:
    return JSONResponse({"said": sentence}, status_code=status, headers={"cache-control": "no-store"})
