"""A model's bytes on their way: killed, cut, silent, wrong, and a disk that is full. Nothing is fetched twice."""

from __future__ import annotations

import errno
import itertools
import random
import time
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from fakes.download_places import (
    BLOCK,
    DATA,
    SMALL,
    downloading_process,
    downloads_in,
    give_room,
    parts_in,
    same,
    the,
    wait_for,
)
from fakes.hub import Content, FakeHub
from samples.tiny_model import make_tiny_gguf

from engine.library.hub.part_file import PartFile, safe_length
from engine.library.owned import disk_space

GB = 1_000_000_000


# --- killed, cut, silent


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
def test_after_a_kill_at_most_one_block_is_fetched_again(hub: FakeHub, tmp_path: Path, seed: int) -> None:
    """Product statement 10, by kill -9 of a process at moments that nobody chose."""
    hub.add("maker/big-gguf", {"big-q8_0.gguf": DATA})
    hub.bytes_per_s = 30 << 20
    moments = random.Random(seed)
    for _ in range(2):
        before = hub.sent_bytes("big-q8_0.gguf")
        enough = (6 << 20) + moments.randrange(6 << 20)
        hub.fail("big-q8_0.gguf", stall_after=enough)  # it ends before the kill on no machine
        child = downloading_process(tmp_path, ["maker/big-gguf"])
        wait_for(lambda enough=before + enough: hub.sent_bytes("big-q8_0.gguf") >= enough)
        wait_for(lambda: any(safe_length(part) for part in parts_in(tmp_path)))
        child.kill()
        assert child.wait() != 0
        assert child.stdout is not None
        child.stdout.close()
        (part,) = parts_in(tmp_path)
        lay = part.stat().st_size
        requests = len(hub.of_file("big-q8_0.gguf"))
        hub.fail("big-q8_0.gguf", stall_after=0)
        downloads, _ = downloads_in(tmp_path)
        assert the(downloads, "downloading", "waiting", "checking") is not None, "it goes on by itself"
        asked = wait_for(lambda requests=requests: hub.of_file("big-q8_0.gguf")[requests:])[0].start
        assert 0 < asked <= lay
        assert lay - asked <= BLOCK, f"{lay - asked} bytes that lay there were fetched again"
        downloads.close()
    hub.bytes_per_s = 0
    downloads, shelf = downloads_in(tmp_path)
    wait_for(lambda: the(downloads, "done"))
    assert same(shelf.listed["maker/big-gguf"].path, DATA)
    downloads.close()


def test_a_power_loss_leaves_what_was_synced(hub: FakeHub, tmp_path: Path) -> None:
    """The end of the part, which a power loss may fill with anything, is not trusted; all before it is."""
    hub.add("maker/big-gguf", {"big-q8_0.gguf": DATA})
    hub.fail("*.gguf", cut_after=21 << 20)
    hub.fail("*.gguf", stall_after=0, times=9)
    downloads, _ = downloads_in(tmp_path)
    downloads.add_variant("maker/big-gguf")
    (part,) = wait_for(lambda: [p for p in parts_in(tmp_path) if p.stat().st_size == 21 << 20])
    downloads.close()
    log = part.with_name(part.name + ".log")
    with open(log, "r+b") as file:  # as if the last sync had not reached the disk: its line is torn ...
        file.truncate(log.stat().st_size - 10)
    safe = safe_length(part)
    assert (21 << 20) - BLOCK <= safe < 21 << 20
    with open(part, "r+b") as file:  # ... and its bytes are gone
        file.seek(safe)
        file.write(bytes((21 << 20) - safe))
    hub.faults.clear()
    before = len(hub.of_file("big-q8_0.gguf"))
    downloads, shelf = downloads_in(tmp_path)
    wait_for(lambda: the(downloads, "done"))
    assert hub.of_file("big-q8_0.gguf")[before].start == safe
    assert same(shelf.listed["maker/big-gguf"].path, DATA)
    downloads.close()


def test_cut_connections_go_on_where_they_were(hub: FakeHub, tmp_path: Path) -> None:
    hub.add("maker/big-gguf", {"big-q8_0.gguf": DATA})
    hub.fail("*.gguf", cut_after=5_000_001, times=5)
    downloads, shelf = downloads_in(tmp_path)
    downloads.add_variant("maker/big-gguf")
    wait_for(lambda: the(downloads, "done"))
    assert same(shelf.listed["maker/big-gguf"].path, DATA)
    asked = hub.of_file("big-q8_0.gguf")
    assert [one.start for one in asked] == [5_000_001 * i for i in range(6)]
    assert all("if-range" in one.headers for one in asked[1:])
    downloads.close()


