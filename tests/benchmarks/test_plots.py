"""The pictures of docs/benchmarks.md: those that are kept are those that the script draws, small, and sound SVG."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import plots
import pytest
from svg_charts import Axis, Curve, Group, grouped_bars, lines, parted_bars

LARGEST_BYTES = 40_000


@pytest.mark.parametrize("name", plots.PICTURES)
def test_a_kept_picture_is_the_one_that_the_script_draws(name: str) -> None:
    drawn = plots.PICTURES[name]()
    assert (plots.PLOTS / name).read_text(encoding="utf-8") == drawn, "run python tests/benchmarks/plots.py"
    assert len(drawn) < LARGEST_BYTES
    assert ElementTree.fromstring(drawn).tag.endswith("svg")


def test_no_other_picture_is_kept() -> None:
    assert {file.name for file in plots.PLOTS.iterdir()} == set(plots.PICTURES)


def test_a_bar_that_was_not_measured_is_left_out() -> None:
    chart = grouped_bars(
        "Rates", "<of what>", ("ours", "theirs"), [Group("a", (2.0, None)), Group("b & c", (1.0, 4.0))]
    )
    assert "&lt;of what&gt;" in chart
    assert "b &amp; c" in chart
    assert re.findall(r">(\d\.\d)<", chart) == ["2.0", "1.0", "4.0"]


def test_parts_fill_the_width_and_small_ones_have_no_words() -> None:
    chart = parted_bars("Load", "", ("gpu", "cpu"), [Group("a", (0.97, 0.03)), Group("b", (1.0, 0.0))])
    wide = [float(found) for found in re.findall(r'width="([\d.]+)" height="26"', chart)]
    assert wide[0] + wide[1] == pytest.approx(wide[2], abs=0.2)
    assert re.findall(r">(\d+ %)<", chart) == ["97 %", "100 %"]


def test_both_looks_are_in_a_chart() -> None:
    chart = lines("T", "", Axis("x", 1, []), Axis("y", 1, []), [Curve([(0, 0), (1, 1)], 0, "end", dots=True)])
    assert "prefers-color-scheme:dark" in chart
    assert chart.count("<circle") == 2
