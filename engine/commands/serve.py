"""The command serve: serve a model to other programs."""

from __future__ import annotations

import argparse
import itertools
import signal
import sys
import threading
from dataclasses import asdict

from engine.commands.console import ProgressBar
from engine.commands.output import engine_config, print_json
from engine.errors import InvalidRequestError
from engine.service import protocol
from engine.service.host import EngineHost

_LOOK_S = 0.25  # Windows handles Ctrl-C only between two waits


def serve(arguments: argparse.Namespace) -> int:
    """Serve until Ctrl-C or SIGTERM; a second one ends it at once.

    Raises: EngineError if the model cannot be loaded or served.
    """
    from engine.local_api.keys import find_key

    if arguments.unload_after is not None and not arguments.load_on_demand:
        raise InvalidRequestError(
            "With --unload-after, no model would be left to answer.",
            "Give --load-on-demand too, so that a request loads it again.",
        )
    serving = _Serving(arguments, *find_key(arguments.key, arguments.key_file))
    engine = threading.Thread(target=serving.run, name="engine", daemon=True)
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        engine.start()
        while engine.is_alive():
            try:
                engine.join(_LOOK_S)
            except KeyboardInterrupt:
                if serving.host.is_closed:
                    raise
                serving.host.close()
    finally:
        signal.signal(signal.SIGTERM, before)
    serving.clear()
    if serving.failed is not None:
        raise serving.failed.as_error()
    return 130


class _Serving:
    """Opens the port, loads the model, and reports on the terminal. failed: why it ended by itself."""

    def __init__(self, arguments: argparse.Namespace, key: str, is_new: bool) -> None:
        self._arguments, self._key, self._is_new = arguments, key, is_new
        self._bars = {"loading": ProgressBar("Loading"), "preparing": ProgressBar("Preparing the CPU kernels")}
        self.host = EngineHost(self._hear)
        self.failed: protocol.Failed | None = None
        self._address = ""
        self._numbers = itertools.count(1)

    def run(self) -> None:
        minutes = self._arguments.unload_after
        self.host.submit(
            protocol.Serve(
                "serve", port=self._arguments.port, key=self._key, loads=self._arguments.load_on_demand,
                unload_after_s=None if minutes is None else minutes * 60,
            )
        )  # fmt: skip
        self.host.run_pending(block=True)

    def clear(self) -> None:
        for bar in self._bars.values():
            bar.clear()

    def _hear(self, event: protocol.Event) -> None:
        if isinstance(event, protocol.Progress):
            self._bars[event.stage](event.done, event.total)
        elif isinstance(event, protocol.Failed) and event.id not in ("serve", "load"):
            self.clear()  # the client that asked for the model hears of it too
            print(f"{event.message} {event.hint}", file=sys.stderr, flush=True)
        elif isinstance(event, protocol.Failed):
            self.failed = event
            self.host.close()
        elif isinstance(event, protocol.News) and event.topic == "gpu_lost":
            self.clear()
            words = f"The GPU failed ({event.values['reason']}). The CPU answers from now on: restart the server"
            print(f"{words} to use the GPU again.", file=sys.stderr, flush=True)
        elif isinstance(event, protocol.News) and event.topic == "load_wanted":
            self._load_other(event.values["model"])
        elif isinstance(event, protocol.News) and event.topic == "unload_wanted":
            self.host.submit(protocol.Unload(f"unload-{next(self._numbers)}"))
        elif isinstance(event, protocol.Finished) and event.id.startswith("load-"):
            self.clear()
        elif isinstance(event, protocol.Finished) and event.id == "serve":
            self._address = event.result["address"]
            engine = asdict(engine_config(self._arguments))
            self.host.submit(protocol.Load("load", self._arguments.model, engine))
        elif isinstance(event, protocol.Finished) and event.id == "load" and not event.result.get("cancelled"):
            self.clear()
            self._announce(event.result["name"])

    def _load_other(self, model: str) -> None:
        """Load the model that a request names. The command's own model alone has its activation, template and draft."""
        engine = asdict(engine_config(self._arguments))
        if model != self._arguments.model:
            engine |= {"activation": None, "template": None}
            engine |= {} if engine["draft"] == "off" else {"draft": "auto"}
        self.host.submit(protocol.Load(f"load-{next(self._numbers)}", model, engine))

    def _announce(self, model: str) -> None:
        if self._arguments.json:
            print_json({"address": self._address, "key": self._key, "model": model})
            return
        print(f"{model} answers at {self._address}", flush=True)
        if self._is_new:
            print(f"Key for this run: {self._key}", flush=True)
        print("Ctrl-C ends it.", file=sys.stderr)