def test_answers_without_a_length_that_end_too_early(hub: FakeHub, tmp_path: Path) -> None:
    hub.state_sizes = False
    hub.fail("*.gguf", cut_after=1_000_000, times=2)
    downloads, shelf = downloads_in(tmp_path)
    downloads.add_variant("maker/small-gguf")
    wait_for(lambda: the(downloads, "done"))
    assert same(shelf.listed["maker/small-gguf"].path, SMALL)
    assert [asked.start for asked in hub.of_file("small-q4_0.gguf")] == [0, 1_000_000, 2_000_000]
    downloads.close()


def test_a_server_without_ranges_still_gives_the_whole_file(hub: FakeHub, tmp_path: Path) -> None:
    hub.ignore_range = True
    hub.fail("*.gguf", cut_after=1_000_000, times=2)
    downloads, shelf = downloads_in(tmp_path)
    downloads.add_variant("maker/small-gguf")
    wait_for(lambda: the(downloads, "done"))
    assert same(shelf.listed["maker/small-gguf"].path, SMALL)
    assert len(hub.of_file("small-q4_0.gguf")) == 3
    downloads.close()


def test_a_silent_connection_is_left_and_taken_up_again(hub: FakeHub, tmp_path: Path) -> None:
    """Product statement 11, with half a second for the thirty."""
    hub.fail("*.gguf", stall_after=1 << 20, times=2)
    downloads, shelf = downloads_in(tmp_path, stall_s=0.5)
    started = time.monotonic()
    downloads.add_variant("maker/small-gguf")
    waiting = wait_for(lambda: the(downloads, "waiting"))
    assert waiting.error == "OfflineError"
    assert "silent" in waiting.message
    wait_for(lambda: the(downloads, "done"))
    assert time.monotonic() - started > 1.0
    starts = [asked.start for asked in hub.of_file("small-q4_0.gguf")]
    assert starts[:1] == [0]
    assert len(starts) >= 3
    assert all(a < b for a, b in itertools.pairwise(starts)), "each goes on where the one before had come to"
    assert same(shelf.listed["maker/small-gguf"].path, SMALL)
    downloads.close()


def test_the_silence_that_is_waited_for_is_thirty_seconds() -> None:
    from engine.library.hub import hub as hub_module

    assert hub_module.STALL_S == 30.0
    assert hub_module.Hub(endpoint="http://127.0.0.1:1")._stall_s == 30.0


def test_a_network_that_is_gone_is_waited_for(hub: FakeHub, tmp_path: Path) -> None:
    hub.bytes_per_s = 2 << 20
    downloads, _ = downloads_in(tmp_path)
    downloads.add_variant("maker/small-gguf")
    wait_for(lambda: hub.sent_bytes("small-q4_0.gguf") > 1 << 20)
    hub.down = True
    wait_for(lambda: the(downloads, "waiting"))
    time.sleep(0.5)  # more tries than a hub that answers with failures gets
    assert the(downloads, "waiting") is not None
    hub.bytes_per_s, hub.down = 0, False
    wait_for(lambda: the(downloads, "done"))
    downloads.close()


# --- wrong bytes


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json"])
def test_a_flipped_bit_is_caught_and_only_that_file_fetched_again(hub: FakeHub, tmp_path: Path, name: str) -> None:
    """Product statement 12; of a large file by SHA-256, of a small one by git's hash."""
    hub.add("maker/tiny", {"model.safetensors": SMALL, "config.json": b"{}" * 99, "tokenizer.json": DATA[:200_000]})
    hub.fail(name, flip_at=150_000)
    downloads, shelf = downloads_in(tmp_path)
    downloads.add_variant("maker/tiny")
    wait_for(lambda: the(downloads, "done"))
    counts = {n: len(hub.of_file(n)) for n in ("model.safetensors", "config.json", "tokenizer.json")}
    assert counts == {"model.safetensors": 1, "config.json": 1, "tokenizer.json": 1} | {name: 2}
    folder = Path(shelf.listed["maker/tiny"].folder)
    assert same(folder / "model.safetensors", SMALL)
    assert same(folder / "tokenizer.json", DATA[:200_000])
    downloads.close()


