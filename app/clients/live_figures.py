"""The figures of the Live page as plain data and text: a minute of the machine, and the model at work. No Qt.

All figures come from the monitor or the engine; unknown ones are "–".
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from app.clients.engine_status import EngineStatus, Phase, translated
from app.translation import figure, noted, tr
from app.units import NARROW, gigabytes, rate, seconds
from engine.service.protocol import FEWEST_READ, GenerationResult, Live

if TYPE_CHECKING:
    from engine.machine.monitor import GpuSample, MachineSample

UNKNOWN = "–"
WINDOW_S = 60.0

Points = list[tuple[float, float | None]]  # seconds ago and value; None: unknown


@dataclass(frozen=True)
class Graph:
    """One graph with its labels. hot: of the GPU, else of the CPU. top: value at the upper edge; 0: the highest so far.
    others: used by other programs. say: formats a value."""

    title: str
    value: str
    line: str
    hot: bool
    top: float
    points: Points
    others: Points
    say: Callable[[float], str]
    spoken: str = ""


@dataclass(frozen=True)
class Fact:
    """A secondary figure: "0.34 s", "first token". more: its tooltip."""

    value: str
    words: str
    more: str = ""


@dataclass(frozen=True)
class Speed:
    """The current rate, its subject, a minute of it, and related facts."""

    value: str
    of: str
    facts: tuple[Fact, ...]
    points: Points
    working: bool


@dataclass(frozen=True)
class Stage:
    """Part of a token's time. side: "gpu" or "cpu"."""

    key: str
    side: str
    words: str
    seconds: float
    more: str = ""


@dataclass(frozen=True)
class TokenTimes:
    """The time of a token by stage: stages in order, the GPU's before the CPU's. total: None before a token."""

    total: float | None
    stages: tuple[Stage, ...]
    has_gpu: bool


def percent(value: float | None) -> str:
    """Format a percentage, or "unknown"."""
    return UNKNOWN if value is None else f"{value:.0f}%"


def share(value: float | None) -> str:
    """Format a fraction as a percentage, with one decimal where that matters."""
    if value is None:
        return UNKNOWN
    return f"{figure(100 * value, '.1f' if 0 < value < 0.2 else '.0f')}%"


def size(n_bytes: float | None) -> str:
    """Format memory; 1 GB is 2^30 bytes."""
    if n_bytes is None:
        return UNKNOWN
    return f"{figure(n_bytes / 2**30, '.1f')}{NARROW}GB" if n_bytes >= 100 << 20 else f"{n_bytes / 2**20:.0f}{NARROW}MB"


def whole(n_bytes: float) -> str:
    """Format a memory capacity."""
    amount = n_bytes / 2**30
    return f"{figure(amount, '.0f' if amount >= 10 else '.1f')}{NARROW}GB"


def milliseconds(value: float) -> str:
    """Format a time within a token."""
    return f"{figure(1000 * value, '.1f')}{NARROW}ms" if value < 0.9995 else seconds(value)


