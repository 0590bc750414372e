"""What was measured of each form of a model, and which of them is to be used."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from enum import StrEnum

import numpy as np

from appliance.engine.config import USUAL_ANSWER_TOKENS, USUAL_PROMPT_TOKENS
from appliance.tuning.measure import Measurement

LANGUAGES = ("zh", "en")
"""Of the texts, in the order the measurements number them."""

_MIN_GAIN = 1.05
"""Less is not worth a second file."""
_TIE = 0.97
"""As fast as the fastest, as far as measurements here can tell: then the better quality counts."""
_HOPELESS_GAIN = 0.9
_HOPELESS_RATIO = 0.75
"""Of the gain of one whose quality is certain to do: whoever has less gets no other pass."""
_MIN_RUNS = 2
_CERTAIN_LOSS, _HOPELESS_LOSS = 0.7, 2.0
"""Of the bound: a pass that is through the bound by less may still turn out to be inside, and the other way round."""


class Form(StrEnum):
    """How a model file may be written."""

    SOURCE = "source"
    """The owner's file itself."""
    HEAD = "as-is+IQ4_NL-head"
    """The file as it is, with an output head of its own."""
    Q4_0 = "Q4_0"
    IQ4_NL = "IQ4_NL"
    Q8_0 = "Q8_0"


@dataclass(frozen=True)
class MeasuredSpeed:
    """Tokens a second, medians."""

    prefill: float
    many: float
    """All streams together."""
    one: float

    @property
    def answer_s(self) -> float:
        """Engine seconds for a usual answer when every stream is at work."""
        return USUAL_PROMPT_TOKENS / self.prefill + USUAL_ANSWER_TOKENS / self.many


@dataclass(frozen=True)
class Quality:
    """Against the source file, over the bundled texts. KL in nats."""

    kl: float
    kl_p99: float
    kl_by_language: dict[str, float]
    perplexity: float
    agreement: float
    """Share of tokens where both find the same one likeliest."""
    n_tokens: int

    @property
    def worst_kl(self) -> float:
        """The mean of the language that suffers more: what the owner's bound is compared with."""
        return max(self.kl_by_language.values())


@dataclass(frozen=True)
class Row:
    """One form. Without speed and quality when it could not be made or run: then `problem` says why."""

    form: Form
    size_bytes: int
    n_runs: int = 0
    speed: MeasuredSpeed | None = None
    quality: Quality | None = None
    best_answer_s: float = 0.0
    """`Speed.answer_s` of the quickest pass."""
    problem: str = ""


def summarise(form: Form, size_bytes: int, runs: Sequence[Measurement]) -> Row:
    """The passes over one file together."""
    kl = np.concatenate([run.divergence for run in runs])
    text = np.concatenate([run.text for run in runs])
    surprise = np.concatenate([run.surprise for run in runs])
    by_language = {name: kl[text == number] for number, name in enumerate(LANGUAGES)}
    quality = Quality(
        kl=float(kl.mean()),
        kl_p99=float(np.quantile(kl, 0.99)),
        kl_by_language={name: float(part.mean()) for name, part in by_language.items() if part.size},
        perplexity=float(np.exp(surprise.mean(dtype=np.float64))),
        agreement=float(np.concatenate([run.agrees for run in runs]).mean()),
        n_tokens=int(kl.size),
    )
    speeds = [MeasuredSpeed(run.prefill_per_s, run.many_per_s, run.one_per_s) for run in runs]
    median = MeasuredSpeed(*(float(np.median(column)) for column in zip(*map(astuple, speeds), strict=True)))
    return Row(form, size_bytes, len(runs), median, quality, min(speed.answer_s for speed in speeds))


def gain(row: Row, source: Row) -> float:
    """How many times as many answers in the same time."""
    assert row.speed is not None
    assert source.speed is not None
    return source.speed.answer_s / row.speed.answer_s


def choose(rows: Sequence[Row], max_kl: float) -> Row:
    """The fastest within the bound; of those that are as fast the best in quality; the source unless it gains."""
    source = next(row for row in rows if row.form is Form.SOURCE)
    able = [
        row
        for row in rows
        if row.speed and row.quality and row.quality.worst_kl <= max_kl and gain(row, source) >= _MIN_GAIN
    ]
    if not able:
        return source
    fastest = max(gain(row, source) for row in able)
    return min((row for row in able if gain(row, source) >= fastest * _TIE), key=_loss)


def contenders(rows: Sequence[Row], max_kl: float) -> set[Form]:
    """Those worth another pass: any that might be the one chosen in the end.

    Speeds are judged from the second pass on and by the best one: something else may have held up the other.
    """
    source = next(row for row in rows if row.form is Form.SOURCE)
    able = [row for row in rows if row.quality and row is not source and _loss(row) <= _HOPELESS_LOSS * max_kl]
    certain = [_best_gain(row, source) for row in able if _loss(row) <= _CERTAIN_LOSS * max_kl]
    least = max([_HOPELESS_GAIN, *(_HOPELESS_RATIO * best for best in certain)])
    return {row.form for row in able if row.n_runs < _MIN_RUNS or _best_gain(row, source) >= least}


def _best_gain(row: Row, source: Row) -> float:
    return source.best_answer_s / row.best_answer_s


def _loss(row: Row) -> float:
    assert row.quality is not None
    return row.quality.worst_kl
