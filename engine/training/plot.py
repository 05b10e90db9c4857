"""Draw the locality of a model's neurons to a PNG or SVG file; engine/training/locality.py computes it.

Paper: PowerInfer, figure 5 (cumulative share of the activity over the neurons, busiest first).
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.errors import DiskSpaceError, InvalidRequestError
from engine.sparsity.artifact_files import DISK_FULL
from engine.sparsity.stats import NeuronStats
from engine.training.locality import CARRIED, Locality, curve, locality

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FORMATS = (".png", ".svg")
_INK, _FAINT, _GRID, _EMBER, _PAPER = "#2b2622", "#8a8078", "#e6e0d9", "#c2410c", "#fffdfa"
_MOST_NAMED = 12  # layers that the legend names one by one
_POINTS = 400  # of a curve: more than a screen shows, fewer than a model has neurons


def check_plot_file(path: Path) -> None:
    """Raise InvalidRequestError if the file cannot become a picture, before the long work."""
    if path.suffix.lower() not in FORMATS:
        raise InvalidRequestError(
            f"{path.name} is not a name of a picture that can be drawn; supported: {' and '.join(FORMATS)}.",
            "End the name with .png or .svg.",
        )
    if not path.parent.is_dir():
        raise InvalidRequestError(f"There is no folder {path.parent}.", "Make it, or choose another --plot.")


def draw_locality(stats: NeuronStats, path: Path, name: str) -> None:
    """Draw the curves of all layers and of the model on the left, and each layer's neurons with 80 % of the activity on
    the right.

    name: of the model, for the title. The file is written as a whole or not at all. Raises: InvalidRequestError for
    another file type or a folder that cannot be written, DiskSpaceError.
    """
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    check_plot_file(path)
    found = locality(stats)
    style = {"font.family": "DejaVu Sans", "font.size": 10, "text.color": _INK, "axes.labelcolor": _INK,
             "xtick.color": _FAINT, "ytick.color": _FAINT, "axes.edgecolor": _GRID,
             "svg.fonttype": "none", "svg.hashsalt": "hearth"}  # fmt: skip
    with rc_context(style):  # type: ignore[arg-type]
        figure = Figure(figsize=(10.4, 5.2), facecolor=_PAPER, layout="constrained")
        FigureCanvasAgg(figure)
        curves, bars = figure.subplots(1, 2, width_ratios=(3, 2))
        _draw_curves(curves, stats, found)
        _draw_layers(bars, found)
        figure.suptitle(f"{name}: which neurons carry the activations", x=0.012, ha="left", size=14, weight="bold")
        figure.supxlabel(_caption(stats, found), x=0.012, ha="left", size=9, color=_FAINT)
        _write(figure, path)


def _caption(stats: NeuronStats, found: Locality) -> str:
    n_layers, n_neurons = stats.counts.shape
    words = f"{n_layers} layers of {n_neurons:,} neurons"
    if stats.tokens is not None:
        text = {"self-written": " that the model wrote itself", "given": " of a given text"}.get(stats.text, "")
        words += f"; counted over {stats.tokens:,} tokens{text}"
    if found.whole.fired_share is not None:
        words += f"; {100 * found.whole.fired_share:.1f} % of the neurons fire for a token"
    return words


def _draw_curves(axes: Axes, stats: NeuronStats, found: Locality) -> None:
    from matplotlib import colormaps

    n_layers = len(stats.counts)
    colours = colormaps["viridis"]
    for i, counts in enumerate(stats.counts):
        colour = colours(0.08 + 0.66 * i / max(1, n_layers - 1))
        named = n_layers <= _MOST_NAMED or i in (0, n_layers - 1)
        axes.plot(*_thinned(curve(counts)), color=colour, lw=1.3, alpha=0.9, label=f"layer {i}" if named else None)
    axes.plot(*_thinned(curve(stats.counts)), color=_EMBER, lw=2.8, label="whole model")
    few = found.whole.share_for_80_percent
    axes.plot([0, few, few], [CARRIED, CARRIED, 0], color=_EMBER, lw=1, ls=(0, (4, 3)), zorder=1)
    axes.plot([few], [CARRIED], "o", color=_EMBER, ms=6, mec=_PAPER, mew=1.2, zorder=5)
    axes.annotate(
        f"{100 * few:.0f} % of all neurons\ncarry 80 %", (few, CARRIED), (12, -34), textcoords="offset points",
        color=_EMBER, weight="bold", bbox={"boxstyle": "round,pad=0.3", "fc": _PAPER, "ec": "none", "alpha": 0.85},
    )  # fmt: skip
    _dress(axes, "Cumulative activations", "neurons, busiest first")
    axes.set_ylabel("activations carried")
    axes.yaxis.set_major_formatter(_percent())
    axes.xaxis.set_major_formatter(_percent())
    axes.set(xlim=(0, 1), ylim=(0, 1.005))
    axes.grid(color=_GRID, lw=0.8)
    axes.legend(loc="lower right", frameon=True, facecolor=_PAPER, edgecolor="none", fontsize=8.5, framealpha=0.9)


def _draw_layers(axes: Axes, found: Locality) -> None:
    from matplotlib import colormaps

    n_layers = len(found.layers)
    shares = [layer.share_for_80_percent for layer in found.layers]
    colours = [colormaps["viridis"](0.08 + 0.66 * i / max(1, n_layers - 1)) for i in range(n_layers)]
    axes.barh(range(n_layers), shares, color=colours, height=0.72)
    mean = found.whole.share_for_80_percent
    axes.plot([mean, mean], [-0.5 - 0.01 * n_layers, n_layers - 0.4], color=_EMBER, lw=1.6, ls=(0, (4, 3)))
    axes.text(
        mean,
        -0.5 - 0.02 * n_layers,
        f"whole model {100 * mean:.0f} %",
        color=_EMBER,
        size=9,
        weight="bold",
        ha="center",
    )
    if n_layers <= 2 * _MOST_NAMED:
        for i, share in enumerate(shares):
            inside = share > 0.2 * max(shares)  # else the words are wider than the bar
            axes.annotate(
                f"{100 * share:.0f} %", (0 if inside else share, i), (6, 0), textcoords="offset points", va="center",
                size=8.5, color=_PAPER if inside else _INK, weight="bold",
            )  # fmt: skip
    _dress(axes, "Neurons that carry 80 % of a layer", "share of the layer's neurons")
    axes.set_ylabel("layer")
    axes.xaxis.set_major_formatter(_percent())
    axes.set_yticks(range(0, n_layers, -(-n_layers // 16)))
    axes.set(xlim=(0, min(1.0, 1.18 * max(shares, default=1.0) or 1.0)), ylim=(n_layers - 0.4, -0.5 - 0.1 * n_layers))
    axes.grid(axis="x", color=_GRID, lw=0.8)


def _dress(axes: Axes, title: str, below: str) -> None:
    axes.set_facecolor(_PAPER)
    axes.set_axisbelow(True)
    axes.set_title(title, loc="left", size=11, color=_INK)
    axes.set_xlabel(below)
    axes.tick_params(length=0)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _percent() -> Any:
    from matplotlib.ticker import PercentFormatter

    return PercentFormatter(xmax=1, decimals=0, symbol=" %")


def _thinned(line: tuple[Any, Any]) -> tuple[Any, Any]:
    """Return at most _POINTS of a curve's points, denser at its steep beginning."""
    import numpy as np

    x, y = line
    at = np.unique(np.rint(np.linspace(0, 1, _POINTS) ** 2 * (len(x) - 1)).astype(int))
    return x[at], y[at]


def _write(figure: Any, path: Path) -> None:
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        figure.savefig(
            part,
            format=path.suffix[1:].lower(),
            dpi=160,
            metadata={"Date": None} if path.suffix.lower() == ".svg" else None,
        )
        os.replace(part, path)
    except OSError as error:
        if error.errno in DISK_FULL:
            raise DiskSpaceError(f"The disk accepted no more data while {path} was written.") from error
        raise InvalidRequestError(
            f"{path} cannot be written: {error.strerror or error}.", "Choose another --plot."
        ) from error
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)
