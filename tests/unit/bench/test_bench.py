"""The pure parts of the bench: numbers, tables, events, questions, results."""

from __future__ import annotations

import pytest

from bench.__main__ import repeatable
from bench.clients import in_turns, logged_counts
from bench.exchange import Exchange, Load
from bench.interleave import interleaved
from bench.questions import Questions
from bench.report import render, write
from bench.results import Result, Row, newest
from bench.sse import LiveText, event_data, patched, visible_answer
from bench.stats import Spread, Target, percentile, slope
from bench.table import for_markdown, for_terminal, number


def result(name: str = "streams-x", began: str = "2026-01-02T03:04:05+00:00", load_before: float = 0.1) -> Result:
    row = Row.compared("16 streams", "tokens/s", [90.0, 100.0], "one by one", [30.0, 50.0], Target(at_least=1.7))
    plain = Row.figure("client", "% of a core", [5.0])
    return Result(
        name=name,
        title="tokens/s",
        command="python -m bench streams",
        began=began,
        model="x.gguf",
        seed=1,
        n_repeats=2,
        load_before=load_before,
        machine={"cpu": "a CPU"},
        rows=(row, plain),
        notes=("a note",),
    )


def generating(value: object) -> dict[str, object]:
    return {"msg": "process_generating", "output": {"data": [value]}}


@pytest.mark.parametrize(("share", "expected"), [(0, 1), (0.5, 2.5), (1, 4), (0.9, 3.7)])
def test_percentiles_lie_between_their_neighbours(share, expected):
    assert percentile([4, 1, 3, 2], share) == pytest.approx(expected)


def test_a_percentile_of_nothing_is_refused():
    with pytest.raises(ValueError, match="no values"):
        percentile([], 0.5)


def test_ratios_are_taken_repeat_by_repeat():
    # A machine twice as slow in the second repeat: both sides suffer, the ratio does not.
    assert Spread.of_ratios([10, 5], [5, 2.5]) == Spread(2, 2, 2, 2)


def test_ratios_need_as_many_repeats_on_both_sides():
    with pytest.raises(ValueError, match="zip"):
        Spread.of_ratios([1, 2], [1])


def test_slope_is_the_growth_of_one_more():
    assert slope([0, 10, 20], [5, 25, 45]) == pytest.approx(2)


def test_a_target_is_the_ratios_where_there_is_one():
    compared = Row.compared("x", "ms", [3.0], "y", [2.0], Target(at_most=1.6))
    assert compared.is_met is True
    assert Row.figure("x", "ms", [3.0], Target(at_most=1.6)).is_met is False
    assert Row.figure("x", "ms", [3.0]).is_met is None


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (0.000211, "0.000211"), (0.5, "0.500"), (3.14159, "3.14"), (46.04, "46.0"), (7219.4, "7,219")],
)
def test_numbers_show_three_digits(value, text):
    assert number(value) == text


def test_columns_without_a_word_are_left_out_and_chinese_takes_two_places():
    table = for_terminal([Row.figure("报销", "ms", [1.0]), Row.figure("abcde", "ms", [2.0])])
    head, first, second = table.splitlines()
    assert "against" not in head
    assert first.index("ms") + 2 == second.index("ms")


def test_a_markdown_table_has_as_many_cells_in_every_line():
    lines = for_markdown(result().rows).splitlines()
    assert len({line.count("|") for line in lines}) == 1
    assert "≥ 1.7" in lines[2]


def test_a_result_is_read_back_as_it_was_written(tmp_path):
    assert Result.read(result().write(tmp_path)) == result()


def test_the_newest_result_of_every_name_counts(tmp_path):
    result(began="2026-01-01T00:00:00+00:00").write(tmp_path)
    result(began="2026-01-03T00:00:00+00:00").write(tmp_path)
    result(name="idle-x", began="2026-01-02T00:00:00+00:00").write(tmp_path)
    assert {name: one.began[:10] for name, one in newest(tmp_path).items()} == {
        "streams-x": "2026-01-03",
        "idle-x": "2026-01-02",
    }


def test_the_page_says_command_target_and_figure(tmp_path):
    result().write(tmp_path)
    write(tmp_path, tmp_path / "performance.md")
    text = (tmp_path / "performance.md").read_text(encoding="utf-8")
    for part in ("python -m bench streams --repeats 2", "≥ 1.7", "95.0 (90.0-100)", "a CPU", "a note"):
        assert part in text


