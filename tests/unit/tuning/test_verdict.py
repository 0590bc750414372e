"""Which form is used, from what was measured."""

from __future__ import annotations

import numpy as np
import pytest

from appliance.tuning.measure import Measurement
from appliance.tuning.verdict import Form, MeasuredSpeed, Quality, Row, choose, contenders, gain, summarise


def row(form: Form, times_as_fast: float = 1.0, zh: float = 0.0, en: float = 0.0, *, n_runs=2, best=0.0) -> Row:
    speed = MeasuredSpeed(prefill=100 * times_as_fast, many=80 * times_as_fast, one=30)
    quality = Quality((zh + en) / 2, 0.0, {"zh": zh, "en": en}, 10.0, 0.9, 100)
    return Row(form, 1000, n_runs, speed, quality, speed.answer_s * times_as_fast / (best or times_as_fast))


SOURCE = row(Form.SOURCE)


def test_the_fastest_within_the_bound_is_chosen():
    rows = [SOURCE, row(Form.Q4_0, 2.5, 0.2, 0.2), row(Form.IQ4_NL, 1.8, 0.05, 0.05), row(Form.Q8_0, 1.2)]
    assert choose(rows, max_kl=0.1).form is Form.IQ4_NL
    assert choose(rows, max_kl=0.3).form is Form.Q4_0
    assert choose(rows, max_kl=0.0).form is Form.Q8_0


def test_the_bound_counts_for_the_language_that_suffers_more():
    rows = [SOURCE, row(Form.Q4_0, 2.5, zh=0.15, en=0.01)]
    assert choose(rows, max_kl=0.1).form is Form.SOURCE


def test_of_two_as_fast_the_better_one_is_chosen():
    rows = [SOURCE, row(Form.Q4_0, 2.02, 0.09, 0.09), row(Form.IQ4_NL, 2.0, 0.04, 0.04)]
    assert choose(rows, max_kl=0.1).form is Form.IQ4_NL


def test_a_gain_that_measurements_cannot_tell_from_none_changes_nothing():
    assert choose([SOURCE, row(Form.Q8_0, 1.03)], max_kl=0.1).form is Form.SOURCE


def test_a_form_that_failed_is_never_chosen():
    rows = [SOURCE, Row(Form.Q4_0, 0, problem="its process ended with code -4")]
    assert choose(rows, max_kl=0.1).form is Form.SOURCE
    assert contenders(rows, max_kl=0.1) == set()


def test_a_gain_weighs_reading_and_writing():
    reads_faster = Row(Form.Q4_0, 1, 1, MeasuredSpeed(prefill=200, many=80, one=30), SOURCE.quality)
    writes_faster = Row(Form.Q4_0, 1, 1, MeasuredSpeed(prefill=100, many=160, one=30), SOURCE.quality)
    assert gain(SOURCE, SOURCE) == 1.0
    assert 1.0 < gain(reads_faster, SOURCE) < gain(writes_faster, SOURCE) < 2.0


def test_who_cannot_win_any_more_gets_no_other_pass():
    fast, slow = row(Form.Q4_0, 2.5, 0.05, 0.05), row(Form.Q8_0, 1.1)
    assert contenders([SOURCE, fast, slow], max_kl=0.1) == {Form.Q4_0}
    assert contenders([SOURCE, row(Form.Q4_0, 2.5, 0.3, 0.3), slow], max_kl=0.1) == {Form.Q8_0}
    assert contenders([SOURCE, row(Form.Q8_0, 0.8)], max_kl=0.1) == set()


def test_one_slow_pass_ends_nobody():
    fast = row(Form.Q4_0, 2.5, 0.05, 0.05)
    assert contenders([SOURCE, fast, row(Form.IQ4_NL, 0.8, n_runs=1)], max_kl=0.1) == {Form.Q4_0, Form.IQ4_NL}
    held_up_once = row(Form.IQ4_NL, 0.8, n_runs=2, best=2.4)
    assert contenders([SOURCE, fast, held_up_once], max_kl=0.1) == {Form.Q4_0, Form.IQ4_NL}
    assert contenders([SOURCE, fast, row(Form.IQ4_NL, 2.5, 0.5, 0.5, n_runs=1)], max_kl=0.1) == {Form.Q4_0}


def test_one_near_the_bound_does_not_end_the_others():
    near, slow = row(Form.Q4_0, 2.5, 0.095, 0.095), row(Form.IQ4_NL, 1.5, 0.02, 0.02)
    assert contenders([SOURCE, near, slow], max_kl=0.1) == {Form.Q4_0, Form.IQ4_NL}


def measurement(speed: float, divergence: list[float], text: list[int]) -> Measurement:
    n = len(divergence)
    return Measurement(
        prefill_per_s=speed,
        many_per_s=speed,
        one_per_s=speed,
        text=np.array(text, dtype=np.int8),
        surprise=np.full(n, np.log(8), dtype=np.float32),
        divergence=np.array(divergence, dtype=np.float32),
        agrees=np.array([True] * (n - 1) + [False]),
    )


def test_passes_are_put_together():
    runs = [
        measurement(10, [0.1, 0.3], [0, 1]),
        measurement(30, [0.1, 0.5], [0, 1]),
        measurement(20, [0.1, 0.4], [0, 1]),
    ]
    found = summarise(Form.Q4_0, 7, runs)
    assert found.speed == MeasuredSpeed(20, 20, 20)
    assert found.best_answer_s == MeasuredSpeed(30, 30, 30).answer_s
    assert found.quality is not None
    assert found.quality.kl_by_language == pytest.approx({"zh": 0.1, "en": 0.4})
    assert found.quality.worst_kl == pytest.approx(0.4)
    assert found.quality.kl == pytest.approx(0.25)
    assert found.quality.perplexity == pytest.approx(8)
    assert found.quality.agreement == 0.5
    assert found.quality.n_tokens == 6
