"""What the owner finds after an error nobody expected, and what must not be in it."""

from __future__ import annotations

import subprocess
import sys

from appliance.operate.crash_report import write_report

SECRET = "what a colleague asked"


def crashed() -> Exception:
    try:
        try:
            raise KeyError(SECRET)
        except KeyError as error:
            raise ValueError(f"could not handle {SECRET}") from error
    except ValueError as error:
        return error


def test_it_names_class_place_and_computer_and_no_text(tmp_path):
    (tmp_path / "office-chat.log").write_text("\n".join(f"line {n}" for n in range(100)), encoding="utf-8")
    text = write_report(tmp_path, crashed()).read_text(encoding="utf-8")
    assert "error   ValueError at test_crash_report.py" in text
    assert "after   KeyError at test_crash_report.py" in text
    assert SECRET not in text
    assert "cpu     " in text
    assert "line 99" in text
    assert "line 0\n" not in text


def test_only_the_newest_five_are_kept(tmp_path):
    for second in range(7):
        (tmp_path / f"crash-20260101-00000{second}.txt").write_text("old")
    newest = write_report(tmp_path, crashed())
    kept = sorted(tmp_path.glob("crash-*"))
    assert len(kept) == 5
    assert kept[-1] == newest


def test_an_unexpected_error_of_the_program_leaves_one_and_says_so(tmp_path, project_root):
    code = (
        "import sys; from pathlib import Path\n"
        "from appliance.operate.crash_report import write_when_it_crashes\n"
        "write_when_it_crashes(Path(sys.argv[1]), lambda path: print('see', path.name))\n"
        f"raise LookupError({SECRET!r})\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, cwd=project_root, timeout=60
    )
    (report,) = tmp_path.glob("crash-*.txt")
    assert run.returncode == 1
    assert run.stdout == f"see {report.name}\n"
    assert "LookupError" in report.read_text(encoding="utf-8")
    assert SECRET not in report.read_text(encoding="utf-8") + run.stdout + run.stderr
