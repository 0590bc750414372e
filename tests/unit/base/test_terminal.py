"""Standard streams that are closed, full or gone do not end the program."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from appliance.base import terminal

pytestmark = pytest.mark.skipif(os.name != "posix", reason="file descriptors")


def run(code: str, command: str = 'exec "$@"', **more: object) -> subprocess.CompletedProcess[str]:
    """A Python that settles first, started by a shell that may close streams."""
    script = f"from appliance.base import terminal; terminal.settle()\n{code}"
    words = ["/bin/sh", "-c", command, "sh", sys.executable, "-c", script]
    return subprocess.run(words, capture_output=True, text=True, encoding="utf-8", timeout=60, **more)


def test_a_socket_never_gets_the_number_of_a_closed_stream(tmp_path):
    code = f"import socket, pathlib; pathlib.Path({str(tmp_path / 'n')!r}).write_text(str(socket.socket().fileno()))"
    done = run(code, 'exec "$@" <&- >&- 2>&-')
    assert done.returncode == 0
    assert int((tmp_path / "n").read_text()) > 2


def test_with_closed_streams_saying_something_is_no_error_and_children_get_open_ones():
    code = (
        "import subprocess, sys; terminal.say('x'); terminal.say('y', to_errors=True); print('z')\n"
        "sys.exit(subprocess.run(['/bin/sh', '-c', 'echo x && echo y >&2']).returncode)"
    )
    assert run(code, 'exec "$@" >&- 2>&-').returncode == 0


def test_a_reader_who_left_does_not_end_the_program():
    code = "import time\nfor n in range(300): terminal.say('line ' * 100)\nterminal.say('end', to_errors=True)"
    done = run(code, '"$@" | head -1')
    assert done.stdout.startswith("line")
    assert done.stderr == "end\n"


def test_what_the_console_cannot_show_becomes_a_question_mark():
    done = run("terminal.say('数据 data')", env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert (done.returncode, done.stdout) == (0, "?? data\n")


def test_a_closed_terminal_ends_the_program_but_not_under_nohup():
    code = "print(signal.SIGHUP in terminal.ending_signals())"
    heard = "signal.signal(signal.SIGHUP, signal.SIG_DFL)"  # these tests may themselves run under nohup
    assert run(f"import signal; {heard}; {code}").stdout == "True\n"
    assert run(f"import signal; {code}", 'trap "" HUP; exec "$@"').stdout == "False\n"


def test_sigterm_is_always_an_end():
    assert signal.SIGTERM in terminal.ending_signals()
