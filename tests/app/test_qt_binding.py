"""The pin of PySide6: 6.12.0 on Python 3.11 loses one reference to None a call and then aborts the process."""

from __future__ import annotations

import sys

from PySide6.QtCore import QObject, qVersion


def test_a_void_qt_call_keeps_none_alive() -> None:
    thing = QObject()
    before = sys.getrefcount(None)
    for _ in range(1000):
        thing.setObjectName("a")
    assert sys.getrefcount(None) > before - 100


def test_qt_and_its_binding_are_the_pinned_ones() -> None:
    import PySide6
    import shiboken6

    assert PySide6.__version__ == shiboken6.__version__
    assert qVersion() == PySide6.__version__
    assert PySide6.__version_info__[:2] < (6, 12), "lift the pin only after running this file on Python 3.11"
