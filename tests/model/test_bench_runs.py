"""The bench end to end with the starter model: that it measures something, not how fast this machine is.

Nothing is compiled for it: llama-server and llama-batched-bench stay out, and what is told apart by them alone is not
covered. What comes with the program is: our engine, API and page, every kind of trace's driver, `Llama` one at a time.
"""

from __future__ import annotations

import pytest

from bench.__main__ import main
from bench.peers.compare import QUICK
from bench.results import newest

pytestmark = pytest.mark.timeout(1800)


def test_a_tiny_run_leaves_a_result_and_a_page(tmp_path, capsys):
    results = tmp_path / "results"
    arguments = ["reuse", "--users", "2", "--slots", "2", "--tokens", "4", "--model", "starter", "--repeats", "1"]
    assert main([*arguments, "--results", str(results)]) == 0
    assert "Kept in" in capsys.readouterr().out
    (result,) = newest(results).values()
    assert all(row.ratio.median > 0 for row in result.rows if row.ratio is not None)
    assert main(["report", "--results", str(results), "--target", str(tmp_path / "performance.md")]) == 0
    assert result.command in (tmp_path / "performance.md").read_text(encoding="utf-8")


@pytest.mark.stress
def test_bench_quick_measures_every_part_and_loses_nobody(tmp_path):
    assert main(["compare", "--quick", "--results", str(tmp_path)]) == 0
    found = newest(tmp_path)
    assert len(found) == len(QUICK)
    rows = [row for result in found.values() for row in result.rows]
    assert all(row.got.median > 0 for row in rows if row.unit == "tokens/s")
    assert {row.got.median for row in rows if row.what == "64 users: answered or told busy"} == {100}
    assert {row.got.low for row in rows if row.what == "answered"} == {100}
