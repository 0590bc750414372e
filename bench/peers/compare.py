"""One command that compares: builds the peers, writes the files, measures all there is against them, writes it up."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from bench.report import PAGE
from bench.results import RESULTS
from bench.shape import default_cache

NAME = "compare"
HELP = "everything against the peers, then docs/performance.md; --quick: three minutes on the starter model"

TUNED: Final = "iq4_nl-head"
USUAL: Final = "q4_k_m"
PLAN: Final = (
    "decode",
    "step",
    *(f"against --users {n}" for n in (10, 20, 30)),
    *(f"against --users {n} --model {TUNED} --their-model {USUAL}" for n in (10, 20, 30)),
    "against --users 1 --each 4",
    "against --users 5 --each 2",
    *(f"against --users {n} --repeats 3" for n in (32, 40, 48)),
    "burst",
    "paste",
    f"page --repeats 5 --model {TUNED}",
    f"against --users 50 --tokens 24 --peers llama one-slot --model {TUNED} --their-model {USUAL}",
    "against --users 20 --peers example-server",
    f"success --repeats 5 --model {TUNED}",
    f"against --trace morning --users 16 --repeats 3 --model {TUNED}",
    "against --trace turns --users 8 --each 6 --tokens 24 --repeats 3 --model starter",
    f"against --trace paste --users 8 --each 2 --repeats 3 --model {TUNED}",
    f"against --trace repeated --users 20 --each 2 --repeats 3 --model {TUNED}",
    f"against --users 16 --protocol page --repeats 3 --model {TUNED}",
)
"""About an hour and a half on two cores, most of it the peers'."""
QUICK: Final = (
    "streams --streams 1 8 --tokens 16 --repeats 1",
    "step --streams 1 8 --steps 16 --repeats 1",
    "against --users 8 --tokens 12 --repeats 2 --slots 8 --peers llama one-slot",
    "against --trace repeated --users 6 --each 2 --tokens 8 --repeats 1 --slots 8 --peers llama",
    "against --trace turns --users 3 --each 3 --tokens 12 --repeats 1 --slots 8 --peers",
    "against --users 6 --tokens 12 --repeats 1 --slots 8 --protocol page --peers",
    "success --users 6 64 --tokens 6 --repeats 1",
)
"""Needs nothing compiled: what it compares with comes with the program. Under three minutes on two cores."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which of the two, and where things lie."""
    parser.add_argument("--quick", action="store_true", help="three minutes, starter model, no peer is compiled")
    parser.add_argument("--begin-at", type=int, default=1, metavar="N", help="go on at this measurement of the list")
    parser.add_argument("--cache", type=Path, default=default_cache(), help="folder for model files and archives")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder for the JSON files")
    parser.add_argument("--target", type=Path, default=PAGE, help="the page to write; not written by --quick")


def run(options: argparse.Namespace, main: Callable[[Sequence[str]], int]) -> None:
    """Run one measurement after another with `main`, the command line of this package."""
    plan = QUICK if options.quick else PLAN
    for at, line in list(enumerate(plan, 1))[options.begin_at - 1 :]:
        print(f"\n[{at}/{len(plan)}] python -m bench {line}", flush=True)
        words = shlex.split(line)
        model = ["--model", "starter"] if options.quick and "--model" not in words else []
        main([*words, *model, "--cache", str(options.cache), "--results", str(options.results)])
    if not options.quick:
        main(["report", "--results", str(options.results), "--target", str(options.target)])
