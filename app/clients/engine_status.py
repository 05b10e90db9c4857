"""The engine's status as plain data, and its texts for the window. No Qt.

One vocabulary for the whole window: Loading, Ready, Reading, Thinking, Writing, Stopping, Restarting.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from app.translation import figure, noted, tr, tr_n
from app.units import NARROW

if TYPE_CHECKING:
    from engine.machine.hardware import MachineFacts

FEWEST_TOKENS = 16  # a shorter answer says little about speed
NO_GPU = noted("No GPU found: runs on {cores} · {memory}")
NO_USABLE_GPU = noted("No usable GPU: runs on {cores} · {memory}")
# Sentences of the engine, in English, that the window translates. Others are shown as they are.
SENTENCES = (
    noted("no NVIDIA driver is installed"),
    noted("the NVIDIA driver is installed but not loaded"),
    noted("the GPU was lost: restart the computer"),
    noted("the GPU needs a reset: restart the computer"),
    noted("the NVIDIA driver was updated while it ran: restart the computer"),
    noted("the machine has no GPU"),
    noted("Not measured on this PC yet; estimated from similar machines."),
    noted("Estimated from models of the same family."),
    noted("Estimated without predictors; preparing can train some and make it faster."),
    noted("Estimated for the model as prepared for this PC."),
    noted("The GPU cannot compute this model yet, so it runs on the CPU alone."),
)
# How the starter model's file describes it.
STARTER_DESCRIPTION = noted("A tiny demonstration model that answers simple questions and tells small stories.")


class Phase(StrEnum):
    STARTING = "starting"  # the engine's process is starting
    LOADING = "loading"
    READY = "ready"
    READING = "reading"  # prefill
    THINKING = "thinking"  # sent; nothing known yet
    WRITING = "writing"
    STOPPING = "stopping"
    RESTARTING = "restarting"  # the process died and is restarting
    FAILED = "failed"  # no model is loaded; a banner says why
    OFF = "off"  # no model is wanted


_WORDS = {
    Phase.STARTING: noted("Loading"),
    Phase.LOADING: noted("Loading"),
    Phase.READY: noted("Ready"),
    Phase.READING: noted("Reading"),
    Phase.THINKING: noted("Thinking"),
    Phase.WRITING: noted("Writing"),
    Phase.STOPPING: noted("Stopping"),
    Phase.RESTARTING: noted("Restarting"),
    Phase.FAILED: noted("Not loaded"),
    Phase.OFF: noted("No model"),
}


@dataclass(frozen=True)
class EngineStatus:
    """The engine at one moment. Unknown figures are None, never 0. Rates in tokens/s."""

    phase: Phase = Phase.STARTING
    model: str = ""  # display name of the model
    device: str = ""  # "CPU, 1 thread", "RTX 4090 + CPU, 7 threads"
    device_reason: str = ""  # why it runs there, in one sentence
    gpu: str = ""  # name of the GPU in use, if any
    vram_bytes: int | None = None  # the engine's memory on it
    gpu_share: float | None = None  # fraction of computed neurons on the GPU; of the running answer, then of the last
    done: int = 0  # of the current stage: bytes while loading, tokens while reading
    total: int = 0
    brief: bool = False  # reading: has just begun and is usually over before progress could be read
    summarising: bool = False  # reading: older messages, to write a summary of them
    compiling: bool = False  # loading: kernels are being compiled; done and total count them
    tok_s: float | None = None  # of the running answer; afterwards the last one's mean
    tokens: int = 0  # of the running answer so far
    context_used: int | None = None
    context_total: int | None = None
    left_out: int = 0  # messages that the last answer was given without
    load_s: float | None = None
    description: str = ""  # the model in one sentence
    is_base: bool = False  # continues text instead of answering
    queued: bool = False  # an answer waits for the engine; Send is Stop
    cancelling: bool = False  # loading: the user cancelled it
    can_load: str = ""  # no model is loaded: name of the model that the next message would load
    server: str = ""  # name of the chat's server; empty: this PC
    host: str = ""  # of that server
    server_here: bool = False  # the server is another program on this PC
    draft: str = ""  # name of the smaller model that guesses tokens; empty: none
    draft_reason: str = ""  # why none, in one sentence; empty: not known yet
    # `placement` of protocol.LoadedModelInfo; empty without a model.
    placement: Mapping[str, Any] = field(default_factory=dict)

    @property
    def working(self) -> bool:
        """Whether something is running (shown as an ember dot)."""
        return self.phase in {Phase.STARTING, Phase.LOADING, Phase.READING, Phase.THINKING, Phase.WRITING,
                              Phase.STOPPING, Phase.RESTARTING}  # fmt: skip

    @property
    def leaves(self) -> bool:
        """Whether the chat's messages leave this PC."""
        return bool(self.server) and not self.server_here

    @property
    def answering(self) -> bool:
        """Whether an answer is running; Send is Stop then."""
        return self.queued or self.phase in {Phase.READING, Phase.THINKING, Phase.WRITING, Phase.STOPPING}

    @property
    def takes_messages(self) -> bool:
        """Whether a message can be sent now. Without a model it loads one first."""
        return not self.answering and (self.phase not in {Phase.FAILED, Phase.OFF} or bool(self.can_load))

    @property
    def word(self) -> str:
        """The state as text, with its figure if there is one: "Reading 512 tokens, 61%"."""
        word = tr(_WORDS[self.phase])
        if self.cancelling:
            return tr("Stopping")
        if self.phase is Phase.LOADING and self.compiling:
            return tr(
                "Getting ready, {done} of {total} (once for this PC)",
                done=min(self.done + 1, self.total),
                total=self.total,
            )
        if self.phase is Phase.LOADING and self.total:
            return f"{word}, {100 * self.done // self.total}%"
        if self.phase is Phase.READING and self.summarising:
            return tr("Summarising earlier messages")
        if self.phase is Phase.READING and self.total:
            what = tr_n("Reading {n} token", "Reading {n} tokens", self.total, n=figure(self.total))
            return what if self.brief else f"{what}, {100 * self.done // self.total}%"
        return word


def short_name(name: str) -> str:
    """Return a GPU's usual name: "RTX 4090"."""
    return name.removeprefix("NVIDIA ").removeprefix("GeForce ")


def why_there(device_reason: str) -> str:
    """Return the engine's reason for its device, without the redundant "on the CPU"."""
    if device_reason.rstrip(".") == "The CPU computes, as requested":
        return ""
    why = device_reason.removeprefix("CPU only: ").removeprefix("The CPU computes: ")
    return translated(why)


def translated(sentence: str) -> str:
    """Return a sentence of the engine in the user's language, if it is translated."""
    bare = sentence.rstrip(".")
    known = next((one for one in SENTENCES if one.rstrip(".") == bare), "")
    return tr(known) if known else sentence


def machine_line(facts: MachineFacts) -> str:
    """Return this PC in one line."""
    cores = tr_n("{n} core", "{n} cores", facts.cores)
    ram = tr("{memory} RAM", memory=f"{facts.ram_gb}{NARROW}GB")
    if facts.gpu:
        return f"{facts.gpu}, {facts.vram_gb}{NARROW}GB · {ram} · {cores}"
    return tr(NO_USABLE_GPU if facts.has_unusable_gpu else NO_GPU, cores=cores, memory=ram)


def sentence(*parts: str) -> str:
    """Join the non-empty texts as sentences."""
    said = (part.strip().rstrip(".") for part in parts if part.strip())
    return " ".join(f"{part[0].upper()}{part[1:]}." for part in said)
