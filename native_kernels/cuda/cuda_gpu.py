"""An NVIDIA GPU that implements native_kernels/cuda/gpu.py: memory, streams, captured work, operators.

The operators are in products.py, neurons.py, experts.py, token_ops.py, streams.py, latent.py and delta_net.py; this
combines them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress

from native_kernels.cuda.delta_net import GpuDeltaOps
from native_kernels.cuda.experts import GpuExpertOps
from native_kernels.cuda.gpu import Work
from native_kernels.cuda.latent import GpuLatentOps
from native_kernels.cuda.neurons import GpuNeurons
from native_kernels.cuda.products import GpuProducts
from native_kernels.cuda.runtime.driver import CudaError, Device, Event, Graph, Stream
from native_kernels.cuda.runtime.memory import DeviceMemory, PinnedMemory
from native_kernels.cuda.streams import GpuStreamOps
from native_kernels.cuda.token_ops import GpuTokenOps


class CudaGpu:
    """The `Gpu` of native_kernels/cuda/gpu.py on a device; members are documented there.

    device: its context becomes the calling thread's; `close` closes it too.
    Cost: 0.1 to 0.3 s, plus compilation if no machine code is cached.
    Raises: CudaError, NoMachineCodeError; nothing is then held.
    """

    def __init__(self, device: Device) -> None:
        self.device = device
        with ExitStack() as held:
            held.callback(device.close)
            device.enter()
            self.n_multiprocessors = device.n_multiprocessors
            self.launch_function = device.driver.address_of("cuGraphLaunch")
            self.stream = Stream(device)
            held.callback(self.stream.close)
            self.stream_handle = self.stream.handle
            products = GpuProducts(device, self.stream)
            held.callback(products.close)
            neurons = GpuNeurons(device, self.stream)
            held.callback(neurons.close)
            experts = GpuExpertOps(device, self.stream)
            held.callback(experts.close)
            token = GpuTokenOps(device, self.stream)
            held.callback(token.close)
            delta = GpuDeltaOps(device, self.stream)
            held.callback(delta.close)
            latent = GpuLatentOps(device, self.stream)
            held.callback(latent.close)
            streams = GpuStreamOps(device, self.stream)
            held.callback(streams.close)
            self._fork = Event(device)
            held.callback(self._fork.close)
            self._branches: list[tuple[Stream, Event]] = []
            self._held = held.pop_all()
        self.unpack_rows, self.quantise, self.multiply = products.unpack_rows, products.quantise, products.multiply
        self.multiply_each, self.expect, self.signs = products.multiply_each, products.expect, products.signs
        self.hidden, self.activate = neurons.hidden, neurons.activate
        self.down_parts, self.down = neurons.down_parts, neurons.down
        self.choose, self.expert_products = experts.choose, experts.expert_products
        self.expert_parts, self.expert_down = experts.expert_parts, experts.expert_down
        self.advance, self.total, self.norm, self.copy = token.advance, token.total, token.norm, token.copy
        self.norm_rows = token.norm_rows
        self.angles, self.rotate_and_store = token.angles, token.rotate_and_store
        self.attend, self.attend_each, self.softcap = token.attend, token.attend_each, token.softcap
        self.publish, self._use_branch = token.publish, token.use_branch
        self.place_latent = latent.place_latent
        self.predict_streams, self.correct_streams = streams.predict_streams, streams.correct_streams
        self.add_beside, self.scale_alike, self.cut_off = streams.add_beside, streams.scale_alike, streams.cut_off
        self.gated_delta, self.gated = delta.gated_delta, delta.gated
        self.short_conv = delta.short_conv

    def enter(self) -> None:
        self.device.enter()

    def allocate(self, n_bytes: int) -> DeviceMemory:
        return DeviceMemory(self.device, n_bytes)

    def pin(self, n_bytes: int) -> PinnedMemory:
        return PinnedMemory(self.device, n_bytes)

    def upload(self, to: int, source: int, n_bytes: int) -> None:
        self.stream.upload(to, source, n_bytes)

    def download(self, to: int, source: int, n_bytes: int) -> None:
        self.stream.download(to, source, n_bytes)

    def upload_rows(self, to: int, to_step: int, source: int, source_step: int, n_bytes: int, n_rows: int) -> None:
        self.stream.upload_rows(to, to_step, source, source_step, n_bytes, n_rows)

    def download_rows(self, to: int, to_step: int, source: int, source_step: int, n_bytes: int, n_rows: int) -> None:
        self.stream.download_rows(to, to_step, source, source_step, n_bytes, n_rows)

    def move_rows(self, to: int, source: int, step: int, n_bytes: int, n_rows: int) -> None:
        self.stream.move_rows(to, source, step, n_bytes, n_rows)

    def fill(self, to: int, value: int, n_bytes: int) -> None:
        self.stream.fill(to, value, n_bytes)

    def copier(self) -> StreamCopier:
        return StreamCopier(self.device, self.stream)

    def synchronize(self) -> None:
        self.stream.synchronize()

    def captured(self, work: Callable[[], None]) -> Graph:
        return self.stream.captured(work)

    def side_by_side(self, works: Sequence[Callable[[], None]]) -> None:
        while len(self._branches) < len(works) - 1:
            stream = Stream(self.device)
            self._held.callback(stream.close)
            done = Event(self.device)
            self._held.callback(done.close)
            self._branches.append((stream, done))
        branches = self._branches[: len(works) - 1]
        self._fork.record(self.stream)
        try:
            for branch, (work, (stream, done)) in enumerate(zip(works[1:], branches, strict=True), start=1):
                self._fork.hold(stream)
                self._use_branch(branch)
                with self.stream.replaced_by(stream):
                    work()
                done.record(stream)
        finally:
            self._use_branch(0)
        works[0]()
        for _, done in branches:
            done.hold(self.stream)

    def mark(self) -> Event:
        event = Event(self.device)
        try:
            event.record_in_graph(self.stream)
        except BaseException:
            event.close()
            raise
        return event

    def launch(self, work: Work) -> None:
        self.device.driver.call("cuGraphLaunch", work.handle, self.stream_handle)

    def close(self) -> None:
        """Release everything; errors are raised after all the rest was released. A second call does nothing."""
        self._held.close()


class StreamCopier:
    """The `Copier` of native_kernels/cuda/gpu.py: a stream of its own."""

    def __init__(self, device: Device, beside: Stream) -> None:
        self._beside = beside
        self._stream = Stream(device)
        try:
            self._reached = Event(device)
        except BaseException:
            self._stream.close()
            raise
        self.upload, self.upload_rows = self._stream.upload, self._stream.upload_rows
        self.has_ended, self.wait = self._stream.is_idle, self._stream.synchronize

    def follow(self) -> None:
        self._reached.record(self._beside)
        self._reached.hold(self._stream)

    def close(self) -> None:
        with suppress(CudaError):
            self._stream.synchronize()
        with suppress(CudaError):
            self._reached.close()
        with suppress(CudaError):
            self._stream.close()
