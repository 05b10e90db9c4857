"""The protocol between the window and the engine's process: frozen dataclasses, one JSON object per line.

The first line each way is a `hello` with the protocol version. Every request has an id, and every event that answers it
repeats the id. If the engine runs in the window's process, the same objects are passed by function calls. No I/O here.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from typing import Any, ClassVar

from engine.errors import EngineError, error_class
from engine.service import DEFAULT_PORT

PROTOCOL_VERSION = 1
FEWEST_READ = 16  # prompt tokens; reading fewer takes no longer than writing one, so their rate says nothing
MAX_LINE_BYTES = 64 << 20  # a longer line means that the other side is broken


class ProtocolError(EngineError):
    """The other side sent a line that is not a message of this protocol."""

    hint = "Both sides must come from the same version of Hearth: install it again."


@dataclass(frozen=True)
class Hello:
    """First line each way."""

    type: ClassVar[str] = "hello"
    version: int = PROTOCOL_VERSION
    app_version: str = ""
    pid: int = 0


# --- requests


@dataclass(frozen=True)
class Load:
    """Load a model; answered by progress events, then `finished` with a LoadedModelInfo."""

    type: ClassVar[str] = "load"
    id: str
    model: str
    engine: dict[str, Any] = field(default_factory=dict)  # fields of EngineConfig


@dataclass(frozen=True)
class Unload:
    """Free the model's memory; answered by `finished`."""

    type: ClassVar[str] = "unload"
    id: str


@dataclass(frozen=True)
class Generate:
    """Answer a conversation; answered by progress, token and stats events, then `finished` (GenerationResult).

    messages: [{"role": "system" | "user" | "assistant" | "tool", "content": text}]; the last one is the user's or a
    tool's, or with `continues` the assistant's. One of the assistant's may have "calls", [{"id", "name", "arguments":
    object}], and with them "reasoning", the thought before; a tool's has the "id" and "name" of its call.
    tools: that the answer may call, [{"name", "description", "parameters": JSON schema}].
    """

    type: ClassVar[str] = "generate"
    id: str
    messages: list[dict[str, Any]]
    sampling: dict[str, Any] = field(default_factory=dict)  # changes to the model's defaults
    mode: str | None = None  # None: as loaded
    continues: bool = False  # continue the last message, the model's; the result is the addition
    overflow: str = (
        "roll"  # if too long for the context: "roll", "middle", "stop" or "summarise" of engine/text/context_fit.py
    )
    summary: str = ""  # of messages that were said before these; with "summarise"
    summarised: int = 0  # how many it stands for
    fresh: bool = False  # ignore the KV cache: one mode must not read what another computed
    chat: str = ""  # id of the chat, for the prompt cache; "": it is not stored there
    tools: list[dict[str, Any]] = field(default_factory=list)
    inspect: bool = False  # record each token: an `inspected` event comes before `finished`
    prompt: list[int] = field(default_factory=list)  # token ids to continue, instead of those of the messages
    n_begun: int = 0  # of these, tokens at the end that begin the answer; the answer's text includes theirs


@dataclass(frozen=True)
class Count:
    """Count the tokens of a prompt as Generate would send it; answered by `finished` (CountResult).

    Nothing is computed. texts: candidates for the last message; how much of each fits is counted too.
    """

    type: ClassVar[str] = "count"
    id: str
    messages: list[dict[str, Any]]
    sampling: dict[str, Any] = field(default_factory=dict)
    overflow: str = "roll"
    texts: list[str] = field(default_factory=list)
    tools: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class Embed:
    """Turn texts into vectors; answered by `finished` with an EmbedResult, or {"cancelled": true}.

    model: a model to load beside the chat's, on the CPU, for as long as it is needed; "": the loaded one. dimensions:
    keeps this many numbers of each vector; None: all. role: "query" or "passage", of a search: puts the model's
    prompt for it before the text. Other requests go between two texts. At most 256 texts.
    """

    type: ClassVar[str] = "embed"
    id: str
    texts: list[str]
    model: str = ""
    dimensions: int | None = None
    role: str = ""


@dataclass(frozen=True)
class StorePrompts:
    """Keep computed prompts on disk, of these chats alone; answered by `finished`.

    What only other chats used is deleted. quota_bytes: of all files, of which the least recently used are deleted; 0:
    nothing is on disk. folder: where they are. Before the first such request nothing is stored. Chats of later Generate
    requests are stored too.
    """

    type: ClassVar[str] = "store_prompts"
    id: str
    folder: str
    chats: list[str]
    quota_bytes: int


@dataclass(frozen=True)
class ChooseDraft:
    """Choose the smaller model that guesses tokens for the loaded one, as EngineConfig.draft; answered by `finished`.

    It is loaded while the engine is idle, in place of the one before. The news "draft" tells what became of it.
    """

    type: ClassVar[str] = "choose_draft"
    id: str
    draft: str = "auto"


