"""Every setting in groups: what it means, its unit and default, when it acts, what decides it. Checked as it is typed
and saved as a whole.

The form is HTML of ours with a script of ours (assets/admin.js), not sixty of Gradio's inputs with sixty events: those
take most of a second to build. It asks two routes, which only the admin reaches, as everything under /admin.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import TYPE_CHECKING, Annotated, Any, Final

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse

from appliance.base.errors import ChangedMeanwhile, SettingsError
from appliance.settings.schema import kind_of
from appliance.settings.store import Saved, Shown
from ui.admin.section import SectionContext, words
from ui.words.admin_messages import tell
from ui.words.messages import LANGUAGES, Language
from ui.words.problems import disk_problem
from ui.words.settings import LONG, group_name, grouped, help_of, name_of, unit_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from appliance.operate.admin_service import AdminService

_NO_STORE: Final = {"cache-control": "no-store"}
_MAX_CHARS: Final = 20_000

_Text = Annotated[str, Field(max_length=_MAX_CHARS)]


class _Change(BaseModel):
    """What the script sends."""

    model_config = ConfigDict(extra="forbid", strict=True)

    lang: str = "en"
    changes: dict[str, _Text] = Field(max_length=200)
    seen: dict[str, _Text] = Field(default={}, max_length=200)


def build(context: SectionContext) -> None:
    """Make the section."""
    form = words("", "settings-form", "settings-form")

    async def show() -> Sequence[Any]:
        try:
            await context.admin_service.settings.refresh()
        except SettingsError as error:
            problem = escape(context.tell("file_broken", problem=_in_file(context.language, error)))
            return [f'<p class="problem" role="alert">{problem}</p>']
        return [form_html(context.language, context.admin_service.settings.shown())]

    context.on_load(show, [form], "settings")


def make_settings_router(admin_service: AdminService) -> APIRouter:
    """The routes of the form. GET gives all settings as they are saved, for whoever wants to keep a copy."""
    router = APIRouter()
    store = admin_service.settings

    @router.get("/admin/settings")
    async def give() -> JSONResponse:
        return JSONResponse({key: shown.saved for key, shown in store.shown().items()}, headers=_NO_STORE)

    @router.post("/admin/settings/check")
    async def check(request: Request) -> JSONResponse:
        change = await _read(request)
        if change is None:
            return _refused()
        problems = {}
        try:
            await store.check(change.changes)
        except SettingsError as error:
            problems[error.key] = problem_of(_language(change), error)
        return JSONResponse({"problems": problems}, headers=_NO_STORE)

    @router.post("/admin/settings")
    async def save(request: Request) -> JSONResponse:
        change = await _read(request)
        if change is None:
            return _refused()
        language = _language(change)
        status, problems = 200, {}
        try:
            said = tell(language, _how(await store.save(change.changes, change.seen)))
        except ChangedMeanwhile as error:
            names = ", ".join(name_of(language, key) for key in error.names)
            status, said = 409, tell(language, "meanwhile", names=names)
        except SettingsError as error:
            status, said = 422, tell(language, "not_saved")
            if error.key:
                problems[error.key] = problem_of(language, error)
            else:
                said = tell(language, "file_broken", problem=problem_of(language, error))
        except OSError as error:
            status, said = 507, disk_problem(language, error)
        rows = {key: {"saved": s.saved, "note": note_html(language, s)} for key, s in store.shown().items()}
        return JSONResponse({"said": said, "problems": problems, "rows": rows}, status_code=status, headers=_NO_STORE)

    return router


def problem_of(language: Language, error: SettingsError) -> str:
    """What is wrong with a value."""
    if error.rule == "expected":
        return tell(language, "expected", what=kind_words(language, error.key))
    if error.rule:
        return tell(language, f"rule_{error.rule}", **error.values)
    return str(error)


def _in_file(language: Language, error: SettingsError) -> str:
    """The same with the name of the setting, where it is one's."""
    problem = problem_of(language, error)
    return f"{name_of(language, error.key)}: {problem}" if error.key else problem


def kind_words(language: Language, key: str) -> str:
    """What a value has to be."""
    kind = kind_of(key)
    if kind.sort == "text":
        return tell(language, "kind_text_up_to", n=kind.longest) if kind.longest else tell(language, "kind_text")
    values: dict[str, Mapping[str, object]] = {
        "choice": {"choices": ", ".join(kind.choices)},
        "whole": {"low": f"{kind.low:.10g}", "high": f"{kind.high:.10g}"},
        "number": {"low": f"{kind.low:.10g}", "high": f"{kind.high:.10g}"},
    }
    return tell(language, f"kind_{kind.sort}", **values.get(kind.sort, {}))


