"""What is answered without the model: the owner's quick answers, the block list, and saved answers.

A rule is picked, changed in a few fields and saved; the file with its comments is there as a whole too. What was shown
carries the file's revision along in a hidden field, so that of two admins the second is told.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import gradio as gr

from appliance.answers.answer_cache import SavedAnswer
from appliance.answers.rule_edits import Rule, rules_in, with_rule
from appliance.base.errors import ChangedMeanwhile
from appliance.settings.owner_file import BadRules
from ui.admin.section import Problem, SectionContext, Shown, said
from ui.words.problems import rules_problem

NEW: Final = "new"
_MAX_TITLE: Final = 70


def build(context: SectionContext) -> None:
    """Make the section."""
    for sort in (QUICK, BLOCK):
        with gr.Column(elem_classes="part"):
            context.heading(f"{sort.id}_title", f"{sort.id}_detail")
            RulePart(context, sort).wire()
    with gr.Column(elem_classes="part"):
        context.heading("cache_title", "cache_detail")
        _build_cache(context)


@dataclass(frozen=True)
class Sort:
    """What differs between the two kinds of rules: their file, their keys, and what the choice beside them means."""

    name: str
    """Of the file, at the admin service."""
    id: str
    lines: str
    text: str
    how_label: str
    """Its sentence, and those of its choices with their values, the first for a new rule."""
    how_choices: tuple[tuple[str, str], ...]

    def how(self, rule: Rule) -> str:
        """The choice a rule shows."""
        if self.name == "quick_answers":
            return "part" if rule.get("contains") else "whole"
        if rule.get("questions", True) and rule.get("answers", True):
            return "both"
        return "questions" if rule.get("questions", True) else "answers"

    def rule(self, lines: str, text: str, how: str) -> dict[str, Any]:
        """What is written. None: the key is left out."""
        listed = [line.strip() for line in lines.splitlines() if line.strip()]
        rule: dict[str, Any] = {self.lines: listed, self.text: text.strip()}
        if self.name == "quick_answers":
            return rule | {"contains": True if how == "part" else None}
        return rule | {
            "questions": False if how == "answers" else None,
            "answers": False if how == "questions" else None,
        }


QUICK: Final = Sort(
    "quick_answers",
    "quick",
    lines="questions",
    text="answer",
    how_label="contains",
    how_choices=(("contains_whole", "whole"), ("contains_part", "part")),
)
BLOCK: Final = Sort(
    "block_list",
    "block",
    lines="words",
    text="sentence",
    how_label="looked_at",
    how_choices=(("in_both", "both"), ("in_questions", "questions"), ("in_answers", "answers")),
)


class RulePart:
    """One file of rules: its components and handlers."""

    def __init__(self, context: SectionContext, sort: Sort) -> None:
        self._context = context
        self._sort = sort
        self._pick = gr.Radio(
            [], value=NEW, elem_id=f"{sort.id}-pick", elem_classes="pick", label=context.tell("rule_pick")
        )
        lines = context.text(f"{sort.id}-{sort.lines}", context.tell(sort.lines), lines=3, max_lines=8)
        text = context.text(f"{sort.id}-{sort.text}", context.tell(sort.text), lines=2, max_lines=12)
        choices = [(context.tell(key), value) for key, value in sort.how_choices]
        how = gr.Radio(choices, value=choices[0][1], elem_id=f"{sort.id}-how", label=context.tell(sort.how_label))
        self._fields: tuple[gr.Textbox, gr.Textbox, gr.Radio] = (lines, text, how)
        self._typed = context.status(f"{sort.id}-typed")
        with gr.Row(elem_classes="actions"):
            self._save = context.button(f"{sort.id}-save", "save", primary=True)
            self._delete = context.button(f"{sort.id}-delete", "delete")
        self._status = context.status(f"{sort.id}-status")
        self._revision = gr.Textbox("", elem_id=f"{sort.id}-revision", visible="hidden")
        with gr.Accordion(context.tell("as_text"), open=False, elem_id=f"{sort.id}-whole"):
            self._whole = context.text(f"{sort.id}-text", context.tell("as_text_detail"), lines=10, max_lines=30)
            self._typed_whole = context.status(f"{sort.id}-text-typed")
            with gr.Row(elem_classes="actions"):
                self._save_whole = context.button(f"{sort.id}-text-save", "save")

    def wire(self) -> None:
        """Connect them."""
        on, name = self._context.on, self._sort.name
        everything = [self._pick, *self._fields, self._whole, self._revision, self._typed, self._typed_whole]
        on([self._context.demo.load], self.show, (), everything, f"{name}_show", status=self._status)
        picked = [*self._fields, self._typed]
        on([self._pick.input], self.pick, [self._pick], picked, f"{name}_pick", status=self._status)
        # `change` and not `input`, which Gradio fires for keys alone: what is pasted counts too.
        typed = [self._fields[0].change, self._fields[1].change]
        on(typed, self.check, self._fields, [self._typed], f"{name}_check", as_typed=True)
        typed = [self._whole.change]
        on(typed, self.check_whole, [self._whole], [self._typed_whole], f"{name}_check_whole", as_typed=True)
        changed = [self._revision, self._pick, *self._fields]
        on([self._save.click], self.save, changed, everything, f"{name}_save", status=self._status)
        asked = [self._revision, self._pick]
        on([self._delete.click], self.delete, asked, everything, f"{name}_delete", status=self._status)
        whole = [self._revision, self._whole]
        on([self._save_whole.click], self.save_whole, whole, everything, f"{name}_write", status=self._status)

    # -- handlers --------------------------------------------------------------------------------------------

    async def show(self) -> Shown:
        """The file as it is."""
        return await self._shown()

    async def pick(self, picked: str) -> Shown:
        """The fields of a rule, or empty ones for a new one."""
        index = self._index(picked)
        rules = rules_in((await self._context.admin_service.rules.read(self._sort.name)).text)
        rule = rules[index] if index is not None and index < len(rules) else {}
        kept = [said(self._context.tell("patterns_kept"))] if rule.get("patterns") else []
        return [*self._filled(rule), "", *kept]

    async def check(self, lines: str, text: str, how: str) -> Shown:
        """What is wrong with what is typed; what is still empty is only missed when it is saved."""
        rule = self._sort.rule(lines, text.strip() or "…", how)
        return await self._checked(with_rule("", None, rule), is_one=True) if rule[self._sort.lines] else [""]

    async def check_whole(self, text: str) -> Shown:
        """What is wrong with the file as it is typed."""
        return await self._checked(text)

    async def save(self, revision: str, picked: str, lines: str, text: str, how: str) -> Shown:
        """Add the rule, or replace the picked one."""
        index = self._index(picked)
        rule = self._sort.rule(lines, text, how)
        change = self._context.admin_service.rules.put(self._sort.name, index, rule, revision)
        return await self._changed(change, "rule_saved", is_one=True)

    async def delete(self, revision: str, picked: str) -> Shown:
        """Take the picked one out."""
        index = self._index(picked)
        if index is None:
            raise Problem(self._context.tell("pick_first"))
        change = self._context.admin_service.rules.remove(self._sort.name, index, revision)
        return await self._changed(change, "rule_deleted")

    async def save_whole(self, revision: str, text: str) -> Shown:
        """Replace the file."""
        return await self._changed(
            self._context.admin_service.rules.write(self._sort.name, text, revision), "rule_saved"
        )

    def _index(self, picked: str) -> int | None:
        """The place of the picked rule in its file; None for a new one."""
        if picked in ("", NEW):
            return None
        if not picked.isdecimal():
            raise Problem(self._context.tell("gone"))
        return int(picked)

    async def _checked(self, text: str, *, is_one: bool = False) -> Shown:
        try:
            await self._context.admin_service.rules.check(self._sort.name, text)
        except BadRules as error:
            return [said(rules_problem(self._context.language, error, is_one=is_one), is_problem=True)]
        return [""]

    async def _changed(self, change: Any, sentence: str, *, is_one: bool = False) -> Shown:
        """Make a change and show what is now there; somebody else's too."""
        try:
            await change
        except ChangedMeanwhile:
            return [*await self._shown(), said(self._context.tell("rules_meanwhile"), is_problem=True)]
        except BadRules as error:
            problem = rules_problem(self._context.language, error, is_one=is_one)
            raise Problem(self._context.tell("rules_problem", problem=problem)) from None
        return [*await self._shown(), said(self._context.tell(sentence))]

    async def _shown(self) -> list[Any]:
        try:
            file = await self._context.admin_service.rules.read(self._sort.name)
            rules = rules_in(file.text)
        except BadRules as error:
            raise Problem(self._file_problem(error)) from None
        choices = [(self._context.tell("rule_new"), NEW)]
        choices += [(self._title(rule), str(index)) for index, rule in enumerate(rules)]
        shown = [gr.update(choices=choices, value=NEW), *self._filled({}), file.text, file.revision, "", ""]
        if file.error is not None:
            shown.append(said(self._file_problem(file.error), is_problem=True))
        return shown

    def _file_problem(self, error: BadRules) -> str:
        return self._context.tell("file_problem", problem=rules_problem(self._context.language, error))

    def _filled(self, rule: Rule) -> list[Any]:
        lines = rule.get(self._sort.lines, [])
        return ["\n".join(lines), rule.get(self._sort.text, ""), self._sort.how(rule)]

    def _title(self, rule: Rule) -> str:
        asked = " / ".join(map(str, [*rule.get(self._sort.lines, []), *rule.get("patterns", [])]))
        text = str(rule.get(self._sort.text, "")).replace("\n", " ")
        return _short(asked) + (f" → {_short(text)}" if text else "")