@dataclass(frozen=True)
class Cancel:
    """Cancel the request `target`, which then ends as cancelled: a prompt between two layers, decode in a token."""

    type: ClassVar[str] = "cancel"
    id: str
    target: str


@dataclass(frozen=True)
class Job:
    """Run a long job: convert, profile, train or solve; answered by progress events, then `finished`.

    arguments: see the table in jobs.py. The result is the command's JSON, or {"cancelled": true}.
    """

    type: ClassVar[str] = "job"
    id: str
    job: str
    arguments: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Serve:
    """Switch the local API on or off, or change its port or key; answered by `finished` (ServerState).

    Takes effect even during an answer. Later changes come as news. The engine's process forgets port and key when it
    ends. loads: requests may name any model on this PC. The engine does not load it by itself: the news "load_wanted"
    (model, client) asks for a Load, until whose end the request waits. unload_after_s: without a request for so long,
    the news "unload_wanted" asks for an Unload; None: never.
    """

    type: ClassVar[str] = "serve"
    id: str
    on: bool = True
    port: int = DEFAULT_PORT  # on the loopback; 0: any free one
    key: str = field(default="", repr=False)  # key that clients must send
    loads: bool = False
    unload_after_s: float | None = None


@dataclass(frozen=True)
class Watch:
    """Start or stop watching the model; answered at once by `finished`.

    While on, `live` events come a few times a second and whenever an answer begins or ends.
    """

    type: ClassVar[str] = "watch"
    id: str
    on: bool = True


@dataclass(frozen=True)
class Shutdown:
    """End the process cleanly."""

    type: ClassVar[str] = "shutdown"
    id: str


# --- events


@dataclass(frozen=True)
class Progress:
    """Progress of a request. eta_s: estimated seconds left.

    stage: "loading", "preparing" (the CPU kernels), "summarising" (the prefill of a summary) or "reading" (prefill),
    with done and total in bytes, kernels or tokens. Of jobs: "converting" (bytes), "profiling" (positions), ...
    """

    type: ClassVar[str] = "progress"
    id: str
    stage: str
    done: int
    total: int
    eta_s: float | None = None


@dataclass(frozen=True)
class Token:
    """Text since the last such event, at most 30 events a second, in whole characters."""

    type: ClassVar[str] = "token"
    id: str
    text: str
    tokens: int  # generated so far in this answer


@dataclass(frozen=True)
class Inspected:
    """What the engine recorded of an answer's tokens; once, before `finished`, if Generate.inspect is true.

    prompt: token ids as the model got them. texts: the text of each id in this event, by the id as a string; bytes that
    are not a whole character are written as \\xNN. n_neurons: of a layer. hot: neurons that the GPU
    computes, as `active`; "" without a GPU. rows: one for each token, with
        id, p: the token and its probability, from the model's logits before temperature and filters
        top: [[id, probability]], the most likely tokens
        us: microseconds since the engine had sent the token before
        run: tokens that were computed together with the one before: 1 for that one alone, more with guesses, 0 if it
            was computed in an earlier run. Missing if it was computed with the whole context, as the first token is.
    and only if run is 1, and only what is known; of a very long answer, nothing by layer:
        bytes: of weights and KV cache that were read
        fired: [L] active neurons. computed, on_gpu: computed neurons of all layers, and of these the GPU's
        active: the active neurons, of a long answer only for its last tokens: base64 of a bit for each neuron, the
            lowest bit first, each layer in whole bytes
        experts: [L] ids of the chosen experts, None where not known. missed: [L] of these, those not on the GPU
    """

    type: ClassVar[str] = "inspected"
    id: str
    prompt: list[int]
    rows: list[dict[str, Any]]
    texts: dict[str, str] = field(default_factory=dict)
    n_neurons: int = 0
    hot: str = ""


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
    gpu_neuron_load: float | None = None  # share of computed neurons on the GPU; None without one