def form_html(language: Language, shown: Mapping[str, Shown]) -> str:
    """The whole form, in one piece without an empty line."""
    find = escape(tell(language, "find"))
    groups = "".join(
        f'<section class="group" data-group="{group}"><h2>{escape(group_name(language, group))}</h2>'
        + "".join(_row_html(language, shown[key]) for key in keys)
        + "</section>"
        for group, keys in grouped().items()
    )
    return (
        f'<div class="settings"><input type="search" id="find" placeholder="{find}" aria-label="{find}">{groups}'
        f'<p class="none" id="found-none" hidden>{escape(tell(language, "js_nothing_found"))}</p></div>'
    )


def note_html(language: Language, shown: Shown) -> str:
    """The small print under a setting."""
    parts = [tell(language, "applies_live" if shown.is_live else "applies_restart")]
    parts.append(tell(language, "default", value=_spoken(language, shown.key, shown.default)))
    html = " · ".join(escape(part) for part in parts)
    if shown.saved != shown.in_force:
        waits = tell(language, "waits", value=_spoken(language, shown.key, shown.in_force))
        html += f' · <b class="waits">{escape(waits)}</b>'
    if shown.locked_by:
        source = tell(language, "locked_environment" if "environment" in shown.locked_by else "locked_flag")
        html += f' · <b class="locked">{escape(tell(language, "locked", source=source))}</b>'
    return html


def _row_html(language: Language, shown: Shown) -> str:
    key, kind = shown.key, kind_of(shown.key)
    unit = escape(unit_of(language, kind.unit))
    return (
        f'<div class="setting" data-key="{key}"><div class="what">'
        f'<label for="set-{key}">{escape(name_of(language, key))}</label>'
        f'<p>{escape(help_of(language, key))}</p></div><div class="how">'
        f'<div class="value">{_input_html(language, shown)}<span class="unit">{unit}</span></div>'
        f'<p class="problem" id="problem-{key}" role="alert" hidden></p>'
        f'<p class="small" id="note-{key}">{note_html(language, shown)}</p></div></div>'
    )


def _input_html(language: Language, shown: Shown) -> str:
    key, kind, value = shown.key, kind_of(shown.key), _attribute(shown.saved)
    marks = f'id="set-{key}" data-setting="{key}" data-saved="{value}" aria-describedby="note-{key} problem-{key}"'
    marks += " disabled" if shown.locked_by else ""
    if kind.sort == "switch":
        return f'<input type="checkbox" role="switch" {marks}{" checked" if shown.saved == "true" else ""}>'
    if kind.sort == "choice":
        options = "".join(
            f'<option value="{choice}"{" selected" if choice == shown.saved else ""}>{choice}</option>'
            for choice in kind.choices
        )
        return f"<select {marks}>{options}</select>"
    if key in LONG:
        return f'<textarea rows="3" {marks}>{value}</textarea>'
    number = ' inputmode="decimal" class="number"' if kind.sort in ("whole", "number", "share") else ""
    return f'<input type="text" autocomplete="off" spellcheck="false" value="{value}"{number} {marks}>'


def _attribute(text: str) -> str:
    """Also as the content of a text area: an empty line would end the block of HTML it stands in."""
    return escape(text).replace("\n", "&#10;").replace("\r", "&#13;")


def _spoken(language: Language, key: str, value: str) -> str:
    sort = kind_of(key).sort
    if not value:
        return tell(language, "empty" if sort == "text" else "not_set")
    if sort == "switch":
        return tell(language, "on" if value == "true" else "off")
    return value if len(value) <= 80 else value[:79] + "…"


def _how(saved: Saved) -> str:
    if saved.now and saved.at_restart:
        return "saved_both"
    return "saved_now" if saved.now else "saved_restart" if saved.at_restart else "saved_nothing"


async def _read(request: Request) -> _Change | None:
    try:
        return _Change.model_validate_json(await request.body())
    except ValidationError:
        return None


def _language(change: _Change) -> Language:
    return next((language for language in LANGUAGES if language == change.lang), "en")


def _refused() -> JSONResponse:
    return JSONResponse({"detail": "changes must be texts by the name of a setting"}, status_code=422)
