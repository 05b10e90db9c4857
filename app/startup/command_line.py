"""The command line of the app: open the window, chat in the terminal, or become the engine's process.

Nothing heavy is imported before the flags are read: the engine's process must not load Qt, nor the window torch.
"""

from __future__ import annotations

import argparse
import gc
import signal
import sys
from collections.abc import Sequence
from pathlib import Path


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program and return its exit code."""
    given = list(sys.argv[1:] if argv is None else argv)
    if given[:1] == ["--engine-host"]:
        if given[1:] == ["--library"]:
            from engine.library.service.host import serve

            return serve()
        from engine.service.stdio import serve_stdio

        return serve_stdio()
    if given == ["--read-documents"]:
        from app.documents.reading.reading_process import main as read_documents

        return read_documents()
    if given[:1] == ["--import-chats"]:
        from app.chat.imports.process import main as read_export

        return read_export()
    if given == ["--diagrams"]:
        from app.diagrams.process import main as draw

        return draw()
    parser = argparse.ArgumentParser(prog="hearth", description="Chat with a language model on this PC.")
    parser.add_argument("files", metavar="FILE", nargs="*", help="a model, an exported chat, or a text to ask about")
    parser.add_argument("--engine", choices=("process", "in-thread"), help="where the engine runs (default: a setting)")
    parser.add_argument("--model", metavar="PATH", help="another model than the one that comes with Hearth")
    parser.add_argument("--prompt", metavar="TEXT", help="print one answer in the terminal and end")
    parser.add_argument("--data-dir", metavar="DIR", type=Path, help="keep chats, settings and logs in this folder")
    parser.add_argument(
        "--self-report", metavar="FILE", nargs="?", const="", help="test this PC and print a report to paste, and end"
    )
    parser.add_argument("--version", action="store_true", help="print the version and end")
    parser.add_argument("--engine-host", action="store_true", help=argparse.SUPPRESS)
    flags = parser.parse_args(given)
    if flags.model and Path(flags.model).expanduser().exists():  # the engine's process has another working directory
        flags.model = str(Path(flags.model).expanduser().resolve())
    if flags.version:
        import engine

        if sys.stdout is not None:  # the window's program on Windows has none in a console
            sys.stdout.write(f"Hearth {engine.__version__}\n")
        return 0

    if flags.self_report is not None:
        from app.settings import paths
        from app.startup.self_report import main as report

        places = paths()
        if flags.data_dir is not None:
            from app.startup.bootstrap import folders_in  # needs Qt

            places = folders_in(flags.data_dir)
        return report(places, Path(flags.self_report) if flags.self_report else None)

    from app.startup import terminal

    if flags.prompt is not None:
        return terminal.answer(flags.prompt, flags.model)
    if reason := terminal.why_no_window():
        sys.stderr.write(f"{reason} Hearth chats in the terminal instead.\n")
        return terminal.chat(flags.model)

    gc.disable()  # from here, not only from the window on: collections made the start 5 % slower
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Qt's imports swallow a KeyboardInterrupt or crash; see QuitOnSignals
    from app.startup.bootstrap import run

    return run(flags.engine, flags.model, flags.data_dir, flags.files)
