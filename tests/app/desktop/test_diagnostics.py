"""A report holds nothing of a person's, whatever they typed, named or were told; and it holds what is of use."""

from __future__ import annotations

import ast
import getpass
import io
import json
import logging
import logging.handlers
import os
import re
import socket
import subprocess
import sys
import threading
import zipfile
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.chat.store.conversation import Conversation, Message, Role
from app.chat.store.store import Store
from app.clients.engine_status import EngineStatus, Phase
from app.desktop import crash_notes, diagnostics
from app.desktop.shareable_log import LEFT_OUT, ShareableFormatter, place, stacks_in
from app.settings import AppPaths, AppSettings
from app.startup.bootstrap import folders_in
from engine.errors import ModelFormatError
from engine.library.records import Download, InstalledFile, InstalledModel
from engine.machine.hardware import HardwareProfile, probe

ROOT = Path(__file__).resolve().parents[3]

# What a person could have typed, named or been given; none of it may be in a report.
SECRETS = (
    "My doctor said that", "медицинская карта", "hf_SecretTokenOfMine123", "tax return 2031.gguf", "Aunt-Erna-7B",
    "Always answer as my late brother", "sk-abcdef", "private.example.org", "/srv/people/erna/chats",
)  # fmt: skip


def is_clean(words: str) -> bool:
    lowered = words.casefold()
    return not any(secret.casefold() in lowered for secret in SECRETS)


@pytest.fixture
def places(tmp_path: Path) -> AppPaths:
    places = folders_in(tmp_path / "erna")
    places.log.mkdir(parents=True)
    return places


def moment() -> diagnostics.Moment:
    """A window in which a person's words are everywhere where they can be."""
    doctor, _, token, file, model, instructions, key, host, folder = SECRETS
    settings = AppSettings(system_prompt=instructions, model=f"{folder}/{file}", last_conversation=key,
                           window_geometry=token, temperature=0.5, text_px=18)  # fmt: skip
    status = EngineStatus(
        Phase.READY, model=model, device=f"on {host}", device_reason=doctor, description=instructions, gpu="RTX",
        tok_s=12.34, context_used=99, context_total=4096, placement={"of": file},
    )  # fmt: skip
    installed = InstalledModel(
        id=f"local/{model}", name=model, folder=folder, path=f"{folder}/{file}",
        files=(InstalledFile(file, 5, "0" * 64),),
        n_bytes=5 * 10**9, owned=False, origin="in place", state="ready", reason=doctor, repo=host, prepared=folder,
    )  # fmt: skip
    download = Download(id=key, model=model, name=model, repo=host, state="downloading", done_bytes=1, total_bytes=2,
                        file=file, message=token)  # fmt: skip
    return diagnostics.Moment(settings, status, 3, (installed,), (download, replace(download, id="b")), "6.11.3",
                              "wayland", ((2560, 1440, 1.5),))  # fmt: skip


def leave_traces(places: AppPaths) -> None:
    """Everything that Hearth writes down, full of a person's words."""
    store = Store.open(places.chats_file)
    conversation = Conversation(title=SECRETS[0])
    store.save_conversation(conversation)
    store.append(conversation.id, Message(Role.USER, SECRETS[0]))
    store.close()
    places.settings_file.write_text(json.dumps({"system_prompt": SECRETS[5]}))
    subprocess.run(
        [sys.executable, "-c", f"import test_diagnostics as t; t.write_logs(t.Path({str(places.log_file)!r}))"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (ROOT, *Path(__file__).parents[:2])))},
        check=True, capture_output=True,
    )  # fmt: skip
    for name in ("engine.log", "library.log", crash_notes.FAULTS, crash_notes.STACKS_BEFORE):
        text = "\n".join(
            f'{secret}\nTraceback (most recent call last):\n  File "/srv/people/{secret}.py", line 3, in {secret}\n'
            f'  File "{Path(crash_notes.__file__)}", line 12, in open_log\n    print("{secret}")\n'
            f"ValueError: {secret}\n{secret}: {secret}\nFatal Python error: {secret}\n"
            f'Thread 0x00007f {secret}\n  File "{secret}", line 4 in {secret}\n'
            for secret in SECRETS
        )
        (places.log / name).write_text(text, encoding="utf-8")