@dataclass(frozen=True)
class Live:
    """What the model is doing, since the previous event unless stated otherwise; None if unknown.

    mode: "" without a model.
    token_s, cpu_s, gpu_s: seconds per token, in total and by stage: attention, predictor, ffn (neurons), wait (for the
    other side), head, sampling, other; empty if not measured. Both sides work at the same time.
    on_gpu [layers]: share of each layer's neurons that the GPU computes.
    fired [layers][groups], of one token: percent of a sample of each group that was active; the GPU's groups precede
    the CPU's, the most active first. Empty if unknown.
    n_experts, n_experts_used: of a layer, and of those a token's; 0 without experts.
    expert_hits: share of a token's experts that are on the GPU. exchanged: experts moved there since the load.
    reads_experts: whether memory lacks experts. disk_bytes: read from the disk for a token.
    chosen, resident [layers][groups]: percent of recent tokens that chose an expert of the group, and percent of its
    experts on the GPU; the most chosen first. Empty without a GPU.
    """

    type: ClassVar[str] = "live"
    id: str  # of the current answer; "" between answers
    mode: str = ""
    tokens: int = 0
    tok_s: float | None = None
    mean_tok_s: float | None = None  # mean over the answer so far
    ttft_s: float | None = None
    prefill_tok_s: float | None = None
    active_share: float | None = None  # share of neurons computed for a token
    fired_share: float | None = None
    gpu_neuron_load: float | None = None
    token_s: float | None = None
    cpu_s: dict[str, float] = field(default_factory=dict)
    gpu_s: dict[str, float] = field(default_factory=dict)
    has_zeros: bool = True  # whether inactive neurons exist; otherwise all are active
    is_counted: bool = True  # whether active neurons are known
    on_gpu: list[float] = field(default_factory=list)
    fired: list[list[int]] = field(default_factory=list)
    n_experts: int = 0
    n_experts_used: int = 0
    expert_hits: float | None = None
    exchanged: int = 0
    reads_experts: bool = False
    disk_bytes: float | None = None
    chosen: list[list[int]] = field(default_factory=list)
    resident: list[list[int]] = field(default_factory=list)


@dataclass(frozen=True)
class Finished:
    """A request succeeded. `result`: the dict named in the request's docstring, or empty."""

    type: ClassVar[str] = "finished"
    id: str
    result: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Failed:
    """A request failed. In JSON the class is called `class`. `crash`: a bug, with traceback."""

    type: ClassVar[str] = "failed"
    id: str
    error: str  # name of an EngineError class, or of the exception if `crash`
    message: str
    hint: str
    crash: bool = False
    details: str = ""

    def as_error(self) -> EngineError:
        """Return the failure as an exception of its class."""
        return error_class(self.error)(self.message, self.hint)


@dataclass(frozen=True)
class News:
    """A change that was not requested. `values`: the whole new state of the topic.

    topic: "downloads" {"downloads": [Download]}, "library" {"models": [InstalledModel]}, records of
    engine/library/records.py. "model": the loaded model's new placement: placement (as in LoadedModelInfo), notes
    [sentences], name, device, device_reason, GPU, vram_bytes, vram_parts_bytes. "server": a ServerState, at most 4 a
    second. "draft": the smaller model that guesses tokens: model (its name; empty: none), device, n_bytes, reason (why
    none, in a sentence). "gpu_lost": after the error `reason`, this process can use no GPU; a new one may.
    """

    type: ClassVar[str] = "news"
    topic: str
    values: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Heartbeat:
    """Sent once a second, whatever the engine does."""

    type: ClassVar[str] = "heartbeat"
    ram_bytes: int = 0
    vram_bytes: int = 0


# --- results


@dataclass(frozen=True)
class LoadedModelInfo:
    name: str
    path: str
    family: str
    activation: str
    parameters: int
    context: int  # tokens
    device: str  # "cpu" or "cuda"; the latter uses both sides, or the GPU alone
    device_reason: str  # why this device, in one line
    threads: int
    mode: str  # sparse, exact or dense, with auto resolved
    mode_reason: str
    load_s: float
    sampling: dict[str, Any]  # the model's defaults, fields of SamplingConfig
    description: str = ""
    template: str = "own"  # chat template: the model's "own", or a built-in one's name
    template_reason: str = ""
    thinking: list[str] = field(default_factory=list)  # levels that can be chosen; fewer than two: no choice
    thinking_default: str = ""  # the level without a choice; "": the model decides
    kind: str = "chat"  # "base" if it continues text instead of answering
    has_predictors: bool = False  # required for sparse mode
    backend: str = ""  # the CPU backend
    backend_reason: str = ""  # reason for the backend and the number of threads
    gpu: str = ""  # name of the GPU in use
    vram_bytes: int = 0  # VRAM used by this process
    vram_parts_bytes: dict[str, int] = field(default_factory=dict)  # by part; empty without a GPU
    gpu_notes: tuple[str, ...] = ()  # what happened during the load, one sentence each
    # Where it is and why, from engine/service/placement_words.py: line, why [sentences], gpu, gpu_neuron_load,
    # hot_share, vram_bytes, vram_total_bytes, vram_budget_bytes, ram_bytes, predicted_tok_s, context, is_automatic,
    # experts_on_gpu (None without experts), disk_bytes (of experts on the disk).
    placement: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> LoadedModelInfo:
        return cls(**{f.name: values[f.name] for f in fields(cls) if f.name in values})


