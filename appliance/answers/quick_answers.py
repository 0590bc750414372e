"""Questions the owner's rules answer without the model. Knows the rules, not who asks."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from pydantic import Field

from appliance.answers.text_matching import BadPattern, Pattern, any_word, folded, is_chinese, squeezed
from appliance.settings.owner_file import BadRules, OwnerFile, StrictModel, parse_rules, place_of

_PLACEHOLDER = re.compile(r"\{(date|time|office_name)\}")
_WEEKDAYS = "一二三四五六日"
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)


class _QuickAnswerRule(StrictModel):
    questions: list[str] = Field(default_factory=list)
    patterns: list[str] = Field(default_factory=list)
    contains: bool = False
    """Look for them anywhere in the message; otherwise they must be all of it."""
    answer: str = Field(min_length=1)


class _QuickAnswersFile(StrictModel):
    shipped: bool = True
    """Use the rules that come with the program as well, after these."""
    rule: list[_QuickAnswerRule] = Field(default_factory=list)


@dataclass(frozen=True)
class Rulebook:
    """Compiled rules: whole messages are looked up, patterns tried one after the other."""

    whole: dict[str, str]
    patterns: tuple[tuple[Pattern, bool, str], ...]
    """Pattern, whether it may stand anywhere, answer."""
    uses_shipped: bool

    def find(self, message: str) -> str | None:
        """The answer to a message, its placeholders not yet filled; None for one the model has to answer."""
        text = squeezed(message)
        if not text:
            return None
        if text in self.whole:
            return self.whole[text]
        line = folded(message)
        for pattern, anywhere, answer in self.patterns:
            if pattern.find(line) if anywhere else pattern.is_all_of(line):
                return answer
        return None


def compile_rules(text: str) -> Rulebook:
    """The rules of a file's text. Raises BadRules with the line."""
    file, lines = parse_rules(text, _QuickAnswersFile)
    whole: dict[str, str] = {}
    patterns: list[tuple[Pattern, bool, str]] = []
    for index, rule in enumerate(file.rule):
        where = place_of(lines, index)
        if not rule.questions and not rule.patterns:
            raise BadRules(f"{where}: a rule needs questions or patterns", "needs_questions", where)
        if any(not squeezed(question) for question in rule.questions):
            raise BadRules(f"{where}: questions: one of them has no words", "no_words", where)
        try:
            if rule.contains and rule.questions:
                patterns.append((any_word(rule.questions), True, rule.answer))
            else:
                whole = {squeezed(question): rule.answer for question in rule.questions} | whole
            patterns += [(Pattern(source), rule.contains, rule.answer) for source in rule.patterns]
        except BadPattern as error:
            raise BadRules(f"{where}: patterns: {error}", "pattern", where, reason=str(error)) from None
    return Rulebook(whole, tuple(patterns), file.shipped)


class QuickAnswers:
    """The owner's rules, then the shipped ones."""

    def __init__(self, path: Path, shipped: Path, office_name: str, now: Callable[[], datetime]) -> None:
        """`path`: the owner's file, which need not exist. `now`: the local time."""
        self.file = OwnerFile(path, compile_rules)
        self._shipped = compile_rules(shipped.read_text(encoding="utf-8"))
        self.office_name = office_name
        self._now = now

    def find(self, message: str) -> str | None:
        """The answer, ready to show; None for a message the model has to answer."""
        rules = self.file.rules
        answer = rules.find(message)
        if answer is None and rules.uses_shipped:
            answer = self._shipped.find(message)
        return None if answer is None else self._filled(answer)

    def _filled(self, answer: str) -> str:
        now = self._now()
        if is_chinese(answer):
            date = f"{now.year}年{now.month}月{now.day}日，星期{_WEEKDAYS[now.weekday()]}"
        else:
            date = f"{_DAYS[now.weekday()]}, {now.day} {_MONTHS[now.month - 1]} {now.year}"
        values = {"date": date, "time": f"{now:%H:%M}", "office_name": self.office_name}
        return _PLACEHOLDER.sub(lambda match: values[match[1]], answer)
