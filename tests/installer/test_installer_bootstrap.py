"""The two commands: what they hand over, what they say, and that an old or bare Python can start them."""

from __future__ import annotations

import ast
import io
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import bootstrap
import pytest
import qt_libraries
import setup_progress
import setup_venv
import system_packages
from setup_failures import SetupError

INSTALLER = Path(bootstrap.__file__).parent


def reachable() -> dict[str, ast.Module]:
    """bootstrap.py and the modules beside it that it imports, directly or not, parsed as Python 3.8 would."""
    trees: dict[str, ast.Module] = {}
    waiting = ["bootstrap"]
    while waiting:
        name = waiting.pop()
        if name not in trees:
            trees[name] = ast.parse((INSTALLER / f"{name}.py").read_text(encoding="utf-8"), feature_version=(3, 8))
            waiting += [other for other in imports(trees[name]) if (INSTALLER / f"{other}.py").is_file()]
    return trees


def imports(tree: ast.Module) -> set[str]:
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.split(".")[0])
    return found


@pytest.fixture
def handed_over(monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[str], Path]]:
    calls: list[tuple[list[str], Path]] = []

    def note(command: list[str], folder: Path) -> int:
        calls.append((command, folder))
        return 7

    monkeypatch.setattr(bootstrap, "hand_over", note)
    return calls


