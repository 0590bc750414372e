"""What rules answer and what they leave to the model; how the owner's file is read."""

from __future__ import annotations

import logging
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from appliance.answers.quick_answers import QuickAnswers, compile_rules
from appliance.answers.text_matching import BadPattern, Pattern, any_word, folded, squeezed
from appliance.base.paths import Paths
from appliance.settings.owner_file import BadRules, OwnerFile

NOW = datetime(2026, 11, 30, 17, 5, tzinfo=UTC)


def make(folder: Path, text: str = "", office: str = "Main Street") -> QuickAnswers:
    paths = Paths(folder)
    if text:
        paths.quick_answers.write_text(text, encoding="utf-8")
    return QuickAnswers(paths.quick_answers, paths.shipped_quick_answers, office, lambda: NOW)


@pytest.mark.parametrize(
    ("message", "part"),
    [
        ("你好", "您好"),
        ("您好！！", "您好"),
        ("Hello", "Hello!"),
        ("  ＨＥＬＬＯ ， there~ ", "Hello!"),
        ("Who are you?", "chat assistant"),
        ("What's your name?", "chat assistant"),
        ("你是谁？", "聊天助手"),
        ("你能做什么", "我可以"),
        ("what can you do", "I can"),
        ("这里保密吗？", "不会离开办公网络"),
        ("Is this private?", "do not leave"),
        ("今天星期几？", "今天是2026年11月30日，星期一。"),
        ("What day is it today?", "Today is Monday, 30 November 2026."),
        ("现在几点了", "现在是 17:05。"),
        ("what time is it?", "It is 17:05."),
        ("谢谢！", "不客气"),
        ("Thank you 😊", "welcome"),
    ],
)
def test_the_shipped_ones_answer_in_the_language_of_the_question(tmp_path, message, part):
    assert part in make(tmp_path).find(message)


@pytest.mark.parametrize(
    "message", ["你好，帮我写周报", "hello, write a report", "What is the capital of France?", "???", "", "😊"]
)
def test_a_message_that_says_more_reaches_the_model(tmp_path, message):
    assert make(tmp_path).find(message) is None


def test_the_owners_rules_come_first_and_may_be_the_only_ones(tmp_path):
    rule = '[[rule]]\nquestions = ["Hello"]\nanswer = "Welcome to {office_name}, {nobody}."\n'
    assert make(tmp_path, rule).find("hello!") == "Welcome to Main Street, {nobody}."
    assert make(tmp_path, rule).find("thanks") is not None
    assert make(tmp_path, "shipped = false\n" + rule).find("thanks") is None


def test_of_two_rules_for_one_question_the_first_counts(tmp_path):
    rules = '[[rule]]\nquestions = ["a", "b"]\nanswer = "1"\n[[rule]]\nquestions = ["b", "c"]\nanswer = "2"\n'
    assert [make(tmp_path, rules).find(text) for text in "abc"] == ["1", "1", "2"]


def test_a_pattern_is_the_whole_message_unless_it_may_be_contained(tmp_path):
    rules = (
        "[[rule]]\npatterns = ['(无线|wi-?fi).{0,4}密码']\nanswer = \"At reception.\"\n"
        '[[rule]]\nquestions = ["printer jam"]\npatterns = [\'toner\']\ncontains = true\nanswer = "Call Ann."\n'
    )
    quick = make(tmp_path, rules)
    assert quick.find("WiFi的密码") == "At reception."
    assert quick.find("请告诉我wifi密码，谢谢") is None
    assert quick.find("There is a  Printer JAM again") == "Call Ann."
    assert quick.find("out of toner") == "Call Ann."
    assert quick.find("no printer jams here") is None


