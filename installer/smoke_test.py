#!/usr/bin/env python3
"""Tries the built program as a person would: starts it, types a message, waits for the answer, closes it.

    python3 installer/smoke_test.py build/program/hearth [--json FILE]

The program gets a home of its own that is empty, and an environment without Python: no variable of it and no PATH. The
keys are real ones, and the answer is read from where Hearth keeps its chats. On Linux it needs Xvfb and xdotool.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
if str(HERE) not in sys.path:
    sys.path.insert(0, str(HERE))

from smoke_desktop import Desktop, SmokeTestError, open_desktop  # noqa: E402 - the path above comes first

QUESTION = "What is the capital of France?"
WINDOW_WITHIN_S = 120.0
ANSWER_WITHIN_S = 600.0  # the kernels are compiled before the first answer
END_WITHIN_S = 60.0
LOOK_EVERY_S = 0.05
_ENDED_WELL = ("complete", "length")


@dataclass(frozen=True)
class Found:
    """The observations. Seconds from the start of the program, or from the sent message for first_answer_s."""

    first_window_s: float
    first_answer_s: float  # the kernels of answers are compiled in it
    second_window_s: float  # of a second start, with everything compiled and the disk's cache warm
    second_answer_s: float
    answer: str


def main(argv: list[str] | None = None) -> int:
    """Returns 0 where everything went as it should, else 1 with the reason on stderr."""
    parser = argparse.ArgumentParser(description="Try the built program as a user would.")
    parser.add_argument("folder", type=Path, help="the built program's folder")
    parser.add_argument("--json", type=Path, help="write what was measured into this file")
    given = parser.parse_args(argv)
    try:
        found = smoke_test(given.folder.resolve())
    except SmokeTestError as failure:
        print(f"The smoke test failed: {failure}", file=sys.stderr)
        return 1
    values = asdict(found)
    if given.json:
        given.json.write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(values, indent=1))
    return 0


def smoke_test(folder: Path) -> Found:
    """Start, ask, read the answer and close, twice. Raises: SmokeTestError with what went wrong."""
    with tempfile.TemporaryDirectory(prefix="hearth-smoke-", ignore_cleanup_errors=True) as place, open_desktop() as on:
        home = Path(place)
        check_command_line(folder, home, on)
        check_documents(folder, home, on)
        first_window, first_answer, answer = start_and_ask(folder, home, on, 1)
        second_window, second_answer, _ = start_and_ask(folder, home, on, 2)
        check_training(folder, home, on)
    return Found(first_window, first_answer, second_window, second_answer, answer)


def environment(home: Path, desktop: Desktop) -> dict[str, str]:
    """Return the program's environment: a home of its own, a screen, and nothing of the current user's."""
    nothing = home / "empty"
    runtime = home / "runtime"
    for folder in (nothing, runtime):
        folder.mkdir(exist_ok=True)
    runtime.chmod(0o700)
    given = {"HOME": str(home), "PATH": str(nothing), "LANG": "C.UTF-8", "XDG_RUNTIME_DIR": str(runtime)}
    if sys.platform == "win32":  # without these no program starts there
        kept = ("SYSTEMROOT", "SYSTEMDRIVE", "COMSPEC", "NUMBER_OF_PROCESSORS", "PROCESSOR_ARCHITECTURE", "USERNAME",
                "KMP_AFFINITY")  # the last one is set by installer/windows_check.py  # fmt: skip
        given = {name: os.environ[name] for name in kept if name in os.environ}
        system = Path(os.environ["SYSTEMROOT"], "System32")
        given |= {"PATH": str(system), "TEMP": str(home), "TMP": str(home)}
        # Hearth asks Windows for its folders, not the environment, unless the last two name them.
        own = ("USERPROFILE", "APPDATA", "LOCALAPPDATA", "WIN_PD_OVERRIDE_APPDATA", "WIN_PD_OVERRIDE_LOCAL_APPDATA")
        given |= dict.fromkeys(own, str(home))
    return given | desktop.environment


def check_command_line(folder: Path, home: Path, desktop: Desktop) -> None:
    """Both programs tell their version or help. Raises: SmokeTestError."""
    for name, flag, word in (("hearth", "--version", "Hearth "), ("hearth-engine", "--help", "generate")):
        if name == "hearth" and sys.platform == "win32":
            continue  # a program with a window has no output there
        if word not in (said := output_of(folder, home, desktop, name, flag)):
            raise SmokeTestError(f"{name} {flag} said:\n{said}")


def output_of(folder: Path, home: Path, desktop: Desktop, name: str, *words: str) -> str:
    """Run a program of the folder to its end. Raises: SmokeTestError if it fails."""
    done = subprocess.run(
        [str(program(folder, name)), *words], env=environment(home, desktop), cwd=home, capture_output=True,
        encoding="utf-8", errors="replace", timeout=ANSWER_WITHIN_S, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        raise SmokeTestError(f"{name} {words[0]} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def check_documents(folder: Path, home: Path, desktop: Desktop) -> None:
    """The confined process reads an old character set, for which it imports a module. Raises: SmokeTestError."""
    text = "Größe, sagte Jürgen. Übung macht müde.".encode("cp1252")
    request = {"suffix": ".txt", "characters": 1000, "seconds": END_WITHIN_S}
    given = json.dumps(request).encode() + b"\n" + len(text).to_bytes(4, "big") + text + bytes(4)
    command, pipe = [str(program(folder, "hearth")), "--read-documents"], subprocess.PIPE
    with subprocess.Popen(command, env=environment(home, desktop), cwd=home, stdin=pipe, stdout=pipe) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(given)
        process.stdin.flush()
        for _ in range(2):  # that it is ready, then the text
            header = process.stdout.read(int.from_bytes(process.stdout.read(4), "big"))
            found = process.stdout.read(json.loads(header or b'{"n_bytes": 0}')["n_bytes"])
        process.stdin.close()
    if found.decode() != text.decode("cp1252"):
        raise SmokeTestError(f"a text was not read: {header!r}")


def check_training(folder: Path, home: Path, desktop: Desktop) -> None:
    """Predictors can be trained, for which PyTorch has to be whole. Raises: SmokeTestError."""
    model = next(folder.rglob("starter-chat-*.gguf"))
    output_of(folder, home, desktop, "hearth-engine", "train", str(model), "--tokens", "1024", "--kind", "low_rank")


def start_and_ask(folder: Path, home: Path, desktop: Desktop, n_answers: int) -> tuple[float, float, str]:
    """Run the program once; at its end that many answers are stored.

    Returns how long the window took, how long the answer, and the answer.
    """
    log = home / "output.txt"
    with log.open("ab") as output:
        began = time.monotonic()
        process = subprocess.Popen(
            [str(program(folder, "hearth"))], env=environment(home, desktop), cwd=home,
            stdin=subprocess.DEVNULL, stdout=output, stderr=output,
        )  # fmt: skip
        try:
            window = wait_for(lambda: desktop.window_of(process.pid), WINDOW_WITHIN_S, process, "no window opened", log)
            shown = time.monotonic() - began
            desktop.bring_forward(window)
            time.sleep(1.0)  # a person is no faster, and a key before the focus is there would be lost
            asked = time.monotonic()
            desktop.type_line(window, QUESTION)
            answers = wait_for(
                lambda: found if len(found := answers_in(home)) >= n_answers else None,
                ANSWER_WITHIN_S, process, "no answer came", log,
            )  # fmt: skip
            answered = time.monotonic() - asked
            foreign = foreign_files(process.pid, folder)
            if foreign:
                raise SmokeTestError(f"it uses files of a Python that is not its own: {foreign[:5]}")
            desktop.ask_to_quit(window)
            code = ended_with(process, log)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
    if code != 0:
        raise SmokeTestError(f"it ended with exit code {code}:\n{_text(log)}")
    left = wait_for_none(folder)
    if left:
        raise SmokeTestError(f"processes of it are left: {left}")
    return shown, answered, answers[-1]


def program(folder: Path, name: str) -> Path:
    """The executable of that name in the built folder. Raises: SmokeTestError."""
    path = folder / (f"{name}.exe" if sys.platform == "win32" else name)
    if not path.is_file():
        raise SmokeTestError(f"there is no {path}")
    return path


def wait_for(look: Callable[[], Any], within_s: float, process: subprocess.Popen[bytes], words: str, log: Path) -> Any:
    """Return the first result of `look` that is not None or empty. Raises: SmokeTestError."""
    until = time.monotonic() + within_s
    while time.monotonic() < until:
        if found := look():
            return found
        if process.poll() is not None:
            raise SmokeTestError(f"{words}: it ended with exit code {process.returncode}:\n{_text(log)}")
        time.sleep(LOOK_EVERY_S)
    raise SmokeTestError(f"{words} within {within_s:.0f} s:\n{_text(log)}")


def answers_in(home: Path) -> list[str]:
    """The texts of all whole answers that are kept, oldest first."""
    found: list[str] = []
    for file in home.rglob("chats.db"):
        with contextlib.suppress(sqlite3.Error):  # not there yet, or being written
            chats = sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)
            with contextlib.closing(chats):
                rows = chats.execute("SELECT text, state FROM message WHERE role = 'assistant' ORDER BY created_at")
                found = [text for text, state in rows if text.strip() and state in _ENDED_WELL]
    return found


def ended_with(process: subprocess.Popen[bytes], log: Path) -> int:
    """The exit code. Raises: SmokeTestError if it does not end."""
    try:
        return process.wait(END_WITHIN_S)
    except subprocess.TimeoutExpired:
        raise SmokeTestError(f"it did not end within {END_WITHIN_S:.0f} s:\n{_text(log)}") from None


def processes_of(folder: Path) -> list[int]:
    """The processes that run a program of the folder (Linux; elsewhere none is seen)."""
    found = []
    for one in Path("/proc").glob("[0-9]*/exe"):
        with contextlib.suppress(OSError):
            if one.readlink().is_relative_to(folder):
                found.append(int(one.parent.name))
    return found


def wait_for_none(folder: Path) -> list[int]:
    """The processes that are left after a while."""
    until = time.monotonic() + END_WITHIN_S
    while (left := processes_of(folder)) and time.monotonic() < until:
        time.sleep(LOOK_EVERY_S)
    return left


def foreign_files(pid: int, folder: Path) -> list[str]:
    """Files of Python that its processes have mapped from elsewhere (Linux)."""
    found = set()
    for one in {pid, *processes_of(folder)}:
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{one}/maps").read_text(encoding="utf-8", errors="replace").splitlines():
                path = line.partition("/")[1] + line.partition("/")[2]
                if "python" in path.lower() and not path.startswith(str(folder)):
                    found.add(path)
    return sorted(found)


def _text(log: Path) -> str:
    return log.read_text(encoding="utf-8", errors="replace")[-4000:]


if __name__ == "__main__":
    if not shutil.which("xdotool") and sys.platform.startswith("linux"):
        sys.exit("The smoke test needs Xvfb and xdotool: apt-get install xvfb xdotool")
    sys.exit(main())