@pytest.fixture
def hosted(project: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The bootstrap at work in a made-up project, on a system that lacks no library."""
    monkeypatch.setattr(bootstrap, "ROOT", project.root)
    monkeypatch.setattr(bootstrap, "check_libraries", lambda *arguments: None)
    monkeypatch.setattr(setup_venv, "NEED_BYTES", 0)
    return project


def test_only_the_standard_library_and_syntax_of_python_3_8() -> None:
    trees = reachable()
    assert len(trees) == 6
    foreign = {name: imports(tree) - set(sys.stdlib_module_names) - set(trees) for name, tree in trees.items()}
    assert not any(foreign.values()), foreign


def test_it_starts_in_isolation_from_every_installed_package() -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-S", INSTALLER / "bootstrap.py", "--help"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "{run,test,setup}" in done.stdout


def test_an_old_python_says_so_and_what_to_do(tmp_path: Path) -> None:
    for name in reachable():
        (tmp_path / "installer").mkdir(exist_ok=True)
        shutil.copy(INSTALLER / f"{name}.py", tmp_path / "installer")
    for name in ("pyproject.toml", "constraints.txt"):
        (tmp_path / name).touch()
    script = (
        "import runpy, sys; sys.version_info = (3, 9, 2); sys.argv = sys.argv[1:]\n"
        "runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    command = [sys.executable, "-I", "-c", script, tmp_path / "installer" / "bootstrap.py", "run"]
    done = subprocess.run(command, capture_output=True, text=True, env={"PATH": str(tmp_path)}, check=False)
    assert done.returncode == 1
    assert done.stdout == ""
    assert "Python 3.11 to 3.13 is needed, this is 3.9" in done.stderr
    assert "What to do: install Python 3.12 or 3.13" in done.stderr
    assert not (tmp_path / ".venv").exists()


@pytest.mark.parametrize(
    ("version", "fits"), [((3, 8), False), ((3, 10, 9), False), ((3, 11), True), ((3, 13, 2), True), ((3, 14), False)]
)
def test_supported_pythons(version: tuple[int, ...], fits: bool) -> None:
    assert bootstrap.is_supported(version) is fits


@pytest.mark.skipif(os.name == "nt", reason="the fakes for python are shell scripts")
def test_a_fitting_python_on_path_is_asked_and_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fake(name: str, body: str) -> None:
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(0o755)

    monkeypatch.setenv("PATH", str(tmp_path))
    assert bootstrap.find_python() is None
    fake("python3", "echo 3 9 /usr/bin/python3.9")
    fake("python3.13", "echo 'pyenv: python3.13: command not found' >&2; exit 127")
    assert bootstrap.find_python() is None
    fake("python3.12", "echo 3 12 /with a space/python3.12")
    fake("python3.11", "echo 3 11 /usr/bin/python3.11")
    assert bootstrap.find_python() == "/with a space/python3.12"


def test_it_goes_on_with_the_python_it_found(monkeypatch: pytest.MonkeyPatch, handed_over: list[Any]) -> None:
    said = io.StringIO()
    monkeypatch.setattr(bootstrap, "find_python", lambda: "/opt/python3.12")
    with pytest.raises(SystemExit) as caught:
        bootstrap.go_on_with_another_python(setup_progress.Progress(1, said), ["run", "--", "--prompt", "Hello"])
    assert caught.value.code == 7
    assert handed_over[0][0] == ["/opt/python3.12", str(INSTALLER / "bootstrap.py"), "run", "--", "--prompt", "Hello"]
    assert "going on with /opt/python3.12" in said.getvalue()


def test_an_old_python_is_good_enough_to_open_what_is_set_up(
    hosted: Any, monkeypatch: pytest.MonkeyPatch, handed_over: list[Any]
) -> None:
    assert bootstrap.main(["setup", "--quiet"]) == 0
    monkeypatch.setattr(bootstrap, "is_supported", lambda version: False)
    monkeypatch.setattr(bootstrap, "find_python", lambda: pytest.fail("no other Python is needed"))
    assert bootstrap.main(["run"]) == 7


def test_run_hands_over_to_the_app_where_the_person_stands(
    hosted: Any, handed_over: list[Any], capfd: pytest.CaptureFixture[str]
) -> None:
    assert bootstrap.main(["run", "--", "--prompt", "Hello", "--", "x"]) == 7
    first = capfd.readouterr()
    assert first.out == "", "stdout belongs to the answer"
    assert "Hearth is set up." in first.err
    command = [str(hosted.venv.python), "-P", "-m", "app", "--prompt", "Hello", "--", "x"]
    assert handed_over == [(command, Path.cwd())]
    assert not any("tests.txt" in call for call in hosted.calls())

    hosted.pip()
    assert bootstrap.main(["run"]) == 7
    assert capfd.readouterr() == ("", ""), "nothing to do, nothing to say"
    assert hosted.calls() == []


@pytest.mark.parametrize(
    ("processors", "workers"),
    [(1, []), (2, ["-n", "3", "--dist", "worksteal"]), (64, ["-n", "4", "--dist", "worksteal"])],
)
def test_test_hands_over_to_pytest_in_the_project(
    hosted: Any, handed_over: list[Any], monkeypatch: pytest.MonkeyPatch, processors: int, workers: list[str]
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(processors)), raising=False)
    assert bootstrap.main(["test", "--quiet", "--", "-k", "one"]) == 7
    assert handed_over == [([str(hosted.venv.python), "-m", "pytest", *workers, "-k", "one"], hosted.root)]
    assert any(call.endswith("tests.txt") for call in hosted.calls())


@pytest.mark.skipif(os.name == "nt", reason="Windows waits for the command instead")
def test_handing_over_keeps_the_exit_status_and_the_folder(tmp_path: Path) -> None:
    script = (
        f"import sys; sys.path.insert(0, {str(INSTALLER)!r}); import bootstrap; from pathlib import Path\n"
        f"bootstrap.hand_over([sys.executable, '-c', 'import os; print(os.getcwd()); raise SystemExit(5)'], "
        f"Path({str(tmp_path)!r}))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, Path(done.stdout.strip())) == (5, tmp_path.resolve())


def test_a_failure_is_told_and_ends_with_1(
    hosted: Any, handed_over: list[Any], capfd: pytest.CaptureFixture[str]
) -> None:
    hosted.pip(says="Network is unreachable", code=1)
    assert bootstrap.main(["run"]) == 1
    told = capfd.readouterr()
    assert told.out == ""
    assert "no network" in told.err
    assert "What to do: connect to the internet" in told.err
    assert str(hosted.venv.log) in told.err
    assert handed_over == []


def test_ctrl_c_ends_with_130(hosted: Any, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    def interrupt(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(setup_venv, "install", interrupt)
    assert bootstrap.main(["setup"]) == 130
    assert "The same command continues from here" in capfd.readouterr().err


def test_a_disk_that_fills_up_under_the_log_is_told_as_that(
    hosted: Any, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def fill(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(setup_venv, "install", fill)
    assert bootstrap.main(["setup"]) == 1
    assert "no disk space: the disk is full" in capfd.readouterr().err


@pytest.mark.parametrize(
    "argv", [[], ["fly"], ["run", "--prompt", "Hello"], ["test", "tests/app"], ["run", "-q", "--quiet"]]
)
def test_what_is_meant_for_the_app_has_to_stand_behind_two_dashes(argv: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        bootstrap.parse(argv)
    assert caught.value.code == 2


def test_options_are_the_bootstraps_before_the_dashes() -> None:
    arguments, passed_on = bootstrap.parse(["--torch-index", "file:///x", "test", "--verbose", "--", "--quiet"])
    assert (arguments.command, arguments.torch_index, arguments.verbose, arguments.quiet) == (
        "test",
        "file:///x",
        True,
        False,
    )
    assert passed_on == ["--quiet"]


@pytest.mark.parametrize("root", [True, False])
def test_a_python_without_venv(root: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    installed: list[list[str]] = []
    monkeypatch.setattr(bootstrap, "_has_ensurepip", lambda python: bool(installed))
    monkeypatch.setattr(system_packages, "os_release", lambda: {"ID": "debian"})
    monkeypatch.setattr(system_packages, "is_root", lambda: root)
    monkeypatch.setattr(system_packages, "can_install", lambda manager: root and manager == "apt")
    monkeypatch.setattr(system_packages, "install_with_apt", lambda packages, log: installed.append(packages))
    monkeypatch.setattr(os.path, "realpath", lambda path: "/usr/bin/python{}.{}".format(*sys.version_info))
    progress = setup_progress.Progress(setup_progress.QUIET)
    if root:
        bootstrap.need_ensurepip("/usr/bin/python3", progress)
        assert installed == [["python3-venv"]]
    else:
        with pytest.raises(SetupError, match="ensurepip is missing") as caught:
            bootstrap.need_ensurepip("/usr/bin/python3", progress)
        assert "`sudo apt-get install python3-venv`" in caught.value.act


class System:
    """A Linux that lacks the given libraries until apt installs them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, offscreen: list[str], display: list[str], root: bool) -> None:
        self.asked: list[str] = []
        self.offscreen, self.display = offscreen, display
        monkeypatch.setattr(bootstrap.sys, "platform", "linux")
        monkeypatch.delenv("DISPLAY", raising=False)
        monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
        monkeypatch.setattr(qt_libraries, "missing_for_offscreen", lambda pyside: list(self.offscreen))
        monkeypatch.setattr(qt_libraries, "missing_for_display", lambda pyside: [*self.offscreen, *self.display])
        monkeypatch.setattr(system_packages, "os_release", lambda: {"ID": "ubuntu"})
        monkeypatch.setattr(system_packages, "is_root", lambda: root)
        monkeypatch.setattr(system_packages, "can_install", lambda manager: root)
        monkeypatch.setattr(system_packages, "install_with_apt", self.install)

    def install(self, packages: list[str], log: Path) -> bool:
        self.asked += packages
        self.offscreen, self.display = [], []
        return True


