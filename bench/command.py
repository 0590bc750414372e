"""What every measurement has in common: its options, and what becomes of what it found."""

from __future__ import annotations

import argparse
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from appliance.engine.cpu import physical_cores
from appliance.models.catalogue import starter_model
from bench.results import RESULTS, Findings, Result, cores_in_use, describe_machine, newest, now
from bench.shape import TYPES, default_cache, shape_file
from bench.table import for_terminal

QUIET_LOAD = 0.7
STARTER = "starter"


@dataclass(frozen=True)
class Bench:
    """What a measurement is given."""

    model: Path
    seed: int
    n_repeats: int
    n_threads: int
    program: Path | None
    """The packaged program that is measured instead of app.py."""
    options: argparse.Namespace
    """The measurement's own."""


class Measurement(Protocol):
    """A module of this package that measures something."""

    NAME: str
    HELP: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Its own options, and its defaults for the common ones."""

    def run(self, bench: Bench) -> Findings:
        """Measure."""


def add_common_arguments(parser: argparse.ArgumentParser) -> None:
    """The options every measurement has."""
    parser.add_argument(
        "--model",
        default="q4_0",
        help=f"{', '.join(TYPES)}: the Qwen shape; {STARTER}; or a GGUF file (default: %(default)s)",
    )
    parser.add_argument("--cache", type=Path, default=default_cache(), help="folder for the files of the Qwen shape")
    parser.add_argument("--repeats", type=int, default=3, help="interleaved repeats (default: %(default)s)")
    parser.add_argument("--seed", type=int, help="of the questions; fresh ones without it")
    parser.add_argument("--threads", type=int, default=0, help="of the engine; 0: the physical cores")
    parser.add_argument("--more", action="store_true", help="add the repeats to those of the newest run like this one")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder for the JSON file")


def add_program_argument(parser: argparse.ArgumentParser, needed: bool = False) -> None:
    """For a measurement that can be made of the packaged program too."""
    parser.add_argument(
        "--program", type=Path, metavar="FILE", required=needed, help="the packaged program's file, instead of app.py"
    )


def program_file(options: argparse.Namespace) -> Path | None:
    """What `--program` names; None without it."""
    named: Path | None = getattr(options, "program", None)
    if named is not None and not named.is_file():
        raise SystemExit(f"--program {named}: there is no such file")
    return named and named.absolute()


def measure(measurement: Measurement, options: argparse.Namespace, command: str) -> Result:
    """Run it, keep and show what it found."""
    began, load_before = now(), cores_in_use()
    if load_before > QUIET_LOAD:
        print(f"{load_before:.1f} cores are in use: something else is at work here, read no figure of this run.")
    bench = Bench(
        model=model_file(options.model, options.cache),
        seed=secrets.randbelow(2**31) if options.seed is None else options.seed,
        n_repeats=options.repeats,
        n_threads=options.threads or physical_cores(),
        program=program_file(options),
        options=options,
    )
    findings = measurement.run(bench)
    part = "packaged" if bench.program else ""
    result = Result(
        name="-".join(filter(None, [measurement.NAME, part, findings.part, bench.model.stem])),
        title=measurement.HELP,
        command=command,
        began=began,
        model=bench.model.name,
        seed=bench.seed,
        n_repeats=bench.n_repeats,
        load_before=load_before,
        machine=describe_machine(),
        rows=findings.rows,
        notes=findings.notes,
    )
    if options.more and (earlier := newest(options.results).get(result.name)) is not None:
        result = earlier.with_more(result)
    path = result.write(options.results)
    print(f"\n{result.title} [{bench.model.name}, {result.n_repeats} repeats, seed {bench.seed}]\n")
    print(for_terminal(result.rows))
    print("".join(f"\n{note}" for note in result.notes))
    print(f"\nMedian (lowest-highest). Kept in {path.name}; again: {result.again}")
    return result


def model_file(named: str, cache: Path) -> Path:
    """The file that `--model` or the like names, written first if it is one of TYPES."""
    if named == STARTER:
        return starter_model()
    if named in TYPES:
        return shape_file(named, cache)
    path = Path(named).expanduser()
    if not path.is_file():
        raise SystemExit(f"--model {named}: neither one of {', '.join((*TYPES, STARTER))} nor a file")
    return path.absolute()
