"""Updates from the release to the restart: keys, the signed manifest, and two versions beside each other."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import subprocess
import sys
from dataclasses import replace
from datetime import date
from pathlib import Path

import linux_packages
import pytest
import sign_release
from support.update_server import serving

from engine.errors import Cancelled, UpdateError
from engine.job import Job
from engine.library.service.library_jobs import JOBS, LibraryContext
from engine.library.service.services import Services
from engine.library.updates import installed
from engine.library.updates.manifest import verified

ROOT = Path(__file__).resolve().parents[2]
linux_only = pytest.mark.skipif(
    not sys.platform.startswith("linux") or shutil.which("xz") is None, reason="needs Linux with xz"
)


def packed(folder: Path, version: str, script: str = "echo {version}") -> Path:
    """A tarball of a program that is a script."""
    build = folder / version
    (build / "program").mkdir(parents=True)
    (build / "icons" / "hicolor").mkdir(parents=True)
    for name in ("hearth", "hearth-engine"):
        (build / "program" / name).write_text("#!/bin/sh\n" + script.format(version=version) + "\n")
        (build / "program" / name).chmod(0o755)
    tree = linux_packages.Tree(build / "program", build, ROOT, version)
    return linux_packages.tarball(tree, folder)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with version 1.0, which runs now."""
    prefix, archive = tmp_path / "a & b|prefix", packed(tmp_path, "1.0")
    subprocess.run(["tar", "-xf", archive, "-C", tmp_path], check=True)
    script = tmp_path / "hearth-1.0" / "install.sh"
    subprocess.run([script], env={**os.environ, "PREFIX": str(prefix)}, check=True, capture_output=True)
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    runs(prefix, "1.0", monkeypatch)
    return prefix


def runs(prefix: Path, version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(prefix / "lib" / "hearth" / version / "hearth"))


def install(archive: Path) -> None:
    installed.install(archive, hashlib.sha256(archive.read_bytes()).hexdigest())


def started(prefix: Path) -> str:
    assert [str(prefix / "lib/hearth/current/hearth")] == installed.start_command()
    return subprocess.run([prefix / "bin" / "hearth"], capture_output=True, text=True, check=True).stdout.strip()


