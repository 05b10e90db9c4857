"""Opening maps a file and reads only its header: memory does not grow with the weights."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from engine.formats.gguf import open_gguf

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.mark.skipif(sys.platform == "win32", reason="a file there is only sparse when asked for by name")
def test_a_file_of_8_gb_is_opened_without_reading_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import opening

    figures = opening.measure(8, runs=1)
    assert figures["file_bytes"] > 8e9
    assert figures["on_disk_bytes"] < 32 << 20
    # The header and what becomes of it: 318,720 texts and 128,256 numbers, about 40 MB of Python's objects.
    assert figures["resident_growth_bytes"] < 100e6


@pytest.mark.skipif(sys.platform == "win32", reason="a file there is only sparse when asked for by name")
def test_a_view_is_where_the_table_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import opening

    path = tmp_path / "m.gguf"
    opening.write_sparse_model(path, 3 * 10**9)  # beyond 31 bits
    source = open_gguf(path)
    last = list(source.tensors.values())[-1]
    assert last.offset + last.n_bytes == path.stat().st_size
    with path.open("r+b") as file:
        file.seek(last.offset)
        file.write(b"\x01\x02")
    assert open_gguf(path).view(last.name)[:3].tolist() == [1, 2, 0]
