"""Score, prune and save a transformers model that is already in memory."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from gprune.api import frames
from gprune.data.texts.tokens import calibration, require_embedded
from gprune.records import Array, ModelShape, PrunedModel, PruningMasks, budget
from gprune.study.settings import CalibrationSettings, require, require_choice, require_whole
from gprune.system import safe_parsing
from gprune.system.errors import CheckpointError, GpruneError, SettingsError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from gprune.api.types import LanguageModel, Tokenizer
    from gprune.models.decoder import Decoder

_COLUMNS = ("layer", "unit", "index", "kept")


def scores(
    model: PreTrainedModel,
    text: str | os.PathLike[str] | Sequence[str] | Sequence[Mapping[str, Any]],
    metric: str = "flap",
    *,
    tokenizer: Tokenizer | None = None,
    samples: int = 128,
    length: int = 128,
    batch: int = 16,
    seed: int = 0,
) -> pd.DataFrame:
    """Return the importance of every neuron and key/value group of a model on a text; higher is more important.

    Args:
        model: causal language model of transformers, of a supported family; it is not changed.
        text: name of a text, path of a file, or a list of documents or of records with messages.
        metric: metric that needs a single forward pass, such as flap or wanda_sp.
        tokenizer: tokenizer of the model; by default it is read from where the model was loaded.
        samples: number of sequences drawn from the text.
        length: tokens per sequence.
        batch: sequences per forward pass; changes speed, not results.
        seed: seed of the draw of sequences.

    Returns:
        One row per unit with the columns layer, unit, index and score.

    Raises:
        SettingsError: the metric is unknown, or a number is out of range.
        CorpusError: the text cannot be read, or is too short.
        ModelError: models of this family cannot be pruned.

    Example:
        >>> import gprune
        >>> run = gprune.run("demo", until="drift", progress=False)
        >>> documents = [f"A short text, number {number}, of a few words." for number in range(40)]
        >>> options = {"tokenizer": run.tokenizer, "samples": 8, "length": 16}
        >>> table = gprune.scores(run.model("dense"), documents, "wanda_sp", **options)
        >>> list(table.columns), bool((table["score"] >= 0).all())
        (['layer', 'unit', 'index', 'score'], True)
    """
    from gprune.pruning.calibration import collect
    from gprune.pruning.scoring import METRICS, score

    require_choice("metric", metric, tuple(METRICS))
    require_whole(samples=samples, length=length, batch=batch, seed=seed)
    require(seed >= 0, "seed", seed, "0 or more")
    # the number of shards does not affect the scores; 2 is the smallest that is allowed
    settings = CalibrationSettings(samples=samples, length=length, shards=2, batch=batch)
    with _as_decoder(model) as decoder:
        tokenizer = tokenizer or _tokenizer_of(model)
        tokens = calibration(text, tokenizer, settings.samples, settings.length, seed)
        require_embedded(tokens.ids, tokens.text, decoder.num_embeddings, tokenizer)
        statistics = collect(decoder, tokens, settings)
        values = score(metric, statistics, decoder.weight_norms(), decoder.shape, settings)
    return frames.of_units({"score": values.ffn}, {"score": values.heads})


def prune(model: PreTrainedModel, masks: pd.DataFrame | PruningMasks) -> LanguageModel:
    """Return a smaller model without the units that the masks remove.

    The weights that remain are not repaired, because a repair needs calibration results; `Run.model` has them.

    Args:
        model: causal language model of transformers, of a supported family; it is not changed.
        masks: units to keep, as a frame with the columns layer, unit, index and kept, such as an entry of
            `Run.masks`, or a record of masks.

    Raises:
        SettingsError: the frame lacks a column, or does not list every unit of the model once.
        ModelError: models of this family cannot be pruned, or a layer would lose all its units.

    Example:
        >>> import gprune
        >>> run = gprune.run("demo", progress=False)
        >>> dense = run.model("dense")
        >>> smaller = gprune.prune(dense, run.masks["flap"])
        >>> smaller.num_parameters() < dense.num_parameters()
        True
    """
    from gprune.pruning import origin
    from gprune.pruning.surgery import cut

    with _as_decoder(model) as decoder:
        record = masks if isinstance(masks, PruningMasks) else _read_masks(masks, decoder.shape)
        return origin.remember_origin(cut(decoder, record), PrunedModel(record), **origin.source_of(model))


@contextmanager
def _as_decoder(model: Any) -> Iterator[Decoder]:
    # Decoder.from_model sets evaluation mode and freezes the weights; both are undone at the end of the context
    from gprune.models.decoder import Decoder, require_language_model

    require_language_model(model)
    training, trainable = model.training, {name: p.requires_grad for name, p in model.named_parameters()}
    try:
        yield Decoder.from_model(model)
    finally:
        model.train(training)
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(trainable[name])


def _tokenizer_of(model: Any) -> Any:
    from gprune.models.loading import load_tokenizer

    source = str(getattr(model, "name_or_path", "") or "")
    if not source:
        raise SettingsError("the model does not say where it was loaded from: pass its tokenizer")
    return load_tokenizer(source)


def _read_masks(masks: pd.DataFrame, shape: ModelShape) -> PruningMasks:
    missing = [name for name in _COLUMNS if name not in getattr(masks, "columns", ())]
    if missing:
        raise SettingsError(f"masks need the columns {', '.join(_COLUMNS)} (missing: {', '.join(missing)})")
    for column in ("layer", "index"):
        if not pd.api.types.is_integer_dtype(masks[column]):
            raise SettingsError(f"the mask column {column!r} must hold integers (got {masks[column].dtype})")
    # a missing value or the string False would count as True
    if masks["kept"].dtype != bool:
        raise SettingsError(f"the mask column 'kept' must hold True or False (got {masks['kept'].dtype})")
    ffn = _unit_mask(masks, frames.NEURON, (shape.layers, shape.neurons))
    heads = _unit_mask(masks, frames.GROUP, (shape.layers, shape.kv_heads))
    retention = budget.retention(shape, ffn, heads)
    return PruningMasks("given", ffn, heads, retention, retention)


def _unit_mask(masks: pd.DataFrame, unit: str, size: tuple[int, int]) -> Array:
    """Return a (layers, units) mask from the rows of one kind of unit."""
    rows = masks[masks["unit"] == unit]
    layers, indices = rows["layer"].to_numpy(), rows["index"].to_numpy()
    in_range = ((layers >= 0) & (layers < size[0]) & (indices >= 0) & (indices < size[1])).all()
    if not (in_range and len(np.unique(layers * size[1] + indices)) == size[0] * size[1] == len(rows)):
        raise SettingsError(f"masks must list each of {size[0]} × {size[1]} {unit}s once (got {len(rows)} rows)")
    mask: Array = np.zeros(size, dtype=bool)
    mask[layers, indices] = rows["kept"].to_numpy(dtype=bool)
    return mask


def save(model: PreTrainedModel, folder: str | os.PathLike[str], *, tokenizer: Tokenizer | None = None) -> Path:
    """Save a pruned model with a model card and ``pruning.json``, then read it back and compare.

    The card (README.md) names the base model and its licence, what was pruned, and the perplexities of the run.
    ``pruning.json`` lists the kept units. `model.save_pretrained` saves the same model without these two files.

    Args:
        model: model from `Run.model`, from `prune`, or loaded from a pruned folder; it may have been trained since.
        folder: target folder; it must not exist, or be empty.
        tokenizer: tokenizer of the dense model; by default the one in the model's source folder.

    Returns:
        The folder.

    Raises:
        SettingsError: the model is dense, or has adapters that are not merged.
        CheckpointError: the folder is not empty, the disk is full, or the saved model differs when read back.

    Example:
        >>> import gprune, pathlib, tempfile
        >>> run = gprune.run("demo", progress=False)
        >>> folder = gprune.save(run.model("gprune"), pathlib.Path(tempfile.mkdtemp()) / "pruned")
        >>> sorted(file.name for file in folder.glob("*.json"))[-1], (folder / "README.md").is_file()
        ('tokenizer_config.json', True)
    """
    from gprune.models.decoder import require_language_model
    from gprune.models.export import checkpoint
    from gprune.pruning.origin import origin_of

    if hasattr(model, "merge_and_unload"):
        raise SettingsError("the model has unmerged adapters: save model.merge_and_unload() instead")
    require_language_model(model)
    with safe_parsing.reraise_as(CheckpointError):
        target = safe_parsing.path(os.fspath(folder), "the folder")
    training = model.training
    model.eval()
    try:
        provenance = origin_of(model)
        record = provenance.record
        return checkpoint.save(
            model,
            tokenizer or _find_tokenizer(model, record.source),
            target,
            record.pruned,
            source=record.source,
            fingerprint=record.fingerprint,
            run=record.run,
            study=record.study,
            figures=provenance.figures,
            trained=record.trained,
            ids=record.probe_tokens,
        )
    finally:
        model.train(training)


def _find_tokenizer(model: Any, dense: str) -> Any:
    """Return the tokenizer in the folder of the model or of the dense model, or None."""
    from gprune.models.loading import load_tokenizer

    for source in (str(getattr(model, "name_or_path", "") or ""), dense):
        try:
            return load_tokenizer(source)
        except (GpruneError, OSError):
            continue
    return None