def _build_cache(context: SectionContext) -> None:
    pick = gr.Radio([], value="", elem_id="cache-pick", elem_classes="pick", label=context.tell("cache_pick"))
    answer = context.text("cache-answer", context.tell("cache_answer"), lines=3, max_lines=15)
    with gr.Row(elem_classes="actions"):
        keep = context.button("cache-keep", "cache_keep", primary=True)
        delete = context.button("cache-delete", "delete")
        refresh = context.button("cache-refresh", "refresh")
    status = context.status("cache-status")

    async def shown(sentence: str = "") -> Shown:
        entries = await context.admin_service.saved_answers()
        choices = [(_entry_title(context, saved), digest) for digest, saved in entries.items()]
        told = context.tell(sentence) if sentence else "" if choices else context.tell("cache_none")
        return [gr.update(choices=choices, value=""), "", said(told) if told else ""]

    async def show_one(digest: str) -> Shown:
        entry = (await context.admin_service.saved_answers()).get(digest)
        return [entry.text if entry is not None else ""]

    async def keep_one(digest: str, text: str) -> Shown:
        await context.admin_service.pin_answer(_picked(context, digest), text.strip() or None)
        return await shown("cache_saved")

    async def delete_one(digest: str) -> Shown:
        await context.admin_service.delete_answer(_picked(context, digest))
        return await shown("cache_deleted")

    async def show() -> Shown:
        return await shown()

    context.on([context.demo.load, refresh.click], show, (), [pick, answer], "cache_show", status=status)
    context.on([pick.input], show_one, [pick], [answer], "cache_pick")
    context.on([keep.click], keep_one, [pick, answer], [pick, answer], "cache_keep", status=status)
    context.on([delete.click], delete_one, [pick], [pick, answer], "cache_delete", status=status)


def _picked(context: SectionContext, digest: str) -> str:
    if not digest:
        raise Problem(context.tell("pick_first"))
    return digest


def _entry_title(context: SectionContext, saved: SavedAnswer) -> str:
    when = datetime.fromtimestamp(saved.saved_at, UTC).astimezone().strftime("%H:%M")
    mark = context.tell("cache_kept") if saved.is_pinned else when
    return f"{_short(saved.question) or '–'} ({mark})"


def _short(text: str) -> str:
    return text if len(text) <= _MAX_TITLE else text[: _MAX_TITLE - 1] + "…"
