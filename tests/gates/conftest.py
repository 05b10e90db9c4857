"""Lists each gate with its result and time at the end, above pytest's own closing line."""

from __future__ import annotations

import pytest

_LINES: list[str] = []


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> object:
    outcome = yield
    report = outcome.get_result()
    if report.when == "call" and item.nodeid.split("::")[0].endswith("gates/test_gates.py"):
        gate = item.name.partition("[")[2].rstrip("]")
        _LINES.append(f"{gate:<18} {report.outcome:<8} {call.duration:6.1f} s")
    return None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _LINES:
        terminalreporter.section("gates")
        for line in _LINES:
            terminalreporter.write_line(line)
