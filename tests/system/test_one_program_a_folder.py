"""A second start, a closed terminal, a data folder of another version: what the program does about each."""

from __future__ import annotations

import signal

import pytest

from tests.system.program import command, is_alive


def test_a_second_start_says_where_the_first_is_and_leaves_it_alone(start):
    first = start().wait_ready()
    second = start()
    assert second.process.wait(60) == 0
    text = second.output()
    assert f"already running: {first.url}" in text
    assert f"已在运行：{first.url}" in text
    assert first.status("/ready") == 200
    assert "ERROR" not in first.log()
    assert "--data-dir" not in command(first.data_dir, "list-keys"), "the owner's commands work beside it"


def test_after_a_kill_the_next_start_is_a_first_one(start):
    first = start().wait_ready()
    first.process.kill()
    first.process.wait(10)
    assert start(port=first.port).wait_ready().url == first.url


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="no such signal here")
def test_a_closed_terminal_is_a_drain(start):
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup a program inherits that it is deaf to it
    try:
        program = start().wait_ready()
    finally:
        signal.signal(signal.SIGHUP, before)
    engine = program.engine_pid()
    program.process.send_signal(signal.SIGHUP)
    assert program.process.wait(15) == 0
    assert not is_alive(engine)
    assert "ERROR" not in program.log()


def test_the_window_says_how_to_stop_it(start):
    program = start().wait_ready()
    program.terminate()
    text = program.output()
    assert "To stop: press Ctrl-C" in text
    assert "停止：" in text


def test_a_data_folder_of_a_newer_program_is_refused(start, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "schema").write_text("99\n")
    program = start()
    assert program.process.wait(60) == 1
    text = program.output()
    assert "was written by a newer version of Office Chat" in text
    assert "Traceback" not in text
    assert not (tmp_path / "data" / "secret.key").exists(), "nothing was written there"


def test_a_data_folder_without_a_number_gets_one(start, tmp_path):
    start().wait_ready().terminate()
    assert (tmp_path / "data" / "schema").read_text() == "1\n"
