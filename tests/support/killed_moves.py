"""Kills what changes the models folder before each of its steps on the disk, and looks at what is left.

Run as a program: a child is forked for each step, so that nothing of it is cleaned up. Prints one JSON object: the
number of steps. Arguments: what is done (relocate, remove, restore, purge), a library to copy, where to work, where to
move models to, and how many steps to go on from one kill to the next.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from engine.library.owned import imports, moving, staging_folder
from engine.library.owned.installed import STARTER_ID, Library

ONE = "maker/tiny"
STEPS = ("replace", "rename", "unlink", "rmdir", "mkdir", "fsync", "link")


def kill_before(step: int) -> Callable[[], int]:
    """Ends this process, as kill -9 does, before its so-many-th step on the disk; says how many there were."""
    count = 0

    def counted(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            nonlocal count
            count += 1
            if count == step:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*arguments, **options)

        return call

    for name in STEPS:
        setattr(os, name, counted(getattr(os, name)))
    return lambda: count


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def check_whole(library: Library, wanted: dict[str, dict[str, str]]) -> None:
    """Every model is listed, can be loaded, and has the bytes that it had."""
    for id, hashes in wanted.items():
        model = library.get(id)
        assert model.state != "broken", model.reason
        for name, sha256 in hashes.items():
            file = Path(model.folder) / name
            assert imports.file_hash(file, lambda done: None, lambda: False) == sha256, file
        if model.owned:
            assert library.verify(id) == []
        assert library.resolve(id).path.exists()


def forked(work: Callable[[], None], step: int) -> bool:
    """Does the work in a child that is killed before the step; whether it was killed."""
    child = os.fork()
    if child == 0:
        kill_before(step)
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - told to the parent
            print(f"step {step}: {error!r}", file=sys.stderr)
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, f"step {step} failed"
    return os.WIFSIGNALED(status)


def main(what: str, template: Path, work: Path, target: Path, every: int) -> int:
    step = 1 - every
    while True:
        step += every
        shutil.rmtree(work, ignore_errors=True)
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(template, work, symlinks=True)
        library = Library(work)
        wanted = {
            model.id: {file.name: imports.file_hash(Path(model.folder) / file.name, lambda done: None, lambda: False)
                       for file in model.files}
            for model in library.models() if model.id != STARTER_ID
        }  # fmt: skip
        prepared = {id for id in wanted if library.get(id).prepared}
        foreign = list(work.rglob("notes.txt"))
        assert foreign
        assert prepared
        token = ""
        if what in ("restore", "purge"):
            token = library.remove(ONE)
        acts: dict[str, Callable[[], object]] = {
            "relocate": lambda: Library(work).relocate(target),
            "remove": lambda: Library(work).remove(ONE),
            "restore": lambda token=token: Library(work).restore(token),  # type: ignore[misc]
            "purge": lambda: Library(work).purge(),
        }
        was_killed = forked(lambda: acts[what]() and None, step)  # noqa: B023 - called at once
        after = Library(work)
        if what == "relocate":
            check_relocation(after, wanted, prepared, target, step)
        else:
            check_removal(after, what, wanted, ONE, token, was_killed)
        assert all(path.read_text() == "mine" for path in foreign)
        if not was_killed:
            return step


def check_relocation(
    after: Library, wanted: dict[str, dict[str, str]], prepared: set[str], target: Path, step: int
) -> None:
    check_whole(after, wanted)  # as it is, before anything is cleared up
    if step % 2:
        after.purge()
        check_whole(after, wanted)
    assert after.relocate(target) == target
    check_whole(after, wanted)
    assert {id for id in wanted if after.get(id).prepared} == prepared
    for id in wanted:
        model = after.get(id)
        if model.owned:
            assert Path(model.folder).is_relative_to(target), model.folder
        if model.prepared:
            assert Path(model.prepared).is_relative_to(target), model.prepared
    left = [path for path in after.home.rglob("*") if path.suffix in (".gguf", ".safetensors", ".bin", ".part")]
    assert left == [], left
    assert not (target / staging_folder.INCOMING).exists()
    assert not (after.home / moving.PREPARED).exists()


def check_removal(
    after: Library, what: str, wanted: dict[str, dict[str, str]], one: str, token: str, was_killed: bool
) -> None:
    others = {id: hashes for id, hashes in wanted.items() if id != one}
    check_whole(after, others)
    contents = after._file.read()
    if one in contents.models:
        assert what != "purge"
        check_whole(after, wanted)
        assert was_killed or what == "restore"
    elif what == "purge":
        after.purge()
    else:
        assert after.restore(token or next(iter(contents.removed))).id == one
        check_whole(after, wanted)
        after.remove(one)
        after.purge()
    after.purge()
    folder = after.folder_for(one)
    if one not in after._file.read().models:
        assert sorted(path.name for path in folder.iterdir()) == ["notes.txt"], list(folder.iterdir())
    assert not (after.home / ".trash").exists()


if __name__ == "__main__":
    print(json.dumps({"steps": main(sys.argv[1], *(Path(path) for path in sys.argv[2:5]), int(sys.argv[5]))}))
