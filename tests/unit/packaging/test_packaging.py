"""The pure parts of `make package`: what is inside, how it is packed, what the self-test makes of what it sees."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from email.message import Message
from pathlib import Path
from types import SimpleNamespace

import pytest

import appliance
import bundle
import licences
import llama_wheel
import package
import setup_env
import windows_resources
from console import SetupError
from environment import Environment, pins
from traced_files import Opened, opened, outside, reached

posix_only = pytest.mark.skipif(os.name != "posix", reason="modes and shell scripts")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A frozen program in small: a script instead of the program."""
    place = tmp_path / "frozen"
    lib = place / "_internal" / "llama_cpp" / "lib"
    lib.mkdir(parents=True)
    for name in ("libllama.so", "libggml.so.0", "libggml-base.so.0", "libggml-cpu-sse42.so", "libggml-cpu-haswell.so"):
        (lib / name).write_bytes(b"\x7fELF\x00GLIBC_2.2.5\x00GLIBC_2.14\x00")
    (place / "office-chat").write_text('#!/bin/sh\necho "runs in $0 with $*"\n')
    (place / "office-chat").chmod(0o755)
    (place / "models").mkdir()
    (place / "models" / "big.gguf").write_bytes(b"GGUF" * 1000)
    return place


def test_the_version_is_said_in_one_way(project_root):
    project = tomllib.loads((project_root / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["project"]["version"] == appliance.__version__ == package.version_of(project_root)


def test_a_library_for_every_cpu_is_never_taken_for_one_of_this_cpu(project_root):
    folder = project_root / "packaging"
    assert llama_wheel.this_build_key("1", folder, any_cpu=True) != llama_wheel.this_build_key("1", folder)
    facts = ("1", "", "x86_64", ("glibc", "2.36"), {})
    keys = {
        llama_wheel.build_key(*facts, defines=defines)
        for defines in (llama_wheel.DEFINES, llama_wheel.ANY_CPU_DEFINES, (*llama_wheel.ANY_CPU_DEFINES, "X=1"))
    }
    assert len(keys) == 3


def test_the_owners_own_wheel_is_not_packaged(tmp_path, monkeypatch):
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    (tmp_path / "packaging").mkdir()
    (tmp_path / "packaging" / "llama.lock").write_text("llama-cpp-python==0.3.36\n")
    for name in llama_wheel.CMAKE_FILES:
        (tmp_path / "packaging" / name).write_text("")
    wheel = tmp_path / "llama_cpp_python-0.3.36-py3-none-linux_x86_64.whl"
    wheel.touch()
    assert setup_env.ready_llama_wheel(Environment(tmp_path, (tmp_path,))) == wheel
    assert setup_env.ready_llama_wheel(Environment(tmp_path, (tmp_path,), "x", any_cpu=True)) is None


def test_pins_of_another_system_are_not_asked_for():
    lock = "a==1 \\\n    --hash=sha256:00\nb==2 ; sys_platform == 'win32' \\\n    --hash=sha256:00\n"
    lock += f"c==3 ; sys_platform == '{sys.platform}'\n"
    assert pins(lock) == {"a": "1", "c": "3"}


def test_the_kernels_for_every_cpu_must_be_inside(folder):
    assert bundle.check_llama(folder) == ["libggml-cpu-haswell.so", "libggml-cpu-sse42.so"]
    (folder / "_internal" / "llama_cpp" / "lib" / "libggml-cpu-haswell.so").unlink()
    with pytest.raises(SetupError, match="missing the kernels for every CPU"):
        bundle.check_llama(folder)
    (folder / "_internal" / "llama_cpp" / "lib" / "libggml-base.so.0").unlink()
    with pytest.raises(SetupError, match="missing ggml-base;"):
        bundle.check_llama(folder)


def test_models_do_not_count_towards_the_limit(folder, monkeypatch):
    assert bundle.check_size(folder) < 1000
    monkeypatch.setattr(bundle, "MAX_BYTES", 10)
    with pytest.raises(SetupError, match=r"at most 0 are allowed. Largest: office-chat|_internal"):
        bundle.check_size(folder)


def test_the_highest_version_of_the_c_library_is_found_as_a_number(folder):
    (folder / "_internal" / "new.so").write_bytes(b"\x7fELF\x00GLIBC_2.9\x00GLIBC_2.34\x00GLIBC_PRIVATE\x00")
    (folder / "_internal" / "text").write_bytes(b"\x00GLIBC_2.99\x00")
    assert bundle.highest_glibc(folder) == ("2.34", "_internal/new.so")


def test_a_program_that_debian_12_could_not_run_is_refused(folder):
    bundle.check_glibc(folder)
    (folder / "_internal" / "new.so").write_bytes(b"\x7fELF\x00GLIBC_2.38\x00")
    with pytest.raises(SetupError, match=r"_internal/new\.so asks for glibc 2\.38, and Debian 12 has 2\.36"):
        bundle.check_glibc(folder)


@pytest.mark.skipif(shutil.which("cc") is None or sys.platform != "linux", reason="needs a compiler that makes ELF")
def test_folders_of_the_build_machine_are_forgotten(folder, tmp_path):
    library = folder / "_internal" / "libpython3.11.so.1.0"
    source = tmp_path / "x.c"
    source.write_text("int x;")
    subprocess.run(["cc", "-shared", "-Wl,-rpath,/home/builder/lib", "-o", library, source], check=True)
    assert bundle.search_paths(library.read_bytes()) == ["/home/builder/lib"]
    bundle.forget_build_machine(folder)
    assert bundle.search_paths(library.read_bytes()) == ["$ORIGIN"]
    assert b"/home/builder" not in library.read_bytes()


@posix_only
def test_a_zip_keeps_modes_and_is_the_same_every_time(folder, tmp_path):
    model = folder / "models" / "big.gguf"
    for name in ("a", "b"):
        bundle.write_zip(folder, tmp_path / name)
        bundle.write_zip_with(tmp_path / name, tmp_path / f"{name}.zip", [(model, "models/starter.gguf")])
        os.utime(model, (1, 1))
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()
    there = bundle.unpack(tmp_path / "a.zip", tmp_path / "办公 there")
    assert os.access(there / "office-chat", os.X_OK)
    assert not os.access(there / "models" / "starter.gguf", os.X_OK)
    assert (there / "models" / "starter.gguf").read_bytes() == model.read_bytes()


def test_sums_are_as_sha256sum_reads_them(tmp_path):
    (tmp_path / "a b.zip").write_bytes(b"x")
    bundle.write_sums([tmp_path / "a b.zip"], tmp_path / "SHA256SUMS")
    digest = "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"
    assert (tmp_path / "SHA256SUMS").read_text() == f"{digest}  a b.zip\n"


@pytest.fixture
def one_file(folder, tmp_path, project_root) -> Path:
    path = tmp_path / "office chat.run"
    bundle.write_one_file(project_root / "packaging" / "one_file.sh", folder, path)
    return path


def run_one_file(path: Path, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run([path, "--port", "1 2"], env=env, capture_output=True, text=True, timeout=60)


@posix_only
def test_one_file_unpacks_once_and_again_what_is_missing(one_file, tmp_path):
    home = tmp_path / "家　a & b"
    home.mkdir()
    first = run_one_file(one_file, {"HOME": str(home)})
    (place,) = (home / ".local" / "share" / "office-chat-program").iterdir()
    assert first.stdout == f"runs in {place}/office-chat with --port 1 2\n"
    assert "unpacking" in first.stderr
    assert run_one_file(one_file, {"HOME": str(home)}).stderr == ""
    (place / "models" / "own.gguf").touch()  # what people put there does not stand in for what is missing
    (place / "models" / "big.gguf").unlink()
    assert "unpacking" in run_one_file(one_file, {"HOME": str(home)}).stderr
    assert (place / "models" / "big.gguf").exists()
    assert list(place.parent.iterdir()) == [place]


@posix_only
def test_one_file_that_is_cut_off_says_so_and_leaves_nothing(one_file, tmp_path):
    whole = one_file.read_bytes()
    one_file.write_bytes(whole[: len(whole) - 300])
    done = run_one_file(one_file, {"XDG_DATA_HOME": str(tmp_path / "share")})
    assert done.returncode == 1
    assert "is not whole" in done.stderr
    assert list((tmp_path / "share" / "office-chat-program").iterdir()) == []


@posix_only
def test_one_file_says_why_where_nothing_may_run(one_file, tmp_path):
    share = tmp_path / "share"
    share.mkdir()
    mounted = f'mount -t tmpfs -o noexec tmpfs "{share}"'
    command = ["unshare", "--mount", "sh", "-c", f'{mounted} && exec "$@"', "sh"]
    if shutil.which("unshare") is None or subprocess.run([*command, "true"], capture_output=True).returncode:
        pytest.skip("only root may mount, and not on every machine")
    done = subprocess.run([*command, one_file], env={"XDG_DATA_HOME": str(share)}, capture_output=True, text=True)
    assert done.returncode == 1
    assert "programs may not run in" in done.stderr
    assert "XDG_DATA_HOME" in done.stderr


def distribution(**fields: str) -> SimpleNamespace:
    metadata = Message()
    for name, value in fields.items():
        metadata[name.replace("_", "-")] = value
    return SimpleNamespace(metadata=metadata)


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"License_Expression": "MIT", "License": "other"}, "MIT"),
        ({"License": "BSD"}, "BSD"),
        ({"License": "Copyright\nline\nline", "Classifier": "License :: OSI Approved :: MIT License"}, "MIT License"),
        ({"Classifier": "Programming Language :: Python"}, ""),
    ],
)
def test_a_licence_is_named_as_the_package_names_it(fields, name):
    assert licences.licence_name(distribution(**fields)) == name


