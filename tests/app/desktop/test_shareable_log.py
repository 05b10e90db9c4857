"""Which places in files a log that is shown to others names."""

from __future__ import annotations

import pytest

from app.desktop import shareable_log


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("engine/service/host.py", "engine/service/host.py"),
        ("app\\ui\\look\\theme.py", "app/ui/look/theme.py"),
        ("app/../../home/ann/x.py", shareable_log.LEFT_OUT),
        ("letters/ann.py", shareable_log.LEFT_OUT),
    ],
)
def test_files_of_the_built_program_are_named_as_it_names_them(path: str, shown: str) -> None:
    assert shareable_log.place(path) == shown
