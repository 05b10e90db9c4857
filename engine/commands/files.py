"""The commands inspect and convert."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from engine.commands.console import ProgressBar, interrupt_as_cancel
from engine.commands.output import print_json, print_note
from engine.config import plain_values
from engine.errors import Cancelled, EngineError
from engine.job import Job

if TYPE_CHECKING:
    from engine.bundle.bundle_manifest import Manifest
    from engine.model.model_files import OpenedModel

_ORIGINS = {
    "config": "as its configuration says",
    "metadata": "as its metadata says",
    "family": "its family's convention, as its files do not say",
    "override": "as asked for",
}


def inspect(arguments: argparse.Namespace) -> int:
    from engine.bundle.bundle import BundleSource
    from engine.loading.embedding_models import pooling_of
    from engine.loading.opening import read_tokenizer
    from engine.model.draft_layer import describe_drafts
    from engine.placement.down_copy import will_copy
    from engine.session.resolve_model import open_named
    from engine.text.chat_templates import BASE_NOTE

    opened = open_named(arguments.model, arguments.activation)
    tokenizer = read_tokenizer(opened, arguments.template)
    kind = tokenizer.kind if pooling_of(opened) is None else "embedding"
    template = tokenizer.template
    assert template is not None, "read_tokenizer chooses one"
    config = plain_values(opened.config)
    drafts = describe_drafts(opened)
    manifest = opened.source.manifest if isinstance(opened.source, BundleSource) else None
    values = {
        "format": opened.format,
        "family": opened.config.family,
        "activation": opened.config.activation,
        "activation_from": opened.activation_origin,
        "config": config,
        "tensors": len(opened.source.tensors),
        "codecs": dict(opened.codecs),
        "parameters": opened.parameters,
        "down": "row-wise" if opened.down_is_row_wise else "neuron by neuron",
        "drafts": drafts,
        "has_predictors": opened.has_predictors,
        "predictor_kinds": _predictor_kinds(opened),
        "has_stats": opened.has_stats,
        "has_placement": opened.has_placement,
        "chat_template": tokenizer.chat_template is not None,
        "template": template.name,
        "template_reason": tokenizer.template_reason,
        "kind": kind,
        "name": opened.name,
    }
    if arguments.json:
        print_json(values)
        return 0
    sizes = ", ".join(f"{n_bytes / 1e6:.1f} MB {codec}" for codec, n_bytes in opened.codecs.items())
    print(f"{opened.name}: {opened.config.family}, {opened.parameters / 1e6:.1f} million parameters, {opened.format}")
    print(f"  {sizes} in {values['tensors']} tensors")
    neurons = f"{config['d_ff']} neurons a layer"
    if opened.config.n_experts:
        neurons = f"{config['n_experts']} experts of {config['d_ff']} neurons a layer"
        neurons += f" and one of {config['shared_d_ff']} for all" if opened.config.shared_d_ff else ""
    print(f"  {config['n_layers']} layers, width {config['d_model']}, {neurons}, "
          f"{config['n_heads']} heads ({config['n_kv_heads']} key-value)")  # fmt: skip
    if opened.config.n_experts:
        print(f"  a token goes through {config['n_experts_used']} of the {config['n_experts']} experts of each layer: "
              f"{_parameters_used(opened) / 1e6:.1f} million parameters are used for it")  # fmt: skip
    if drafts:
        print(f"  {drafts}")
    print(f"  vocabulary {config['vocab_size']}, context {config['max_context']}")
    print(f"  chat template {template.name}: {tokenizer.template_reason}")
    if kind == "embedding":
        print("  This is an embedding model: it turns texts into vectors.")
    elif kind == "base":
        print(f"  {BASE_NOTE}")
    zeros = "neurons that do not fire can be skipped" if opened.config.has_zeros else "no zeros: nothing can be skipped"
    threshold = f" above {opened.config.activation_threshold:g}" if opened.config.activation_threshold else ""
    print(f"  activation {opened.config.activation}{threshold}, {_ORIGINS[opened.activation_origin]}: {zeros}")
    if opened.config.has_zeros and opened.down_is_row_wise:
        what = "gate and up can skip inactive neurons" if opened.config.gated else "nothing skips inactive neurons"
        if will_copy(opened):
            print("  down is stored row-wise; a load here copies it neuron by neuron, so that all of it skips")
        else:
            print(f"  run straight from the file, {what}, and down is computed row-wise; in a bundle all of it skips")
    if manifest:
        _print_bundle(manifest)
    _print_artefacts(opened)
    for note in (*opened.files.notes, *tokenizer.notes, *filter(None, [opened.activation_warning])):
        print(f"  note: {note}")
    return 0


_ORIGINS = {
    "config": "as its configuration says",
    "metadata": "as its metadata says",
    "family": "its family's convention, as its files do not say",
    "override": "as asked for",
}


def _parameters_used(opened: OpenedModel) -> int:
    """Return the parameters that one token uses: all except those of unused experts."""
    config = opened.config
    of_experts = sum(tensor.n_elements for tensor in opened.plan if tensor.of_expert)
    return (
        opened.parameters - of_experts + of_experts // config.n_neurons * round(config.n_neurons * config.routed_share)
    )


def _predictor_kinds(opened: OpenedModel) -> dict[str, int] | None:
    """Return kind -> number of layers; None if predictors are missing or unusable."""
    from engine.model.model_artefacts import predictor_kinds

    try:
        return predictor_kinds(opened) or None
    except EngineError:
        return None


def _print_artefacts(opened: OpenedModel) -> None:
    """Print where predictors and statistics are, and whether their heads allow using them."""
    from engine.bundle import artefacts
    from engine.model.model_artefacts import predictor_kinds, predictor_place, predictor_sizes

    place = predictor_place(opened)
    if place is not None:
        try:
            kinds = ", ".join(f"{kind} in {layers} layers" for kind, layers in predictor_kinds(opened).items())
            words = f"{predictor_sizes(opened).stored / 1e6:.1f} MB: {kinds}"
        except EngineError as error:
            words = f"which cannot be used: {error.message}"
        where = {
            "artefact": artefacts.artefact_folder(opened),
            "file": "its own file",
            "folder": opened.files.predictors,
        }
        print(f"  predictors in {where[place]}, {words}")
    if artefacts.find(opened, "statistics") is not None:
        words = ""
        try:
            artefacts.check_stats(opened)
        except EngineError as error:
            words = f", which cannot be used: {error.message}"
        print(f"  activation counts in {artefacts.artefact_folder(opened)}{words}")
    elif opened.files.stats is not None:
        print(f"  activation counts come with it, in {opened.files.stats.name}")


def _print_bundle(manifest: Manifest) -> None:
    source = manifest.source
    worst = max(manifest.tensors, key=lambda name: manifest.tensors[name].relative_error)
    error = manifest.tensors[worst].relative_error
    print(f"  made from {source.name} ({source.format}) by {manifest.created_by}, requested as {manifest.codec}")
    print(
        f"  largest error against the source: {100 * error:.2f}% ({worst})" if error else "  the source's very values"
    )
    for warning in manifest.warnings:
        print(f"  note: {warning}")


def convert(arguments: argparse.Namespace) -> int:
    from engine.conversion import convert as making
    from engine.session.resolve_model import find_model

    try:
        with ProgressBar("Converting") as progress, interrupt_as_cancel() as cancelled:
            source = find_model(arguments.source)
            made = making.convert(
                source.path,
                Path(arguments.bundle),
                arguments.codec,
                job=Job(cancelled, progress),
                activation=arguments.activation or source.activation or None,
            )
    except Cancelled:
        print("Stopped. The same command continues from here.", file=sys.stderr)
        return 130
    for warning in (*made.warnings, made.quality, made.activation_warning):
        print_note(warning)
    worst = max(made.relative_errors, key=lambda name: made.relative_errors[name])
    if arguments.json:
        print_json(
            {
                "bundle": str(made.bundle),
                "bytes": made.n_bytes,
                "seconds": made.seconds,
                "warnings": list(made.warnings),
                "largest_error": {"tensor": worst, "relative_error": made.relative_errors[worst]},
                "kept_parts": made.reused_parts,
                "quality": made.quality,
            }
        )
        return 0
    print(f"{made.bundle}: {made.n_bytes / 1e6:.1f} MB in {made.seconds:.1f} s")
    print(f"  largest error of a tensor against its source: {100 * made.relative_errors[worst]:.2f}% ({worst})")
    return 0
