"""Count how often each neuron is active on calibration text: the NeuronStats for the placement solver.

The counts are stored after each portion of text, so that an interruption costs one portion and does not change the
result. The model writes the text (engine/training/calibration.py), or the user gives it. Paper: PowerInfer, section
6.1.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.bundle import artefacts
from engine.config import Device
from engine.errors import DiskSpaceError, InvalidRequestError, UnsupportedModelError
from engine.job import Job
from engine.model.model_artefacts import read_stats
from engine.sparsity.artifact_files import DISK_FULL, head_file
from engine.sparsity.stats import NeuronStats
from engine.training.calibration import DEFAULT_TOKENS, PORTION_TOKENS, write_portion
from engine.training.device_products import fits, offline_device, on_device
from engine.training.given_text import text_sequences
from engine.training.layer_walk import LayerBatch, ModelParts, check_walk, walk_layers
from engine.training.locality import locality
from engine.training.prompts import recipe_fingerprint
from engine.training.saved_arrays import delete, read_saved, save, saved_file
from native_kernels.backend import I64

if TYPE_CHECKING:
    from engine.model.model_files import OpenedModel
    from engine.session.loaded_model import LoadedModel

# Fewer are meaningless: at 7 % a neuron is active four times in these.
LEAST_TOKENS = 64


@dataclass(frozen=True, eq=False)
class Profiled:
    """Statistics and their location: the artefact's head, or the folder of published ones."""

    stats: NeuronStats
    file: Path

    def values(self) -> dict[str, Any]:
        """Return the figures as JSON, for the command line and the window."""
        figures = locality(self.stats)
        return {
            "tokens": self.stats.tokens,
            "layers": [asdict(layer) for layer in figures.layers],
            **asdict(figures.whole),
            "text": self.stats.text,
            "source": self.stats.source,
            "file": str(self.file),
        }


def profile(
    model: LoadedModel,
    text: str | None = None,
    tokens: int | None = None,
    *,
    seed: int = 0,
    device: Device = "cpu",
    job: Job = Job(),
) -> Profiled:
    """Count over the text, or over text that the model writes, and store the statistics as the model's own.

    tokens: positions at most; None: all of the text, or DEFAULT_TOKENS of the model's own. device: for the large
    products; auto: a GPU if there is one. Units: progress reports positions, each counted twice if they are written as
    well. Cost: the counts [L, F], the residual stream of one portion, and that of engine.training.layer_walk. Raises:
    UnsupportedModelError for a model without zeros, InvalidRequestError for a text that is too short or a folder that
    cannot be written, DiskSpaceError, HostMemoryError, and Cancelled, after which the same call continues.
    """
    opened = model.opened
    check_zeros(opened)
    if tokens is not None and tokens < LEAST_TOKENS:
        raise InvalidRequestError(f"{tokens} tokens were asked for; at least {LEAST_TOKENS} are needed.")
    _check_room(artefacts.artefact_folder(opened))
    where = offline_device(device)
    parts = on_device(ModelParts.of(model), where)
    source: _Written | _Given
    if text is None:
        # Few positions per step: if weights had to be uploaded at each, the CPU would be faster.
        writing = parts if fits(model.weights, where) else ModelParts.of(model)
        source = _Written(model, writing, tokens or DEFAULT_TOKENS, seed)
    else:
        source = _Given(model, text, tokens)
    counting = _Counting(model, parts, where, source)
    counting.run(job)
    stats = NeuronStats(counting.counts, source.tokens, "measured", counting.corpus, text=source.kind)
    head = artefacts.save_stats(opened, stats)
    counting.clear()
    return Profiled(stats, head)


def published_stats(opened: OpenedModel) -> Profiled | None:
    """Return the statistics published with the model, PowerInfer's activation files; None if there are none.

    Raises: ModelFormatError for damage, ArtifactMismatchError for those of another model.
    """
    saved = artefacts.find(opened, "statistics")
    if saved is None and opened.files.stats is None:
        return None
    stats = read_stats(opened)
    if stats is None or stats.tokens is not None:
        return None
    file = opened.files.stats if saved is None else head_file(saved, artefacts.NAMES["statistics"])
    return None if file is None else Profiled(stats, file)


def check_zeros(opened: OpenedModel) -> None:
    """Raise UnsupportedModelError unless some neurons of the model are inactive and can be counted."""
    if not opened.config.has_zeros:
        raise UnsupportedModelError(
            f"The activation {opened.config.activation} makes no zeros: every neuron of {opened.name} fires for every "
            "token, and there is nothing to count.",
            "Choose a model with a ReLU activation.",
        )
    check_walk(opened.config)


# --- the text