def check(project: Any, command: str, thorough: bool = True) -> str:
    said = io.StringIO()
    bootstrap.check_libraries(project.venv, command, thorough, setup_progress.Progress(setup_progress.NORMAL, said))
    return said.getvalue()


def test_root_installs_qts_libraries_once(project: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    system = System(monkeypatch, ["libEGL.so.1"], ["libxcb-icccm.so.4"], root=True)
    assert "Installing Qt's system libraries through apt: libegl1 libxcb-icccm4" in check(project, "run")
    assert system.asked == ["libegl1", "libxcb-icccm4"]
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setattr(qt_libraries, "missing_for_offscreen", lambda pyside: pytest.fail("it is known to be there"))
    assert check(project, "run", thorough=False) == ""
    assert check(project, "test", thorough=False) == ""


def test_anyone_else_gets_the_one_command_and_goes_on(project: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    system = System(monkeypatch, [], ["libxcb-icccm.so.4", "libxcb-keysyms.so.1"], root=False)
    told = check(project, "run")
    assert "type `sudo apt-get install libxcb-icccm4 libxcb-keysyms1`" in told
    assert system.asked == []
    assert check(project, "run", thorough=False) == "", "without a screen there is no window to miss"
    assert check(project, "test", thorough=False) == "", "the tests need no screen"
    monkeypatch.setenv("DISPLAY", ":0")
    assert "libxcb-icccm4" in check(project, "run", thorough=False), "said again while it is missing"


def test_the_tests_insist_on_what_qt_needs_without_a_screen(project: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    System(monkeypatch, ["libEGL.so.1"], [], root=False)
    with pytest.raises(SetupError, match=r"lacks: libEGL\.so\.1") as caught:
        check(project, "test")
    assert "sudo apt-get install libegl1" in caught.value.act
    assert "libegl1" in check(project, "run")


def test_a_library_of_no_known_package_is_named(project: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    System(monkeypatch, [], ["libnew.so.3"], root=False)
    assert "install the packages of your system that hold libnew.so.3" in check(project, "setup")


def test_other_systems_bring_these_libraries_along(project: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    System(monkeypatch, ["libEGL.so.1"], [], root=False)
    monkeypatch.setattr(bootstrap.sys, "platform", "darwin")
    assert check(project, "test") == ""
