"""Pruned models on disk: one that is held in memory, and that of any method of a run, with plan and card."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gprune.system import safe_parsing
from gprune.system.errors import CheckpointError, GpruneError, SettingsError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from gprune.api.types import Tokenizer
    from gprune.models.origin import Origin


def save(
    model: PreTrainedModel, folder: str | os.PathLike[str], *, tokenizer: Tokenizer | None = None
) -> Path:
    """Saves a pruned model with its plan and a model card, reads it back and compares the two.

    `model` is one that `Run.model` or `prune` gave, or that was loaded from a pruned folder, copied or
    trained since or not; `tokenizer` that of the dense model, looked for where it came from where left out;
    `folder`, which is given back, must not exist, or be empty. The card, README.md, tells base model and
    licence, what was pruned and how, and the perplexities of the run. Of a model that was trained since the
    plan tells the units alone. `model.save_pretrained` saves the same model without plan and card. Raises
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
        known = origin.of(model)
        return checkpoint.save(
            model,
            tokenizer or _tokenizer(model, known),
            place,
            known.pruned,
            source=known.source,
            fingerprint=known.fingerprint,
            study=known.study,
            figures=known.figures,
            trained=known.trained,
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