def write_logs(file: Path) -> None:
    """Log as the window does, in a process of its own."""
    crash_notes.open_log(file)
    ours = logging.getLogger("app.some_module")
    for secret in SECRETS:
        ours.info("%s cannot be opened: %s", secret, OSError(13, secret, secret))
        ours.info("a %(what)s", {"what": secret})
        ours.info("%r, %10s, %d of %d", secret, secret, 3, 4)
        ours.info("in %s of %s", Path(secret), [secret])
        ours.info("too many", secret)
        logging.getLogger("engine.library").error("%s", ModelFormatError(secret))
        logging.getLogger("httpx").info("GET https://%s/ %s", secret, secret)
        logging.getLogger("httpx").info(secret)
        logging.getLogger(secret).info("from a strange place")
        logging.getLogger("qt").warning("%s", secret)
        try:
            try:
                raise KeyError(secret)
            except KeyError as error:
                raise type(secret, (ValueError,), {})(secret) from error
        except ValueError:
            ours.exception("it went wrong")
        try:
            exec(compile(f"def f():\n    raise RuntimeError({secret!r})\nf()", secret, "exec"))
        except RuntimeError:
            ours.info("again", exc_info=True)


def test_nothing_of_a_persons_is_in_a_report(places: AppPaths, tmp_path: Path) -> None:
    leave_traces(places)
    assert not is_clean(places.log_file.read_text(encoding="utf-8")), "the whole log has it, so the test says something"
    target = tmp_path / "report.zip"
    diagnostics.save(target, places, moment())
    assert is_clean(target.read_bytes().decode("latin-1"))
    with zipfile.ZipFile(target) as bundle:
        assert bundle.namelist() == ["report.txt", "log.txt", "crashes.txt"]
        everything = "\n".join(bundle.read(name).decode("utf-8") for name in bundle.namelist())
    assert is_clean(everything)
    assert str(tmp_path) not in everything
    assert str(Path.home()) not in everything
    name = getpass.getuser()
    assert name == "root" or name not in everything
    assert socket.gethostname() not in everything
    assert is_clean("\n".join(diagnostics.shown_at_a_crash(places.log)))


def test_what_helps_is_in_a_report(places: AppPaths, tmp_path: Path) -> None:
    leave_traces(places)
    diagnostics.save(tmp_path / "report.zip", places, moment())
    with zipfile.ZipFile(tmp_path / "report.zip") as bundle:
        report, log, crashes = (bundle.read(name).decode("utf-8") for name in bundle.namelist())
    assert "Qt 6.11.3" in report
    assert "Processor " in report
    assert "Screen 2560 x 1440 at 1.5" in report
    assert "temperature 0.5\n" in report
    assert "top_k the model's own" in report
    assert "system_prompt given" in report
    assert "Engine ready, on GPU and CPU" in report
    assert "Rate 12.34 tok/s" in report
    assert "Model, 5.0\u202fGB, in place, ready, prepared" in report
    assert "Downloads downloading: 2" in report
    assert f"app.some_module: {LEFT_OUT} cannot be opened: PermissionError 13" in log
    assert "3 of 4" in log
    assert "test_diagnostics" not in log, "a file that is none of the program's"
    assert "    app/desktop/crash_notes.py:12 open_log" in crashes
    assert "  ValueError" in crashes


