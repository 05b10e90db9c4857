"""Records of models that can be downloaded, are in download, or are installed: frozen plain data, as JSON holds it.

The other files of this folder create them; the window and the command line read them. Units: sizes in bytes, rates in
bytes/s or tokens/s, times in seconds; shares between 0 and 1.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeVar

from engine.plain_config import from_plain
from native_kernels.specs import DeltaSpec, LatentSpec, ShortConvSpec, Temperature

ModelKind = Literal["chat", "base", "embedding"]
ModelFormat = Literal["powerinfer-gguf", "gguf", "safetensors", "bundle"]
Fits = Literal["gpu", "hybrid", "cpu", "disk", "no"]
Source = Literal["published", "family"]

Record = TypeVar("Record")


def to_json(record: Any) -> dict[str, Any]:
    """Return a record as a JSON object; its tuples become lists when it is written."""
    return asdict(record)


def from_json(kind: type[Record], values: object, where: str) -> Record:
    """Return the record of a JSON object. Ignores fields from newer versions of Hearth.

    Raises: ModelFormatError, with the place, for a missing field or a wrong type.
    """
    record: Record = from_plain(kind, values, where)
    return record


# --- available models


@dataclass(frozen=True)
class ModelShape:
    """The properties of a model that determine its bytes and its speed: fields of engine.config.ModelConfig."""

    family: str
    activation: str
    n_layers: int
    d_model: int
    d_ff: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    vocab_size: int
    max_context: int
    tied_embeddings: bool = False
    n_experts: int = 0
    n_experts_used: int = 0
    shared_d_ff: int = 0
    n_dense_layers: int = 0
    dense_d_ff: int = 0
    experts_every: int = 1
    delta: DeltaSpec | None = None
    short_conv: ShortConvSpec | None = None
    delta_layers: tuple[int, ...] = ()
    ffn_only_layers: tuple[int, ...] = ()
    mixer_only_layers: tuple[int, ...] = ()
    latent: LatentSpec | None = None
    attention_temperature: Temperature | None = None
    windows: tuple[int, ...] = ()
    local_head_dim: int | None = None
    local_kv_heads: int | None = None
    full_v_is_k: bool = False
    n_shared_kv_layers: int = 0
    layer_embedding_dim: int = 0
    d_ff_by_layer: tuple[int, ...] = ()
    shared_apart: bool = False
    layer_vocab_size: int | None = None
    n_streams: int = 1
    laurel_rank: int = 0
    router_margin: float = 0.0
    n_groups: int = 1


@dataclass(frozen=True)
class Sparsity:
    """How often neurons are active.

    active_share: share of the neurons active for a token (predictors expect some more), None for a dense model.
    coverage: 20 shares of a layer's neurons, hottest first, that account for 5 %, 10 %, ... 100 % of its activity.
    predictor_share: bytes of the predictors as a share of the model's; 0 without.
    """

    active_share: float | None = None
    coverage: tuple[float, ...] = ()
    source: Source = "family"
    source_note: str = ""  # where the figures are from, one sentence
    predictor_share: float = 0.0


@dataclass(frozen=True)
class CatalogueEntry:
    """A model in the catalogue. files: names or patterns (fnmatch) of the repository's files that it needs.
    predictor_repo: the repository of its predictors, if a different one.
    """

    id: str  # "bamboo-dpo-7b": lower case, unique, never changed
    name: str  # "Bamboo DPO 7B"
    maker: str
    family: str  # what GPUs are filtered by: "Bamboo", "ReluLLaMA", "OPT", ...
    kind: ModelKind
    summary: str  # one sentence that helps the user choose
    repo: str
    files: tuple[str, ...]
    format: ModelFormat
    codec: str  # of most of its weights: f16, q4_0, ...
    parameters: int
    n_bytes: int  # of the download, until the hub states it
    n_bytes_source: Source  # published, or estimated from the shape
    licence: str  # as shown to the user: "Apache 2.0", "Llama 2 licence"
    shape: ModelShape
    sparsity: Sparsity
    template: str = ""  # chat template, where the files bring none; empty: their own
    activation: str = ""  # for EngineConfig.activation, where the files do not say it
    predictor_repo: str = ""
    revision: str = "main"
    gated: bool = False
    rank: int = 100  # lower is recommended earlier, among those that fit
    n_draft_layers: int = 0  # layers in the files that draft tokens (MTP), of which the engine uses the first
    research: bool = False  # made for measurements, not for chats; shown with a filter


@dataclass(frozen=True)
class Estimate:
    """The placement and the speed of a model on a machine, estimated by the placement solver.

    vram_bytes, ram_bytes: its memory with this placement, also if it does not fit. short_bytes: missing memory if it
    does not fit. low_tok_s, high_tok_s: the range of an estimate, equal to predicted_tok_s if the model's own
    statistics are known. disk_bytes: of experts that are read from the disk when they are chosen, because neither RAM
    nor GPU has room for them (fits: "disk"); the rates are None if the disk's is not known.
    """

    fits: Fits
    predicted_tok_s: float | None
    low_tok_s: float | None
    high_tok_s: float | None
    predicted_from: Source | Literal["measured"]
    vram_bytes: int
    ram_bytes: int
    vram_budget_bytes: int
    ram_budget_bytes: int
    gpu_neuron_load: float | None  # share of the active neurons that the GPU computes; None without one
    context: int
    by_expert: bool = False  # gpu_neuron_load: of the experts that a token uses
    short_bytes: int = 0
    disk_bytes: int = 0
    hot_share: float | None = None  # share of all neurons on the GPU
    notes: tuple[str, ...] = ()
    once_prepared: bool = (
        False  # it holds for the model that preparing makes of the files, not for the files as they are
    )

    @property
    def leaves_gpu_unused(self) -> bool:
        """Whether the model runs on the CPU alone although there is a GPU."""
        return self.fits == "cpu" and self.vram_budget_bytes > 0


@dataclass(frozen=True)
class MachineLine:
    """This PC as described on the Models page.

    key: identifies what placements depend on; settings per machine are stored under it. gpu: the GPU that would be
    used, empty without one; gpu_reason: why that one, or why none.
    """

    key: str
    gpu: str
    gpu_reason: str
    vram_total_bytes: int
    vram_budget_bytes: int
    ram_total_bytes: int
    ram_free_bytes: int
    cpu: str
    cores: int
    disk_free_bytes: int  # where models go
    measured: bool  # whether the rates were measured, or taken from what such machines usually reach


# --- on a hub


@dataclass(frozen=True)
class HubFile:
    """A file of a repository. sha256: empty if the hub states none (small files; their git_oid is checked)."""

    name: str
    n_bytes: int
    sha256: str = ""
    git_oid: str = ""  # SHA-1 of git's blob


@dataclass(frozen=True)
class HubModel:
    """A search result, or the head of a repository."""

    repo: str
    downloads: int = 0
    likes: int = 0
    licence: str = ""
    gated: bool = False
    tags: tuple[str, ...] = ()
    updated: str = ""  # ISO 8601


@dataclass(frozen=True)
class Variant:
    """One way to download a repository: the files of one model. codec: according to the name, else empty."""

    name: str  # "q4_0", "safetensors", or the file's name
    format: ModelFormat
    codec: str
    files: tuple[HubFile, ...]
    n_bytes: int
    refused: str = ""  # why Hearth cannot read it ("Only pickled weights"), else empty


@dataclass(frozen=True)
class Listing:
    """What a repository offers. revision: the current commit of `main`, or of the requested revision."""

    model: HubModel
    revision: str
    variants: tuple[Variant, ...]


DownloadState = Literal["queued", "downloading", "paused", "waiting", "checking", "failed", "done"]


@dataclass(frozen=True)
class Download:
    """A download in the queue. waiting: for the network, and continues by itself. error: class, message and hint of the
    failure; else empty.
    """

    id: str
    model: str  # id under which it will be installed, "owner/name"
    name: str  # as the user knows it
    repo: str
    state: DownloadState
    done_bytes: int
    total_bytes: int
    bytes_per_s: float | None = None
    eta_s: float | None = None
    file: str = ""  # that is being fetched or checked
    catalogue_id: str = ""
    error: str = ""
    message: str = ""
    hint: str = ""


# --- owned

InstalledState = Literal["ready", "needs preparing", "broken"]
Origin = Literal[
    "download", "copied", "in place", "hub cache", "LM Studio", "Ollama", "Jan", "GPT4All", "shipped", "converted"
]
ELSEWHERE: frozenset[Origin] = frozenset({"hub cache", "LM Studio", "Ollama", "Jan", "GPT4All"})  # used in place


@dataclass(frozen=True)
class InstalledFile:
    """A file of an installed model: its name below the model's folder, with forward slashes."""

    name: str
    n_bytes: int
    sha256: str  # empty for files that were taken in place and never hashed