def test_the_page_warns_of_a_busy_machine():
    assert "Something else was at work" in render([result(load_before=2.0)])
    assert "Something else was at work" not in render([result()])


def test_a_page_names_no_seed_and_no_path_of_a_machine():
    given = ["order", "--seed", "1", "--results=/here", "--model", "/there/x.gguf", "--part", "jobs", "--cache", "/c"]
    assert repeatable(given) == ["order", "--model", "x.gguf", "--part", "jobs"]
    given = ["start", "--program=/a/dist/office-chat", "--one-file", "/a/b.run"]
    assert repeatable(given) == ["start", "--program", "office-chat", "--one-file", "b.run"]


def test_no_page_without_results(tmp_path):
    with pytest.raises(SystemExit, match="no results"):
        write(tmp_path, tmp_path / "performance.md")


@pytest.mark.parametrize("line", ["", ": waiting", "event: x", "data: [DONE]", "data:", "data: [1]"])
def test_lines_without_an_event_are_passed_over(line):
    assert event_data(line) is None


def test_an_event_is_its_json():
    assert event_data('data: {"msg": "estimation"}') == {"msg": "estimation"}


def test_a_streamed_text_is_whole_at_first_and_edited_afterwards():
    live = LiveText()
    shown = []
    for value in ("a", [["append", [], "b"]], [], [["replace", [], "c"]]):
        live.take(generating(value))
        shown.append(live.text)
    assert shown == ["a", "ab", "ab", "c"]


def test_an_edit_inside_something_is_no_edit_of_a_text():
    with pytest.raises(ValueError, match="append"):
        patched("a", [["append", [0], "b"]])


@pytest.mark.parametrize(
    ("live", "answer"),
    [
        ("", ""),
        ('<pre class="said">hi</pre>\n\n<div class="note thinking">Thinking…</div>', ""),
        ('<pre class="said">hi</pre>\n\n<div class="note ">The message was cut.</div>\n\nHello', "Hello"),
        ('<pre class="said">hi</pre>\n\nHello &lt;b>', "Hello &lt;b>"),
    ],
)
def test_only_the_answer_counts_as_visible_text(live, answer):
    assert visible_answer(live) == answer


def test_ttft_and_gaps_are_those_of_visible_text():
    load = Load((Exchange(0.0, (1.0, 1.5, 3.0), 3.0, n_tokens=6), Exchange(1.0, (2.0,), 4.0, n_tokens=2)), 0.1)
    assert load.check().ttfts_s == [1.0, 1.0]
    assert load.gaps_s == [0.5, 1.5]
    assert load.tokens_per_s == 2.0


def test_times_are_found_by_their_name_in_the_tables():
    load = Load((Exchange(0.0, (1.0, 1.5, 3.0), 3.5), Exchange(0.0, (2.0,), 4.5)), 0.1)
    assert load.ms("ttft p50") == pytest.approx(1500)
    assert load.ms("gap p99") == pytest.approx(1490)
    assert load.ms("answer's end p90") == pytest.approx(4400)


@pytest.mark.parametrize("exchange", [Exchange(0.0, (), 1.0), Exchange(0.0, (0.5,), 1.0, failure="HTTP 503")])
def test_a_failed_question_spoils_the_run(exchange):
    with pytest.raises(RuntimeError, match="1 of 1"):
        Load((exchange,), 0.1).check()


async def test_every_repeat_begins_with_another_variant():
    order = []

    async def first() -> None:
        order.append("a")

    async def second() -> None:
        order.append("b")

    await interleaved(2, {"a": first, "b": second}, lambda: order.append("-"))
    assert "".join(order) == "-ab-ba"


def test_questions_are_new_within_a_run_and_other_runs_ask_others():
    one, other = Questions(1), Questions(2)
    texts = [one.short() for _ in range(200)]
    assert len(set(texts)) == 200
    assert texts[:5] == [Questions(1).short(), *texts[1:5]]
    assert one.words(22) != other.words(22)
    assert len(other.words(22).split()) == 22


def test_the_programs_log_tells_what_was_computed():
    line = "INFO appliance.chat.watch: request abc: n_prompt=96 n_cached=64 n_decoded=11 ttft_server_s=0.1 reason=stop"
    assert logged_counts(f"other\n{line}\n") == [(96, 64, 11)]


def test_texts_in_turns_begin_and_end_with_the_user():
    assert [message["role"] for message in in_turns(["a", "b", "c"])] == ["user", "assistant", "user"]
