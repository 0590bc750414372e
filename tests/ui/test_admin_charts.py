"""The charts are SVG that holds what was measured, gaps included, and nothing else."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from ui.admin.charts import Line, chart_html


def svg(times_s: list[float], *lines: Line) -> ElementTree.Element:
    figure = ElementTree.fromstring(chart_html("Speed <x>", times_s, lines, "now"))  # noqa: S314 -- our own
    found = figure.find("svg")
    assert found is not None
    return found


def paths(picture: ElementTree.Element) -> list[str]:
    return [path.attrib["d"] for path in picture.iter("path")]


def test_a_line_goes_from_the_first_to_the_last_value():
    (path,) = paths(svg([0, 10, 20], Line("", [0, 5, 10])))
    assert path == "M38.0 130.0h.1L256.0 69.0L474.0 8.0"


def test_where_nothing_was_measured_there_is_a_gap():
    (path,) = paths(svg([0, 10, 20, 30], Line("half", [1, None, 1, 1])))
    assert path.count("M") == 2


@pytest.mark.parametrize("values", [[0.0], [None], [0, 0], [1e-9, 1e12], [3, 3]])
def test_any_values_make_a_picture(values):
    picture = svg([float(i) for i in range(len(values))], Line("<a>", values))
    assert "nan" not in ElementTree.tostring(picture, encoding="unicode")
    assert "<a>" in picture.attrib["aria-label"]


def test_the_scale_is_round():
    texts = [text.text for text in svg([0, 1], Line("", [0, 37])).iter("text")]
    assert texts[:3] == ["0", "25", "50"]
