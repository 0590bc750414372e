"""The bench end to end with the starter model, tiny: that it measures something, not how fast this machine is."""

from __future__ import annotations

import pytest

from bench.__main__ import main
from bench.results import newest

pytestmark = pytest.mark.timeout(300)


@pytest.mark.parametrize(
    "arguments",
    [
        ["streams", "--streams", "1", "2", "--tokens", "4"],
        ["reuse", "--users", "2", "--slots", "2", "--tokens", "4"],
    ],
)
def test_a_tiny_run_leaves_a_result_and_a_page(tmp_path, capsys, arguments):
    results = tmp_path / "results"
    assert main([*arguments, "--model", "starter", "--repeats", "1", "--results", str(results)]) == 0
    assert "Kept in" in capsys.readouterr().out
    (result,) = newest(results).values()
    assert all(row.ratio.median > 0 for row in result.rows if row.ratio is not None)
    assert main(["report", "--results", str(results), "--target", str(tmp_path / "performance.md")]) == 0
    assert result.command in (tmp_path / "performance.md").read_text(encoding="utf-8")
