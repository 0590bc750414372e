"""What the owner wants neither asked nor answered here: words and patterns, with the sentence that is shown instead."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field

from appliance.answers.text_matching import BadPattern, Pattern, any_word, folded, is_chinese
from appliance.engine.request import Delta
from appliance.settings.owner_file import BadRules, OwnerFile, StrictModel, parse_rules, place_of

PATTERN_HOLD_CHARS = 100
"""So much of an answer is held back while patterns are looked for: a longer match may have been shown in part."""
_SLACK_CHARS = 8
"""For what a word can take up beyond its own length: a boundary on both sides, wide forms, double spaces."""
_SENTENCES = ("This is not discussed here.", "这里不讨论这个内容。")


class _BlockRule(StrictModel):
    words: list[str] = Field(default_factory=list)
    patterns: list[str] = Field(default_factory=list)
    questions: bool = True
    answers: bool = True
    sentence: str = ""


class _BlockListFile(StrictModel):
    rule: list[_BlockRule] = Field(default_factory=list)


@dataclass(frozen=True)
class _Blocked:
    pattern: Pattern
    sentence: str
    is_words: bool


@dataclass(frozen=True)
class BlockRules:
    """Compiled rules."""

    of_questions: tuple[_Blocked, ...] = ()
    of_answers: tuple[_Blocked, ...] = ()
    n_held_chars: int = 0
    """How much of an answer has to be held back so that nothing blocked is shown in part."""


def compile_rules(text: str) -> BlockRules:
    """The rules of a file's text. Raises BadRules with the line."""
    file, lines = parse_rules(text, _BlockListFile)
    of_questions: list[_Blocked] = []
    of_answers: list[_Blocked] = []
    n_held = 0
    for index, rule in enumerate(file.rule):
        where = place_of(lines, index)
        if not rule.words and not rule.patterns:
            raise BadRules(f"{where}: a rule needs words or patterns", "needs_words", where)
        try:
            blocked = [_Blocked(Pattern(source), rule.sentence.strip(), is_words=False) for source in rule.patterns]
            if rule.words:
                blocked.append(_Blocked(any_word(rule.words), rule.sentence.strip(), is_words=True))
        except BadPattern as error:
            raise BadRules(f"{where}: {error}", "pattern", where, reason=str(error)) from None
        of_questions += blocked if rule.questions else []
        if rule.answers:
            of_answers += blocked
            n_held = max(n_held, PATTERN_HOLD_CHARS if rule.patterns else 0, *(len(folded(w)) for w in rule.words))
    return BlockRules(tuple(of_questions), tuple(of_answers), n_held + _SLACK_CHARS if n_held else 0)


class BlockList:
    """The owner's file, and what it says of a text."""

    def __init__(self, path: Path) -> None:
        self.file = OwnerFile(path, compile_rules)

    def question(self, text: str) -> str | None:
        """The sentence for a question that is not taken; None for any other."""
        return _found(self.file.rules.of_questions, text, text)

    def answer(self, text: str, question: str) -> str | None:
        """The sentence for a finished answer that is not to be shown; None for any other."""
        return _found(self.file.rules.of_answers, text, question)

    def screen(self, question: str, begun: str = "") -> Screen | None:
        """What watches over an answer while it is written; None while nothing is looked for in answers.

        Args:
            begun: what has been shown of it already, where it is continued.
        """
        rules = self.file.rules
        return Screen(rules, question, begun) if rules.of_answers else None


class Screen:
    """Lets an answer through as far as nothing blocked can begin in it. Belongs to one answer."""

    def __init__(self, rules: BlockRules, question: str, begun: str) -> None:
        self._rules = rules
        self._question = question
        self._text = begun
        self._held: deque[Delta] = deque()
        self._n_held = 0
        self.sentence: str | None = None
        """Set once something blocked was written: what is to be shown instead. Nothing more comes through then."""

    def feed(self, delta: Delta) -> list[Delta]:
        """The pieces that may be shown now that this one is written."""
        self._text += delta.text
        self._held.append(delta)
        self._n_held += len(delta.text)
        self._look(is_whole=False)
        return self._released(self._rules.n_held_chars)

    def finish(self) -> list[Delta]:
        """The rest: the answer is whole."""
        self._look(is_whole=True)
        return self._released(0)

    def _look(self, *, is_whole: bool) -> None:
        text = folded(self._text)
        is_open = not is_whole and not self._text[-1:].isspace()
        for rule in self._rules.of_answers:
            span = rule.pattern.find(text)
            # A word that reaches to the end may go on to be another one: "pass" becomes "passage".
            if span is not None and not (is_open and rule.is_words and span.end == len(text)):
                self.sentence = _sentence(rule, self._question)
                self._held.clear()
                return

    def _released(self, n_kept_chars: int) -> list[Delta]:
        released = []
        while self._held and self._n_held - len(self._held[0].text) >= n_kept_chars:
            released.append(self._held.popleft())
            self._n_held -= len(released[-1].text)
        return released


def _found(rules: tuple[_Blocked, ...], text: str, question: str) -> str | None:
    line = folded(text) if rules else ""
    for rule in rules:
        if rule.pattern.find(line) is not None:
            return _sentence(rule, question)
    return None


def _sentence(rule: _Blocked, question: str) -> str:
    return rule.sentence or _SENTENCES[is_chinese(question)]
