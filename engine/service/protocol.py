"""What the window and the engine's process say to each other: frozen dataclasses, one JSON object a line.

The first line each way is a `hello` with the protocol's version. Every request has an id and every event that
answers it names that id. The same values travel by function call where the engine runs in the window's own
process, so this file is the only vocabulary between the two. It does no I/O.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from typing import Any, ClassVar

from engine.errors import EngineError, error_class

PROTOCOL_VERSION = 1
DEFAULT_PORT = 8434  # of the local API
MAX_LINE_BYTES = 64 << 20  # a longer line is a broken partner, not a message


class ProtocolError(EngineError):
    """The partner sent a line that is no message of this protocol."""

    hint = "Both sides must come from the same version of Hearth: install it again."


@dataclass(frozen=True)
class Hello:
    """First line each way."""

    type: ClassVar[str] = "hello"
    version: int = PROTOCOL_VERSION
    app_version: str = ""
    pid: int = 0


# ------------------------------------------------------------------ requests


@dataclass(frozen=True)
class Load:
    """Open a model; answered by progress events, then `finished` with a LoadedModelInfo as result."""

    type: ClassVar[str] = "load"
    id: str
    model: str
    engine: dict[str, Any] = field(default_factory=dict)  # fields of EngineConfig


@dataclass(frozen=True)
class Unload:
    """Give the model's memory back; answered by `finished`."""

    type: ClassVar[str] = "unload"
    id: str


@dataclass(frozen=True)
class Generate:
    """One answer to a conversation; answered by progress, token and stats events, then `finished` (GenerationResult).

    messages: [{"role": "system" | "user" | "assistant", "content": text}], the last one the user's, or with
    `continues` the assistant's.
    """

    type: ClassVar[str] = "generate"
    id: str
    messages: list[dict[str, str]]
    sampling: dict[str, Any] = field(default_factory=dict)  # what differs from the model's own defaults
    mode: str | None = None  # None: as loaded
    continues: bool = False  # the last message is the model's: it is written on, and the result is what is added
    overflow: str = (
        "roll"  # where it is too long for the context: "roll", "middle" or "stop" of engine/text/chat_room.py
    )
    fresh: bool = False  # nothing of the KV cache is used: what one mode computed, another is not to read


@dataclass(frozen=True)
class Count:
    """What a prompt would take if Generate were asked for it now; answered by `finished` (CountResult). Nothing is
    computed. texts: could be put into the last message; how much of each there is room for is counted too."""

    type: ClassVar[str] = "count"
    id: str
    messages: list[dict[str, str]]
    sampling: dict[str, Any] = field(default_factory=dict)
    overflow: str = "roll"
    texts: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Cancel:
    """Stop the request named by `target` between two tokens; that request then ends as cancelled."""

    type: ClassVar[str] = "cancel"
    id: str
    target: str


@dataclass(frozen=True)
class Job:
    """Long work beside chatting: convert, profile, train or solve; answered by progress events, then `finished`.

    arguments: as jobs.py's table has them. The result is what the command's JSON says, or {"cancelled": true}.
    """

    type: ClassVar[str] = "job"
    id: str
    job: str
    arguments: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Serve:
    """Switch the local API on or off, or give it another port or key; answered by `finished` (ServerState), also in
    the middle of an answer. What changes later comes as news. The engine's process forgets port and key when it ends.
    """

    type: ClassVar[str] = "serve"
    id: str
    on: bool = True
    port: int = DEFAULT_PORT  # of this machine's loopback; 0: any that is free
    key: str = field(default="", repr=False)  # what programs must send


@dataclass(frozen=True)
class Watch:
    """Somebody watches the model at work from now on, or no longer; answered at once by `finished`. While somebody
    does, `live` events come a few times a second, and one whenever an answer begins or ends."""

    type: ClassVar[str] = "watch"
    id: str
    on: bool = True


@dataclass(frozen=True)
class Shutdown:
    """End the process in good order."""

    type: ClassVar[str] = "shutdown"
    id: str


# ------------------------------------------------------------------ events


@dataclass(frozen=True)
class Progress:
    """stage: "loading", "preparing" (the CPU kernels) or "reading" (prefill); done and total in bytes, kernels
    or tokens. Of jobs: "converting" (bytes), "profiling" (positions), ... eta_s: seconds left at this pace."""

    type: ClassVar[str] = "progress"
    id: str
    stage: str
    done: int
    total: int
    eta_s: float | None = None


@dataclass(frozen=True)
class Token:
    """Text since the last such event, coalesced to at most 30 events a second; never half a character."""

    type: ClassVar[str] = "token"
    id: str
    text: str
    tokens: int  # generated so far in this answer


@dataclass(frozen=True)
class Stats:
    """Live figures of a running answer, a few times a second. Units: tokens, tokens/s, seconds."""

    type: ClassVar[str] = "stats"
    id: str
    tokens: int
    decode_tok_s: float | None
    ttft_s: float | None
    context_used: int
    context_total: int
    gpu_neuron_load: float | None = None  # share of the computed neurons that a GPU computed; None without one


