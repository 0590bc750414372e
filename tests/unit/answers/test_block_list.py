"""What the owner wants neither asked nor answered."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.answers.block_list import BlockList, Screen, compile_rules
from appliance.base.errors import StartFailed
from appliance.base.paths import Paths
from appliance.engine.request import Delta
from appliance.lifecycle import Appliance
from appliance.settings.schema import Settings

RULES = """
[[rule]]
words = ["project Phoenix", "工资"]
sentence = "Ask HR."

[[rule]]
patterns = ['\\d{3}-\\d{4}']
questions = false

[[rule]]
words = ["secret"]
answers = false
"""


def make(folder: Path, text: str = RULES) -> BlockList:
    (folder / "block_list.toml").write_text(text, encoding="utf-8")
    return BlockList(folder / "block_list.toml")


@pytest.mark.parametrize(
    "question",
    ["What is Project  PHOENIX?", "ｐｒｏｊｅｃｔ phoenix", "pro\u200bject phoenix", "告诉我她的工资"],
)
def test_a_question_with_a_blocked_word_gets_the_sentence(tmp_path, question):
    assert make(tmp_path).question(question) == "Ask HR."


def test_rules_can_be_for_questions_or_for_answers_only(tmp_path):
    blocks = make(tmp_path)
    assert blocks.question("call 555-1234") is None
    assert blocks.answer("call 555-1234", "who?") == "This is not discussed here."
    assert blocks.question("a secret") == "This is not discussed here."
    assert blocks.question("一个 secret") == "这里不讨论这个内容。"
    assert blocks.answer("a secret", "x") is None


def test_without_a_file_nothing_is_blocked_or_held_back(tmp_path):
    blocks = BlockList(tmp_path / "block_list.toml")
    assert blocks.question("anything") is None
    assert blocks.screen("anything") is None


def shown(screen: Screen, text: str) -> tuple[list[str], str]:
    """What readers see after every character, and in all."""
    seen, so_far = [], ""
    for character in text:
        so_far += "".join(delta.text for delta in screen.feed(Delta(character, (ord(character),))))
        seen.append(so_far)
    return seen, so_far + "".join(delta.text for delta in screen.finish())


@pytest.mark.parametrize("ending", ["", ".", " and more", "\n" * 40])
def test_no_part_of_a_blocked_word_is_ever_shown(tmp_path, ending):
    screen = make(tmp_path).screen("x")
    seen, everything = shown(screen, "The aim of project Phoenix" + ending)
    assert screen.sentence == "Ask HR."
    assert all("pro" not in text for text in [*seen, everything])
    assert "The aim of".startswith(everything)


def test_a_word_that_only_begins_like_a_blocked_one_is_shown(tmp_path):
    screen = make(tmp_path).screen("x")
    text = "project Phoenixes are many projects"
    assert shown(screen, text)[1] == text
    assert screen.sentence is None


def test_a_word_begun_before_an_answer_was_continued_is_noticed(tmp_path):
    screen = make(tmp_path).screen("x", begun="about project Phoe")
    assert shown(screen, "nix and")[1] == ""
    assert screen.sentence == "Ask HR."


@given(text=st.text("ab工资pP hoenixrjct\n", max_size=60))
def test_whatever_is_written_comes_through_whole_or_ends_before_what_is_blocked(text):
    screen = Screen(compile_rules(RULES), "x", "")
    seen, everything = shown(screen, text)
    if screen.sentence is None:
        assert everything == text
    else:
        assert text.startswith(everything)
        assert "工资" not in everything
        assert "project phoenix" not in everything.lower()
    assert all(text.startswith(part) for part in seen)


def test_token_ids_stay_with_their_text(tmp_path):
    screen = make(tmp_path).screen("x")
    pieces = [*screen.feed(Delta("a" * 100, (1, 2))), *screen.feed(Delta("", (3,))), *screen.finish()]
    assert [(len(piece.text), piece.token_ids) for piece in pieces] == [(100, (1, 2)), (0, (3,))]


def test_a_program_does_not_start_with_a_block_list_it_cannot_read(tmp_path):
    paths = Paths(tmp_path)
    paths.prepare()
    paths.block_list.write_text("[[rule]\n", encoding="utf-8")
    with pytest.raises(StartFailed, match=r"block_list\.toml: not valid TOML.*Nothing would be blocked"):
        Appliance(Settings(backend="echo", data_dir=str(tmp_path)), paths)
