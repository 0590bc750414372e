"""What is wrong with the owner's files is said in both languages, and in Chinese without English in it."""

from __future__ import annotations

import errno
import re
from pathlib import Path

import pytest

from appliance.answers import block_list, quick_answers
from appliance.answers.rule_edits import with_rule, without_rule
from appliance.base.errors import StartFailed
from appliance.base.private_file import PrivateRecord
from appliance.settings.owner_file import BadRules, OwnerFile
from ui.admin.section import SectionContext
from ui.words.problems import disk_problem, rules_problem

QUICK = [
    ("[[rule]\n", "line 1: this is not valid TOML", "第 1 行：不是有效的 TOML"),
    ('shipped = true\nx = """', "line 2: this is not valid TOML", "第 2 行：不是有效的 TOML"),
    ('[[rule]]\nquestions = ["a"]', "line 1: Answer is missing", "第 1 行：缺少“回答”"),
    ('\n[[rule]]\nquestions = ["a"]\nanswer = ""', "line 2: Answer is missing", "第 2 行：缺少“回答”"),
    ('[[rule]]\nquestion = ["a"]\nanswer = "x"', "line 1: there is no key question", "第 1 行：没有 question 这一项"),
    ("rule = [{answer = 'x'}]", "rule 1: there is no question yet", "第 1 条规则：还没有问题"),
    ("rule = 5", "rule has to be a list of texts in quotes, between [ and ]", None),
    ('[[rule]]\nquestions = ["a"]\nanswer = 3', "line 1: Answer has to be a text in quotes", None),
    (
        '[[rule]]\npatterns = ["(a"]\nanswer = "x"',
        "line 1: a pattern cannot be used: missing ): (a",
        "第 1 行：有一个模式无法使用：缺少 )：(a",
    ),
    (
        '[[rule]]\npatterns = [".*"]\nanswer = "x"',
        "line 1: a pattern cannot be used: it matches an empty text, and so every one",
        "第 1 行：有一个模式无法使用：它与空文本相符，因此与任何文本都相符",
    ),
    ('[[rule]]\nquestions = ["?!"]\nanswer = "x"', "line 1: one of the questions has neither letters nor digits", None),
]
ENGLISH = re.compile("[A-Za-z]{3,}")
KEYS = {"TOML", "question", "questions", "answer", "rule", "true", "false", "words", "UTF"}


def refused(call: object, *values: object) -> BadRules:
    with pytest.raises(BadRules) as caught:
        call(*values)
    return caught.value


@pytest.mark.parametrize(("text", "english", "chinese"), QUICK)
def test_a_file_of_quick_answers(text: str, english: str, chinese: str | None) -> None:
    error = refused(quick_answers.compile_rules, text)
    assert rules_problem("en", error) == english
    said = rules_problem("zh", error)
    assert chinese in (None, said)
    assert set(ENGLISH.findall(said)) <= KEYS


@pytest.mark.parametrize("text", ["[[rule]]", '[[rule]]\nwords = [""]', "[[rule]]\nwords = 1", "[[rule]]\nanswers = 1"])
def test_a_block_list(text: str) -> None:
    error = refused(block_list.compile_rules, text)
    assert set(ENGLISH.findall(rules_problem("zh", error))) <= KEYS | {"answers"}
    assert rules_problem("en", error)


@pytest.mark.parametrize("pattern", ["[a", ")", "*", "a{3000}", "\\\\q", "[z-a]", "a**", "(?P<n", "(?<!a)b"])
def test_every_reason_a_pattern_has(pattern: str) -> None:
    error = refused(block_list.compile_rules, f'[[rule]]\npatterns = ["{pattern}"]')
    assert ENGLISH.findall(rules_problem("zh", error)) == []


def test_a_rule_that_is_gone_and_files_that_are_no_text(tmp_path: Path) -> None:
    errors = [refused(without_rule, "", 3), refused(with_rule, "rule = [{words = ['x']}]", None, {"words": ["y"]})]
    for content in (b"\xff\xfe", b"x" * 1_000_001):
        path = tmp_path / "block_list.toml"
        path.write_bytes(content)
        error = OwnerFile(path, block_list.compile_rules).error
        assert error is not None
        errors.append(error)
    for error in errors:
        assert rules_problem("en", error)
        assert set(ENGLISH.findall(rules_problem("zh", error))) <= KEYS


def test_a_disk_that_does_not_take_a_file(tmp_path: Path) -> None:
    full = OSError(errno.ENOSPC, "No space left on device")
    assert disk_problem("en", full) == "The file could not be written: the disk is full. Nothing was changed."
    assert "磁盘已满" in disk_problem("zh", full)
    assert "此账户无权写入" in disk_problem("zh", PermissionError(errno.EACCES, "Permission denied"))
    assert "EIO" in disk_problem("zh", OSError(errno.EIO, "Input/output error"))
    with pytest.raises(StartFailed) as caught:
        PrivateRecord(tmp_path / "no such folder" / "keys").write({})
    said = SectionContext(None, "zh", None)._sentence(caught.value)
    assert said.startswith("文件无法写入")
