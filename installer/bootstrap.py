#!/usr/bin/env python3
"""The two commands: `run` sets Hearth up and opens it, `test` sets it up and runs its tests; `setup` only sets it up.

    python3 installer/bootstrap.py run [-- arguments of the app]
    python3 installer/bootstrap.py test [-- arguments of pytest]

It needs nothing but Python's standard library, and it starts on Pythons that are too old for Hearth (from 3.8 on), so
that it can say so and continue with a newer one. It holds none of Hearth's own code: that starts in the .venv it makes.
"""

from __future__ import annotations

import argparse
import errno
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
if str(HERE) not in sys.path:  # `python3 -I` leaves the script's own folder out
    sys.path.insert(0, str(HERE))

import qt_libraries  # noqa: E402 - the path above comes first
import setup_failures  # noqa: E402
import setup_progress  # noqa: E402
import setup_venv  # noqa: E402
import system_packages  # noqa: E402
from setup_failures import SetupError  # noqa: E402

OLDEST, NEWEST = (3, 11), (3, 13)
MOST_WORKERS = 4


def main(argv: Sequence[str]) -> int:
    """Set up what is missing, then hand over to the app or the tests. Returns the exit status."""
    arguments, passed_on = parse(argv)
    level = setup_progress.NORMAL + arguments.verbose - arguments.quiet
    progress = setup_progress.Progress(level)
    venv = setup_venv.Venv(ROOT)
    try:
        make_ready(venv, arguments.command, arguments.torch_index, arguments.any_torch_build, progress, argv)
    except SetupError as failure:
        print(failure, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nStopped. The same command continues from here.", file=sys.stderr)
        return 130
    if arguments.command == "run":
        # -P: a folder named app where the person happens to stand must not be taken for Hearth's.
        return hand_over([str(venv.python), "-P", "-m", "app", *passed_on], Path.cwd())
    if arguments.command == "test":
        return hand_over([str(venv.python), "-m", "pytest", *side_by_side(), *passed_on], ROOT)
    return 0


def side_by_side() -> list[str]:
    """Return pytest's options for several CPUs; an idle worker takes tests from the others.

    There is one more than processors, because tests wait at times. A worker takes up to 2 GB of memory, so there are
    four at most; `test -- -n 0` runs all in one process.
    """
    affinity = getattr(os, "sched_getaffinity", None)
    processors = len(affinity(0)) if affinity else os.cpu_count() or 1
    return ["-n", str(min(processors + 1, MOST_WORKERS)), "--dist", "worksteal"] if processors > 1 else []


def parse(argv: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """The bootstrap's own arguments, and what stands behind `--`, which is the app's or pytest's."""
    own, passed_on = list(argv), []
    if "--" in own:
        cut = own.index("--")
        own, passed_on = own[:cut], own[cut + 1 :]
    parser = argparse.ArgumentParser(
        prog="python3 installer/bootstrap.py",
        description="Set Hearth up in this folder (.venv), then run it or test it.",
        epilog="Arguments of the app or of pytest come last, after --, as in: run -- --prompt 'Hello'",
    )
    parser.add_argument(
        "command", choices=("run", "test", "setup"), help="open Hearth, run its tests, or only set it up"
    )
    parser.add_argument("--torch-index", metavar="URL", help="take PyTorch from this package index, and remember it")
    parser.add_argument(
        "--any-torch-build",
        action="store_true",
        help="accept a build of PyTorch whose hash is not known; the package index must be one that you trust",
    )
    loudness = parser.add_mutually_exclusive_group()
    loudness.add_argument("--quiet", action="store_true", help="say only what went wrong")
    loudness.add_argument("--verbose", action="store_true", help="show all that pip says")
    arguments, unknown = parser.parse_known_args(own)
    if unknown:
        parser.error(f"{' '.join(unknown)} is not an option here; what is meant for the app or pytest comes after --")
    return arguments, passed_on


def make_ready(
    venv: setup_venv.Venv,
    command: str,
    torch_index: str | None,
    any_torch: bool,
    progress: setup_progress.Progress,
    argv: Sequence[str],
) -> None:
    """Bring .venv and the system's libraries to what `command` needs; does and says nothing where all is there.

    Cost: under 0.2 s when all is there.

    Raises: SetupError.
    """
    this = sys.version_info[:2]
    fitting = this if is_supported(this) else None
    dev = command == "test"
    ready = venv.is_ready(dev, torch_index, fitting)
    if not ready:
        if fitting is None:
            go_on_with_another_python(progress, argv)
        with setup_venv.only_one_at_a_time(ROOT, progress):
            if not venv.is_ready(dev, torch_index, fitting):  # the other one may have done it meanwhile
                set_up(venv, dev, torch_index, any_torch, progress)
    check_libraries(venv, command, not ready, progress)
    if not ready:
        progress.note("Hearth is set up.")


def set_up(
    venv: setup_venv.Venv, dev: bool, torch_index: str | None, any_torch: bool, progress: setup_progress.Progress
) -> None:
    """Make .venv where it is missing or broken, and install."""
    before = venv.read_stamp()
    if torch_index is None:
        torch_index = before.get("torch_index")
        any_torch = any_torch or bool(before.get("any_torch"))
    dev = dev or bool(before.get("dev"))
    base_python = getattr(sys, "_base_executable", None) or sys.executable
    if not venv.is_healthy(sys.version_info[:2]):
        need_ensurepip(base_python, progress)
        setup_venv.create(venv, base_python, progress)
    try:
        setup_venv.install(venv, dev, torch_index, any_torch, progress, lambda: setup_venv.free_bytes_at(venv.path))
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise setup_failures.no_space_failure("the disk is full", venv.log) from error
        raise SetupError(
            f"{error.filename or venv.path} cannot be written ({error.strerror or error}).",
            "make the project's folder your own, then run the same command again.",
            venv.log,
        ) from error


def is_supported(version: tuple[int, ...]) -> bool:
    """Whether Hearth runs on this Python."""
    return OLDEST <= tuple(version[:2]) <= NEWEST


def find_python() -> str | None:
    """A Python on PATH that Hearth runs on, the newest first; it is asked, because a name alone proves nothing."""
    minors = range(NEWEST[1], OLDEST[1] - 1, -1)
    commands = [[f"python3.{minor}"] for minor in minors]
    if os.name == "nt":
        commands += [["py", f"-3.{minor}"] for minor in minors]
    commands += [["python3"], ["python"]]
    for command in commands:
        program = shutil.which(command[0])
        if program is None:
            continue
        question = "import sys; print(sys.version_info[0], sys.version_info[1], sys.executable)"
        try:
            done = subprocess.run(
                [program, *command[1:], "-I", "-c", question],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                timeout=30,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            continue
        words = done.stdout.decode("utf-8", "replace").strip().split(" ", 2)
        if done.returncode == 0 and len(words) == 3 and is_supported((int(words[0]), int(words[1]))):
            return words[2]
    return None


def go_on_with_another_python(progress: setup_progress.Progress, argv: Sequence[str]) -> None:
    """Start again with a Python that fits. Does not come back.

    Raises: SetupError when there is none.
    """
    this = ".".join(str(part) for part in sys.version_info[:2])
    other = find_python()
    if other is None:
        raise SetupError(
            f"Python 3.11 to 3.13 is needed, this is {this} ({sys.executable}), and no other was found.",
            "install Python 3.12 or 3.13 (Debian 12: sudo apt install python3 python3-venv; Windows and macOS: the "
            "installer from python.org), then run the command with it, as in: python3.13 installer/bootstrap.py run",
        )
    progress.note(f"Python 3.11 to 3.13 is needed, this is {this}; going on with {other}.")
    raise SystemExit(hand_over([other, str(HERE / "bootstrap.py"), *argv], Path.cwd()))


def need_ensurepip(base_python: str, progress: setup_progress.Progress) -> None:
    """Debian and Ubuntu ship Python without the part that makes a .venv: install it as root, else name the command."""
    if _has_ensurepip(base_python):
        return
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    # python3-venv belongs to the system's own python3; another Python beside it has its own package.
    system_python = os.path.realpath("/usr/bin/python3").endswith(version)
    package = "python3-venv" if system_python else f"python{version}-venv"
    release = system_packages.os_release()
    manager = system_packages.package_manager(release)
    log = None
    if system_packages.can_install(manager):
        log = Path(tempfile.mkdtemp(prefix="hearth-setup-")) / "apt.log"
        with progress.stage(f"Installing {package} through apt"):
            system_packages.install_with_apt([package], log)
        if _has_ensurepip(base_python):
            shutil.rmtree(log.parent)
            return
    raise SetupError(
        f"this Python ({base_python}) cannot make a .venv: its module ensurepip is missing.",
        f"type `{system_packages.install_command('apt', [package])}`, then run the same command again."
        if manager in ("apt", "")
        else "install a complete Python 3.11 to 3.13 and run the command again with it.",
        log,
    )


def check_libraries(venv: setup_venv.Venv, command: str, thorough: bool, progress: setup_progress.Progress) -> None:
    """Qt's system libraries on Linux: install what is missing where that is allowed, else name the command.

    The tests need no screen, so only they insist, and only on what Qt needs without one.

    Raises: SetupError for the tests.
    """
    if not sys.platform.startswith("linux"):
        return
    display = bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
    for_display = thorough or (command == "run" and display)
    stamp = venv.read_stamp()
    found: list[str] = stamp.get("libraries", [])
    if (not for_display or "display" in found) and (command != "test" or "offscreen" in found):
        return
    pyside = venv.site_packages() / "PySide6"

    def missing() -> tuple[list[str], list[str]]:
        needed = qt_libraries.missing_for_offscreen(pyside)
        wanted = qt_libraries.missing_for_display(pyside) if for_display else []
        return needed, sorted(set(needed) | set(wanted))

    needed, lacking = missing()
    manager = system_packages.package_manager(system_packages.os_release())
    packages, unknown = qt_libraries.packages_for(lacking, manager)
    if packages and system_packages.can_install(manager):
        with progress.stage("Installing Qt's system libraries through apt: " + " ".join(packages)):
            system_packages.install_with_apt(packages, venv.log)
        needed, lacking = missing()
        packages, unknown = qt_libraries.packages_for(lacking, manager)
    venv.write_stamp({**stamp, "libraries": ["offscreen"] * (not needed) + ["display"] * (for_display and not lacking)})
    if not lacking:
        return
    acts = [f"type `{system_packages.install_command(manager, packages)}`"] if packages else []
    if unknown:
        acts.append("install the packages of your system that hold " + ", ".join(unknown))
    act = " and ".join(acts)
    if command == "test" and needed:
        raise SetupError(f"Qt needs libraries that this system lacks: {', '.join(needed)}.", f"{act}.", venv.log)
    progress.note(f"Hearth's window needs libraries that this system lacks ({', '.join(lacking)}): {act}.")


def hand_over(command: list[str], folder: Path) -> int:
    """Become the command (on Windows: wait for it), so that its signals, terminal and exit status are its own."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.chdir(folder)
    if os.name != "nt":
        os.execv(command[0], command)
    try:
        return subprocess.call(command)
    except KeyboardInterrupt:
        return 130


def _has_ensurepip(python: str) -> bool:
    done = subprocess.run(
        [python, "-I", "-c", "import ensurepip, venv"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
    )
    return done.returncode == 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
