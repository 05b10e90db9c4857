"""Lists each gate with its result and time at the end, above pytest's own closing line."""

from __future__ import annotations

import pytest

_LINES: list[str] = []


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Asked where the reports are gathered, whichever process ran the test."""
    if report.when == "call" and report.nodeid.split("::")[0].endswith("gates/test_gates.py"):
        gate = report.nodeid.partition("[")[2].rstrip("]")
        _LINES.append(f"{gate:<18} {report.outcome:<8} {report.duration:6.1f} s")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _LINES:
        terminalreporter.section("gates")
        for line in _LINES:
            terminalreporter.write_line(line)
