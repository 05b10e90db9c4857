"""Making bundles: lossless where it can be, bounded in memory, resumable after any death, never over other files."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tracemalloc
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from samples.tiny_model import make_tiny_gguf, make_tiny_model
from support.systems import KILLED
from support.windows_files import refused_like_windows

from engine.bundle.bundle import open_bundle
from engine.commands import cli
from engine.conversion import convert as convert_module
from engine.conversion.convert import convert
from engine.errors import Cancelled, DiskSpaceError, InvalidRequestError, ModelFormatError, UnsupportedModelError
from engine.job import Job
from engine.model.weights import open_model

ROOT = Path(__file__).resolve().parents[3]


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def child(code: str, *argv: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-W", "error", "-c", code, *argv]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return make_tiny_model(tmp_path / "source", dtype="float16", tied=False)


# --- what is written


@pytest.mark.parametrize("codec", ["f16", "q8_0", "q4_0"])
@pytest.mark.parametrize(("d_model", "d_ff"), [(32, 64), (40, 72), (544, 96)])
def test_errors_are_recorded_and_true_for_widths_that_are_no_multiple_of_anything(
    tmp_path: Path, codec: str, d_model: int, d_ff: int
) -> None:
    path = make_tiny_model(tmp_path / "m", d_model=d_model, d_ff=d_ff, n_layers=1)
    made = convert(path, tmp_path / "b", codec)
    bundle, source = open_bundle(made.bundle), open_model(path).source
    names = {"0.down_t": "model.layers.0.mlp.down_proj.weight", "0.q": "model.layers.0.self_attn.q_proj.weight"}
    for ours, theirs in names.items():
        expected = source.read_f32(theirs).T if ours == "0.down_t" else source.read_f32(theirs)
        found = bundle.source.read_f32(ours)
        error = np.linalg.norm(found - expected) / np.linalg.norm(expected)
        assert bundle.manifest.tensors[ours].relative_error == pytest.approx(error, rel=1e-3)
        assert 0 < error < {"f16": 3e-4, "q8_0": 6e-3, "q4_0": 0.11}[codec]
    assert made.relative_errors == {name: entry.relative_error for name, entry in bundle.manifest.tensors.items()}
    np.testing.assert_array_equal(bundle.source.read_f32("final_norm"), source.read_f32("model.norm.weight"))


def test_small_pieces_give_the_same_bundle(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gguf = make_tiny_gguf(tmp_path / "m.gguf", d_ff=128)
    for path, codec in ((source, "q4_0"), (gguf, "q8_0"), (gguf, "q4_0")):
        whole = convert(path, tmp_path / f"whole-{path.name}-{codec}", codec).bundle
        with monkeypatch.context() as patch:
            patch.setattr(convert_module, "TILE_NUMBERS", 200)
            pieces = convert(path, tmp_path / f"pieces-{path.name}-{codec}", codec).bundle
        a, b = contents(whole), contents(pieces)
        assert {name: a[name] for name in a if name.endswith(".bin")} == {n: b[n] for n in b if n.endswith(".bin")}


def test_blocks_of_the_source_are_kept_and_a_down_across_neurons_is_not_squeezed_twice(tmp_path: Path) -> None:
    source = make_tiny_gguf(tmp_path / "m.gguf")
    same = open_bundle(convert(source, tmp_path / "q8", "q8_0").bundle).manifest
    assert same.tensors["0.gate"].relative_error == same.tensors["0.q"].relative_error == 0
    assert 0 < same.tensors["0.down_t"].relative_error < 6e-3
    assert same.warnings == ()
    made = convert(source, tmp_path / "q4", "q4_0")
    less = open_bundle(made.bundle).manifest
    codecs = {name: entry.codec for name, entry in less.tensors.items()}
    assert (codecs["0.gate"], codecs["1.up"], codecs["0.down_t"], codecs["0.ffn_norm"]) == (
        "q4_0", "q4_0", "q8_0", "f32",
    )  # fmt: skip
    assert len(made.warnings) == 1
    assert "2 down" in made.warnings[0]
    assert "q8_0" in made.warnings[0]
    assert (less.tensors["0.down_t"].source_codec, less.tensors["0.gate"].source_codec) == ("q8_0", "q8_0")


def test_a_bundle_can_be_converted_again(source: Path, tmp_path: Path) -> None:
    first = convert(source, tmp_path / "f16", "f16").bundle
    direct, detour = convert(source, tmp_path / "a", "q4_0").bundle, convert(first, tmp_path / "b", "q4_0").bundle
    a, b = contents(direct), contents(detour)
    weights = {name for name in a if name.endswith(".bin")}
    assert {name: a[name] for name in weights} == {name: b[name] for name in weights}
    again = convert(direct, tmp_path / "c", "q4_0")
    assert set(again.relative_errors.values()) == {0.0}


@pytest.mark.parametrize(("value", "error"), [(np.nan, ModelFormatError), (1e6, UnsupportedModelError)])
@pytest.mark.parametrize("codec", ["f16", "q4_0"])
def test_values_that_cannot_be_stored_are_refused(tmp_path: Path, codec: str, value: float, error: type) -> None:
    broken = np.full((64, 32), value, np.float32)
    path = make_tiny_model(tmp_path / "m", tensors={"model.layers.1.mlp.up_proj.weight": broken})
    with pytest.raises(error, match=r"layers\.1\.mlp\.up_proj"):
        convert(path, tmp_path / "b", codec)
    assert not (tmp_path / "b").exists()


def test_memory_does_not_grow_with_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tile = 1 << 16
    monkeypatch.setattr(convert_module, "TILE_NUMBERS", tile)
    warm = make_tiny_model(tmp_path / "warm")
    convert(warm, tmp_path / "warm-bundle", "q4_0")  # imports are no part of the measure
    peaks = []
    for name, d_ff in (("small", 2048), ("large", 16384)):
        path = make_tiny_model(tmp_path / name, d_model=256, d_ff=d_ff, n_layers=1, dtype="float16")
        tracemalloc.start()
        convert(path, tmp_path / f"{name}-bundle", "q4_0")
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert 2 * max(peaks) < 4 * 16384 * 256  # the large one's down alone, as float32
    assert peaks[1] < 1.2 * peaks[0]
    # At the true tile size this is far below 2 GB. Hashing, JSON and the tokenizer take the rest.
    assert max(peaks) < 15 * 4 * tile + (6 << 20)


def test_progress_goes_up_to_the_end(source: Path, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    convert(source, tmp_path / "b", "q8_0", Job(progress=lambda done, total: seen.append((done, total))))
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert seen[-1] == (sum(open_model(source).codecs.values()),) * 2


# --- places that are taken


def test_nothing_foreign_is_touched(source: Path, tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.mkdir()
    (taken / "letter.txt").write_text("keep me")
    with pytest.raises(InvalidRequestError, match="taken"):
        convert(source, taken, "f16")
    beside = tmp_path / "new.partial"
    beside.mkdir()
    (beside / "letter.txt").write_text("keep me")
    with pytest.raises(InvalidRequestError, match=r"new\.partial"):
        convert(source, tmp_path / "new", "f16")
    made = convert(source, tmp_path / "made", "f16").bundle
    before = contents(made)
    with pytest.raises(InvalidRequestError, match="holds a bundle already"):
        convert(source, made, "q8_0")
    assert contents(made) == before
    assert contents(taken) == contents(beside) == {"letter.txt": b"keep me"}


def test_nothing_of_a_finished_conversion_is_left(source: Path, tmp_path: Path) -> None:
    with refused_like_windows():
        convert(source, tmp_path / "b", "f16")
    assert {path.name for path in tmp_path.iterdir()} == {"source", "b"}


def test_an_empty_folder_may_be_filled(source: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    convert(source, tmp_path / "empty", "f16")
    assert open_bundle(tmp_path / "empty")
    assert not (tmp_path / "empty.partial").exists()


def test_an_unfinished_conversion_of_something_else_is_left_alone(source: Path, tmp_path: Path) -> None:
    stop = stop_after(2)
    with pytest.raises(Cancelled):
        convert(source, tmp_path / "b", "q8_0", job=Job(stop))
    with pytest.raises(InvalidRequestError, match="another model"):
        convert(source, tmp_path / "b", "q4_0")
    other = make_tiny_model(tmp_path / "other", seed=5)
    with pytest.raises(InvalidRequestError, match="another model"):
        convert(other, tmp_path / "b", "q8_0")
    assert convert(source, tmp_path / "b", "q8_0").reused_parts


def test_unknown_codecs(source: Path, tmp_path: Path) -> None:
    for codec in ("q5_k", "f32"):
        with pytest.raises(InvalidRequestError, match="f16, q8_0, q4_0"):
            convert(source, tmp_path / "b", codec)
    assert not list(tmp_path.glob("b*"))


# --- interruptions


def stop_after(calls: int) -> Any:
    count = iter(range(1 << 30))
    return lambda: next(count) >= calls


@pytest.mark.parametrize("how", [Cancelled, KeyboardInterrupt])
def test_stopped_work_is_taken_up_again(source: Path, tmp_path: Path, how: type[BaseException]) -> None:
    whole = contents(convert(source, tmp_path / "whole", "q8_0").bundle)
    stop = stop_after(12)

    def cancelled() -> bool:
        if how is KeyboardInterrupt and stop():
            raise KeyboardInterrupt
        return how is Cancelled and bool(stop())

    with pytest.raises(how):
        convert(source, tmp_path / "b", "q8_0", job=Job(cancelled))
    assert not (tmp_path / "b").exists()
    finished = {file: file.stat().st_ino for file in (tmp_path / "b.partial/bundle").glob("*.bin")}
    assert finished
    made = convert(source, tmp_path / "b", "q8_0")
    assert made.reused_parts == len(finished)
    assert {file.name: (made.bundle / file.name).stat().st_ino for file in finished} == {
        file.name: inode for file, inode in finished.items()
    }
    assert contents(made.bundle) == whole


def test_a_finished_file_that_changed_is_written_again(source: Path, tmp_path: Path) -> None:
    whole = contents(convert(source, tmp_path / "whole", "q8_0").bundle)
    with pytest.raises(Cancelled):
        convert(source, tmp_path / "b", "q8_0", job=Job(stop_after(12)))
    done = sorted((tmp_path / "b.partial/bundle").glob("*.bin"))
    data = bytearray(done[0].read_bytes())
    data[7] ^= 1
    done[0].write_bytes(data)
    (tmp_path / "b.partial/progress" / f"{done[1].name}.json").write_text('{"bytes": 1')
    made = convert(source, tmp_path / "b", "q8_0")
    assert made.reused_parts == len(done) - 2
    assert contents(made.bundle) == whole


def test_killed_in_the_middle_of_a_file_it_goes_on(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(convert_module, "TILE_NUMBERS", 512)  # the recorded errors are summed in the same order then
    code = (
        "import sys, time; from pathlib import Path; from engine.conversion import convert as c\n"
        "from engine.job import Job\n"
        "c.TILE_NUMBERS = 512\n"
        "def progress(done, total):\n"
        "    print(done, total, flush=True)\n"
        "    if done > total // 2: time.sleep(600)\n"
        "c.convert(Path(sys.argv[1]), Path(sys.argv[2]), 'q4_0', Job(progress=progress))"
    )
    process = child(code, str(source), str(tmp_path / "b"))
    assert process.stdout is not None
    for line in process.stdout:
        done, total = map(int, line.split())
        if done > total // 2:
            break
    process.kill()
    process.communicate()
    assert not (tmp_path / "b").exists()
    assert list((tmp_path / "b.partial/bundle").glob("*.writing"))
    made = convert(source, tmp_path / "b", "q4_0")
    assert made.reused_parts >= 1
    assert contents(made.bundle) == contents(convert(source, tmp_path / "whole", "q4_0").bundle)
    assert not (tmp_path / "b.partial").exists()


def test_killed_again_and_again_the_bundle_is_absent_or_whole(source: Path, tmp_path: Path) -> None:
    """Each process is killed at its fourth flush to disk, whatever that happens to be, until one gets through."""
    code = (
        "import os, psutil, sys; from pathlib import Path; from engine.conversion.convert import convert\n"
        "flush, count = os.fsync, 0\n"
        "def counted(handle):\n"
        "    global count; count += 1\n"
        "    if count == 4: psutil.Process().kill()\n"
        "    flush(handle)\n"
        "os.fsync = counted\n"
        "convert(Path(sys.argv[1]), Path(sys.argv[2]), 'q8_0')"
    )
    destination, deaths = tmp_path / "b", 0
    # Tokenizer, metadata and manifest are written anew by each: once all weights are there, only a longer life helps.
    while not (tmp_path / "b.partial/progress/head.bin.json").exists():
        process = child(code, str(source), str(destination))
        _, err = process.communicate()
        assert process.returncode == KILLED, err
        assert not destination.exists()
        deaths += 1
        assert deaths < 20
    assert deaths >= 4
    made = convert(source, destination, "q8_0")
    assert made.reused_parts == 5
    assert contents(destination) == contents(convert(source, tmp_path / "whole", "q8_0").bundle)


def test_what_a_death_after_the_last_rename_left_is_no_obstacle(source: Path, tmp_path: Path) -> None:
    with pytest.raises(Cancelled):
        convert(source, tmp_path / "b", "f16", job=Job(stop_after(12)))
    whole = convert(source, tmp_path / "whole", "f16").bundle
    for file in (tmp_path / "b.partial/bundle").iterdir():
        file.unlink()
    (tmp_path / "b.partial/bundle").rmdir()
    shutil.copytree(tmp_path / "b.partial", tmp_path / "whole.partial")
    assert convert(source, tmp_path / "b", "f16").reused_parts == 0
    assert contents(whole) == contents(tmp_path / "b")
    with pytest.raises(InvalidRequestError, match="holds a bundle already"):
        convert(source, whole, "f16")
    assert not (tmp_path / "whole.partial").exists()


def test_two_at_once_do_not_mix(source: Path, tmp_path: Path) -> None:
    tried: list[int] = []

    def progress(done: int, total: int) -> None:
        if not tried:
            tried.append(1)
            with pytest.raises(InvalidRequestError, match="Another conversion is running"):
                convert(source, tmp_path / "b", "f16")

    convert(source, tmp_path / "b", "f16", Job(progress=progress))
    assert tried


# --- disks


def test_a_full_disk_is_found_before_anything_is_written(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=200_000_000))
    with pytest.raises(DiskSpaceError, match=r"0\.27 GB.* 0\.20 GB") as caught:
        convert(source, tmp_path / "b", "f16")
    assert caught.value.hint
    assert not list((tmp_path / "b.partial/bundle").iterdir())
    monkeypatch.undo()
    convert(source, tmp_path / "b", "f16")


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such limits on Windows")
def test_a_disk_that_fills_up_on_the_way_is_a_failure_of_the_world(source: Path, tmp_path: Path) -> None:
    code = (
        "import resource, sys; sys.dont_write_bytecode = True  # it would be cut off\n"
        "from engine.commands import cli\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (18000, 18000))\n"
        "sys.exit(cli.main(['convert', *sys.argv[1:], '--codec', 'f16']))"
    )
    process = child(code, str(source), str(tmp_path / "b"))
    out, err = process.communicate()
    assert (process.returncode, out) == (1, "")
    fact, hint = err.strip().splitlines()
    assert "accepted no more" in fact
    assert "kept" in hint
    assert not (tmp_path / "b").exists()
    convert(source, tmp_path / "b", "f16")


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() == 0, reason="needs folders that cannot be written to")
def test_a_folder_that_cannot_be_written(source: Path, tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)
    with pytest.raises(InvalidRequestError, match="cannot be written"):
        convert(source, closed / "b", "f16")


# --- the command


def test_the_command_tells_people_what_was_made_and_stops_when_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make_tiny_gguf(tmp_path / "m.gguf")
    assert cli.main(["convert", str(path), str(tmp_path / "b"), "--codec", "q4_0"]) == 0
    captured = capsys.readouterr()
    assert "error" in captured.out
    assert "q8_0" in captured.err
    assert cli.main(["inspect", str(tmp_path / "b")]) == 0
    assert "q8_0" in capsys.readouterr().out
    assert cli.main(["convert", str(path), str(tmp_path / "c"), "--codec", "q4_0", "--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert values.keys() >= {"bundle", "bytes", "seconds"}

    whole = convert_module.convert

    def interrupted(*args: Any, job: Job, **options: Any) -> Any:
        asked: list[int] = []

        def progress(done: int, total: int) -> None:
            if not asked:
                asked.append(done)
                signal.raise_signal(signal.SIGINT)

        return whole(*args[:3], job.reporting(progress))

    monkeypatch.setattr(convert_module, "convert", interrupted)
    assert cli.main(["convert", str(path), str(tmp_path / "d"), "--codec", "q4_0"]) == 130
    assert "continues from here" in capsys.readouterr().err
    monkeypatch.undo()
    assert convert(path, tmp_path / "d", "q4_0").reused_parts == 1


def test_a_bundle_that_would_grow_without_gain_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows begin at whole cache lines: those of narrow models take more in few bits than the source's did."""
    monkeypatch.setattr(convert_module, "_GROWTH_BYTES", 0)
    narrow = make_tiny_model(tmp_path / "narrow", activation="silu", dtype="float16")
    with pytest.raises(InvalidRequestError, match=r"\d+ .*\d+ MB") as caught:
        convert(narrow, tmp_path / "b", "q4_0")
    assert "as it is" in caught.value.hint
    assert not (tmp_path / "b").exists()
    convert(make_tiny_model(tmp_path / "relu", dtype="float16"), tmp_path / "c", "q4_0")  # which skips neurons by it
    wide = make_tiny_model(tmp_path / "wide", activation="silu", dtype="float16", d_model=512, d_ff=1024)
    convert(wide, tmp_path / "d", "q4_0")


def test_what_rounding_costs_is_said_in_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = make_tiny_model(tmp_path / "m", dtype="float16")
    assert convert(source, tmp_path / "f16", "f16").quality == convert(source, tmp_path / "q8", "q8_0").quality == ""
    made = convert(source, tmp_path / "q4", "q4_0")
    assert f"{100 * max(made.relative_errors.values()):.1f} %" in made.quality
    assert "noticeably worse" in made.quality
    assert cli.main(["convert", str(source), str(tmp_path / "again"), "--codec", "q4_0", "--json"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["quality"] == made.quality
    assert made.quality in captured.err
