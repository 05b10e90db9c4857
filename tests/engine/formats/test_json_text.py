"""JSON files of strangers: bounded, whole, and never a device."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from engine.errors import ModelFormatError, ModelNotFoundError
from engine.formats.json_text import read_object

LIMITS = {"max_bytes": 1000, "max_values": 100}


def test_an_object_is_read(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_text('{"a": [1, 2], "b": NaN}')
    assert read_object(file, **LIMITS)["a"] == [1, 2]
    with pytest.raises(ModelFormatError, match="NaN is not a number"):
        read_object(file, **LIMITS, finite=True)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not JSON"), ("[]", "no JSON object"), ('{"a": 1, "a": 2}', "'a' appears twice"),
        (" " * 1001, "longer than"),
        ('{"a": [' + "1," * 101 + "1]}", "more than 100 values"), ('{"a": ' + "[" * 900 + "]" * 90, "not JSON"),
    ],
)  # fmt: skip
def test_what_is_no_sound_object_is_refused(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "a.json"
    file.write_text(text)
    with pytest.raises(ModelFormatError, match=words):
        read_object(file, **LIMITS)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "config.json")
    (tmp_path / "folder.json").mkdir()
    for name in ("config.json", "folder.json", "missing.json"):
        with pytest.raises(ModelNotFoundError, match=f"no {name}"):
            read_object(tmp_path / name, **LIMITS)
