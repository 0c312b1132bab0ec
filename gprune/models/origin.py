"""Remember of which dense model a model in memory was pruned, and tell whether it has been trained since.

The origin is an attribute of the model, so that it goes with it through copies and training. ``gprune.save``
writes model card and ``pruning.json`` from it; ``save_pretrained`` does not need it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from gprune.models import identity
from gprune.models.export import same_model
from gprune.models.export.model_card import Figure, figures_of
from gprune.models.export.pruning_file import PRUNING_FILE, read_record
from gprune.records import PrunedModel
from gprune.system.errors import GpruneError, SettingsError

_ATTRIBUTE = "gprune_origin"
_ROUNDING, _COARSE_ROUNDING = 1e-5, 1e-2
"""largest relative difference of the logits of an unchanged model, in float32 and in fewer bits"""


@dataclass(frozen=True, slots=True)
class Origin:
    """Origin of a model in memory."""

    pruned: PrunedModel
    """kept units and repairs, without the records from which the repairs were made"""
    source: str
    """the dense model as the person named it; empty where it has no name"""
    fingerprint: str
    """SHA-256 of the dense model's configuration and weights; empty where it is not known"""
    run: str = ""
    """name of the run that chose the masks"""
    study: dict[str, Any] | None = None
    """settings of that run"""
    figures: tuple[Figure, ...] = ()
    """perplexities of the model"""
    trained: bool = False
    """whether training has changed the weights"""
    ids: Sequence[int] = ()
    """token ids of a short input"""
    logits: Sequence[float] = ()
    """what the model answered to it when it was made"""


def remember(model: Any, origin: Origin) -> Any:
    """Attach its origin to a model that was just made, and return the model."""
    ids, logits = same_model.probe(model, origin.ids)
    pruned = PrunedModel(origin.pruned.masks, origin.pruned.repairs)
    setattr(model, _ATTRIBUTE, replace(origin, pruned=pruned, ids=ids, logits=logits))
    return model


def origin_of_cut(model: Any, pruned: PrunedModel) -> Origin:
    """Return the origin of a cut of a dense model in memory, which may name the folder it was loaded from."""
    source = str(getattr(model, "name_or_path", "") or "")
    try:
        return Origin(pruned, source, identity.fingerprint(source) if source else "")
    except GpruneError:
        return Origin(pruned, source, "")


def origin_of(model: Any) -> Origin:
    """Return the origin of a pruned model; it is marked as trained if the model answers otherwise than at first.

    A trained model has no figures. Raises SettingsError where neither the model nor the folder that it was loaded
    from knows its origin.
    """
    origin = getattr(model, _ATTRIBUTE, None)
    if not isinstance(origin, Origin):
        origin = _from_folder(Path(str(getattr(model, "name_or_path", "") or "")))
    if origin is None:
        raise SettingsError(
            "the model does not say what was pruned of it: save one that run.model or gprune.prune gave, or "
            "that was loaded from a pruned folder; others have save_pretrained"
        )
    _, logits = same_model.probe(model, origin.ids)
    rounding = _ROUNDING if model.dtype == torch.float32 else _COARSE_ROUNDING
    if same_model.relative_difference(torch.tensor(origin.logits), torch.tensor(logits)) <= rounding:
        return origin
    return replace(origin, trained=True, figures=())


def _from_folder(folder: Path) -> Origin | None:
    if not (folder / PRUNING_FILE).is_file():
        return None
    record = read_record(folder)
    if record.padded:
        return None
    return Origin(
        record.pruned,
        record.source,
        record.fingerprint,
        record.run,
        record.study,
        figures_of(folder),
        # the weights of a recovered model do not tell what was trained
        record.trained or bool(record.recovery),
        record.probe_tokens,
        record.probe_logits,
    )
