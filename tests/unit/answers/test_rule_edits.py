"""One rule at a time in the owner's files: the rest of the file stays as its owner wrote it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from appliance.answers.block_list import BlockList
from appliance.answers.quick_answers import compile_rules
from appliance.answers.rule_edits import RuleFiles, rules_in, with_rule, without_rule
from appliance.base.errors import ChangedMeanwhile
from appliance.settings.owner_file import BadRules

FILE = """# Ours
shipped = false

# the canteen
[[rule]]
questions = ["menu", "食堂"]  # both
answer = "See the board, {date}."

[[rule]]
patterns = ["door ?code"]
answer = "Ask Ann."
"""


def test_a_new_rule_stands_at_the_end():
    text = with_rule(FILE, None, {"questions": ["wifi"], "answer": "On the wall.\nBehind the plant.", "contains": None})
    assert text.startswith(FILE)
    assert rules_in(text)[2] == {"questions": ["wifi"], "answer": "On the wall.\nBehind the plant."}
    assert compile_rules(text).find("WiFi?") == "On the wall.\nBehind the plant."


def test_a_changed_rule_keeps_its_comments_and_what_was_not_changed():
    text = with_rule(FILE, 1, {"questions": [], "answer": "Ask Bob.", "contains": True})
    assert rules_in(text)[1] == {"patterns": ["door ?code"], "answer": "Ask Bob.", "contains": True}
    text = with_rule(FILE, 0, {"questions": ["menu"], "answer": "x"})
    assert '# the canteen\n[[rule]]\nquestions = ["menu"]  # both\n' in text


def test_a_rule_is_taken_out_and_the_last_leaves_a_file_that_can_be_read():
    text = without_rule(without_rule(FILE, 0), 0)
    assert rules_in(text) == []
    assert compile_rules(text).uses_shipped is False
    assert rules_in(with_rule("", None, {"words": ["x"]})) == [{"words": ["x"]}]


@pytest.mark.parametrize("index", [-1, 2, 99])
def test_a_rule_that_is_not_there(index):
    with pytest.raises(BadRules, match="no such rule"):
        without_rule(FILE, index)
    with pytest.raises(BadRules, match="no such rule"):
        with_rule(FILE, index, {"answer": "x"})


@pytest.mark.parametrize("text", ["[[rule]\n", "rule = [{answer = 'x'}]\n", "rule = 5\n"])
def test_a_file_that_cannot_be_changed_one_by_one_says_so(text):
    with pytest.raises(BadRules):
        with_rule(text, None, {"answer": "x"})


class AdminService:
    def __init__(self, folder: Path) -> None:
        self.path = folder / "block_list.toml"
        self.blocks = BlockList(self.path)
        self.files = RuleFiles({"block_list": self.blocks.file})

    async def revision(self) -> str:
        return (await self.files.read("block_list")).revision


@pytest.fixture
def admin_service(tmp_path: Path) -> AdminService:
    return AdminService(tmp_path)


async def test_a_rule_acts_as_soon_as_it_is_saved(admin_service):
    await admin_service.files.put(
        "block_list", None, {"words": ["salary"], "sentence": "Not here."}, await admin_service.revision()
    )
    assert admin_service.blocks.question("My salary?") == "Not here."
    await admin_service.files.remove("block_list", 0, await admin_service.revision())
    assert admin_service.blocks.question("My salary?") is None


async def test_rules_that_cannot_be_used_are_not_written(admin_service):
    await admin_service.files.write("block_list", '[[rule]]\nwords = ["a"]\n', await admin_service.revision())
    for text in ("[[rule]]\n", '[[rule]]\npatterns = ["("]\n', "nonsense", "other = 1\n"):
        with pytest.raises(BadRules):
            await admin_service.files.write("block_list", text, await admin_service.revision())
    assert admin_service.path.read_text() == '[[rule]]\nwords = ["a"]\n'
    assert admin_service.blocks.question("a") is not None


async def test_the_second_of_two_is_told_and_the_first_one_s_rule_stays(admin_service):
    seen = await admin_service.revision()
    changes = [admin_service.files.put("block_list", None, {"words": [word]}, seen) for word in ("first", "second")]
    results = await asyncio.gather(*changes, return_exceptions=True)
    assert [type(result) for result in results] == [type(None), ChangedMeanwhile]
    assert rules_in(admin_service.path.read_text()) == [{"words": ["first"]}]


async def test_a_file_that_is_not_in_use_says_why(admin_service):
    admin_service.path.write_text("[[rule]]\n")
    admin_service.blocks.file.refresh()
    assert "needs words or patterns" in str((await admin_service.files.read("block_list")).error)