@dataclass(frozen=True)
class Live:
    """What the model does now; figures since the event before it, unless said otherwise, None where nobody knows.

    mode: "" where no model is loaded. token_s, cpu_s, gpu_s: seconds of a token, in all and by stage: attention,
    predictor, ffn (neurons), wait (for the other side), head, sampling, other; empty where nobody measures them. Both
    sides work at the same time. on_gpu: [layers], the share of each layer's neurons that the GPU computes. fired:
    [layers][groups], of one token: in each group of a layer's neurons, the GPU's before the CPU's and the
    busiest first, how many in a hundred fired; of a sample. Empty where neurons are not told apart.
    """

    type: ClassVar[str] = "live"
    id: str  # of the answer under way; "" between answers
    mode: str = ""
    tokens: int = 0
    tok_s: float | None = None
    mean_tok_s: float | None = None  # over the answer up to now
    ttft_s: float | None = None
    prefill_tok_s: float | None = None
    active_share: float | None = None  # of the neurons, those computed for a token
    fired_share: float | None = None
    gpu_neuron_load: float | None = None
    token_s: float | None = None
    cpu_s: dict[str, float] = field(default_factory=dict)
    gpu_s: dict[str, float] = field(default_factory=dict)
    has_zeros: bool = True  # whether there are neurons that add nothing to a token; else all of them fire
    is_counted: bool = True  # whether it is known which of them fire
    on_gpu: list[float] = field(default_factory=list)
    fired: list[list[int]] = field(default_factory=list)


@dataclass(frozen=True)
class Finished:
    """A request ended well; `result` is the dict form of what the request's docstring names (or empty)."""

    type: ClassVar[str] = "finished"
    id: str
    result: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Failed:
    """A request failed. On the wire the class is called `class`. `crash` marks a bug of ours, with its traceback."""

    type: ClassVar[str] = "failed"
    id: str
    error: str  # name of an EngineError class, or of the exception for a bug of ours
    message: str
    hint: str
    crash: bool = False
    details: str = ""

    def as_error(self) -> EngineError:
        """The same failure as an exception of the class it had on the other side."""
        return error_class(self.error)(self.message, self.hint)


@dataclass(frozen=True)
class News:
    """Something changed that nobody asked about just now; `values` is the whole new state of the topic.

    topic: "downloads" {"downloads": [Download]}, "library" {"models": [InstalledModel]}; records of
    engine/library/records.py. "model": of the model that is loaded, whose place is another now: placement (as
    LoadedModelInfo has it), notes [sentences], name, device, device_reason, GPU, vram_bytes, vram_parts_bytes.
    "server": a ServerState, at most 4 a second.
    """

    type: ClassVar[str] = "news"
    topic: str
    values: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Heartbeat:
    """Once a second, whatever the engine is doing."""

    type: ClassVar[str] = "heartbeat"
    ram_bytes: int = 0
    vram_bytes: int = 0


# ------------------------------------------------------------------ results


@dataclass(frozen=True)
class LoadedModelInfo:
    """What the window needs to know of the model that is loaded."""

    name: str
    path: str
    family: str
    activation: str
    parameters: int
    weights_bytes: int  # in memory
    context: int  # tokens
    device: str  # "cpu" or "cuda": the latter computes on both sides, or on the GPU alone
    device_reason: str  # why this device, in one line
    threads: int
    mode: str  # sparse, exact or dense: what auto became
    mode_reason: str
    load_s: float
    sampling: dict[str, Any]  # the model's own defaults, fields of SamplingConfig
    description: str = ""
    has_chat_template: bool = True
    template: str = "own"  # which chat template is used: the model's own, or a built-in one's name
    template_reason: str = ""
    kind: str = "chat"  # "base" where it continues text rather than answering
    has_predictors: bool = False  # without them nothing can be answered in sparse mode
    backend: str = ""  # what computes on the CPU
    backend_reason: str = ""  # why that, and why with so many threads
    gpu: str = ""  # the GPU's name, where one computes
    vram_bytes: int = 0  # what this process holds on the GPU
    vram_parts_bytes: dict[str, int] = field(default_factory=dict)  # of that, by part; empty without a GPU
    gpu_notes: tuple[str, ...] = ()  # what happened on the way there, one sentence each
    # Where it lies and why, as engine/service/placement_words.py has it: line, why [sentences], gpu, gpu_neuron_load,
    # hot_share, vram_bytes, vram_total_bytes, vram_budget_bytes, ram_bytes, predicted_tok_s, context, is_automatic.
    placement: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> LoadedModelInfo:
        return cls(**{f.name: values[f.name] for f in fields(cls) if f.name in values})