def test_a_folder_that_cannot_be_written_leaves_nothing_half_done(places: AppPaths, tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        diagnostics.save(tmp_path / "missing" / "report.zip", places, moment())
    target = tmp_path / "report.zip"
    target.mkdir()
    with pytest.raises((IsADirectoryError, PermissionError)):  # the latter on Windows
        diagnostics.save(target, places, moment())
    assert [entry.name for entry in tmp_path.iterdir() if entry.suffix == ".new"] == []


def test_a_machine_with_strange_names_is_still_described(places: AppPaths) -> None:
    machine = probe()
    strange = replace(machine, cpu=replace(machine.cpu, name="\x1b[31m" + SECRETS[1]))
    lines = diagnostics.report(places, moment(), HardwareProfile(strange.cpu, strange.ram))
    assert any(line.startswith("Processor –, ") for line in lines)
    assert "GPU none" in lines


def test_a_report_is_called_after_its_day() -> None:
    assert diagnostics.suggested_name(datetime(2031, 5, 4, 13, 2)) == "hearth-report-2031-05-04-1302.zip"  # noqa: DTZ001 - what is shown is local time


@given(
    st.lists(st.one_of(st.text(min_size=1), st.binary(), st.floats(), st.integers(), st.none())), st.text(max_size=8)
)
def test_any_message_is_formatted_and_holds_no_text_but_its_own(args: list[object], form: str) -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(ShareableFormatter())
    record = logging.LogRecord("app.x", logging.INFO, __file__, 1, "%s|" * len(args), tuple(args), None)
    handler.emit(record)
    said = stream.getvalue().split("app.x: ", 1)[1]
    for arg in args:
        if isinstance(arg, str) and len(arg) > 3 and arg.strip("…| \n0123456789.-einfa"):
            assert arg not in said
    broken = logging.LogRecord("app.x", logging.INFO, __file__, 1, form, tuple(args), None)
    handler.format(broken)


def test_only_places_in_the_program_and_its_parts_are_named() -> None:
    assert place(diagnostics.__file__) == "app/desktop/diagnostics.py"
    assert place(pytest.__file__) == "pytest/__init__.py"
    assert place(io.__file__ or "") == "io.py"
    assert place("/srv/people/erna/app/diagnostics.py") == LEFT_OUT
    assert place("C:\\Users\\Erna\\x.py") == LEFT_OUT


def test_every_message_of_the_log_stands_in_the_source() -> None:
    """The shareable log trusts the first argument of a log call: it must never be made from what a person typed."""
    loose = []
    for package in ("app", "engine", "native_kernels"):
        for file in sorted((ROOT / package).rglob("*.py")):
            source = file.read_text(encoding="utf-8")
            tree = ast.parse(source if re.search(r"\blog\b|getLogger", source) else "")
            for node in ast.walk(tree):
                is_log = (
                    isinstance(node, ast.Call)
                    and isinstance(node.func, ast.Attribute)
                    and node.func.attr in {"debug", "info", "warning", "error", "critical", "exception"}
                    and (ast.unparse(node.func.value) == "log" or "getLogger" in ast.unparse(node.func.value))
                )
                if is_log and not (isinstance(node.args[0], ast.Constant) and isinstance(node.args[0].value, str)):
                    loose.append(f"{file.relative_to(ROOT)}:{node.lineno}")
    assert loose == []


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_a_real_crash_is_told_by_its_places(tmp_path: Path) -> None:
    code = (
        "import faulthandler, sys, os, signal\n"
        "from app.desktop import crash_notes\n"
        "from pathlib import Path\n"
        f"crash_notes.open_log(Path({str(tmp_path)!r}) / 'hearth.log')\n"
        f"crash_notes.mark_running(Path({str(tmp_path)!r}))\n"
        "os.kill(os.getpid(), signal.SIGSEGV)\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False, capture_output=True)
    last = crash_notes.look_back(tmp_path)
    assert last == crash_notes.LastRun(stacks=True)
    lines = stacks_in((tmp_path / crash_notes.STACKS_BEFORE).read_text())
    assert lines[0] == "Fatal Python error: Segmentation fault"
    assert diagnostics.shown_at_a_crash(tmp_path)[: len(lines)] == lines


@pytest.mark.expects_log("The Wayland connection broke")
def test_how_the_last_run_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert crash_notes.look_back(tmp_path) is None, "the first start of all"
    crash_notes.mark_running(tmp_path)
    mark = tmp_path / "running.json"
    assert crash_notes.look_back(tmp_path) == crash_notes.LastRun(stacks=False)
    crash_notes.mark_ended()
    assert crash_notes.look_back(tmp_path) is None, "in order"
    mark.write_text(json.dumps({"pid": 1 << 22, "boot": "another start of the PC"}))
    assert crash_notes.look_back(tmp_path) is None, "the PC went down with it"
    for broken in ("", "[]", "{}", "null", '{"pid": "x"}', "\x00"):
        mark.write_text(broken)
        assert crash_notes.look_back(tmp_path) is None, broken
    crash_notes.mark_running(tmp_path)
    mark.write_text(json.dumps({**json.loads(mark.read_text()), "pid": 1 << 22}))

    def refuse(*_: object) -> None:
        raise OSError(1, "Incorrect function")  # of Windows with broken counters

    with monkeypatch.context() as broken_counters:
        broken_counters.setattr("psutil.Process", refuse)
        assert crash_notes.look_back(tmp_path) == crash_notes.LastRun(stacks=False)
    monkeypatch.setattr(crash_notes, "_is_running", lambda pid: True)
    assert crash_notes.look_back(tmp_path) is None, "it still runs"
    crash_notes._log_qt(crash_notes.QtMsgType.QtWarningMsg, None, "The Wayland connection broke. Did it die?")  # type: ignore[arg-type]
    assert not mark.exists(), "the desktop ended, and Hearth with it"


def test_a_long_line_of_the_log_is_cut_for_the_dialog(tmp_path: Path) -> None:
    (tmp_path / crash_notes.SHAREABLE).write_text("x" * (1 << 20) + "\nlast\n", encoding="utf-8")
    lines = diagnostics.shown_at_a_crash(tmp_path)
    assert lines[-1] == "last"
    assert max(map(len, lines)) <= diagnostics.SHOWN_CHARS + 1


def test_the_notes_of_faults_stay_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crash_notes, "FAULT_BYTES", 2000)
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)
    monkeypatch.setattr(crash_notes.log, "critical", lambda *_, **__: None)
    crash_notes.catch_faults(tmp_path, lambda error: None)
    for number in range(50):
        error = ValueError("x" * 1000 + str(number))
        sys.excepthook(ValueError, error, None)
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) < 10_000
    assert "x49" in (tmp_path / crash_notes.FAULTS).read_text(encoding="utf-8")
