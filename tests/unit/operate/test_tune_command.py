"""What the owner reads while a model is tuned and afterwards."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from appliance.operate.tune_command import progress_line, report
from appliance.tuning.tuner import Progress, Tuned
from appliance.tuning.verdict import Form, MeasuredSpeed, Quality, Row

SOURCE = Row(Form.SOURCE, 398_000_000, 3, MeasuredSpeed(100, 65, 30), Quality(0, 0, {"zh": 0, "en": 0}, 21.5, 1.0, 100))
FAST = Row(
    Form.IQ4_NL,
    431_000_000,
    3,
    MeasuredSpeed(185, 126, 68),
    Quality(0.04, 0.3, {"zh": 0.05, "en": 0.03}, 22.1, 0.9, 100),
)
FAILED = Row(Form.Q8_0, 0, problem="its process ended with code -4")
RESULT = Tuned(
    source=Path("qwen.gguf"),
    chosen=FAST,
    file=Path("/data/tuned/abc-IQ4_NL/qwen.gguf"),
    gain=1.93,
    rows=(SOURCE, FAST, FAILED),
    max_kl=0.1,
    cpu_name="Some CPU",
    n_threads=2,
    n_streams=16,
    took_s=140.2,
)


def test_a_line_of_progress_says_what_and_how_long():
    first = Progress("quantise", Form.Q4_0, 2, 21, None)
    assert progress_line(first) == "[2/21] writing the model as Q4_0"
    later = Progress("measure", Form.SOURCE, 6, 21, 94.6)
    assert progress_line(later) == "[6/21] measuring as it is, about 95 s left"


def test_the_report_shows_speed_and_loss_of_every_form():
    text = report(RESULT)
    assert "qwen.gguf on Some CPU, 2 threads, 140 s" in text
    (line,) = (line for line in text.splitlines() if line.startswith("IQ4_NL"))
    assert line.split()[1:] == ["431", "3", "126.0", "68.0", "185", "1.92", "0.050", "0.030", "0.300", "22.10", "90.0%"]
    assert "left out: its process ended with code -4" in text
    assert "Chosen: IQ4_NL, 1.93 times as fast, loses 0.050 nats of at most 0.1" in text
    assert str(RESULT.file.parent) in text


def test_the_report_says_when_nothing_changes():
    text = report(replace(RESULT, chosen=SOURCE, file=None, gain=1.0))
    assert "the model's own file stays in use" in text
    assert "Chosen" not in text
