"""The pure parts of the comparison with peers: traces, targets, what is parsed, what is added up."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from bench import plots
from bench.__main__ import main
from bench.exchange import Exchange, Load, all_beyond, gaps_between
from bench.peers import compare, published
from bench.peers.against import MEASURES, target
from bench.peers.build import build_key, ninja_progress
from bench.peers.decode import parsed_speeds
from bench.peers.people import live
from bench.peers.sides import Played
from bench.peers.trace import KINDS, PASTE_WORDS, REPEATED_SHARE, Ask, Traces
from bench.results import Row
from bench.stats import Target
from tests.unit.bench.test_bench import result


def texts(trace):
    return [ask.text for asks in trace for ask in asks]


@pytest.mark.parametrize("kind", KINDS)
def test_a_trace_belongs_to_its_seed(kind):
    assert Traces(7, n_tokens=48).draw(kind, 6, 3) == Traces(7, n_tokens=48).draw(kind, 6, 3)
    assert Traces(7, n_tokens=48).draw(kind, 6, 3) != Traces(8, n_tokens=48).draw(kind, 6, 3)


def test_no_repeat_asks_what_an_earlier_one_asked():
    traces = Traces(1, n_tokens=48)
    asked = [text for kind in ("closed", "turns", "morning", "paste") for text in texts(traces.draw(kind, 20, 3))]
    assert len(set(asked)) == len(asked)


def test_an_unknown_trace_is_refused():
    with pytest.raises(ValueError, match="evening"):
        Traces(1, n_tokens=48).draw("evening", 1, 1)


def test_answers_differ_in_length_around_their_mean():
    lengths = [ask.max_tokens for asks in Traces(1, n_tokens=48).closed(100, 2) for ask in asks]
    assert (min(lengths), max(lengths)) == (24, 72)
    assert sum(lengths) / len(lengths) == pytest.approx(48, rel=0.1)


def test_four_of_ten_questions_are_repeated_ones():
    asked = texts(Traces(1, n_tokens=48).repeated(200, 2))
    n_hot = sum(asked.count(text) > 1 for text in asked)
    assert n_hot / len(asked) == pytest.approx(REPEATED_SHARE, abs=0.07)


def test_one_paste_is_among_the_short_questions():
    long = [text for text in texts(Traces(1, n_tokens=48).paste(8, 2)) if len(text.split()) == PASTE_WORDS]
    assert len(long) == 1


def test_only_the_first_turn_begins_a_conversation():
    for asks in Traces(1, n_tokens=24).turns(3, 6):
        assert [ask.is_new for ask in asks] == [True, *[False] * 5]


def test_people_of_a_morning_come_one_after_another_at_the_stated_rate():
    trace = Traces(1, n_tokens=24).morning(400)
    came_s = [asks[0].wait_s for asks in trace]
    assert came_s == sorted(came_s)
    assert came_s[-1] / 400 == pytest.approx(4.0, rel=0.15)  # 15 a minute
    assert {len(asks) for asks in trace} == {1, 2, 3}
    assert all(not ask.is_new for asks in trace for ask in asks[1:])


class Recorder:
    def __init__(self):
        self.seen = []

    async def begin(self):
        self.seen.append("new")

    async def ask(self, text, max_tokens):
        self.seen.append(text)
        return Exchange(0.0, (1.0,), 2.0, n_tokens=max_tokens)


async def test_everybody_lives_through_their_own_questions_in_order():
    people = [Recorder(), Recorder()]
    trace = ((Ask("a", 1), Ask("b", 2, is_new=False)), (Ask("c", 3),))
    load = await live(trace, people)
    assert [person.seen for person in people] == [["new", "a", "b"], ["new", "c"]]
    assert sorted(exchange.n_tokens for exchange in load.exchanges) == [1, 2, 3]


def test_measures_count_what_was_answered():
    exchanges = (
        Exchange(0.0, (1.0, 1.2), 2.0, n_tokens=6),
        Exchange(0.0, (2.0,), 4.0, n_tokens=2),
        Exchange(0.0, (), 0.1, failure="HTTP 503"),
    )
    played = Played(Load(exchanges, 0.1), n_tokens=8)
    found = {what: value(played) for what, (_unit, value) in MEASURES.items()}
    assert found["speed"] == 2.0
    assert found["answers"] == 30.0
    assert found["ttft p50"] == pytest.approx(1500)
    assert found["answer's end p90"] == pytest.approx(3800)
    assert found["gap p99"] == pytest.approx(200)


@pytest.mark.parametrize(
    ("what", "peer", "kind", "n_users", "is_same_file", "expected"),
    [
        ("speed", "llama-server", "closed", 30, True, Target(at_least=1.05)),
        ("speed", "llama-server", "closed", 10, False, Target(at_least=1.7)),
        ("speed", "llama-server", "closed", 48, True, None),
        ("speed", "llama-server", "morning", 30, True, None),
        ("speed", "example-server", "closed", 10, True, Target(at_least=3)),
        ("answers", "llama", "closed", 50, False, Target(at_least=2.9)),
        ("answer's end p90", "llama", "closed", 50, False, Target(at_most=0.5)),
        ("answers", "one-slot", "closed", 50, True, None),
    ],
)
def test_targets_are_those_of_the_issue(what, peer, kind, n_users, is_same_file, expected):
    assert target(what, peer, kind, n_users, is_same_file=is_same_file) == expected


def test_only_gaps_that_touch_the_time_count():
    streams = [[0.0, 1.0, 2.0, 5.0, 5.5], [4.0, 9.0]]
    assert gaps_between(streams, 1.5, 4.5) == [1.0, 3.0, 5.0]


async def test_streams_are_followed_to_the_end_of_the_gap_they_are_in():
    ended, running = asyncio.create_task(asyncio.sleep(0)), asyncio.create_task(asyncio.sleep(60))
    await ended
    assert all_beyond(5.0, [ended, running], [[1.0], [1.0, 6.0]])
    assert not all_beyond(5.0, [ended, running], [[1.0], [1.0, 4.0]])
    running.cancel()


def test_a_gap_that_ends_after_the_time_counts_whole():
    assert gaps_between([[1.0, 2.0, 9.0, 9.1]], 2.5, 8.0) == [7.0]


def test_the_peers_json_lines_are_found_among_what_else_it_says():
    printed = 'warming up\n{"pl": 1, "speed_tg": 46.5, "pp": 64}\n\n{"pl": 8, "speed_tg": 85.0, "pp": 64}\nperf: done'
    assert parsed_speeds(printed) == {1: 46.5, 8: 85.0}


def test_another_version_flag_or_cpu_is_another_build():
    keys = {
        build_key("1", ["-a"], "x"),
        build_key("2", ["-a"], "x"),
        build_key("1", ["-b"], "x"),
        build_key("1", [], "y"),
    }
    assert len(keys) == 4
    assert build_key("1", ["-a"], "x") in keys


def test_progress_is_the_last_step_reported():
    assert ninja_progress("[1/216] Building\nwarning [9/9]\n[41/216] Linking\n") == "41/216"
    assert ninja_progress("configuring") == ""


def test_later_repeats_join_the_earlier_ones():
    first = result()
    row = Row.compared("16 streams", "tokens/s", [80.0], "one by one", [40.0], Target(at_least=1.7))
    joined = first.with_more(replace(first, n_repeats=1, rows=(row, Row.figure("client", "% of a core", [7.0]))))
    assert joined.n_repeats == 3
    assert joined.rows[0].ratio.values == (3.0, 2.0, 2.0)
    assert joined.rows[1].got.median == 6.0


def test_repeats_of_something_else_do_not_join():
    with pytest.raises(ValueError, match="another"):
        result().with_more(replace(result(), command="python -m bench page"))
    with pytest.raises(ValueError, match="no repeat"):
        Row.figure("a", "ms", [1.0]).with_more(Row.figure("b", "ms", [1.0]))


@pytest.mark.parametrize("plan", [compare.PLAN, compare.QUICK])
def test_every_line_of_a_plan_is_a_command_that_exists(plan, monkeypatch):
    ran = []
    monkeypatch.setattr("bench.__main__.measure", lambda measurement, _options, command: ran.append(command))
    for line in plan:
        assert main(line.split()) == 0
    assert len(ran) == len(plan)


def test_the_quick_plan_needs_nothing_compiled():
    assert [line for line in compare.QUICK if "against" in line and "--peers" not in line] == []
    assert [line for line in compare.QUICK if any(name in line for name in ("llama-server", "example-server"))] == []


def closed_loop(n_users, against="llama-server"):
    row = Row.compared("speed", "tokens/s", [90.0], against, [60.0])
    ttft = Row.compared("ttft p50", "ms", [200.0], against, [400.0])
    return replace(result(name=f"against-closed-{n_users}-api-llama-server-x"), rows=(row, ttft))


def test_lines_of_a_plot_are_in_the_order_of_their_users():
    results = {f"against-closed-{n}-api-llama-server-x": closed_loop(n) for n in (30, 5, 10)}
    lines = plots.by_users(results, "speed")
    assert [n for n, _ in lines["ours"]] == [5, 10, 30]
    assert [spread.median for _, spread in lines["llama-server"]] == [60.0] * 3


def test_our_tuned_file_is_a_line_of_its_own():
    results = {"against-closed-10-api-llama-server-y-x": closed_loop(10, "llama-server, y")}
    assert set(plots.by_users(results, "speed")) == {"ours, tuned file", "llama-server, y"}


def test_plots_are_drawn_from_what_there_is(tmp_path):
    assert plots.draw({}, tmp_path) == []
    results = {f"against-closed-{n}-api-llama-server-x": closed_loop(n) for n in (5, 10)}
    (path,) = plots.draw(results, tmp_path)
    assert "llama-server" in path.read_text(encoding="utf-8")


def test_published_figures_stand_beside_ours_or_are_said_to_be_missing():
    lines = published.table({"against-closed-10-api-llama-server-x": closed_loop(10)}).splitlines()
    assert len(lines) == len(published.PUBLISHED) + 2
    assert next(line for line in lines if line.startswith("| 10 users: first token")).endswith("| 200 ms |  |")
    assert "not measured" in next(line for line in lines if line.startswith("| 5 users: first token"))
    assert {line.count("|") for line in lines} == {6}
