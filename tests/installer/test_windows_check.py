"""The check of the Windows code under Wine, and the environment of the smoke test on Windows."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from installer import smoke_test, windows_check

CACHE = "HEARTH_WINDOWS_CHECK"  # names the cache folder of the check
ROOT = Path(__file__).resolve().parents[2]


def test_the_packages_are_those_of_windows_each_with_its_hashes() -> None:
    wanted = windows_check.locked_for_windows("app", "tests", "torch")
    names = re.findall(r"^([\w.-]+)==\S+ \\\n    --hash=sha256:", wanted, re.M)
    assert {"numpy", "torch", "pywin32", "colorama", "pytest"} <= set(names)
    assert not {"SecretStorage", "jeepney", "backports.tarfile"} & set(names)
    assert len(names) == wanted.count("==")
    assert ";" not in wanted


def test_the_tests_to_run_are_there() -> None:
    assert [name for name in windows_check.TESTS if not (ROOT / name).is_file()] == []


def test_a_folder_stands_for_its_files_of_tests() -> None:
    file = "tests/installer/test_windows_check.py"
    assert windows_check.files_of_tests([file]) == [file]
    found = windows_check.files_of_tests(["tests"])
    assert {file, *windows_check.TESTS} <= set(found)
    assert found == sorted(set(found))


def test_a_step_has_one_more_try(capsys: pytest.CaptureFixture[str]) -> None:
    answers = iter([windows_check.CheckError("no window opened"), "good"])

    def work() -> str:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    step = windows_check.attempt("window", work)
    assert (step.tries, step.result, step.passed) == (2, "good", True)
    said = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in said] == ["FAILED", "ok"]


def test_the_suite_goes_on_after_a_test_that_ends_the_process(tmp_path: Path) -> None:
    kept, files = (
        tmp_path / "suite.jsonl",
        ["tests/app/test_ends.py", "tests/app/test_none.py", "tests/docs/test_left.py"],
    )
    ends = "import os, pytest\ndef test_good(): pass\ndef test_ends(): os._exit(0)\ndef test_bad(): assert 0\n"
    none = "import pytest\npytest.skip('no screen', allow_module_level=True)\n"
    for file, text in zip(files, (ends, none), strict=False):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(text)
    kept.touch()

    def outcome(words: list[str], _: float, **given: str) -> tuple[str, int]:
        place = {"HEARTH_TEST_RESULTS": given["HEARTH_TEST_RESULTS"][2:].replace("\\", "/")}
        few = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": "xdist.plugin,pytest_timeout"}  # a faster start
        environment = os.environ | few | place | {"PYTHONPATH": str(ROOT / "tests")}
        done = subprocess.run([sys.executable, *words], cwd=tmp_path, env=environment, capture_output=True, text=True)
        return done.stdout, done.returncode

    windows_check.run_suite(SimpleNamespace(outcome=outcome, prefix=tmp_path), files[:2], kept)  # type: ignore[arg-type]
    record = windows_check.record_of(windows_check.results_in(kept), files)
    assert (record["passed"], record["files"], record["files_in_all"]) == (1, 2, 3)
    assert (record["stopped"], record["failed"]) == ([f"{files[0]}::test_ends"], [f"{files[0]}::test_bad"])
    assert (record["skipped"], record["files_left"]) == (1, {"docs": 1})


def test_on_windows_the_smoke_test_keeps_the_users_name_and_none_of_their_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    for name, value in {"USERNAME": "Ada", "SYSTEMROOT": "C:\\Windows", "APPDATA": "C:\\Users\\Ada"}.items():
        monkeypatch.setenv(name, value)
    given = smoke_test.environment(tmp_path, SimpleNamespace(environment={}))  # type: ignore[arg-type]
    assert given["USERNAME"] == "Ada"
    folders = ("USERPROFILE", "APPDATA", "LOCALAPPDATA", "WIN_PD_OVERRIDE_APPDATA", "WIN_PD_OVERRIDE_LOCAL_APPDATA")
    assert {given[name] for name in folders} == {str(tmp_path)}


def test_new_sources_leave_the_frozen_program_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy, program = tmp_path / "copy", tmp_path / "copy" / "build" / "program" / "hearth.exe"
    program.parent.mkdir(parents=True)
    program.touch()
    (copy / "app").mkdir()
    for old in ("app/removed.py", "removed.txt"):
        (copy / old).touch()
    sources = tmp_path / "sources"
    (sources / "app").mkdir(parents=True)
    (sources / "app" / "new.py").write_text("new = 1\n")
    subprocess.run(["git", "init", "-q", str(sources)], check=True)
    monkeypatch.setattr(windows_check, "ROOT", sources)
    windows_check.copy_sources(SimpleNamespace(sources=copy))  # type: ignore[arg-type]
    assert {path.relative_to(copy) for path in copy.rglob("*.*")} == {Path("app/new.py"), program.relative_to(copy)}


@pytest.mark.timeout(3000)
@pytest.mark.skipif(CACHE not in os.environ, reason=f"{CACHE} names no folder for the check under Wine")
@pytest.mark.skipif(not shutil.which("wine"), reason="Wine is not installed")
def test_hearth_runs_under_wine() -> None:
    assert windows_check.main(["--cache", os.environ[CACHE]]) == 0