class LiveFigures:
    """Collects figures and describes what to show. Times are in seconds of any monotonic clock."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, MachineSample]] = deque()
        self._rates: deque[tuple[float, float | None]] = deque()
        self._tokens = 0
        self._sampled_at: float | None = None
        self.status = EngineStatus()
        self.live = Live("")  # the newest
        self.measured: Live | None = None  # the newest of this model with a token's time
        self.result: GenerationResult | None = None  # of this model's last answer

    # --- what comes in

    def take_status(self, status: EngineStatus) -> None:
        """Take the engine's status."""
        if status.model != self.status.model:
            self.measured = self.result = None
        if status.phase in {Phase.LOADING, Phase.OFF, Phase.RESTARTING, Phase.FAILED}:
            self.live, self.measured = Live(""), None
        self.status = status

    def take_live(self, live: Live) -> None:
        """Take the model's live figures."""
        self.live = live
        if live.token_s is not None:
            self.measured = live

    def take_result(self, result: GenerationResult) -> None:
        self.result = result

    def take_sample(self, sample: MachineSample, now: float) -> None:
        """Take the machine's figures. The rate counts tokens since the sample before."""
        self._samples.append((now, sample))
        status, before, self._sampled_at = self.status, self._sampled_at, now
        tokens, self._tokens = self._tokens, status.tokens
        written = status.tokens - tokens if status.tokens >= tokens else status.tokens
        known = before is not None and 0 < now - before < 3
        self._rates.append((now, written / (now - before) if known and before is not None else None))
        for kept in (self._samples, self._rates):
            while kept and now - kept[0][0] > WINDOW_S + 1:
                kept.popleft()

    # --- what is to be seen

    def state(self, chat: str = "") -> str:
        """Return one line on what is running. chat: title of the answered chat."""
        status = self.status
        if not status.model:
            return tr("No model is loaded") if status.phase in {Phase.OFF, Phase.FAILED} else status.word
        if status.phase is Phase.WRITING:
            if chat:
                return tr("{model} is answering in “{chat}”", model=status.model, chat=chat)
            return tr("{model} is answering", model=status.model)
        return f"{status.model} · {status.word}"

    def speed(self, now: float) -> Speed:
        """Return the current rate during an answer, else the last one's."""
        status, live, result = self.status, self.live, self.result
        writing = status.phase is Phase.WRITING
        answer = live if status.answering and live.id else None
        if writing:
            value = rate(live.tok_s if answer is not None and live.tok_s is not None else status.tok_s)
            mean = live.mean_tok_s if answer is not None else status.tok_s
            of = "" if mean is None else tr("mean {rate} over this answer", rate=rate(mean))
        else:
            value = rate(None if result is None or status.answering else result.decode_tok_s)
            of = "" if status.answering else tr("mean over the last answer")
            if result is None and not status.answering:
                of = tr("Ask something: the rate of the answer is drawn here.")
        figures: Live | GenerationResult | None = answer if status.answering else result
        return Speed(value, of, self._facts(figures), self._aged(self._rates, now), writing)

    def _facts(self, figures: Live | GenerationResult | None) -> tuple[Fact, ...]:
        prefill = None if figures is None else figures.prefill_tok_s
        if isinstance(figures, GenerationResult) and figures.prompt_tokens - figures.reused_tokens < FEWEST_READ:
            prefill = None
        active = tr("Of all neurons, those computed for a token.")
        if figures is not None and figures.fired_share is not None:
            active += " " + tr("Not zero: {share}.", share=share(figures.fired_share))
        facts = [
            Fact(
                seconds(None if figures is None else figures.ttft_s),
                tr("first token"),
                tr("From sending to the first token"),
            ),
            Fact(UNKNOWN if prefill is None else rate(prefill), tr("reading"), tr("How fast the prompt was read")),
            self._used_experts()
            or Fact(share(None if figures is None else figures.active_share), tr("neurons active"), active),
        ]
        if self.status.gpu:
            load = (
                self.status.gpu_share if figures is None or figures.gpu_neuron_load is None else figures.gpu_neuron_load
            )
            hits = figures.expert_hits if isinstance(figures, Live) else None
            words = tr("Share of the computed neurons that the GPU computes")
            if self.live.n_experts:
                words = tr("Of the experts that a token uses, those that are on the GPU. The CPU computes the others.")
                words += " " + tr("Moved to the GPU since the model was loaded: {n}.", n=figure(self.live.exchanged))
            facts.append(Fact(share(load if hits is None else hits), tr("on the GPU"), words))
        if self.live.reads_experts:
            read = figures.disk_bytes if isinstance(figures, Live) else None
            words = tr("Memory does not hold all experts. Those that it lacks are read from the disk for each token.")
            facts.append(Fact(gigabytes(read), tr("from the disk"), words))
        return tuple(facts)

    def _used_experts(self) -> Fact | None:
        """Return how many experts a token uses; None for a model without."""
        used, n = self.live.n_experts_used, self.live.n_experts
        if not n:
            return None
        more = tr("A token goes through {used} of the {n} experts of each layer.", used=used, n=n)
        return Fact(tr("{used} of {n}", used=used, n=n), tr("experts used"), more)

    def token_times(self) -> TokenTimes:
        """Return how a token's time divides."""
        has_gpu, live = bool(self.status.gpu), self.measured
        if live is None:
            return TokenTimes(None, (), has_gpu)
        gpu = [(f"gpu-{key}", "gpu", tr(_WORDS[key]), live.gpu_s[key]) for key in _ORDER if live.gpu_s.get(key)]
        cpu = [(f"cpu-{key}", "cpu", tr(_WORDS[key]), live.cpu_s[key]) for key in _ORDER if live.cpu_s.get(key)]
        stages = []
        for key, side, words, took in (*gpu, *cpu):
            if key.endswith("-ffn") and has_gpu:
                words = tr("Hot neurons") if side == "gpu" else tr("Cold neurons")
            if key.endswith("-ffn") and live.n_experts:
                words = tr("Experts")
            stages.append(Stage(key, side, words, took, tr(_MORE.get(key, ""))))
        # When idle, rate and time are means over the last answer. The engine's newest figures, which cover some of its
        # tokens, say how the time divides.
        total, result = live.token_s, self.result
        if total and result is not None and result.decode_tok_s and not self.status.answering:
            longer = 1 / (result.decode_tok_s * total)
            stages = [replace(stage, seconds=stage.seconds * longer) for stage in stages]
            total = 1 / result.decode_tok_s
        return TokenTimes(total, tuple(stages), has_gpu)

    def neurons(self) -> str:
        """Return what the map of neurons shows, in one line."""
        live = self.live
        if not live.on_gpu:
            return ""
        if live.chosen:
            return self._experts()
        if not live.has_zeros and live.n_experts:
            where = tr("all experts are in RAM, and the CPU computes them")
            if live.reads_experts:
                where = tr("the CPU computes all experts")
            return " · ".join([tr("one column per layer"), where])
        if not live.has_zeros:
            return tr("one column per layer · this model uses every neuron for every token")
        parts = [tr("one column per layer, busiest at the bottom")]
        on_gpu = sum(live.on_gpu) / len(live.on_gpu)
        if on_gpu > 0 and self.status.gpu_share is not None:
            parts = [
                tr("one column per layer"),
                tr(
                    "the {part} on the GPU do {share} of the work",
                    part=share(on_gpu),
                    share=share(self.status.gpu_share),
                ),
            ]
        seen = tr("bright: fired for one token") if live.is_counted else tr("active neurons are not counted here")
        return " · ".join([*parts, seen])

    def _experts(self) -> str:
        """Return what the map of experts shows."""
        parts = [tr("one column per layer"), tr("most chosen at the bottom"), tr("bright: chosen often")]
        if min(self.live.on_gpu) == 1:
            parts = [parts[0], tr("all experts are on the GPU")]
        return " · ".join(parts)

    def neurons_at_rest(self) -> str:
        """Return what the map will show and how to get it, while idle; empty if it never shows anything."""
        live = self.live
        if live.chosen and not self.status.answering and min(live.on_gpu) < 1 and not any(map(any, live.chosen)):
            return tr("Ask something: the experts that are chosen for each token light up here.")
        if self.status.answering or not live.on_gpu or not live.has_zeros or not live.is_counted:
            return ""
        return tr("Ask something: the neurons that fire for each token light up here.")

    def graphs(self, now: float) -> list[Graph]:
        """Return the machine's graphs: load and memory of each GPU, then CPU and RAM."""
        newest = self._samples[-1][1] if self._samples else None
        gpus = () if newest is None else newest.gpus
        graphs = [graph for gpu in gpus for graph in self._of_card(gpu, len(gpus), now)]
        return [*graphs, self._cpu(newest, now), self._ram(newest, now)]

    def why_no_gpu(self) -> str:
        """Return why no GPU is shown; "" if one is, or nothing is known yet."""
        return translated(self._samples[-1][1].gpu_reason) if self._samples and not self._samples[-1][1].gpus else ""

    def _of_card(self, gpu: GpuSample, n_gpus: int, now: float) -> list[Graph]:
        name = "GPU" if n_gpus == 1 else f"GPU {gpu.index}"
        facts = [] if gpu.power_w is None else [f"{gpu.power_w:.0f}{NARROW}W"]
        facts += [] if gpu.temperature_c is None else [f"{gpu.temperature_c:.0f}{NARROW}°C"]
        held = self._held(gpu, self.status)
        memory = []
        if gpu.vram_total_bytes:
            memory.append(tr("of {total}", total=whole(gpu.vram_total_bytes)))
        if gpu.vram_used_bytes is not None and held is not None:
            memory.append(tr("Hearth {size}", size=size(held)))
        lost = gpu.reason
        load = self._of_gpu(gpu.index, lambda one: one.load_percent, now)
        used = self._of_gpu(gpu.index, lambda one: one.vram_used_bytes, now)
        others = self._of_gpu(gpu.index, self._others, now)
        return [
            Graph(tr("{name} load", name=name), percent(gpu.load_percent), lost or " · ".join(facts), True, 100.0, load,
                  [], percent, tr("{name}, load", name=gpu.name)),
            Graph("VRAM" if n_gpus == 1 else f"VRAM {gpu.index}", size(gpu.vram_used_bytes),
                  lost or " · ".join(memory), True, float(gpu.vram_total_bytes or 0), used, others, size,
                  tr("{name}, memory", name=gpu.name)),
        ]  # fmt: skip

    def _held(self, gpu: GpuSample, status: EngineStatus) -> int | None:
        """Return Hearth's bytes on the GPU; if unknown, the engine's own figure for its GPU."""
        if gpu.vram_process_bytes is not None or gpu.vram_used_bytes is None:
            return gpu.vram_process_bytes
        return (status.vram_bytes or 0) if not status.gpu or gpu.name == status.gpu else 0

    def _others(self, gpu: GpuSample) -> float | None:
        held = self._held(gpu, self.status)
        return None if gpu.vram_used_bytes is None or held is None else max(0, gpu.vram_used_bytes - held)

    def _cpu(self, newest: MachineSample | None, now: float) -> Graph:
        ours = None if newest is None else newest.process_cpu_percent
        line = "" if ours is None else f"Hearth {percent(ours)}"
        if newest is not None and self.status.device:
            threads = self.status.device.rpartition(", ")[2]
            line = f"{line} · {threads}" if line else threads
        points = [(age, one.cpu_percent) for age, one in self._ages(now)]
        others = [
            (age, None if one.cpu_percent is None or one.process_cpu_percent is None
             else max(0.0, one.cpu_percent - one.process_cpu_percent))
            for age, one in self._ages(now)
        ]  # fmt: skip
        value = percent(None if newest is None else newest.cpu_percent)
        return Graph("CPU", value, line, False, 100.0, points, others, percent, tr("CPU load"))

    def _ram(self, newest: MachineSample | None, now: float) -> Graph:
        value, line, top = UNKNOWN, "", 0.0
        if newest is not None:
            top, value = float(newest.ram_total_bytes), size(newest.ram_used_bytes)
            ours = tr("Hearth {size}", size=size(newest.process_ram_bytes))
            line = f"{tr('of {total}', total=whole(top))} · {ours}"
        points: Points = [(age, float(one.ram_used_bytes)) for age, one in self._ages(now)]
        others: Points = [
            (age, float(max(0, one.ram_used_bytes - one.process_ram_bytes))) for age, one in self._ages(now)
        ]
        return Graph("RAM", value, line, False, top, points, others, size, tr("Memory used"))

    def _of_gpu(self, index: int, figure_of: Callable[[GpuSample], float | None], now: float) -> Points:
        found: Points = []
        for age, sample in self._ages(now):
            gpu = next((one for one in sample.gpus if one.index == index), None)
            found.append((age, None if gpu is None else figure_of(gpu)))
        return found

    def _ages(self, now: float) -> list[tuple[float, MachineSample]]:
        return [(now - at, sample) for at, sample in self._samples]

    @staticmethod
    def _aged(points: deque[tuple[float, float | None]], now: float) -> Points:
        return [(now - at, value) for at, value in points]


_ORDER = ("attention", "predictor", "wait", "ffn", "head", "sampling", "other")
_WORDS = {
    "attention": noted("Attention"),
    "predictor": noted("Predictor"),
    "ffn": noted("Neurons"),
    "wait": noted("Waiting"),
    "head": noted("Head"),
    "sampling": noted("Sampling"),
    "other": noted("Other"),
}
_MORE = {
    "cpu-wait": noted("The CPU waits for the GPU, which works meanwhile"),
    "gpu-wait": noted("The GPU waits for the CPU, which works meanwhile"),
    "cpu-sampling": noted("Choosing the token"),
    "cpu-other": noted("Norms, the embedding, and the time between two tokens"),
    "gpu-other": noted("Norms and exchange"),
}
