"""A pytest plugin that adds each test's result to the file HEARTH_TEST_RESULTS at once, and runs no test that has one.

A process that ends early thus loses none, and the next one goes on after the test that ended it. A line is JSON:
the test, its outcome, the reason for a skip. `FILE::` is "ended" after the last test of a file.
"""

from __future__ import annotations

import os
from json import dumps, loads  # tests replace json's own
from pathlib import Path

import pytest

KEPT = Path(os.environ["HEARTH_TEST_RESULTS"])


def _add(test: str, outcome: str, reason: str = "") -> None:
    with KEPT.open("a", encoding="utf-8") as file:
        file.write(dumps([test, outcome, reason]) + "\n")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    known = {loads(line)[0] for line in KEPT.read_text(encoding="utf-8").splitlines()}
    items[:] = [item for item in items if item.nodeid not in known]


def pytest_runtest_logstart(nodeid: str) -> None:
    _add(nodeid, "stopped")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" or not report.passed:
        pytest_collectreport(report)


def pytest_collectreport(report: pytest.TestReport | pytest.CollectReport) -> None:
    if isinstance(report, pytest.TestReport) or not report.passed:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else ""
        _add(report.nodeid, report.outcome, reason.removeprefix("Skipped: "))


def pytest_sessionfinish(session: pytest.Session) -> None:
    for file in session.config.args:
        _add(f"{file}::", "ended")
