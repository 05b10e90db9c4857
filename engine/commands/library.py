"""The commands list, import and remove, for installed models."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from engine.commands.console import ProgressBar, interrupt_as_cancel
from engine.commands.output import print_json
from engine.errors import Cancelled, InvalidRequestError, ModelNotFoundError
from engine.job import Progress, StagedJob

if TYPE_CHECKING:
    from engine.job import Progress
    from engine.library.records import InstalledModel


def list_models(arguments: argparse.Namespace) -> int:
    from engine.library.owned.installed import Library
    from engine.library.records import to_json

    library = Library()
    models = library.models()
    if arguments.json:
        print_json({"folder": str(library.folder), "models": [to_json(model) for model in models]})
        return 0
    width = max((len(model.id) for model in models), default=0)
    for model in models:
        print(f"{model.id.ljust(width)}  {_size(model):>9}  {_state(model)}")
        print(f"{'':{width}}  {model.name}, {_ORIGINS[model.origin]} {model.folder}")
    return 0


def import_model(arguments: argparse.Namespace) -> int:
    from engine.library.owned.installed import Library
    from engine.library.records import to_json

    try:
        with ProgressBar("Copying") as copying, ProgressBar("Checking") as checking, interrupt_as_cancel() as cancelled:

            def stage(name: str) -> Progress:
                return copying if name == "copying" else checking

            model = Library().add(Path(arguments.path), arguments.copy, arguments.name, StagedJob(cancelled, stage))
    except Cancelled:
        print("Stopped. Nothing was imported.", file=sys.stderr)
        return 130
    if arguments.json:
        print_json({"model": to_json(model)})
        return 0
    print(f"{model.id}: {model.name}, {_size(model)}, {_state(model)}")
    print(f"  {_ORIGINS[model.origin]} {model.folder}")
    return 0


def remove(arguments: argparse.Namespace) -> int:
    from engine.library.owned.installed import Library
    from engine.library.prepare.preparing import discard
    from engine.library.records import to_json
    from engine.library.service.services import UNDO_S

    if (arguments.name is None) == (arguments.undo is None):
        raise InvalidRequestError("Give the name of a model, or --undo.", "Give one of them.")
    library = Library()
    library.purge(UNDO_S)
    if arguments.undo is not None:
        model = library.restore(arguments.undo)
        if arguments.json:
            print_json({"restored": model.id, "model": to_json(model)})
        else:
            print(f"{model.id} is back.")
        return 0
    found = library.look_up(arguments.name)
    if found is None:
        raise ModelNotFoundError(f"There is no installed model called {arguments.name!r}.", "See `list`.")
    token = library.remove(found.id)
    discard(library, found.id)
    freed = found.n_bytes if found.owned else 0
    if arguments.json:
        print_json({"removed": found.id, "bytes": freed, "undo": token})
        return 0
    files = f"its {_size(found)} go for good" if found.owned else "its files stay where they are; this can be undone"
    print(f"{found.id} is off the list; {files} {'in' if found.owned else 'for'} {UNDO_S / 60:.0f} minutes.")
    print(f"  To bring it back: remove --undo {token}")
    return 0


_ORIGINS = {
    "download": "downloaded, in",
    "copied": "copied, in",
    "converted": "converted, in",
    "in place": "in place, in",
    "hub cache": "in the hub's cache,",
    **dict.fromkeys(("LM Studio", "Ollama", "Jan", "GPT4All"), "of another program, in"),
    "shipped": "comes with Hearth, in",
}


def _size(model: InstalledModel) -> str:
    return f"{model.n_bytes / 1e9:.1f} GB" if model.n_bytes >= 1e9 else f"{model.n_bytes / 1e6:.1f} MB"


def _state(model: InstalledModel) -> str:
    return f"{model.state}: {model.reason}" if model.reason else model.state
