"""What a measurement found, and the JSON files it is kept in."""

from __future__ import annotations

import json
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

from bench.stats import Spread, Target

RESULTS = Path(__file__).resolve().parent / "results"
_LOOK_S = 1.0
_PACKAGES = ("llama-cpp-python", "gradio", "numpy", "uvicorn")
_ABOUT_RESULTS = (
    "# Results\n\nWritten by `python -m bench`, one JSON file a run, and read by `python -m bench report`.\n"
    "They belong to the machine they were measured on and are not kept in the repository.\n"
)


@dataclass(frozen=True)
class Row:
    """One figure, and what it is compared with. The target is the ratio's where there is one, else the figure's."""

    what: str
    unit: str
    got: Spread
    against: str = ""
    base: Spread | None = None
    ratio: Spread | None = None
    target: Target | None = None

    @classmethod
    def figure(cls, what: str, unit: str, values: Sequence[float], target: Target | None = None) -> Row:
        """One value a repeat, compared with nothing but its target."""
        return cls(what, unit, Spread.of(values), target=target)

    @classmethod
    def compared(
        cls,
        what: str,
        unit: str,
        ours: Sequence[float],
        against: str,
        theirs: Sequence[float],
        target: Target | None = None,
    ) -> Row:
        """One pair of values a repeat."""
        ratio = Spread.of_ratios(ours, theirs)
        return cls(what, unit, Spread.of(ours), against, Spread.of(theirs), ratio, target)

    def with_more(self, later: Row) -> Row:
        """The same row with the repeats of a later run. Raises ValueError for another row."""
        if (self.what, self.against) != (later.what, later.against):
            raise ValueError(f"{later.what} is no repeat of {self.what}")

        def joined(one: Spread | None, more: Spread | None) -> Spread | None:
            return Spread.of((*one.values, *more.values)) if one and more else None

        got = Spread.of((*self.got.values, *later.got.values))
        return replace(later, got=got, base=joined(self.base, later.base), ratio=joined(self.ratio, later.ratio))

    @property
    def is_met(self) -> bool | None:
        """Whether the median reached the target; None without one."""
        return None if self.target is None else self.target.is_met((self.ratio or self.got).median)


@dataclass(frozen=True)
class Findings:
    """What a measurement hands over. `part` tells the parts of one command apart."""

    rows: tuple[Row, ...]
    part: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Result:
    """A run of one command, as it is kept."""

    name: str
    title: str
    command: str
    """What repeats it, apart from the seed and the number of repeats."""
    began: str
    """UTC, ISO 8601."""
    model: str
    seed: int
    n_repeats: int
    load_before: float
    """Cores in use just before the first repeat; over 0.7 something else was at work."""
    machine: dict[str, str]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()

    def write(self, folder: Path) -> Path:
        """Keep it; returns the file."""
        folder.mkdir(parents=True, exist_ok=True)
        about = folder / "README.md"
        if not about.exists():
            about.write_text(_ABOUT_RESULTS, encoding="utf-8")
        path = folder / f"{self.name}-{self.began.replace(':', '')}.json"
        path.write_text(json.dumps(asdict(self), ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
        return path

    def with_more(self, later: Result) -> Result:
        """Both runs as one: the same measurement, more repeats. Raises ValueError where they do not belong together."""
        if (self.command, self.machine) != (later.command, later.machine):
            raise ValueError("repeats of another command or another machine")
        rows = tuple(one.with_more(more) for one, more in zip(self.rows, later.rows, strict=True))
        return replace(
            later,
            n_repeats=self.n_repeats + later.n_repeats,
            load_before=max(self.load_before, later.load_before),
            rows=rows,
        )

    @property
    def again(self) -> str:
        """The command with as many repeats."""
        return f"{self.command} --repeats {self.n_repeats}"

    @classmethod
    def read(cls, path: Path) -> Result:
        """What `write` kept."""
        data = json.loads(path.read_text(encoding="utf-8"))
        data["rows"] = tuple(_row(row) for row in data["rows"])
        data["notes"] = tuple(data["notes"])
        return cls(**data)


def newest(folder: Path) -> dict[str, Result]:
    """The newest result of every name."""
    found: dict[str, Result] = {}
    for path in folder.glob("*.json"):
        result = Result.read(path)
        if result.name not in found or found[result.name].began < result.began:
            found[result.name] = result
    return found


def now() -> str:
    """The present time as `Result.began`."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def describe_machine() -> dict[str, str]:
    """What the figures depend on."""
    cores = f"{psutil.cpu_count(logical=False)} cores, {psutil.cpu_count()} threads"
    memory = f"{psutil.virtual_memory().total / 2**30:.0f} GB"
    system = f"{platform.system()} {platform.release()}, Python {platform.python_version()}"
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in _PACKAGES)
    return {"cpu": cpu_name(), "cores": cores, "memory": memory, "system": system, "versions": versions}


def cores_in_use() -> float:
    """Cores that are at work at the moment, whoever uses them; takes a second."""
    return float(psutil.cpu_percent(_LOOK_S)) / 100 * (psutil.cpu_count() or 1)


def cpu_name() -> str:
    if Path("/proc/cpuinfo").is_file():
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _row(data: dict[str, Any]) -> Row:
    spreads = {key: _spread(data[key]) if data[key] else None for key in ("base", "ratio")}
    target = Target(**data["target"]) if data["target"] else None
    return Row(data["what"], data["unit"], _spread(data["got"]), data["against"], **spreads, target=target)


def _spread(data: dict[str, Any]) -> Spread:
    return Spread(**{**data, "values": tuple(data.get("values", ()))})
