"""Updates from a hostile place: whatever it answers, only what was signed and is new gets onto the disk."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest
from support.systems import ON_WINDOWS
from support.update_server import OFFLINE, STRANGER, TODAY, UpdateServer, serving

from engine.errors import Cancelled, UpdateError
from engine.job import Job
from engine.library.updates import installed, release
from engine.library.updates.manifest import MAX_BYTES

downloads = pytest.mark.skipif(ON_WINDOWS, reason="Hearth downloads no update of its own there")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[UpdateServer]:
    (tmp_path / "assets").mkdir()
    with serving(tmp_path / "assets", monkeypatch) as server:
        yield server


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "updates"


def kind_of(act: Callable[[], object]) -> str:
    with pytest.raises(UpdateError) as failed:
        act()
    return failed.value.kind


@downloads
def test_a_good_update_is_found_and_fetched_and_nothing_is_told(place: UpdateServer, folder: Path) -> None:
    place.offer(body=b"x" * 300_000)
    told: list[tuple[int, int]] = []
    assert release.look(folder, "1.0").version == "2.0"
    path, file = release.download(folder, "2.0", "1.0", Job(progress=lambda *at: told.append(at)))
    assert (path.read_bytes(), path.name) == (b"x" * 300_000, file.name)
    assert told[-1] == (300_000, 300_000)
    assert sorted(one.name for one in folder.iterdir()) == ["hearth.tar.xz", "seen.json"]
    names = {name for _, headers in place.asked for name in headers}
    assert names <= {"host", "accept", "accept-encoding", "connection", "user-agent"}
    assert {headers["user-agent"] for _, headers in place.asked} == {"Hearth"}


def test_the_offline_key_replaces_the_key_of_releases(place: UpdateServer, folder: Path) -> None:
    place.offer(key=OFFLINE)
    assert release.look(folder, "1.0").version == "2.0"


@pytest.mark.parametrize("keys", ["", "# none\n", "not hex\n", "00ff\n"])
def test_a_build_without_keys_asks_nobody(keys: str, place: UpdateServer, folder: Path, tmp_path: Path) -> None:
    place.offer()
    (tmp_path / "assets" / "update-keys.txt").write_text(keys)
    assert release.feed() == ""
    assert kind_of(lambda: release.look(folder, "1.0")) == "none"
    assert place.asked == []


def test_a_wrong_signature(place: UpdateServer, folder: Path) -> None:
    place.offer(key=STRANGER)
    assert kind_of(lambda: release.look(folder, "1.0")) == "signature"
    place.offer()
    signed = place.answers["/manifest"]
    assert isinstance(signed, bytes)
    place.answers["/manifest"] = signed.replace(b"News", b"Olds")
    assert kind_of(lambda: release.look(folder, "1.0")) == "signature"
    envelope = json.loads(signed)
    for signatures in ([], ["00" * 64], ["00"]):
        place.answers["/manifest"] = json.dumps({**envelope, "signatures": signatures}).encode()
        assert kind_of(lambda: release.look(folder, "1.0")) == "signature"
    assert not folder.exists()


@pytest.mark.parametrize("answer", [b"", b"[]", b"{}", b"\xff", b'{"manifest": 3, "signatures": []}', b"[" * 100_000])
def test_what_is_no_manifest(answer: bytes, place: UpdateServer, folder: Path) -> None:
    place.answers["/manifest"] = answer
    assert kind_of(lambda: release.look(folder, "1.0")) == "damaged"


@pytest.mark.parametrize("changed", [{"version": "2.0-rc1"}, {"page": "javascript:alert(1)"}, {"files": ({},)}])
def test_a_signed_manifest_of_other_values(changed: dict[str, object], place: UpdateServer, folder: Path) -> None:
    place.offer(**changed)  # type: ignore[arg-type]
    assert kind_of(lambda: release.look(folder, "1.0")) == "damaged"


@pytest.mark.parametrize("name", ["../hearth", ".hidden", "a/b", "", "C:\\x"])
def test_a_file_name_that_leads_elsewhere(name: str, place: UpdateServer, folder: Path) -> None:
    (file,) = place.offer().files
    place.offer(files=(replace(file, name=name),))
    assert kind_of(lambda: release.download(folder, "2.0", "1.0")) == "damaged"


def test_an_expired_manifest(place: UpdateServer, folder: Path) -> None:
    place.offer(expires=date(2026, 6, 30))
    assert release.look(folder, "1.0", date(2026, 6, 30)).version == "2.0"
    assert kind_of(lambda: release.look(folder, "1.0", date(2026, 7, 1))) == "expired"


def test_an_older_version_than_the_running_one(place: UpdateServer, folder: Path) -> None:
    place.offer("1.9")
    assert kind_of(lambda: release.look(folder, "1.10")) == "rollback"
    assert release.look(folder, "1.9.0").version == "1.9"  # the same one: no news


def test_an_older_manifest_than_one_seen_before(place: UpdateServer, folder: Path) -> None:
    place.offer("2.1")
    release.look(folder, "1.0")
    place.offer("2.0")
    assert kind_of(lambda: release.download(folder, "2.0", "1.0")) == "rollback"
    place.offer("2.1", released=date(2026, 5, 31))
    assert kind_of(lambda: release.look(folder, "1.0")) == "rollback"
    (folder / "seen.json").write_text("[]")  # damaged: as if none was seen
    assert release.look(folder, "1.0").released == date(2026, 5, 31)


def test_another_version_than_the_one_agreed_to(place: UpdateServer, folder: Path) -> None:
    place.offer("2.1")
    assert kind_of(lambda: release.download(folder, "2.0", "1.0")) == "rollback"
    assert kind_of(lambda: release.download(folder, "2.1", "2.1")) == "rollback"


def test_another_platform(place: UpdateServer, folder: Path) -> None:
    (file,) = place.offer().files
    place.offer(files=(replace(file, platform="win32-AMD64-installer"),))
    assert kind_of(lambda: release.download(folder, "2.0", "1.0")) == "platform"


def test_a_manifest_that_is_too_long(place: UpdateServer, folder: Path) -> None:
    place.answers["/manifest"] = b" " * (MAX_BYTES + 1)
    assert kind_of(lambda: release.look(folder, "1.0")) == "size"


@downloads
@pytest.mark.parametrize(
    ("served", "claimed", "kind"),
    [(b"progrbm", 7, "hash"), (b"program and more", 16, "size"), (b"prog", 4, "cut off"), (b"prog", 7, "cut off")],
)
def test_another_file_than_the_signed_one(
    served: bytes, claimed: int, kind: str, place: UpdateServer, folder: Path
) -> None:
    place.offer()
    place.answers["/hearth.tar.xz"], place.claimed["/hearth.tar.xz"] = served, claimed
    assert kind_of(lambda: release.download(folder, "2.0", "1.0")) == kind
    assert [one.name for one in folder.iterdir()] == ["seen.json"]


def test_a_compressed_answer(place: UpdateServer, folder: Path) -> None:
    place.answers["/manifest"] = (200, {"Content-Encoding": "gzip"})
    assert kind_of(lambda: release.look(folder, "1.0")) == "size"


@downloads
@pytest.mark.parametrize("path", ["/manifest", "/hearth.tar.xz"])
def test_a_redirect_to_a_place_without_https(path: str, place: UpdateServer, folder: Path) -> None:
    place.offer()
    place.answers[path] = (302, {"Location": "http://192.0.2.1/x"})
    assert kind_of(lambda: release.download(folder, "2.0", "1.0")) == "address"


def test_redirects_without_end_and_failures(place: UpdateServer, folder: Path) -> None:
    place.answers["/manifest"] = (302, {"Location": f"{place.base}/manifest"})
    assert kind_of(lambda: release.look(folder, "1.0")) == "unreachable"
    assert len(place.asked) <= 6
    place.answers["/manifest"] = (500, {})
    assert kind_of(lambda: release.look(folder, "1.0")) == "unreachable"


@downloads
def test_a_cancelled_download_leaves_nothing(place: UpdateServer, folder: Path) -> None:
    place.offer(body=b"x" * 1_000_000)
    seen: list[int] = []
    job = Job(cancelled=lambda: bool(seen), progress=lambda done, _: seen.append(done))
    with pytest.raises(Cancelled):
        release.download(folder, "2.0", "1.0", job)
    assert [one.name for one in folder.iterdir()] == ["seen.json"]
    assert TODAY.isoformat() in (folder / "seen.json").read_text()
    assert release.download(folder, "2.0", "1.0")[0].stat().st_size == 1_000_000


def test_looking_ends_when_it_is_cancelled_or_takes_too_long(
    place: UpdateServer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.offer()
    with pytest.raises(Cancelled):
        release.look(folder, "1.0", job=Job(cancelled=lambda: True))
    monkeypatch.setattr(release, "LIST_S", -1.0)
    assert kind_of(lambda: release.look(folder, "1.0")) == "unreachable"


@downloads
def test_a_download_of_another_process_is_left_alone(place: UpdateServer, folder: Path) -> None:
    place.offer()
    folder.mkdir()
    (folder / "hearth.tar.xz.part").write_bytes(b"of another process")
    with installed.alone_in(folder):
        assert kind_of(lambda: release.download(folder, "2.0", "1.0")) == "busy"
    assert (folder / "hearth.tar.xz.part").read_bytes() == b"of another process"
