"""The RoPE frequencies on the GPU, which depend on the length of the sequence."""

from __future__ import annotations

from collections.abc import Sequence

from engine.decode.decode_calls import frequencies
from engine.gpu.token.token_model import TokenModel
from engine.model.graph import graph_of
from engine.model.rope import RotaryPositions, Rotation
from native_kernels.cuda.gpu import Gpu


class GpuRotation:
    """The RoPE frequencies of one model. first_scale: scale of angles at length 1."""

    def __init__(self, gpu: Gpu, model: TokenModel, places: Sequence[Sequence[int]]) -> None:
        """places: for each token that runs at once, the GPU addresses of its frequencies."""
        self._gpu, self._config, self._places = gpu, model.config, places
        self._rotary = RotaryPositions(model.config, model.weights)
        self._rotation: Rotation | None = None  # whose frequencies are on the GPU
        self.first_scale = self._rotary.rotation(1).scale

    def keys_stay_valid(self, length: int, longer: int) -> bool:
        """Return whether keys rotated for a sequence of this length are valid in a longer one."""
        return self._rotary.keys_stay_valid(length, longer)

    def is_same(self, length: int, longer: int) -> bool:
        """Return whether sequences of these lengths, and of all lengths between, have the same rotation."""
        return self._config.positions != "rope" or self._rotary.rotation(length) is self._rotary.rotation(longer)

    def change(self, length: int) -> Rotation | None:
        """Return the rotation for this length, or None if its frequencies are already on the GPU or not needed."""
        rotation = self._rotary.rotation(length)
        return None if self._config.positions != "rope" or rotation is self._rotation else rotation

    def has_other_scale(self, rotation: Rotation) -> bool:
        """Return whether the frequencies on the GPU have another scale of angles."""
        return self._rotation is not None and rotation.scale != self._rotation.scale

    def upload(self, rotation: Rotation) -> None:
        """Upload the frequencies. Raises: CudaError."""
        for places in self._places:
            for table, to in zip(graph_of(self._config).angles, places, strict=False):
                if table.scaled:
                    self._upload(to, rotation, table.rotated)
                elif self._rotation is None:
                    self._upload(to, Rotation(table.theta), table.rotated)
        self._rotation = rotation

    def _upload(self, to: int, rotation: Rotation, rotated: int) -> None:
        values = frequencies(rotation, rotated)
        self._gpu.upload(to, values.ctypes.data, values.nbytes)
        self._gpu.synchronize()  # before `values` is freed
