"""Number columns of a model's tables."""

from __future__ import annotations

import pytest

from ui.chat.tables import align_numbers

PLAIN = "| fruit | price | note |\n|---|---|---|\n| apple | 1,200.50 | 3 or 4 |\n| pear | ¥3 | none |"


def test_a_column_of_numbers_is_marked_and_no_other():
    assert align_numbers(PLAIN).split("\n")[1] == "|---|---:|---|"
    assert align_numbers(PLAIN).replace("---:", "---") == PLAIN


@pytest.mark.parametrize("cell", ["12", "-3.5", "25%", "1 200", "3kg", "$5", "5万", "≈7"])
def test_these_are_numbers(cell):
    assert "-:" in align_numbers(f"a|b\n-|-\nx|{cell}")


@pytest.mark.parametrize("cell", ["x1", "2024-01-02", "1 or 2", "", "**3**", "1" * 41])
def test_these_are_none(cell):
    assert "-:" not in align_numbers(f"|a|b|\n|-|-|\n|x|{cell}|")


def test_marks_of_the_models_own_stay():
    text = "|a|b|\n|:-:|:-|\n|1|2|"
    assert align_numbers(text) == text


def test_a_table_that_is_still_written_and_a_row_that_is_too_short():
    assert align_numbers("|a|b|\n|-|-|\n|x|1|\n|y").split("\n")[1] == "|-|-:|"


@pytest.mark.parametrize(
    ("row", "shown"),
    [
        ("x | y | z | more", r"|x|y \| z \| more|"),
        (r"|x|a \| b|", r"|x|a \| b|"),
        ("|x|`a|b`|", r"|x|`a \| b`|"),
        ("|x|", "|x|"),
    ],
)
def test_what_is_too_much_for_a_row_goes_into_its_last_cell(row, shown):
    """Markdown shows no more cells than the head has."""
    assert align_numbers(f"a | b\n--|--\n{row}").split("\n")[2] == shown
    assert align_numbers(f"a | b | c\n--|--\n{row}").split("\n")[2] == row, "no table"


def test_a_table_in_a_list_stays_there():
    assert align_numbers("- x\n\n  |a|b|\n  |-|-|\n  |x|1|2|").split("\n")[3:] == ["  |-|-|", r"  |x|1 \| 2|"]


CODE = "```\n|a|b|\n|-|-|\n|1|2|\n```"


@pytest.mark.parametrize(
    "text", [CODE, "- ```\n  |a|\n  |-|\n  |1|2|\n  ```", "    |a|\n    |-|\n    |1|", "no table", "a | b\n- - -\n1"]
)
def test_code_and_what_is_no_table_are_left_alone(text):
    assert align_numbers(text) == text


@pytest.mark.parametrize("text", ["|" * 100_000, "`" * 100_000 + "|", " " * 100_000 + "|\n" + "| " * 50_000])
def test_very_odd_texts_are_read_in_no_time(text):
    assert align_numbers(text) == text  # the test's own timeout ends what would take for ever


def test_a_very_long_table_is_read_in_no_time():
    assert align_numbers("|a|\n|-|\n" + "|1|\n" * 30_000).startswith("|a|\n|-:|\n|1|")
    wide = "|-" * 20_000
    assert align_numbers(f"{wide}\n{wide}\n" + "|\n" * 10_000).startswith(wide)
    assert align_numbers("|a|\n" + "|-|\n" * 30_000).startswith("|a|\n|-|\n|-|")
