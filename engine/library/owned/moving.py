"""Move Hearth's models to another folder, with a correct list and complete models at every moment.

On the same disk, files are renamed. Across disks, each model is copied into a hidden folder at the target, read back
and compared, renamed into place, listed there, and only then deleted at the source.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from engine.bundle.bundle import shifted
from engine.errors import Cancelled, EngineError, LibraryError
from engine.job import CancelCheck, CountProgress, Job
from engine.library.owned.disk_space import check_free_space
from engine.library.owned.imports import copy_checked, disk_refused
from engine.library.owned.library_file import (
    RECEIPT,
    Contents,
    Leftover,
    LibraryFile,
    flush_folder,
    read_receipt,
    write_durably,
    write_receipt,
)
from engine.library.owned.owned_files import (
    PREPARED,
    bundle_names,
    delete_files,
    drop_empty,
    is_prepared_folder,
    move_files,
    only_holds,
    owned_names,
    permitted,
    sizes,
)
from engine.library.owned.staging_folder import INCOMING
from engine.library.owned.stored_models import file_below

MOVING_LOCK = "moving.lock"
COPIES = "move"


@dataclass(frozen=True)
class Item:
    """Files that move together: a model's, or its prepared bundle's."""

    model: str  # its id
    source: Path
    target: Path
    sizes: dict[str, int]

    @property
    def n_bytes(self) -> int:
        return sum(self.sizes.values())


def move_all(file: LibraryFile, target: Path, job: Job) -> None:
    """Move all of Hearth's models and set the folder for new ones. Progress in bytes.

    Raises: LibraryError if another move is running or the target is occupied, DiskSpaceError, Cancelled.
    """
    with held(file.home) as is_free:
        if not is_free:
            raise LibraryError("The models are being moved already.", "Wait until that has ended.")
        before = file.read().moving_to
        settle(file)
        if before and Path(before) != target:
            drop_copies(Path(before))
        try:
            if target.exists() and not target.is_dir():
                raise LibraryError(f"{target} is not a folder.", "Choose a folder.")
            target.mkdir(parents=True, exist_ok=True)
            is_moved, old = False, target
            while not is_moved:
                with file.changing() as contents:
                    _check_target(contents, target)
                    contents.moving_to = str(target)
                _move_each(file, target, job)
                with file.changing() as contents:
                    is_moved = not _items(contents, target)  # else one came in meanwhile
                    if is_moved:
                        old, contents.folder, contents.moving_to = contents.folder, target, ""
        except (EngineError, Cancelled, OSError) as error:
            with contextlib.suppress(EngineError):
                settle(file)
                if not file.read().moving_to:
                    drop_copies(target)
            if isinstance(error, OSError):
                raise disk_refused(error, target) from error
            raise
        drop_copies(target)
        _delete_leftovers(file)
        if old != target:
            _drop_empty_folders(old, file.home)


@contextlib.contextmanager
def held(home: Path) -> Iterator[bool]:
    """Yield whether this process may move models now; it excludes others until the block ends."""
    from filelock import FileLock, Timeout

    try:
        home.mkdir(parents=True, exist_ok=True)
        lock = FileLock(str(home / MOVING_LOCK))
        lock.acquire(timeout=0)
    except Timeout:
        yield False
        return
    except OSError as error:
        raise disk_refused(error, home) from error
    try:
        yield True
    finally:
        lock.release()


def settle(file: LibraryFile) -> None:
    """Finish an interrupted move. Only while `held`."""
    if file.read().moving_to:
        with file.changing() as contents:
            target, is_done = Path(contents.moving_to), True
            for item in _items(contents, target):
                if not _has_arrived(item):
                    continue  # it is complete at the source
                for folder in (_copies(item, target), item.source):
                    missing = [name for name in item.sizes if not file_below(item.target, name).exists()]
                    with contextlib.suppress(OSError):
                        move_files(folder, item.target, missing)
                if len(sizes(item.target, item.sizes)) == len(item.sizes):
                    _list_at(contents, item)
                else:
                    is_done = False
            if is_done:
                contents.moving_to = ""
    _delete_leftovers(file)


def settle_if_free(file: LibraryFile) -> None:
    """Finish an interrupted move, unless one is running."""
    with held(file.home) as is_free:
        if is_free:
            settle(file)


def drop_copies(target: Path) -> None:
    """Delete unfinished copies of an interrupted move. Only while `held`."""
    shutil.rmtree(target / INCOMING / COPIES, ignore_errors=True)
    drop_empty(target / INCOMING, (), above=0)


# --- one after another


def _move_each(file: LibraryFile, target: Path, job: Job) -> None:
    items = _items(file.read(), target)
    device = target.stat().st_dev
    far = {item.source for item in items if item.source.stat().st_dev != device}
    if far:
        check_free_space(target, sum(item.n_bytes for item in items if item.source in far), doing="copied")
    total, done = sum(item.n_bytes for item in items), 0
    for item in items:
        job.stop_if_cancelled()
        job.progress(done, total)
        copied = None
        try:
            if item.source in far:
                copied = _copied(item, target, shifted(job.progress, done, total), job.cancelled)
        except LibraryError:
            if _is_listed(file.read(), item):
                raise
        with file.changing() as contents:
            if not _is_listed(contents, item):  # removed meanwhile
                continue
            _put(item, copied or item.source)
            _list_at(contents, item)
        _delete_leftovers(file)
        done += item.n_bytes
    job.progress(total, total)


def _copied(item: Item, target: Path, progress: CountProgress, cancelled: CancelCheck) -> Path:
    """Copy the item's files to a hidden folder and return it. Reuses what an interrupted call finished."""
    folder, done = _copies(item, target), 0
    if folder.is_dir() and not only_holds(folder, [*item.sizes, *(f"{name}.part" for name in item.sizes)]):
        shutil.rmtree(folder)  # of a model that was another one then
    for name, size in item.sizes.items():
        original, copy = file_below(item.source, name), file_below(folder, name)
        if not _is_copied(original, copy):
            # reading back is half of the work
            copy_checked(
                original, copy,
                lambda read, before=done: progress(before + read // 2),  # type: ignore[misc]
                lambda read, before=done, size=size: progress(before + (size + read) // 2),  # type: ignore[misc]
                cancelled,
            )  # fmt: skip
        done += size
        progress(done)
    return folder


def _copies(item: Item, target: Path) -> Path:
    below = target / INCOMING / COPIES / ("prepared" if is_prepared_folder(item.source) else "models")
    return below / item.source.parent.name / item.source.name


def _is_copied(original: Path, copy: Path) -> bool:
    """Return whether an interrupted call finished the copy. A copy gets its name after it was verified."""
    try:
        made, of = copy.stat(), original.stat()
    except OSError:
        return False
    return made.st_size == of.st_size and made.st_mtime_ns >= of.st_mtime_ns


def _put(item: Item, source: Path) -> None:
    """Rename the files into their new place: all at once, or the receipt first, which says whose they are."""
    item.target.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(OSError):
        item.target.rmdir()  # if it is there and empty
    at_once = is_prepared_folder(item.target) or only_holds(source, item.sizes)
    if at_once and not os.path.lexists(item.target):
        source.rename(item.target)
        drop_empty(source.parent, ())
    else:
        item.target.mkdir(exist_ok=True)
        write_durably(item.target / RECEIPT, (item.source / RECEIPT).read_bytes())
        move_files(source, item.target, item.sizes)
        drop_empty(source, item.sizes)
    flush_folder(item.target.parent)


def _list_at(contents: Contents, item: Item) -> None:
    """Set the new location in the list, and mark the old files for deletion."""
    old, new = str(item.source), str(item.target)
    model = contents.models.get(item.model)
    if model is not None:
        model = replace(
            model, folder=new if model.folder == old else model.folder,
            prepared=new if model.prepared == old else model.prepared,
        )  # fmt: skip
        contents.models[item.model] = model
        if model.folder == new:
            write_receipt(model)
    elif (remarks := contents.remarks.get(item.model)) is not None and remarks.prepared == old:
        contents.remarks[item.model] = replace(remarks, prepared=new)
    if item.source.exists():
        contents.leftovers.append(Leftover(old, tuple(item.sizes)))


def _items(contents: Contents, target: Path) -> list[Item]:
    """Return what to move: Hearth's files that are not at the target yet."""
    found = []
    for model in contents.models.values():
        folder = Path(model.folder)
        new = target / folder.parent.name / folder.name
        if model.owned and folder != new:
            names = owned_names(model) or owned_names(replace(model, folder=str(new)))  # where a move was interrupted
            found += [_item(model.id, folder, new, names)] if names else []
    prepared = [(model.id, model.prepared) for model in contents.models.values()]
    prepared += [(id, remarks.prepared) for id, remarks in contents.remarks.items()]
    for id, path in prepared:
        folder = Path(path)
        new = target / PREPARED / folder.parent.name / folder.name
        if path and is_prepared_folder(folder) and folder != new:
            names = bundle_names(folder) or bundle_names(new)
            found += [_item(id, folder, new, names)] if names else []
    return found


def _item(id: str, folder: Path, new: Path, names: list[str]) -> Item:
    found = {**sizes(new, names), **sizes(folder, names)}
    return Item(id, folder, new, {name: found[name] for name in names if name in found})


def _is_listed(contents: Contents, item: Item) -> bool:
    model = contents.models.get(item.model)
    here = str(item.source)
    if model is not None:
        return here in (model.folder, model.prepared)
    remarks = contents.remarks.get(item.model)
    return remarks is not None and remarks.prepared == here


def _has_arrived(item: Item) -> bool:
    """Return whether the interrupted move had begun to put it into the target."""
    if is_prepared_folder(item.target):
        return item.target.is_dir()
    receipt = read_receipt(item.target)
    return receipt is not None and receipt.id == item.model


def _delete_leftovers(file: LibraryFile) -> None:
    if not file.read().leftovers:
        return
    with file.changing() as contents:
        in_use = {path for model in contents.models.values() for path in (model.folder, model.prepared)}
        kept = []
        for leftover in contents.leftovers:
            folder = Path(leftover.folder)
            if leftover.folder in in_use:
                continue
            if stuck := delete_files(folder, permitted(folder, leftover.names)):
                kept.append(Leftover(leftover.folder, tuple(stuck)))
        contents.leftovers = kept


def _drop_empty_folders(old: Path, home: Path) -> None:
    """Remove Hearth's own bundle folder and the old models folder if an interruption left them empty."""
    with contextlib.suppress(OSError):
        for owner in list((old / PREPARED).iterdir()):
            drop_empty(owner, (), above=0)
    drop_empty(old / PREPARED, (), above=0)
    if old != home:
        drop_empty(old, (), above=0)


def _check_target(contents: Contents, target: Path) -> None:
    """Raise LibraryError if the folder is not a valid target."""
    for model in contents.models.values():
        own = [model.folder] if model.owned else []
        for inner in (*own, model.prepared):
            if inner and target.is_relative_to(inner):
                raise LibraryError(f"{target} is in the folder of {model.name}.", "Choose another folder.")
    for item in _items(contents, target):
        taken = [name for name in (*item.sizes, RECEIPT) if os.path.lexists(file_below(item.target, name))]
        if taken or (is_prepared_folder(item.target) and os.path.lexists(item.target)):
            at = file_below(item.target, taken[0]) if taken else item.target
            raise LibraryError(f"{at} exists already.", "Choose another folder, or move it away first.")
