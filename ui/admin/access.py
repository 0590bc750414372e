"""Who may come in: the passcode, the admin's password, keys of programs; and the conversations that are here."""

from __future__ import annotations

from typing import Any

import gradio as gr

from appliance.access.api_keys import KeyNameError
from appliance.access.passwords import MAX_CHARS, MIN_CHARS, PasswordError, Role
from appliance.access.rights import Caller
from appliance.base.errors import Busy, SettingsError, TooFast
from appliance.operate.admin_service import SessionLine, WrongPassword
from ui.admin.section import Place, Problem, Shown, said
from ui.admin.settings import problem_of
from ui.words.admin_messages import span_of


def build(place: Place) -> None:
    """Make the section."""
    with gr.Column(elem_classes="part"):
        place.heading("who_title", "who_detail")
        _build_passcode(place)
    with gr.Column(elem_classes="part"):
        place.heading("password_title", "password_detail")
        _build_password(place)
    with gr.Column(elem_classes="part"):
        place.heading("keys_title", "keys_detail")
        _build_keys(place)
    with gr.Column(elem_classes="part"):
        place.heading("sessions_title", "sessions_detail")
        _build_sessions(place)


def _build_passcode(place: Place) -> None:
    choices = [(place.tell("who_open"), "open"), (place.tell("who_passcode"), "passcode")]
    mode = gr.Radio(choices, value="open", elem_id="access-mode", elem_classes="pick", show_label=False)
    passcode = place.text("passcode", place.tell("passcode_new", n=MIN_CHARS["person"]), type="password")
    with gr.Row(elem_classes="actions"):
        save = place.button("passcode-save", "save", primary=True)
    status = place.status("passcode-status")
    desk = place.desk

    async def show() -> Shown:
        is_set = desk.access.passwords.is_set("person")
        return [desk.settings.in_force.access, "", said(place.tell("passcode_is_set" if is_set else "passcode_unset"))]

    async def keep(wanted: str, text: str, caller: Caller) -> Shown:
        if text:
            await _set_password(place, "person", text, caller)
        try:
            await desk.settings.save({"access": wanted}, {})
        except SettingsError as error:
            if error.rule != "locked" or wanted != desk.settings.in_force.access:
                raise Problem(problem_of(place.language, error)) from None
        return [wanted, "", said(place.tell("passcode_saved"))]

    place.on([place.demo.load], show, (), [mode, passcode], "passcode_show", status=status)
    place.on([save.click], keep, [mode, passcode], [mode, passcode], "passcode_save", status=status)


def _build_password(place: Place) -> None:
    present = place.text("password-present", place.tell("password_present"), type="password")
    new = place.text("password-new", place.tell("password_new", n=MIN_CHARS["admin"]), type="password")
    with gr.Row(elem_classes="actions"):
        save = place.button("password-save", "save", primary=True)
    status = place.status("password-status")

    async def show() -> Shown:
        return [gr.update(visible=place.desk.access.passwords.is_set("admin"))]

    async def keep(present_text: str, new_text: str, caller: Caller) -> Shown:
        await _set_password(place, "admin", new_text, caller, present_text)
        return ["", "", said(place.tell("password_set"))]

    place.on_load(show, [present], "password_show")
    place.on([save.click], keep, [present, new], [present, new], "password_save", status=status)


async def _set_password(place: Place, role: Role, text: str, caller: Caller, present: str = "") -> None:
    try:
        await place.desk.set_password(role, text, present=present, caller=caller)
    except WrongPassword:
        raise Problem(place.tell("password_wrong")) from None
    except PasswordError:
        raise Problem(place.tell("password_length", least=MIN_CHARS[role], most=MAX_CHARS)) from None
    except TooFast as error:
        raise Problem(place.tell("too_fast", seconds=error.wait_s)) from None
    except Busy:
        raise Problem(place.tell("busy")) from None


def _build_keys(place: Place) -> None:
    name = place.text("key-name", place.tell("key_name"))
    with gr.Row(elem_classes="actions"):
        add = place.button("key-add", "key_add", primary=True)
    made = gr.Textbox("", elem_id="key-made", label=place.tell("keys_title"), interactive=False, visible=False)
    pick = gr.Radio([], value="", elem_id="key-pick", elem_classes="pick", label=place.tell("key_pick"))
    with gr.Row(elem_classes="actions"):
        revoke = place.button("key-revoke", "key_revoke")
    status = place.status("key-status")
    keys = place.desk.access.keys

    def listed() -> Any:
        choices = [(place.tell("key_line", name=k.name, start=k.start, made=k.made), k.name) for k in keys.listed()]
        return gr.update(choices=choices, value="")

    async def show() -> Shown:
        return [listed(), "" if keys.listed() else said(place.tell("keys_none"))]

    async def make(wanted: str) -> Shown:
        try:
            key = keys.add(wanted.strip())
        except KeyNameError:
            raise Problem(place.tell("key_name_bad")) from None
        label = place.tell("key_made", name=wanted.strip())
        return ["", gr.update(value=key, label=label, visible=True), listed()]

    async def take_back(picked: str) -> Shown:
        if not picked:
            raise Problem(place.tell("pick_first"))
        try:
            keys.revoke(picked)
        except KeyNameError:
            raise Problem(place.tell("gone")) from None
        return [gr.update(value="", visible=False), listed(), said(place.tell("key_revoked", name=picked))]

    place.on([place.demo.load], show, (), [pick], "keys_show", status=status)
    place.on([add.click, name.submit], make, [name], [name, made, pick], "key_add", status=status)
    place.on([revoke.click], take_back, [pick], [made, pick], "key_revoke", status=status)


def _build_sessions(place: Place) -> None:
    pick = gr.Radio([], value="", elem_id="session-pick", elem_classes="pick", show_label=False)
    with gr.Row(elem_classes="actions"):
        end = place.button("session-end", "session_end")
        refresh = place.button("session-refresh", "refresh")
    status = place.status("session-status")

    def line(session: SessionLine) -> str:
        state = place.tell(f"state_{session.state}", time=span_of(place.language, session.unused_s))
        return place.tell("session_line", visitor=session.visitor[:4], n=session.n_turns, state=state)

    def shown(sentence: str = "") -> Shown:
        choices = [(line(session), session.tag) for session in place.desk.sessions()]
        told = sentence or ("" if choices else place.tell("sessions_none"))
        return [gr.update(choices=choices, value=""), said(told) if told else ""]

    async def show() -> Shown:
        return shown()

    async def end_one(tag: str) -> Shown:
        if not tag:
            raise Problem(place.tell("pick_first"))
        await place.desk.end_session(tag)
        return shown(place.tell("session_ended"))

    place.on([place.demo.load, refresh.click], show, (), [pick], "sessions_show", status=status)
    place.on([end.click], end_one, [pick], [pick], "session_end", status=status)