@dataclass(frozen=True)
class GenerationResult:
    """How an answer ended. Times in seconds, rates in tokens/s, None if not applicable."""

    text: str
    finish_reason: str  # stop, length, cancelled, tool_calls
    context_full: bool  # whether "length" means that the context is full
    prompt_tokens: int
    reused_tokens: int  # prompt tokens already in the KV cache, restored ones included
    tokens: int
    dropped_messages: int  # messages dropped because the context is full
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
    device: str = "cpu"  # device of the next answer, which may differ from before
    device_reason: str = ""
    dropped_at: int = 0  # messages before the dropped ones, without instructions; 0: the oldest were dropped
    restored_tokens: int = 0  # prompt tokens read from the prompt cache
    summary: str = ""  # of earlier messages, which the model read instead of them
    summarised: int = 0  # messages that it stands for, from the chat's first on; dropped_messages are further ones
    guessed_tokens: int = 0  # computed before it was known whether the answer has them
    accepted_tokens: int = 0  # of these, in the answer
    guesses: dict[str, list[int]] = field(default_factory=dict)  # the same two figures by source: "lookup", "draft"
    calls: list[dict[str, Any]] = field(default_factory=list)  # of tools, as in Generate.messages; `text` is without

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> GenerationResult:
        return cls(**{f.name: values[f.name] for f in fields(cls) if f.name in values})


@dataclass(frozen=True)
class EmbedResult:
    """The result of Embed. vectors: of each text, little-endian float32 numbers in base64, of length 1. tokens: of all
    texts.
    """

    vectors: list[str]
    tokens: int
    model: str

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> EmbedResult:
        return cls(**{f.name: values[f.name] for f in fields(cls) if f.name in values})


@dataclass(frozen=True)
class CountResult:
    """Size of a prompt in tokens."""

    tokens: int  # of the prompt, without dropped messages
    context_total: int
    most_tokens: int  # longest prompt if messages must be dropped; the rest is for the answer
    fits: bool = True  # whether the engine would answer it
    dropped_messages: int = 0
    dropped_at: int = 0  # as in GenerationResult
    text_tokens: list[int] = field(default_factory=list)  # of each text, whole
    text_kept_tokens: list[int] = field(default_factory=list)  # of each text, tokens that fit
    text_kept_chars: list[int] = field(default_factory=list)  # of each text, leading characters that fit
    tool_tokens: int = 0  # of the definitions of the tools, in `tokens`

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> CountResult:
        return cls(**{f.name: values[f.name] for f in fields(cls) if f.name in values})


@dataclass(frozen=True)
class ServerState:
    """The current state of the local API."""

    on: bool = False
    address: str = ""  # "http://127.0.0.1:8434/v1", the clients' base URL
    model: str = ""  # the loaded model; "" for none
    active: int = 0  # requests being answered
    waiting: int = 0
    answered: int = 0  # since switched on
    refused: int = 0  # wrong key or host, bad request, full line
    last_error: str = ""  # one sentence
    # Current clients: client (its own name), what (chat, completion), state (waiting, answering), tokens.
    talking: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> ServerState:
        return cls(**{f.name: values[f.name] for f in fields(cls) if f.name in values})


Request = (
    Load | Unload | Generate | Count | Embed | StorePrompts | ChooseDraft | Cancel | Job | Serve | Watch | Shutdown
)
Event = Progress | Token | Inspected | Stats | Live | Finished | Failed | News | Heartbeat
Message = Hello | Request | Event

_TYPES: dict[str, type[Any]] = {
    cls.type: cls
    for cls in (Hello, Load, Unload, Generate, Count, Embed, StorePrompts, ChooseDraft, Cancel, Job, Serve, Watch,
                Shutdown, Progress, Token, Inspected, Stats, Live, Finished, Failed, News, Heartbeat)
}  # fmt: skip


def encode(message: Message) -> bytes:
    """Return one line of JSON with newline; ASCII, because paths and pasted texts may contain what UTF-8 cannot
    encode."""
    values = asdict(message)
    if isinstance(message, Failed):
        values["class"] = values.pop("error")
    return json.dumps({"type": message.type, **values}).encode("ascii") + b"\n"


def decode(line: bytes) -> Message:
    """Return the message of a line.

    Unknown fields are ignored, so that a newer version may send more. Raises: ProtocolError for invalid JSON, an
    unknown type, or a missing or mistyped field.
    """
    try:
        values = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"A line of the engine protocol is not JSON: {line[:80]!r}.") from error
    if not isinstance(values, dict) or not isinstance(values.get("type"), str):
        raise ProtocolError(f"A line of the engine protocol is not a typed object: {line[:80]!r}.")
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