class _Written:
    """The model's own text, portion by portion."""

    kind = "self-written"
    passes = 2  # over each position: it is written, then counted

    def __init__(self, model: LoadedModel, parts: ModelParts, tokens: int, seed: int) -> None:
        self._model = model
        self._parts = parts
        self._seed = seed
        self.tokens = tokens
        self.n_portions = -(-tokens // PORTION_TOKENS)
        self.fingerprint = f"{recipe_fingerprint()} {seed} {tokens}"

    def portion(self, number: int, job: Job) -> list[list[int]]:
        size = min(PORTION_TOKENS, self.tokens - number * PORTION_TOKENS)
        texts = write_portion(self._model, number, self._seed, size, parts=self._parts, job=job)
        return [text for of_kind in texts.values() for text in of_kind]


class _Given:
    """The user's text."""

    kind = "given"
    passes = 1

    def __init__(self, model: LoadedModel, text: str, tokens: int | None) -> None:
        sequences = text_sequences(model, text, tokens)
        self.tokens = sum(map(len, sequences))
        if self.tokens < LEAST_TOKENS:
            raise InvalidRequestError(
                f"The text has {self.tokens} tokens; at least {LEAST_TOKENS} are needed, and about ten thousand are "
                "better.",
                "Give a longer text, or none: the model writes its own then.",
            )
        self._portions = list(_portions(sequences))
        self.n_portions = len(self._portions)
        self.fingerprint = _digest(sequences)

    def portion(self, number: int, job: Job) -> list[list[int]]:
        return self._portions[number]


def _portions(sequences: Sequence[list[int]]) -> Iterator[list[list[int]]]:
    """Yield whole sequences, about PORTION_TOKENS positions at a time."""
    portion: list[list[int]] = []
    size = 0
    for sequence in sequences:
        portion.append(sequence)
        size += len(sequence)
        if size >= PORTION_TOKENS:
            yield portion
            portion, size = [], 0
    if portion:
        yield portion


def _digest(sequences: Sequence[Sequence[int]]) -> str:
    digest = hashlib.sha256()
    for sequence in sequences:
        digest.update(len(sequence).to_bytes(8, "little"))
        digest.update(np.asarray(sequence, "<i8").tobytes())
    return digest.hexdigest()


# --- counting


class _Counting:
    """The counts after whole portions, and the file that stores them."""

    def __init__(self, model: LoadedModel, parts: ModelParts, device: str, source: _Written | _Given) -> None:
        opened = model.opened
        self._parts = parts
        self._source = source
        self.counts: I64 = np.zeros((opened.config.n_layers, opened.config.n_neurons), np.int64)
        self._digests: list[str] = []  # of the texts of each portion that is done
        made_of = "\n".join([opened.fingerprint, opened.config.activation_text, model.backend.name, model.kv_codec,
                             device, source.fingerprint])  # fmt: skip
        self._saved = saved_file("profiles", hashlib.sha256(made_of.encode()).hexdigest()[:32])

    @property
    def corpus(self) -> str:
        """Return the fingerprint of all of the text."""
        return hashlib.sha256("\n".join(self._digests).encode()).hexdigest()

    def run(self, job: Job) -> None:
        source = self._source
        self._restore()
        total = source.passes * source.tokens
        for number in range(len(self._digests), source.n_portions):
            before = source.passes * min(source.tokens, number * PORTION_TOKENS)
            expected = min(PORTION_TOKENS, source.tokens - number * PORTION_TOKENS)

            def writing(done: int, most: int, before: int = before, expected: int = expected) -> None:
                job.progress(min(total, before + expected * done // max(1, most)), total)

            def counting(done: int, most: int, before: int = before, expected: int = expected) -> None:
                job.progress(min(total, before + (source.passes - 1) * expected + expected * done // most), total)

            texts = source.portion(number, job.reporting(writing))
            # A portion counts as a whole or not at all.
            counts = np.zeros_like(self.counts)

            def count(batch: LayerBatch, counts: I64 = counts) -> None:
                counts[batch.layer] += batch.fired_counts

            walk_layers(self._parts, texts, count, job=job.reporting(counting)).close()
            self.counts += counts
            self._digests.append(_digest(texts))
            if number + 1 < source.n_portions:
                save(self._saved, {"counts": self.counts, "digests": np.array(self._digests)})
        job.progress(total, total)

    def clear(self) -> None:
        """Delete the file, because the work is done."""
        delete(self._saved)

    def _restore(self) -> None:
        arrays = read_saved(self._saved)
        if arrays is None or set(arrays) != {"counts", "digests"}:
            return
        counts, digests = arrays["counts"], arrays["digests"].tolist()
        sound = counts.dtype == np.int64 and counts.shape == self.counts.shape and counts.min() >= 0
        if sound and counts.max() <= self._source.tokens and 0 < len(digests) < self._source.n_portions:
            self.counts, self._digests = counts.copy(), [str(digest) for digest in digests]


def _check_room(folder: Path) -> None:
    """Check that the result can be written before the long work."""
    probe = folder / f"probe.{os.getpid()}.part"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe.write_bytes(bytes(4096))
        probe.unlink()
    except OSError as error:
        with suppress(OSError):
            probe.unlink(missing_ok=True)
        if error.errno in DISK_FULL:
            raise DiskSpaceError(f"The disk that holds {folder} is full.") from error
        raise InvalidRequestError(
            f"{folder} cannot be written: {error.strerror or error}.", "Make the folder writable."
        ) from error