@linux_only
def test_the_version_before_stays_and_one_click_goes_back(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (installed.platform(), installed.previous()) == (f"linux-{os.uname().machine}-tarball", "")
    archive = packed(tmp_path, "1.10")
    install(archive)
    assert started(home) == "1.10"
    assert not archive.exists()
    entry = (home / "share/applications/io.github.hearth.Hearth.desktop").read_text(encoding="utf-8")
    assert f'\nExec="{home}/bin/hearth"' in entry
    runs(home, "1.10", monkeypatch)
    folder = home / "lib" / "hearth"
    shutil.move(folder / "1.0", folder / "new")  # an installation was killed
    (folder / "current.new").symlink_to("new")
    assert installed.previous() == ""
    shutil.move(folder / "new", folder / "1.0")
    assert installed.previous() == "1.0"
    installed.go_back("1.0")
    assert started(home) == "1.0"
    runs(home, "1.0", monkeypatch)
    assert installed.previous() == ""
    install(packed(tmp_path, "1.11"))
    assert sorted(path.name for path in (home / "lib" / "hearth").iterdir()) == ["1.0", "1.11", "current"]


@linux_only
def test_the_jobs_of_the_library_go_the_whole_way(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, archive = tmp_path / "data", packed(tmp_path, "1.10")
    (data / "updates" / "unpacked-of-a-killed-one").mkdir(parents=True)
    monkeypatch.setattr("platformdirs.user_data_dir", lambda *given, **more: str(data))
    told: list[tuple[str, int]] = []
    job = LibraryContext(stage=lambda stage: lambda done, total: told.append((stage, done)))
    (tmp_path / "assets").mkdir()
    with serving(tmp_path / "assets", monkeypatch) as server:
        server.offer("1.10", archive.read_bytes())
        found = JOBS["update_look"].run(Services(), {}, job)
        assert (found["version"], found["size"]) == ("1.10", archive.stat().st_size)
        file = JOBS["update_download"].run(Services(), {"version": "1.10"}, job)
    assert told[-1] == ("download", archive.stat().st_size)
    assert JOBS["update_install"].run(Services(), file, job) == {}
    assert started(home) == "1.10"
    assert [path.name for path in (data / "updates").iterdir()] == ["seen.json"]


@linux_only
def test_a_version_that_does_not_start_here_changes_nothing(home: Path, tmp_path: Path) -> None:
    with pytest.raises(UpdateError) as failed:
        install(packed(tmp_path, "2.0", "echo no such glibc >&2; exit 1"))
    assert failed.value.kind == "install"
    assert started(home) == "1.0"
    assert sorted(path.name for path in (home / "lib" / "hearth").iterdir()) == ["1.0", "current"]


@linux_only
def test_a_full_disk_and_a_failed_start_leave_what_was_there(home: Path, tmp_path: Path) -> None:
    """Where an older install.sh put one version into the whole folder, too."""
    folder = home / "lib" / "hearth"
    shutil.rmtree(folder)
    folder.mkdir()
    (folder / "hearth").write_text("old")
    for version, script, limit in (("2.0", "exit 1", 9999), ("2.1", "", 1000), ("2.1", "", 9999)):
        if not (tmp_path / version).exists():
            subprocess.run(["tar", "-xf", packed(tmp_path, version, script), "-C", tmp_path], check=True)
            (tmp_path / f"hearth-{version}" / "hearth" / "large").write_bytes(b"x" * 2_000_000)
        run = f"ulimit -f {limit}; exec sh {tmp_path}/hearth-{version}/install.sh"
        done = subprocess.run(["sh", "-c", run], env={**os.environ, "PREFIX": str(home)}, capture_output=True)
        is_good = (version, limit) == ("2.1", 9999)
        assert (done.returncode == 0) == is_good
        assert sorted(path.name for path in folder.iterdir()) == (["2.1", "current"] if is_good else ["hearth"])


@linux_only
def test_one_process_at_a_time_downloads_or_installs(home: Path, tmp_path: Path) -> None:
    archive = packed(tmp_path, "2.0")
    with installed.alone_in(tmp_path), pytest.raises(UpdateError) as failed:
        install(archive)
    assert failed.value.kind == "busy"
    with installed.alone_in(home / "lib" / "hearth"), pytest.raises(UpdateError) as failed:
        install(archive)
    assert failed.value.kind == "install"
    assert started(home) == "1.0"
    install(archive)


@linux_only
def test_a_file_that_changed_after_its_download_is_not_run(home: Path, tmp_path: Path) -> None:
    archive = packed(tmp_path, "2.0")
    with pytest.raises(UpdateError) as failed:
        installed.install(archive, "0" * 64)
    assert failed.value.kind == "hash"
    with pytest.raises(Cancelled):
        installed.install(archive, hashlib.sha256(archive.read_bytes()).hexdigest(), Job(cancelled=lambda: True))
    (tmp_path / "odd.tar").write_bytes(b"no tar")
    with pytest.raises(UpdateError) as failed:
        install(tmp_path / "odd.tar")
    assert failed.value.kind == "install"
    assert not list(tmp_path.glob("unpacked-*"))
    assert started(home) == "1.0"


@linux_only
@pytest.mark.parametrize("version", ["3.0", "..", "../1.0", "current/../1.0", "", "current"])
def test_only_an_installed_version_is_gone_back_to(version: str, home: Path) -> None:
    with pytest.raises(UpdateError):
        installed.go_back(version)
    assert started(home) == "1.0"


def test_other_programs_install_no_updates(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert (installed.platform(), installed.previous()) == ("", "")
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "hearth-1.0" / "hearth" / "hearth"))  # only unpacked
    assert (installed.platform(), installed.start_command()) == ("", [sys.executable])
    with pytest.raises(UpdateError):
        installed.install(tmp_path / "x", "")


def test_keys_and_a_signed_manifest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keys, dist = tmp_path / "keys", tmp_path / "dist"
    assert sign_release.main(["make-keys", str(keys)]) == 0
    public = [bytes.fromhex(line.split()[0]) for line in capsys.readouterr().out.splitlines()[1:]]
    assert len(set(public)) == 2
    if os.name == "posix":
        assert {stat.S_IMODE(path.stat().st_mode) for path in keys.iterdir()} == {0o600}
    assert sign_release.main(["make-keys", str(keys)]) == 1, "keys are never replaced"
    assert sign_release.main(["make-keys", str(ROOT / "keys")]) == 1
    assert not (ROOT / "keys").exists()
    dist.mkdir()
    sign = ["sign", "--key", str(keys / "release.key"), "--url", "https://example.org/v1/", "--packages", str(dist)]
    assert sign_release.main(sign) == 1, "no package"
    version = sign_release.build.version()
    (dist / f"hearth_{version}_amd64.deb").write_bytes(b"deb")
    (dist / f"hearth-{version}-linux-x86_64.tar.xz").write_bytes(b"tar")
    for other in ("0.0.9", f"1{version}", f"{version}.1"):
        (dist / f"hearth_{other}_amd64.deb").write_bytes(b"other")
    assert sign_release.main(sign) == 0
    found = verified((dist / sign_release.NAME).read_bytes(), [public[0]])
    assert {file.platform: file.size for file in found.files} == {"linux-x86_64-deb": 3, "linux-x86_64-tarball": 3}
    assert found.files[1].url == f"https://example.org/v1/hearth_{version}_amd64.deb"
    with pytest.raises(UpdateError):
        verified((dist / sign_release.NAME).read_bytes(), [public[1]])
    assert found.expires > found.released


def test_the_manifest_expires_after_the_given_days(tmp_path: Path) -> None:
    (tmp_path / f"hearth_{sign_release.build.version()}_amd64.deb").write_bytes(b"deb")
    found = sign_release.manifest_of(tmp_path, "https://x.org", "", "", 30, date(2026, 1, 31))
    assert found == replace(found, released=date(2026, 1, 31), expires=date(2026, 3, 2))
