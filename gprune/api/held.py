"""For people who hold a transformers model: its scores on a text, and the model without some units."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from gprune.api import frames
from gprune.data.texts.tokenize import calibration
from gprune.data.texts.tokens import require_embedded
from gprune.records import Array, ModelShape, PrunedModel, PruningMasks, budget
from gprune.study.settings import CalibrationSettings, require, require_choice, require_whole
from gprune.system import safe_parsing
from gprune.system.errors import CheckpointError, GpruneError, SettingsError
from gprune.system.safe_parsing import quoted

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from gprune.api.types import LanguageModel, Tokenizer
    from gprune.models.decoder import Decoder
    from gprune.models.origin import Origin

_COLUMNS = ("layer", "unit", "index", "kept")


def scores(
    model: PreTrainedModel,
    text: str | os.PathLike[str] | Sequence[str],
    metric: str = "flap",
    *,
    tokenizer: Tokenizer | None = None,
    samples: int = 128,
    length: int = 128,
    batch: int = 16,
    seed: int = 0,
) -> pd.DataFrame:
    """Importance of every neuron and key/value group of a model on a text; higher is more important.

    Args:
        model: a causal language model of transformers, of a supported family; it stays as it is.
        text: a text by its name, a file, or the documents themselves as a list of strings.
        metric: a metric that needs one pass of the model and nothing else, as flap or wanda_sp.
        tokenizer: the model's; read from where the model came from where left out.
        samples: sequences drawn from the text.
        length: tokens of each.
        batch: sequences of one pass; changes speed, not results.
        seed: of the choice of sequences.

    Gives one row a unit: layer, unit, index, score. Raises SettingsError where the metric is unknown or a
    number out of range, CorpusError where the text cannot be read or is too short, ModelError where the model
    is of a kind that cannot be pruned.

    Example:
        >>> import gprune
        >>> run = gprune.run("demo", until="drift", progress=False)
        >>> documents = [f"A short text number {number}, said in a few words." for number in range(40)]
        >>> held = {"tokenizer": run.tokenizer, "samples": 8, "length": 16}
        >>> found = gprune.scores(run.model("dense"), documents, "wanda_sp", **held)
        >>> list(found.columns), bool((found["score"] >= 0).all())
        (['layer', 'unit', 'index', 'score'], True)
    """
    from gprune.pruning.calibration import collect
    from gprune.pruning.scoring import METRICS, score

    # before the model is run
    require_choice("metric", metric, tuple(METRICS))
    require_whole(samples=samples, length=length, batch=batch, seed=seed)
    require(seed >= 0, "seed", seed, "0 or more")
    # halves are compared by nobody here: two shards are the fewest that there are
    settings = CalibrationSettings(samples=samples, length=length, shards=2, batch=batch)
    with _as_decoder(model) as decoder:
        tokenizer = tokenizer or _tokenizer_of(model)
        tokens = calibration(text, tokenizer, settings.samples, settings.length, seed)
        require_embedded(tokens.ids, tokens.text, decoder.embeddings, tokenizer)
        statistics = collect(decoder, tokens, settings)
        found = score(metric, statistics, decoder.weight_norms(), decoder.shape, settings)
    return frames.of_units({"score": found.ffn}, {"score": found.heads})


def prune(model: PreTrainedModel, masks: pd.DataFrame | PruningMasks) -> LanguageModel:
    """A physically smaller model, without the units that masks remove, to be evaluated, trained or saved.

    `model`, a causal language model of transformers, of a supported family, stays as it is. `masks` say what
    is kept: a frame with the columns layer, unit, index and kept, as `Run.masks` gives it and as `scores` and
    a decision on its rows make it, or a record of masks. Nothing is repaired: that needs results of a text,
    which `Run.model` has. Raises SettingsError where the frame lacks a column, or does not say of every unit
    of the model whether it stays, ModelError where the model cannot be pruned or a layer would lose all.

    Example:
        >>> import gprune
        >>> run = gprune.run("demo", progress=False)
        >>> dense = run.model("dense")
        >>> smaller = gprune.prune(dense, run.masks["flap"])
        >>> smaller.num_parameters() < dense.num_parameters()
        True
    """
    from gprune.models import origin
    from gprune.pruning.surgery import cut

    with _as_decoder(model) as decoder:
        found = masks if isinstance(masks, PruningMasks) else _from_frame(masks, decoder.shape)
        return origin.remember(cut(decoder, found), origin.origin_of_cut(model, PrunedModel(found)))


@contextmanager
def _as_decoder(model: Any) -> Iterator[Decoder]:
    """A model as a decoder; afterwards it trains as it did before."""
    from gprune.models.decoder import Decoder, require_language_model

    require_language_model(model)
    training, learning = model.training, {name: p.requires_grad for name, p in model.named_parameters()}
    try:
        yield Decoder.from_model(model)
    finally:
        model.train(training)
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(learning[name])


def _tokenizer_of(model: Any) -> Any:
    """The tokenizer that lies where a model was loaded from."""
    from gprune.models.loading import load_tokenizer

    place = str(getattr(model, "name_or_path", "") or "")
    if not place:
        raise SettingsError("the model does not say where it was loaded from: give its tokenizer")
    return load_tokenizer(place)


def _from_frame(masks: pd.DataFrame, shape: ModelShape) -> PruningMasks:
    """Masks from rows in any order."""
    lacking = [name for name in _COLUMNS if name not in getattr(masks, "columns", ())]
    if lacking:
        raise SettingsError(f"masks need the columns {', '.join(_COLUMNS)} (without {', '.join(lacking)})")
    if not masks.columns.is_unique:
        raise SettingsError("masks have two columns of one name: keep one of them")
    for value in () if masks["kept"].dtype == bool else masks["kept"]:
        # as truth values a gap and the word False would both be kept
        if not isinstance(value, bool | np.bool_):
            raise SettingsError(f"the column kept of masks must hold True or False (got {quoted(value)})")
    ffn = _marked(masks, frames.NEURON, (shape.layers, shape.neurons))
    heads = _marked(masks, frames.GROUP, (shape.layers, shape.kv_heads))
    kept = budget.retention(shape, ffn, heads)
    return PruningMasks("given", ffn, heads, kept, kept)


def _marked(masks: pd.DataFrame, unit: str, size: tuple[int, int]) -> Array:
    """(layers, units) of one kind, from its rows."""
    rows = masks[masks["unit"] == unit]
    places = _whole(rows["layer"]), _whole(rows["index"])
    inside = all(((place >= 0) & (place < most)).all() for place, most in zip(places, size, strict=True))
    distinct = inside and len(np.unique(places[0] * size[1] + places[1])) == size[0] * size[1] == len(rows)
    if not distinct:
        raise SettingsError(
            f"masks must say once of each of {size[0]} × {size[1]} {unit}s whether it is kept (got {len(rows)} rows)"
        )
    marked: Array = np.zeros(size, dtype=bool)
    marked[places] = rows["kept"].to_numpy(dtype=bool)
    return marked


def _whole(values: pd.Series) -> Array:
    """Whole numbers of a column. Raises SettingsError where it holds something else."""
    found = pd.to_numeric(values, errors="coerce").to_numpy(dtype=np.float64)
    if not np.array_equal(found, np.round(found)) or not (abs(found) < 2**53).all():
        raise SettingsError(f"the column {values.name} of masks must hold whole numbers")
    whole: Array = found.astype(np.int64)
    return whole


def save(model: PreTrainedModel, folder: str | os.PathLike[str], *, tokenizer: Tokenizer | None = None) -> Path:
    """Save a pruned model with a model card and ``pruning.json``, read it back and compare the two.

    `model` is one that `Run.model` or `prune` gave, or that was loaded from a pruned folder, copied or
    trained since or not; `tokenizer` that of the dense model, looked for where it came from where left out;
    `folder`, which is given back, must not exist, or be empty. The card, README.md, tells base model and
    licence, what was pruned and how, and the perplexities of the run; ``pruning.json`` lists the kept units.
    `model.save_pretrained` saves the same model without the two. Raises
    SettingsError where the model is dense, or has adapters that are not merged, CheckpointError where the
    folder is taken, the disk is full, or the saved model does not read back as it was.

    Example:
        >>> import gprune, pathlib, tempfile
        >>> run = gprune.run("demo", progress=False)
        >>> folder = gprune.save(run.model("gprune"), pathlib.Path(tempfile.mkdtemp()) / "pruned")
        >>> sorted(file.name for file in folder.glob("*.json"))[-1], (folder / "README.md").is_file()
        ('tokenizer_config.json', True)
    """
    from gprune.models import origin
    from gprune.models.decoder import require_language_model
    from gprune.models.export import checkpoint

    if hasattr(model, "merge_and_unload"):
        raise SettingsError("the model has adapters beside its weights: save model.merge_and_unload()")
    require_language_model(model)
    with safe_parsing.refused_as(CheckpointError):
        place = safe_parsing.path(os.fspath(folder), "the folder")
    training = model.training
    model.eval()
    try:
        known = origin.origin_of(model)
        return checkpoint.save(
            model,
            tokenizer or _tokenizer(model, known),
            place,
            known.pruned,
            source=known.source,
            fingerprint=known.fingerprint,
            run=known.run,
            study=known.study,
            figures=known.figures,
            trained=known.trained,
            ids=known.ids,
        )
    finally:
        model.train(training)


def _tokenizer(model: Any, origin: Origin) -> Any:
    """The tokenizer that lies where a model was loaded from, or beside the dense one; None without."""
    from gprune.models.loading import load_tokenizer

    for place in (str(getattr(model, "name_or_path", "") or ""), origin.source):
        try:
            return load_tokenizer(place)
        except (GpruneError, OSError):
            continue
    return None