def put_distribution(site: Path, name: str, licence: str, files: dict[str, str]) -> None:
    info = site / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    texts = {f"{name}/__init__.py": "", f"{info.name}/METADATA": f"Name: {name}\nVersion: 1.0\n{licence}", **files}
    for path, text in texts.items():
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_text(text)
    (info / "RECORD").write_text("".join(f"{path},,\n" for path in texts))


def test_licences_of_what_is_inside_and_of_nothing_else(tmp_path, project_root):
    site = tmp_path / "site"
    put_distribution(site, "used", "License-Expression: MIT\n", {"used-1.0.dist-info/licenses/LICENSE": "the text"})
    put_distribution(site, "unused", "License-Expression: MIT\n", {})
    texts = project_root / "packaging" / "licence_texts"
    parts = licences.write(tmp_path / "out", site, [site / "used" / "__init__.py"], texts)
    assert [part.name for part in parts] == ["llama.cpp", "python", "used"]
    assert (tmp_path / "out" / "used" / "LICENSE.txt").read_text() == "the text"
    assert "MIT" in (tmp_path / "out" / "llama.cpp" / "llama.cpp.txt").read_text()
    assert "used" in (tmp_path / "out" / "README.txt").read_text()


def test_something_without_a_licence_stops_the_packaging(tmp_path, project_root):
    site = tmp_path / "site"
    put_distribution(site, "odd", "", {})
    with pytest.raises(SetupError, match=r"odd 1\.0 names no licence"):
        licences.write(
            tmp_path / "out", site, [site / "odd" / "__init__.py"], project_root / "packaging" / "licence_texts"
        )