@dataclass(frozen=True)
class GenerationResult:
    """How an answer ended. Times in seconds, rates in tokens/s, None where it does not apply."""

    text: str
    finish_reason: str  # stop, length, cancelled
    context_full: bool  # whether "length" means that the context is full
    prompt_tokens: int
    reused_tokens: int  # of the prompt, already in the KV cache
    tokens: int
    dropped_messages: int  # messages left out because the context is full
    context_used: int
    context_total: int
    total_s: float
    ttft_s: float | None
    prefill_tok_s: float | None
    decode_tok_s: float | None
    gpu_neuron_load: float | None
    active_share: float | None
    fired_share: float | None
    vram_bytes: int
    ram_bytes: int
    mode: str
    model: str
    device: str = "cpu"  # where the next answer is computed, which may be another than before
    device_reason: str = ""
    dropped_at: int = 0  # messages before those left out, instructions not counted; 0: the oldest were left out

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> GenerationResult:
        return cls(**{f.name: values[f.name] for f in fields(cls) if f.name in values})


@dataclass(frozen=True)
class CountResult:
    """What a prompt would take, in tokens."""

    tokens: int  # of the prompt, without what is left out of it
    context_total: int
    most_tokens: int  # of a prompt, where messages have to be left out: the rest is the answer's
    fits: bool = True  # whether it would be answered
    dropped_messages: int = 0
    dropped_at: int = 0  # as in GenerationResult
    text_tokens: list[int] = field(default_factory=list)  # of each text, whole
    text_kept_tokens: list[int] = field(default_factory=list)  # of each text, what there is room for
    text_kept_chars: list[int] = field(default_factory=list)  # the same in characters from its beginning

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> CountResult:
        return cls(**{f.name: values[f.name] for f in fields(cls) if f.name in values})


@dataclass(frozen=True)
class ServerState:
    """The local API as it is now."""

    on: bool = False
    address: str = ""  # "http://127.0.0.1:8434/v1", what clients take as base URL
    model: str = ""  # what answers; "" while none is loaded
    active: int = 0  # requests being answered
    waiting: int = 0
    answered: int = 0  # since it was switched on
    refused: int = 0  # for a wrong key or host, a bad request, a full line
    last_error: str = ""  # one sentence
    # Who talks to it: client (what it calls itself), what (chat, completion), state (waiting, answering), tokens.
    talking: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> ServerState:
        return cls(**{f.name: values[f.name] for f in fields(cls) if f.name in values})


Request = Load | Unload | Generate | Count | Cancel | Job | Serve | Watch | Shutdown
Event = Progress | Token | Stats | Live | Finished | Failed | News | Heartbeat
Message = Hello | Request | Event

_TYPES: dict[str, type[Any]] = {
    cls.type: cls
    for cls in (Hello, Load, Unload, Generate, Count, Cancel, Job, Serve, Watch, Shutdown,
                Progress, Token, Stats, Live, Finished, Failed, News, Heartbeat)
}  # fmt: skip


def encode(message: Message) -> bytes:
    """One line of JSON, newline included; ASCII, because paths and pasted texts may hold what UTF-8 cannot."""
    values = asdict(message)
    if isinstance(message, Failed):
        values["class"] = values.pop("error")
    return json.dumps({"type": message.type, **values}).encode("ascii") + b"\n"


def decode(line: bytes) -> Message:
    """The message that a line holds.

    Unknown fields are passed over, so that a newer partner may say more. Raises ProtocolError for anything that is
    no message: no JSON, no object, an unknown type, a field missing or of the wrong type.
    """
    try:
        values = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"A line of the engine protocol is not JSON: {line[:80]!r}.") from error
    if not isinstance(values, dict) or not isinstance(values.get("type"), str):
        raise ProtocolError(f"A line of the engine protocol is no typed object: {line[:80]!r}.")
    if "class" in values:
        values["error"] = values.pop("class")
    cls = _TYPES.get(values["type"])
    if cls is None:
        raise ProtocolError(f"Unknown message type {values['type']!r} in the engine protocol.")
    given = {f.name: values[f.name] for f in fields(cls) if f.name in values}
    for f in fields(cls):
        if f.name in given and not _fits(given[f.name], str(f.type)):
            raise ProtocolError(f"Field {f.name!r} of a {cls.type} message has the value {given[f.name]!r}.")
    try:
        message: Message = cls(**given)
    except TypeError as error:
        raise ProtocolError(f"A {cls.type} message lacks a field: {error}.") from error
    return message


_JSON_KINDS: dict[str, tuple[type, ...]] = {
    "str": (str,), "int": (int,), "float": (int, float), "bool": (bool,), "None": (type(None),),
    "dict": (dict,), "list": (list,),
}  # fmt: skip


def _fits(value: object, annotation: str) -> bool:
    kinds = [part.strip().split("[")[0] for part in annotation.split("|")]
    return any(isinstance(value, _JSON_KINDS[kind]) for kind in kinds if kind in _JSON_KINDS)
