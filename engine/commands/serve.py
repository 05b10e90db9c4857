"""The command that serves a model to other programs: serve. It takes its arguments and returns the exit code."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from dataclasses import asdict

from engine import protocol
from engine.commands.output import engine_config, print_json
from engine.console import ProgressBar
from engine.host import EngineHost

_LOOK_S = 0.25  # Windows hears of Ctrl-C between two waits only


def serve(arguments: argparse.Namespace) -> int:
    """Until Ctrl-C or SIGTERM; a second one ends it in the middle of whatever it does.

    Raises: EngineError for what cannot be loaded or served.
    """
    from engine.server.keys import find_key

    course = _Course(arguments, *find_key(arguments.key, arguments.key_file))
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    engine = threading.Thread(target=course.run, name="engine", daemon=True)
    engine.start()
    while engine.is_alive():
        try:
            engine.join(_LOOK_S)
        except KeyboardInterrupt:
            if course.host.is_closed:
                raise
            course.host.close()
    course.clear()
    if course.failed is not None:
        raise course.failed.as_error()
    return 130


class _Course:
    """Loads, then serves, and tells the terminal of it. failed: why it ended by itself."""

    def __init__(self, arguments: argparse.Namespace, key: str, is_new: bool) -> None:
        self._arguments, self._key, self._is_new = arguments, key, is_new
        self._bars = {"loading": ProgressBar("Loading"), "preparing": ProgressBar("Preparing the processor kernels")}
        self.host = EngineHost(self._hear)
        self.failed: protocol.Failed | None = None

    def run(self) -> None:
        engine = asdict(engine_config(self._arguments))
        self.host.submit(protocol.Load("load", self._arguments.model, engine))
        self.host.run_pending(block=True)

    def clear(self) -> None:
        for bar in self._bars.values():
            bar.clear()

    def _hear(self, event: protocol.Event) -> None:
        if isinstance(event, protocol.Progress):
            self._bars[event.stage](event.done, event.total)
        elif isinstance(event, protocol.Failed):
            self.failed = event
            self.host.close()
        elif isinstance(event, protocol.Finished) and event.id == "load" and not event.result.get("cancelled"):
            self.host.submit(protocol.Serve("serve", port=self._arguments.port, key=self._key))
        elif isinstance(event, protocol.Finished) and event.id == "serve":
            self.clear()
            self._announce(protocol.ServerState.from_dict(event.result))

    def _announce(self, state: protocol.ServerState) -> None:
        if self._arguments.json:
            print_json({"address": state.address, "key": self._key, "model": state.model})
            return
        print(f"{state.model} answers at {state.address}", flush=True)
        if self._is_new:
            print(f"Key, made for this time: {self._key}", flush=True)
        print("Ctrl-C ends it.", file=sys.stderr)