def test_what_the_spec_collected_is_read_back(tmp_path):
    (tmp_path / "collected.json").write_text(json.dumps(["/a/b.py"]))
    assert licences.read_collected(tmp_path / "collected.json") == [Path("/a/b.py")]


TRACE = [
    r'12 openat(AT_FDCWD, "/p/\345\212\236 \"x\"/a.so", O_RDONLY|O_CLOEXEC) = 3',
    r'12 openat(AT_FDCWD, "/home/x/.config/y", O_RDONLY|O_CLOEXEC) = -1 ENOENT (No such file or directory)',
    r'12 open("/tmp/z", O_WRONLY|O_CREAT, 0600) = 4',
    r'12 openat(AT_FDCWD, "/etc/passwd", O_RDONLY) = 5',
    r'12 openat(AT_FDCWD, "/etc/passwd", O_RDWR) = -1 EACCES (Permission denied)',
    r'12 openat(AT_FDCWD, "/dev/null", O_RDWR) = 5',
    r'13 execve("/p/office-chat", ["x"], 0x7 /* 3 vars */) = 0',
    r'13 connect(7, {sa_family=AF_INET, sin_port=htons(1), sin_addr=inet_addr("127.0.0.1")}, 16) = 0',
    r'13 connect(7, {sa_family=AF_INET, sin_port=htons(9), sin_addr=inet_addr("192.0.2.1")}, 16) = 0',
    r'13 connect(7, {sa_family=AF_UNIX, sun_path="/x"}, 110) = -1 ENOENT (No such file or directory)',
    r'13 connect(7, {sa_family=AF_INET, sin_port=htons(53), sin_addr=inet_addr("10.0.0.1")}, 16) = 0',
]


def test_a_trace_tells_whose_files_were_opened():
    found = list(opened(TRACE))
    assert found[0] == Opened('/p/办 "x"/a.so', writes=False, worked=True)
    assert outside(found, [Path("/p")]) == [
        Opened("/home/x/.config/y", writes=False, worked=False),
        Opened("/tmp/z", writes=True, worked=True),
        Opened("/etc/passwd", writes=True, worked=False),
    ]
    assert outside([Opened("/pp/x", writes=False, worked=True)], [Path("/p")]) != [], "/pp is not below /p"


def test_a_trace_tells_who_was_called():
    assert len(reached(TRACE)) == 1
    assert "10.0.0.1" in reached(TRACE)[0]


def test_the_version_resource_has_four_numbers():
    text = windows_resources.version_text("1.2.3")
    assert "filevers=(1, 2, 3, 0)" in text
    compile(text, "version.txt", "eval")


def test_the_spec_is_python_and_leaves_the_compressor_out(project_root):
    spec = (project_root / "packaging" / "office_chat.spec").read_text(encoding="utf-8")
    compile(spec, "office_chat.spec", "exec")
    assert spec.count("upx=False") == spec.count("EXE(") + spec.count("COLLECT(")


def test_the_first_thing_the_frozen_program_does_is_to_let_its_children_go(project_root):
    lines = (project_root / "packaging" / "frozen_entry.py").read_text(encoding="utf-8").split('"""')[2].split()
    assert lines[:3] == ["import", "multiprocessing", "multiprocessing.freeze_support()"]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_finds_nothing_wrong_with_the_service(project_root, tmp_path):
    text = (project_root / "packaging" / "office-chat.service").read_text(encoding="utf-8")
    unit = tmp_path / "office-chat.service"
    unit.write_text(text.replace("/usr/local/lib/office-chat/office-chat", "/bin/true"))
    done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