@dataclass(frozen=True)
class InstalledModel:
    """A model that can be loaded by its id. owned: whether the files belong to Hearth; only those may be deleted.

    path: the file or folder to open. prepared: the bundle that preparing created, which is loaded instead.
    """

    id: str  # "owner/name"; "local/name" for imported models
    name: str
    folder: str
    path: str
    files: tuple[InstalledFile, ...]
    n_bytes: int
    owned: bool
    origin: Origin
    state: InstalledState
    reason: str = ""  # why it is broken, or what preparing would bring
    repo: str = ""
    revision: str = ""
    catalogue_id: str = ""
    activation: str = ""
    template: str = ""
    licence: str = ""
    kind: ModelKind | Literal[""] = ""
    added: str = ""  # ISO 8601
    prepared: str = ""
    measured_tok_s: float | None = None  # decode rate of the last longer answer on this machine
    vocabulary: str = ""  # the same for models with the same tokens; empty: unknown


DRAFT_SHARE = 1 / 8  # most bytes of a model that guesses tokens for another one, relative to that one's


# --- prepared

PrepareStage = Literal["convert", "profile", "train", "solve"]


@dataclass(frozen=True)
class PrepareStep:
    """A remaining stage of preparing, with its reason. eta_s: duration on similar machines."""

    stage: PrepareStage
    why: str
    eta_s: float | None


@dataclass(frozen=True)
class PreparePlan:
    """What preparing a model for this PC would do and gain. Rates from the solver; None if unknown."""

    model: str
    steps: tuple[PrepareStep, ...]
    now_tok_s: float | None
    then_tok_s: float | None
    eta_s: float | None
    disk_bytes: int
    can_use_sign: bool  # whether a predictor that needs no training serves until one is trained
    interrupted: bool = False  # whether an earlier try left work that will be taken up
