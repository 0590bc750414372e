"""Who may come in: the passcode, the admin's password, keys of programs; and the conversations that are here."""

from __future__ import annotations

from typing import Any

import gradio as gr

from appliance.access.api_keys import KeyNameError
from appliance.access.passwords import MAX_CHARS, MIN_CHARS, PasswordError, Role
from appliance.access.rights import Caller
from appliance.base.errors import Busy, SettingsError, TooFast
from appliance.operate.admin_service import SessionLine, WrongPassword
from ui.admin.section import Problem, SectionContext, Shown, said
from ui.admin.settings import problem_of
from ui.words.admin_messages import span_of


def build(context: SectionContext) -> None:
    """Make the section."""
    with gr.Column(elem_classes="part"):
        context.heading("who_title", "who_detail")
        _build_passcode(context)
    with gr.Column(elem_classes="part"):
        context.heading("password_title", "password_detail")
        _build_password(context)
    with gr.Column(elem_classes="part"):
        context.heading("keys_title", "keys_detail")
        _build_keys(context)
    with gr.Column(elem_classes="part"):
        context.heading("sessions_title", "sessions_detail")
        _build_sessions(context)


def _build_passcode(context: SectionContext) -> None:
    choices = [(context.tell("who_open"), "open"), (context.tell("who_passcode"), "passcode")]
    mode = gr.Radio(choices, value="open", elem_id="access-mode", elem_classes="pick", show_label=False)
    passcode = context.text("passcode", context.tell("passcode_new", n=MIN_CHARS["person"]), type="password")
    with gr.Row(elem_classes="actions"):
        save = context.button("passcode-save", "save", primary=True)
    status = context.status("passcode-status")
    admin_service = context.admin_service

    async def show() -> Shown:
        is_set = admin_service.access.passwords.is_set("person")
        return [
            admin_service.settings.in_force.access,
            "",
            said(context.tell("passcode_is_set" if is_set else "passcode_unset")),
        ]

    async def keep(wanted: str, text: str, caller: Caller) -> Shown:
        if text:
            await _set_password(context, "person", text, caller)
        try:
            await admin_service.settings.save({"access": wanted}, {})
        except SettingsError as error:
            if error.rule != "locked" or wanted != admin_service.settings.in_force.access:
                raise Problem(problem_of(context.language, error)) from None
        return [wanted, "", said(context.tell("passcode_saved"))]

    context.on([context.demo.load], show, (), [mode, passcode], "passcode_show", status=status)
    context.on([save.click], keep, [mode, passcode], [mode, passcode], "passcode_save", status=status)


def _build_password(context: SectionContext) -> None:
    present = context.text("password-present", context.tell("password_present"), type="password")
    new = context.text("password-new", context.tell("password_new", n=MIN_CHARS["admin"]), type="password")
    with gr.Row(elem_classes="actions"):
        save = context.button("password-save", "save", primary=True)
    status = context.status("password-status")

    async def show() -> Shown:
        return [gr.update(visible=context.admin_service.access.passwords.is_set("admin"))]

    async def keep(present_text: str, new_text: str, caller: Caller) -> Shown:
        await _set_password(context, "admin", new_text, caller, present_text)
        return ["", "", said(context.tell("password_set"))]

    context.on_load(show, [present], "password_show")
    context.on([save.click], keep, [present, new], [present, new], "password_save", status=status)


async def _set_password(context: SectionContext, role: Role, text: str, caller: Caller, present: str = "") -> None:
    try:
        await context.admin_service.set_password(role, text, present=present, caller=caller)
    except WrongPassword:
        raise Problem(context.tell("password_wrong")) from None
    except PasswordError:
        raise Problem(context.tell("password_length", least=MIN_CHARS[role], most=MAX_CHARS)) from None
    except TooFast as error:
        raise Problem(context.tell("too_fast", seconds=error.wait_s)) from None
    except Busy:
        raise Problem(context.tell("busy")) from None


def _build_keys(context: SectionContext) -> None:
    name = context.text("key-name", context.tell("key_name"))
    with gr.Row(elem_classes="actions"):
        add = context.button("key-add", "key_add", primary=True)
    made = gr.Textbox("", elem_id="key-made", label=context.tell("keys_title"), interactive=False, visible=False)
    pick = gr.Radio([], value="", elem_id="key-pick", elem_classes="pick", label=context.tell("key_pick"))
    with gr.Row(elem_classes="actions"):
        revoke = context.button("key-revoke", "key_revoke")
    status = context.status("key-status")
    keys = context.admin_service.access.keys

    def listed() -> Any:
        choices = [(context.tell("key_line", name=k.name, start=k.start, made=k.made), k.name) for k in keys.listed()]
        return gr.update(choices=choices, value="")

    async def show() -> Shown:
        return [listed(), "" if keys.listed() else said(context.tell("keys_none"))]

    async def make(wanted: str) -> Shown:
        try:
            key = keys.add(wanted.strip())
        except KeyNameError:
            raise Problem(context.tell("key_name_bad")) from None
        label = context.tell("key_made", name=wanted.strip())
        return ["", gr.update(value=key, label=label, visible=True), listed()]

    async def take_back(picked: str) -> Shown:
        if not picked:
            raise Problem(context.tell("pick_first"))
        try:
            keys.revoke(picked)
        except KeyNameError:
            raise Problem(context.tell("gone")) from None
        return [gr.update(value="", visible=False), listed(), said(context.tell("key_revoked", name=picked))]

    context.on([context.demo.load], show, (), [pick], "keys_show", status=status)
    context.on([add.click, name.submit], make, [name], [name, made, pick], "key_add", status=status)
    context.on([revoke.click], take_back, [pick], [made, pick], "key_revoke", status=status)


def _build_sessions(context: SectionContext) -> None:
    pick = gr.Radio([], value="", elem_id="session-pick", elem_classes="pick", show_label=False)
    with gr.Row(elem_classes="actions"):
        end = context.button("session-end", "session_end")
        refresh = context.button("session-refresh", "refresh")
    status = context.status("session-status")

    def line(session: SessionLine) -> str:
        state = context.tell(f"state_{session.state}", time=span_of(context.language, session.unused_s))
        return context.tell("session_line", visitor=session.visitor[:4], n=session.n_turns, state=state)

    def shown(sentence: str = "") -> Shown:
        choices = [(line(session), session.tag) for session in context.admin_service.sessions()]
        told = sentence or ("" if choices else context.tell("sessions_none"))
        return [gr.update(choices=choices, value=""), said(told) if told else ""]

    async def show() -> Shown:
        return shown()

    async def end_one(tag: str) -> Shown:
        if not tag:
            raise Problem(context.tell("pick_first"))
        await context.admin_service.end_session(tag)
        return shown(context.tell("session_ended"))

    context.on([context.demo.load, refresh.click], show, (), [pick], "sessions_show", status=status)
    context.on([end.click], end_one, [pick], [pick], "session_end", status=status)