@pytest.mark.parametrize("seed", range(12))
def test_any_flipped_bit_is_caught(hub: FakeHub, tmp_path: Path, seed: int) -> None:
    data = DATA[: 100_000 + seed]
    hub.add("maker/any", {"model.safetensors": data, "config.json": data[:777], "tokenizer.json": b"[]"})
    chosen = random.Random(seed)
    name = chosen.choice(["model.safetensors", "config.json"])
    hub.fail(name, flip_at=chosen.randrange(777 if name == "config.json" else len(data)), times=2)
    downloads, shelf = downloads_in(tmp_path)
    downloads.add_variant("maker/any")
    assert wait_for(lambda: the(downloads, "failed")).error == "DownloadDamagedError"
    assert shelf.listed == {}
    downloads.close()


def test_a_hub_that_goes_on_sending_wrong_bytes_lists_nothing(hub: FakeHub, tmp_path: Path) -> None:
    hub.add("maker/tiny", {"model.safetensors": SMALL, "config.json": b"{}" * 99, "tokenizer.json": b"[]"})
    hub.fail("model.safetensors", flip_at=5, times=2)
    downloads, shelf = downloads_in(tmp_path)
    id = downloads.add_variant("maker/tiny").id
    failed = wait_for(lambda: the(downloads, "failed"))
    assert failed.error == "DownloadDamagedError"
    assert "model.safetensors" in failed.message
    assert shelf.listed == {}
    assert not (tmp_path / "models" / "maker").exists()
    downloads.resume(id)
    wait_for(lambda: the(downloads, "done"))
    assert len(hub.of_file("model.safetensors")) == 3
    assert len(hub.of_file("config.json")) == 1
    downloads.close()


def test_a_bit_that_flips_on_the_disk_between_two_runs_is_caught(hub: FakeHub, tmp_path: Path) -> None:
    """In a file that was finished and is not in its place yet, and in a part."""
    data = DATA[: 20 << 20]
    hub.add("maker/tiny", {"model.safetensors": data, "config.json": b"{}" * 99, "tokenizer.json": b"[]"})
    hub.fail("config.json", status=404)
    downloads, shelf = downloads_in(tmp_path)
    downloads.add_variant("maker/tiny")
    wait_for(lambda: the(downloads, "failed"))
    downloads.close()
    (whole,) = [p for p in parts_in(tmp_path, ".whole") if p.stat().st_size > 1 << 20]
    flip(whole, 3_000_000)
    hub.fail("*.safetensors", cut_after=9 << 20)
    hub.fail("*.safetensors", stall_after=0)
    downloads, shelf = downloads_in(tmp_path)
    downloads.resume(downloads.list()[0].id)
    (part,) = wait_for(lambda: [p for p in parts_in(tmp_path) if p.stat().st_size == 9 << 20])
    downloads.close()
    hub.faults.clear()
    flip(part, 1_000)
    downloads, shelf = downloads_in(tmp_path)
    wait_for(lambda: the(downloads, "done"))
    assert same(Path(shelf.listed["maker/tiny"].folder) / "model.safetensors", data)
    downloads.close()