def test_a_hostile_pattern_and_message_take_no_time(tmp_path):
    quick = make(tmp_path, "[[rule]]\npatterns = ['(a+)+$', '(.*)*b']\ncontains = true\nanswer = \"x\"\n")
    began = time.monotonic()
    assert quick.find("a" * 100_000 + "c") is None
    assert time.monotonic() - began < 20, "a backtracking matcher would not end at all"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[[rule]\n", "not valid TOML"),
        ('\n[[rule]]\nquestions = ["a"]\n', "line 2: answer: Field required"),
        (
            '[[rule]]\nquestions = ["a"]\nanswer = "x"\n\n[[rule]]\npatterns = ["(a"]\nanswer = "x"',
            "line 5: patterns: ",
        ),
        ('[[rule]]\nquestion = ["a"]\nanswer = "x"', "line 1: question: there is no such key"),
        ('[[rule]]\nanswer = "x"', "line 1: a rule needs questions or patterns"),
        ('[[rule]]\nquestions = ["?!"]\nanswer = "x"', "line 1: questions: one of them has no words"),
        ('[[rule]]\npatterns = [".*"]\nanswer = "x"', "line 1: patterns: it matches an empty text"),
        ("shiped = true\n", "at the top: shiped: there is no such key"),
        ('[[rule]]\nquestions = "a"\nanswer = "x"', "line 1: questions: Input should be a valid list"),
    ],
)
def test_a_bad_rule_is_named_with_its_line(text, sentence):
    with pytest.raises(BadRules, match=sentence.replace("(", r"\(")):
        compile_rules(text)


def test_a_changed_file_is_read_again_and_a_broken_one_changes_nothing(tmp_path, caplog):
    quick = make(tmp_path, '[[rule]]\nquestions = ["a"]\nanswer = "1"\n')
    quick.file.path.write_text('[[rule]]\nquestions = ["a"]\nanswer = "two"\n')
    quick.file.refresh()
    assert quick.find("a") == "two"
    with caplog.at_level(logging.ERROR):
        quick.file.path.write_text('[[rule]]\nquestions = ["a"]\nanswer = 3\n')
        quick.file.refresh()
        quick.file.refresh()
    assert quick.find("a") == "two"
    assert quick.file.problem
    assert caplog.text.count("quick_answers.toml: line 1: answer") == 1
    quick.file.path.unlink()
    quick.file.refresh()
    assert quick.find("a") is None
    assert quick.file.problem == ""


def test_a_file_from_a_windows_editor_is_read(tmp_path):
    path = tmp_path / "quick_answers.toml"
    path.write_bytes('\ufeff[[rule]]\r\nquestions = ["打印机"]\r\nanswer = "三楼"\r\n'.encode())
    assert make(tmp_path).find("打印机？") == "三楼"
    path.write_bytes('[[rule]]\nquestions = ["打印机"]\n'.encode("gbk"))
    file = OwnerFile(path, compile_rules)
    assert "line 2: not UTF-8" in file.problem


def test_writing_is_all_or_nothing(tmp_path):
    quick = make(tmp_path, '[[rule]]\nquestions = ["a"]\nanswer = "1"\n')
    before = quick.file.path.read_bytes()
    with pytest.raises(BadRules):
        quick.file.write("[[rule]]\n")
    assert quick.file.path.read_bytes() == before
    quick.file.write('[[rule]]\nquestions = ["a"]\nanswer = "2"\n')
    assert quick.find("a") == "2"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["quick_answers.toml", "quick_answers.toml.good"]


def test_texts_are_compared_without_case_width_and_signs():
    assert folded(" Ａ\u200bb\u3000 C\n") == "a b c".replace("a b", "ab")
    assert squeezed("C++ > C, isn't it？") == "c++>cisntit"


def test_a_word_is_a_whole_word_where_words_are_spaced():
    words = any_word(["pass", "工资", "a.b"])
    assert words.find(folded("Pass!"))
    assert words.find(folded("是pass吗"))
    assert words.find(folded("她的工资单"))
    assert words.find(folded("a.b"))
    assert not words.find(folded("axb"))
    assert not words.find(folded("passage, compass"))


@pytest.mark.parametrize("source", ["(", "a*", r"\1", "(?=a)b"])
def test_what_is_no_pattern_is_refused(source):
    with pytest.raises(BadPattern):
        Pattern(source)
