"""The plan of one token: segments of GPU steps, and the CPU's calls between them, in order.

A segment ends where the CPU has work: cold neurons, layers placed on the CPU, or the end.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.gpu.token.cpu_calls import CpuCalls
from engine.gpu.token.expert_cpu_calls import CpuExpertCalls
from engine.gpu.token.token_memory import SharedMemory
from engine.gpu.token.token_steps import Step, TokenSteps
from engine.gpu.weights.layers import GpuModel
from native_kernels.backend import F32
from native_kernels.cpu.runtime.call import Call
from native_kernels.kv_blocks import KvLayout


@dataclass(frozen=True, eq=False)
class TokenPlan:
    """A token: calls[0], segments[0], calls[1], and so on. Each segment publishes once. result: the host's array of
    logits or hidden state.
    """

    calls: list[list[Call]]
    segments: list[list[Step]]
    result: F32


@dataclass(frozen=True, eq=False)
class TokenPlans:
    """The plans of a token that ends with logits [V], and of one that ends with the final hidden state [D].

    They share all but their ends. head_alone: from the hidden state to the logits; empty if the head is on the CPU.
    """

    logits: TokenPlan
    hidden: TokenPlan
    head_alone: list[Step]


def plan_tokens(
    model: GpuModel,
    steps: TokenSteps,
    cpu: CpuCalls | CpuExpertCalls,
    shared: SharedMemory,
    layout: KvLayout,
    angle_scale: float,
) -> TokenPlans:
    """Return the plans of a model's tokens.

    layout: of the caches in host memory. angle_scale: factor of cosines and sines.
    """
    cpu_calls = cpu.calls
    cpu_calls.start(layout)
    calls: list[list[Call]] = [cpu_calls.embedding()]
    segments: list[list[Step]] = []
    on_gpu = False

    def cut(behind: list[Call]) -> None:
        segments.append(steps.take())
        calls.append(behind)

    def to_gpu() -> None:
        calls[-1] += cpu_calls.flush()
        steps.enter(angle_scale)

    def to_cpu() -> None:
        steps.leave()
        cut([])
        cpu_calls.resume()

    for i, layer in enumerate(model.layers):
        if layer is None:
            if on_gpu:
                to_cpu()
            calls[-1] += cpu_calls.layers(i, i + 1)
        else:
            if not on_gpu:
                to_gpu()
            steps.layer(i, layer)
            if layer.has_cold:
                cut(cpu.cold(i))
            steps.rest_of_layer(i)
        on_gpu = layer is not None
    if model.head is None:
        if on_gpu:
            to_cpu()
        *before, last = calls
        norm, hidden = cpu_calls.last_norm()
        logits = last + norm + cpu_calls.logits_of(hidden)
        return TokenPlans(
            TokenPlan([*before, logits], segments, cpu_calls.logits),
            TokenPlan([*before, last + norm], segments, hidden.values),
            [],
        )
    if not on_gpu:
        to_gpu()
    steps.last_norm()
    last_segment = steps.take()
    steps.publish_hidden()
    publish_hidden = steps.take()
    steps.head()
    steps.publish_logits()
    publish_logits = steps.take()
    steps.head_alone()
    return TokenPlans(
        TokenPlan([*calls, []], [*segments, last_segment + publish_logits], shared.logits.array),
        TokenPlan([*calls, []], [*segments, last_segment + publish_hidden], shared.hidden.array),
        steps.take(),
    )