def flip(path: Path, at: int) -> None:
    with open(path, "r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 4]))


def test_only_damaged_files_of_an_installed_model_are_fetched_again(hub: FakeHub, tmp_path: Path) -> None:
    hub.add("maker/tiny", {"model.safetensors": SMALL, "config.json": b"{}" * 99, "tokenizer.json": DATA[:99_999]})
    downloads, shelf = downloads_in(tmp_path)
    downloads.add_variant("maker/tiny")
    wait_for(lambda: the(downloads, "done"))
    model = shelf.listed["maker/tiny"]
    hub.add("maker/tiny", {"model.safetensors": b"newer", "config.json": b"{}", "tokenizer.json": b"[]"})
    (Path(model.folder) / "tokenizer.json").write_bytes(DATA[1:100_000])
    hub.asked.clear()
    for damaged in ((), ("tokenizer.json",)):
        downloads.repair(model, damaged)
        wait_for(lambda: the(downloads, "done"))
        assert same(Path(model.folder) / "tokenizer.json", DATA[:99_999]), "of the commit that is installed"
    assert [asked.path.rsplit("/", 1)[-1] for asked in hub.asked if "/resolve/" in asked.path] == ["tokenizer.json"]
    assert len(shelf.listed["maker/tiny"].files) == 3
    downloads.close()


# --- the disk


def test_a_download_without_room_is_refused_before_a_byte_comes(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Product statement 13: refused when free < remaining + 2 GB."""
    give_room(monkeypatch, 2 * GB + len(SMALL) - 1)
    downloads, _ = downloads_in(tmp_path)
    id = downloads.add_variant("maker/small-gguf").id
    paused = wait_for(lambda: the(downloads, "paused"))
    assert paused.error == "DiskSpaceError"
    assert "2 GB must stay free" in paused.message
    assert hub.of_file("small-q4_0.gguf") == []
    give_room(monkeypatch, 2 * GB + len(SMALL))
    downloads.resume(id)
    wait_for(lambda: the(downloads, "done"))
    downloads.close()


def test_what_lies_there_needs_no_room_again(hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.bytes_per_s = 1 << 20
    downloads, _ = downloads_in(tmp_path)
    id = downloads.add_variant("maker/small-gguf").id
    wait_for(lambda: downloads.list()[0].done_bytes > 1 << 20)
    downloads.pause(id)
    hub.bytes_per_s = 0
    give_room(monkeypatch, 2 * GB + len(SMALL) - (1 << 20))
    downloads.resume(id)
    wait_for(lambda: the(downloads, "done"))
    downloads.close()


def test_what_other_downloads_are_to_write_counts(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.add("maker/big-gguf", {"big-q8_0.gguf": DATA})
    give_room(monkeypatch, 2 * GB + len(DATA) + len(SMALL) // 2)
    hub.bytes_per_s = 1 << 20
    downloads, _ = downloads_in(tmp_path)
    big = downloads.add_variant("maker/big-gguf").id
    wait_for(lambda: downloads.list()[0].done_bytes > 0)
    downloads.add_variant("maker/small-gguf")
    paused = wait_for(lambda: next((d for d in downloads.list() if d.state == "paused"), None))
    assert paused.repo == "maker/small-gguf"
    assert "other downloads" in paused.message
    downloads.cancel(big)
    downloads.close()


@pytest.mark.parametrize("at", [0, 1, (4 << 20) - 1, 4 << 20, 9_999_999])
def test_a_full_disk_pauses_at_any_byte(hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    """Product statement 13, second half: the disk takes `at` bytes of the part, then none."""
    data = DATA[: 12 << 20]
    hub.add("maker/big-gguf", {"big-q8_0.gguf": data})
    limit = [at]

    class Disk:
        """A file on a disk that fills up."""

        def __init__(self, file: object) -> None:
            self._file = file

        def __getattr__(self, name: str) -> object:
            return getattr(self._file, name)

        def write(self, block: memoryview) -> int:
            room = limit[0] - self._file.tell()  # type: ignore[attr-defined]
            if room <= 0:
                raise OSError(errno.ENOSPC, "No space left on device")
            return int(self._file.write(block[:room]))  # type: ignore[attr-defined]

    made = PartFile.__init__

    def make(self: PartFile, path: Path) -> None:
        made(self, path)
        self._file = Disk(self._file)  # type: ignore[assignment]

    monkeypatch.setattr(PartFile, "__init__", make)
    downloads, shelf = downloads_in(tmp_path)
    id = downloads.add_variant("maker/big-gguf").id
    paused = wait_for(lambda: the(downloads, "paused"))
    assert paused.error == "DiskSpaceError"
    assert f"The disk of {tmp_path / 'models'} is full" in paused.message
    limit[0] = 1 << 40
    downloads.resume(id)
    wait_for(lambda: the(downloads, "done"))
    assert same(shelf.listed["maker/big-gguf"].path, data)
    assert hub.of_file("big-q8_0.gguf")[-1].start >= at - BLOCK
    downloads.close()


def test_a_disk_that_others_fill_pauses_it_too(hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.library.hub.download._SPACE_EVERY_BYTES", 1 << 20)
    hub.bytes_per_s = 2 << 20
    downloads, _ = downloads_in(tmp_path)
    downloads.add_variant("maker/small-gguf")
    wait_for(lambda: downloads.list()[0].done_bytes > 0)
    give_room(monkeypatch, disk_space.LEAST_FREE_BYTES - 1)
    assert wait_for(lambda: the(downloads, "paused")).error == "DiskSpaceError"
    downloads.close()


def test_a_folder_that_cannot_be_written_fails_kindly(hub: FakeHub, tmp_path: Path) -> None:
    (tmp_path / "models").write_text("a file where the folder should be")
    downloads, _ = downloads_in(tmp_path)
    downloads.add_variant("maker/small-gguf")
    failed = wait_for(lambda: the(downloads, "failed"))
    assert failed.error == "LibraryError"
    assert "cannot be written" in failed.message
    downloads.close()


def test_a_file_of_more_than_50_gb_is_begun_and_taken_up(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    give_room(monkeypatch, 100 * GB)
    hub.add(
        "maker/huge-gguf",
        {"huge-f16.gguf": Content.after(make_tiny_gguf(tmp_path / "huge.gguf").read_bytes(), 60 * GB)},
    )
    hub.bytes_per_s = 40 << 20
    downloads, _ = downloads_in(tmp_path)
    id = downloads.add_variant("maker/huge-gguf").id
    wait_for(lambda: downloads.list()[0].done_bytes > 5 << 20)
    downloads.pause(id)
    assert downloads.list()[0].total_bytes == 60 * GB
    downloads.resume(id)
    wait_for(lambda: hub.of_file("huge-f16.gguf")[-1].start > 4 << 20)
    downloads.cancel(id)
    wait_for(lambda: not parts_in(tmp_path))
    downloads.close()


def test_a_folder_of_any_name_will_do(hub: FakeHub, tmp_path: Path) -> None:
    """Product statement 23: spaces, Cyrillic, CJK, U+3000, and more than 260 characters."""
    folder = tmp_path / "мои модели　模型 x" / ("долгий путь " * 8).strip() / ("y" * 120) / ("z" * 60)
    folder.mkdir(parents=True)
    assert len(str(folder)) > 260
    downloads, shelf = downloads_in(folder)
    downloads.add_variant("maker/small-gguf")
    wait_for(lambda: the(downloads, "done"))
    assert same(shelf.listed["maker/small-gguf"].path, SMALL)
    downloads.close()


# --- part files


def test_a_part_file_counts_what_is_synced(tmp_path: Path) -> None:
    path = tmp_path / "x.part"
    with PartFile(path) as part:
        part.write(b"abc")
        part.sync()
        part.write(b"defg")
        part._file.close()
        part._log.close()
        part.length = part.safe
    assert path.read_bytes() == b"abcdefg"
    with PartFile(path) as part:
        assert part.length == 3
        part.write(b"DEFG")
    with PartFile(path) as part:
        assert part.length == 7
        part.restart()
        assert part.length == 0
    assert path.read_bytes() == b""


def test_bytes_that_an_interrupt_kept_from_being_counted_are_kept(tmp_path: Path) -> None:
    class Interrupted:
        """A file whose writer is interrupted once the bytes are in it."""

        def __init__(self, file: BinaryIO) -> None:
            self._file = file

        def __getattr__(self, name: str) -> Any:
            return getattr(self._file, name)

        def write(self, data: bytes) -> None:
            self._file.write(data)
            raise KeyboardInterrupt

    path = tmp_path / "x.part"
    with PartFile(path) as part:
        part.write(b"abc")
        part._file = Interrupted(part._file)  # type: ignore[assignment]
        with pytest.raises(KeyboardInterrupt):
            part.write(b"defg")
    with PartFile(path) as part:
        assert part.length == 7


@pytest.mark.parametrize("damage", [b"", b"x" * 26, b"\0" * 52, b"00000000000000ff 00000000\n", b"00000000"])
def test_a_damaged_log_counts_for_nothing(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "x.part"
    path.write_bytes(b"abc")
    path.with_name("x.part.log").write_bytes(damage)
    with PartFile(path) as part:
        assert part.length == 0
        part.write(b"hello")
    with PartFile(path) as part:
        assert part.length == 5


def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("this system has no device that is always full")
    with PartFile(tmp_path / "x.part") as part:
        part.write(b"abc")
        with open("/dev/full", "wb", buffering=0) as full, pytest.raises(OSError) as caught:  # noqa: PT011
            full.write(b"def")
        assert disk_space.is_full(caught.value)
