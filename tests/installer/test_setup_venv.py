"""When there is nothing to do, what is asked of pip, and what survives a set-up that was cut short."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import setup_progress
import setup_venv
from setup_failures import SetupError
from test_setup_failures import OTHER_FILE

INSTALLER = Path(setup_venv.__file__).parent
THIS = sys.version_info[:2]
PLENTY = 100 * setup_venv.GB


def quiet() -> setup_progress.Progress:
    return setup_progress.Progress(setup_progress.QUIET, io.StringIO())


def install(
    project: Any,
    dev: bool = False,
    torch_index: str | None = None,
    any_torch: bool = False,
    free: int = PLENTY,
) -> None:
    setup_venv.install(project.venv, dev, torch_index, any_torch, quiet(), lambda: free)


def lists(project: Any, *names: str) -> str:
    return "--require-hashes --no-deps " + " ".join(f"-r {project.root}/installer/locked/{name}.txt" for name in names)


def installed_torch(project: Any, *needs: str) -> None:
    folder = project.venv.site_packages() / "torch-2.13.0.dist-info"
    folder.mkdir(exist_ok=True)
    lines = ["Metadata-Version: 2.4", *(f"Requires-Dist: {one}" for one in ("sympy>=1.13.3", *needs))]
    (folder / "METADATA").write_text("\n".join(lines) + "\n")


def test_a_finished_set_up_leaves_nothing_to_do(project: Any) -> None:
    assert not project.venv.is_ready(False, None, THIS)
    install(project)
    assert project.venv.is_ready(False, None, THIS)
    assert project.venv.is_ready(False, None, None)
    assert not project.venv.unfinished.exists()
    assert not project.venv.downloads.exists()


def test_the_tests_need_more_than_the_app_and_the_app_no_less(project: Any) -> None:
    install(project)
    assert not project.venv.is_ready(True, None, THIS)
    install(project, dev=True)
    assert project.venv.is_ready(True, None, THIS)
    assert project.venv.is_ready(False, None, THIS)
    project.pip()
    install(project)  # never takes the tests' tools away again
    assert any(call.endswith(lists(project, "app", "tests")) for call in project.calls())


@pytest.mark.parametrize(
    "name", ["pyproject.toml", "constraints.txt", "installer/locked/app.txt", "installer/locked/cuda.txt"]
)
def test_a_changed_pin_asks_for_another_set_up(project: Any, name: str) -> None:
    install(project)
    with (project.root / name).open("a") as file:
        file.write("# another\n")
    assert not project.venv.is_ready(False, None, THIS)


def test_another_python_or_one_that_went_away_asks_for_another_set_up(project: Any) -> None:
    install(project)
    assert not project.venv.is_ready(False, None, (3, 99))
    assert not project.venv.is_healthy((3, 99))
    project.make_venv("3.99.1")
    assert not project.venv.is_ready(False, None, None), "the stamp was made with another Python"
    project.make_venv()
    project.venv.python.unlink()
    project.venv.python.symlink_to(project.root / "gone")
    assert project.venv.version() is None
    assert not project.venv.is_ready(False, None, None)
    assert not project.venv.is_healthy(THIS)


def test_a_folder_that_was_moved_is_set_up_again(project: Any, tmp_path: Path) -> None:
    install(project)
    moved = setup_venv.Venv(project.root.rename(tmp_path / "elsewhere"))
    assert not moved.is_ready(False, None, THIS)
    assert not moved.is_healthy(THIS)


def test_a_broken_stamp_is_no_stamp(project: Any) -> None:
    install(project)
    project.venv.stamp.write_text("[1")
    assert not project.venv.is_ready(False, None, THIS)
    project.venv.stamp.write_text("[1]")
    assert not project.venv.is_ready(False, None, THIS)


def test_every_package_is_checked_by_its_hash_and_no_index_is_named(project: Any) -> None:
    install(project, dev=True)
    torch, rest, hearth = project.calls()
    for call in (torch, rest, hearth):
        assert call.startswith("-I -m pip install ")
        assert "index" not in call
    assert torch.endswith(lists(project, "torch_cpu"))
    assert rest.endswith(lists(project, "app", "tests"))
    assert hearth.endswith(f"--no-deps --no-build-isolation -e {project.root}")


@pytest.mark.skipif(sys.platform != "linux", reason="only for Linux are NVIDIA's libraries packages of their own")
def test_a_cuda_build_brings_its_packages_by_their_hashes_too(project: Any) -> None:
    installed_torch(project, 'nvidia-cudnn-cu13==9.20.0.48; platform_system == "Linux"')
    install(project)
    assert project.calls()[1].endswith(lists(project, "cuda"))
    installed_torch(project)
    project.pip()
    install(project)
    assert not any("cuda.txt" in call for call in project.calls()), "a build for the CPU needs none"


def test_a_build_that_is_not_known_is_taken_from_a_named_index_only_on_request(project: Any) -> None:
    installed_torch(project, "triton==3.7.1")
    install(project, torch_index="file:///builds", any_torch=True)
    torch, rest, *others = project.calls()
    assert torch.endswith("--no-deps --index-url file:///builds --force-reinstall torch==2.13.0")
    assert rest.endswith(lists(project, "app")), "everything else stays checked"
    if sys.platform == "linux":
        assert others[0].endswith(f"--index-url file:///builds -c {project.root}/constraints.txt torch==2.13.0")
    project.pip()
    (project.venv.site_packages() / "torch-2.13.0.dist-info").rename(
        project.venv.site_packages() / "torch-2.12.0.dist-info"
    )
    install(project, dev=True)
    assert project.calls()[0].endswith("--no-deps --index-url file:///builds torch==2.13.0"), "the choice is remembered"
    project.pip()
    install(project, torch_index="file:///others")
    assert project.calls()[0].endswith(lists(project, "torch_cpu")), "but not for another index"


def test_a_torch_index_is_used_for_torch_alone_and_remembered(project: Any) -> None:
    install(project)
    project.pip()
    install(project, torch_index="file:///builds")
    torch, rest, hearth = project.calls()
    assert f"--index-url file:///builds --force-reinstall {lists(project, 'torch_cpu')}" in torch
    assert "file:///builds" not in rest + hearth
    assert project.venv.is_ready(False, "file:///builds", THIS)
    assert project.venv.is_ready(False, None, THIS), "no index given means the one chosen before"
    assert not project.venv.is_ready(False, "file:///others", THIS)
    project.pip()
    install(project)
    assert not any("--force-reinstall" in call for call in project.calls()), "the chosen torch is not installed again"


def test_the_build_of_the_public_index_serves_where_there_is_none_for_the_cpu(project: Any) -> None:
    project.pip(lacks="torch_cpu")
    install(project)
    calls = project.calls()
    assert calls[0].endswith(lists(project, "torch_cpu"))
    assert calls[1].endswith(lists(project, "torch"))
    assert project.venv.is_ready(False, None, THIS)


def test_a_build_for_the_cpu_with_another_hash_is_refused_and_nothing_else_is_taken(project: Any) -> None:
    project.pip(says=OTHER_FILE.format("torch"), code=1)
    with pytest.raises(SetupError, match="torch was refused") as caught:
        install(project)
    assert "--any-torch-build" in caught.value.act
    assert len(project.calls()) == 1


@pytest.mark.parametrize("name", ["torch-2.13.0", "torch-2.13.0+cpu", "torch-2.13.0+cu126"])
def test_a_torch_that_is_there_is_kept_whatever_build_it_is(project: Any, name: str) -> None:
    (project.venv.site_packages() / f"{name}.dist-info").mkdir()
    install(project)
    assert not any("torch.txt" in call or "torch_cpu.txt" in call for call in project.calls())


def test_a_torch_index_without_torch_is_named(project: Any) -> None:
    project.pip(says="ERROR: No matching distribution found for torch==2.13.0", code=1)
    with pytest.raises(SetupError, match=r"has no torch==2\.13\.0") as caught:
        install(project, torch_index="file:///builds")
    assert "file:///builds" in caught.value.act


def test_a_disk_too_small_is_told_before_anything_is_fetched(project: Any) -> None:
    with pytest.raises(SetupError, match=r"no disk space: about 2\.3 GB are needed, 1\.0 GB are free"):
        install(project, free=setup_venv.GB)
    assert project.calls() == []
    (project.venv.site_packages() / "torch-2.13.0.dist-info").mkdir()
    install(project, free=setup_venv.GB)  # the large part is there already


def test_a_disk_too_small_for_the_cuda_build_ends_pip_as_soon_as_that_shows(project: Any) -> None:
    project.pip(says="Collecting torch==2.13.0\nCollecting nvidia-cudnn-cu13==9.20 (from torch)", sleeps=60)
    with pytest.raises(SetupError, match=r"torch with CUDA: about 8\.2 GB are needed, 4\.0 GB are free"):
        install(project, free=4 * setup_venv.GB)
    assert len(project.calls()) == 1
    assert not project.ended_by_itself(), "pip was waited for instead of ended"
    assert not project.venv.unfinished.exists()


@pytest.mark.parametrize("local", ["", "+cu126", "%2Bcu126"])
def test_a_cuda_build_is_known_by_its_file(project: Any, local: str) -> None:
    file = f"torch-2.13.0{local}-cp311-cp311-manylinux_2_28_x86_64.whl"
    project.pip(
        says=f"Collecting torch==2.13.0\n  Downloading {file}.metadata (37 kB)\n  Downloading {file} (526.6 MB)"
    )
    with pytest.raises(SetupError, match="torch with CUDA"):
        install(project, free=4 * setup_venv.GB)
    project.pip(says=f"  Downloading {file.replace('2.13.0' + local, '2.13.0%2Bcpu')} (191.8 MB)")
    install(project, free=4 * setup_venv.GB)


def test_watching_the_gpu_through_nvml_is_no_cuda_build(project: Any) -> None:
    project.pip(says="Collecting nvidia-ml-py>=13")
    install(project, free=4 * setup_venv.GB)


def test_a_failed_download_keeps_the_venv_and_a_failed_unpacking_does_not(project: Any) -> None:
    project.pip(says="Collecting torch\nNetwork is unreachable", code=1)
    with pytest.raises(SetupError, match="no network") as caught:
        install(project)
    assert caught.value.log == project.venv.log
    assert "Network is unreachable" in project.venv.log.read_text()
    assert project.venv.is_healthy(THIS)
    assert not project.venv.is_ready(False, None, THIS)

    project.pip(says="Installing collected packages: a, b\n[Errno 28] No space left on device", code=1)
    with pytest.raises(SetupError, match="no disk space"):
        install(project)
    assert not project.venv.is_healthy(THIS)


def test_a_set_up_killed_in_the_middle_is_noticed(project: Any) -> None:
    install(project)
    assert project.venv.is_ready(False, None, THIS)
    project.pip(says="Installing collected packages: a", sleeps=60)
    script = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from pathlib import Path; import setup_venv, setup_progress\n"
        "venv = setup_venv.Venv(Path(sys.argv[2]))\n"
        "setup_venv.install(venv, False, None, False, setup_progress.Progress(0), lambda: 1 << 40)"
    )
    child = subprocess.Popen([sys.executable, "-c", script, INSTALLER, project.root], start_new_session=True)
    try:
        deadline = time.monotonic() + 60
        while not project.calls() and time.monotonic() < deadline:
            time.sleep(0.02)
        assert project.calls()
    finally:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    assert not project.venv.is_ready(False, None, THIS)
    assert not project.venv.is_healthy(THIS), "half a package may lie there: it has to be made anew"


def test_a_real_venv_is_made_and_made_again_when_broken(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").touch()
    venv = setup_venv.Venv(tmp_path)
    venv.path.mkdir()
    (venv.path / "rubbish").touch()
    base = getattr(sys, "_base_executable", sys.executable)
    said = io.StringIO()
    setup_venv.create(venv, base, setup_progress.Progress(setup_progress.NORMAL, said))
    assert venv.version() == THIS
    assert venv.is_healthy(THIS)
    assert venv.site_packages().is_dir()
    assert not (venv.path / "rubbish").exists()
    assert [line.split(" ... ")[0] for line in said.getvalue().splitlines()] == [
        "Removing the old .venv",
        "Making .venv",
    ]


def test_a_python_that_cannot_make_a_venv_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = subprocess.CompletedProcess((), 1, b"No module named ensurepip")
    monkeypatch.setattr(setup_venv.subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(SetupError, match=r"-m venv` failed") as caught:
        setup_venv.create(setup_venv.Venv(tmp_path), "python", quiet())
    assert "python3-venv" in caught.value.act


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    venv = setup_venv.Venv(tmp_path)
    venv.path.mkdir()
    monkeypatch.setattr(setup_venv.shutil, "rmtree", refuse)
    with pytest.raises(SetupError, match="cannot be written") as caught:
        setup_venv.create(venv, sys.executable, quiet())
    assert "make the project's folder your own" in caught.value.act


def test_free_space_is_asked_of_the_first_folder_that_exists(tmp_path: Path) -> None:
    assert setup_venv.free_bytes_at(tmp_path / "not" / "there") > 0


def test_two_set_ups_of_one_folder_wait_for_each_other(tmp_path: Path) -> None:
    fcntl = pytest.importorskip("fcntl")
    folder = os.open(tmp_path, os.O_RDONLY)
    with setup_venv.only_one_at_a_time(tmp_path, quiet()), pytest.raises(BlockingIOError):
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)

    class Said(io.StringIO):
        """The other one is done as soon as this one waits."""

        def write(self, words: str) -> int:
            if "Waiting" in words:
                threading.Timer(0.1, os.close, [folder]).start()
            return super().write(words)

    said = Said()
    with setup_venv.only_one_at_a_time(tmp_path, setup_progress.Progress(setup_progress.NORMAL, said)):
        assert said.getvalue().startswith("Waiting for another set-up of this folder ... ")
    assert list(tmp_path.iterdir()) == []
