"""Answers: of which dense model was a model in memory pruned, and are its weights still those of the cut?

``save_pretrained`` needs none of it. It is what plan and card of a saved model are written from, and goes
with the model through copies and training, as an attribute.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from gprune.models import identity
from gprune.models.export import plan_file, same_model
from gprune.models.export.model_card import Figure, figures_of
from gprune.records import PrunedModel
from gprune.system.errors import GpruneError, SettingsError

_ATTRIBUTE = "gprune_origin"
_ROUNDING = {torch.float32: 1e-5}
_COARSE = 1e-2
"""largest difference of logits of an unchanged model, relative to the largest logit, in fewer bits"""


@dataclass(frozen=True, slots=True)
class Origin:
    """How a model in memory was made."""

    pruned: PrunedModel
    """the kept units, and what was done to their weights; without the records that this took"""
    source: str
    """the dense model as the person named it; empty where it has no name"""
    fingerprint: str
    """SHA-256 of the dense model's configuration and weights; empty where it is not known"""
    study: dict[str, Any] | None = None
    """the settings that led to the masks, where known"""
    figures: tuple[Figure, ...] = ()
    """what was measured on it"""
    trained: bool = False
    """whether training has changed the weights already"""
    ids: tuple[int, ...] = ()
    """token ids of a short input"""
    logits: tuple[float, ...] = ()
    """what the model answered to it when it was made"""


def remember(model: Any, origin: Origin) -> Any:
    """Has a model that was just made know its origin; gives the model."""
    ids, logits = same_model.probe(model, origin.ids)
    pruned = PrunedModel(origin.pruned.masks, origin.pruned.repairs)
    setattr(model, _ATTRIBUTE, replace(origin, pruned=pruned, ids=ids, logits=logits))
    return model


def of_prune(model: Any, pruned: PrunedModel) -> Origin:
    """The origin of what was cut from a model that a person holds, by where that says it was loaded from."""
    source = str(getattr(model, "name_or_path", "") or "")
    try:
        return Origin(pruned, source, identity.fingerprint(source) if source else "")
    except GpruneError:
        return Origin(pruned, source, "")


def of(model: Any) -> Origin:
    """The origin of a model, as it is now; `trained` where it answers otherwise than when it was made.

    Figures are those of the model as it was made, and left out of a changed one. Raises SettingsError where
    neither the model nor the folder that it was loaded from knows it.
    """
    found = getattr(model, _ATTRIBUTE, None)
    if not isinstance(found, Origin):
        found = _from_folder(str(getattr(model, "name_or_path", "") or ""))
    if found is None:
        raise SettingsError(
            "the model does not say what was pruned of it: save one that run.model or gprune.prune gave, or "
            "that was loaded from a pruned folder; others have save_pretrained"
        )
    if _changed(model, found):
        return replace(found, trained=True, figures=())
    return found


def _from_folder(place: str) -> Origin | None:
    """What the plan in a pruned folder tells; what was trained there cannot be told from the weights."""
    if not (Path(place) / plan_file.PLAN_FILE).is_file():
        return None
    plan = plan_file.read(Path(place))
    trained = plan.trained or plan.recovery is not None
    known = plan.pruned, plan.source, plan.fingerprint, plan.study, figures_of(Path(place)), trained
    return Origin(*known, ids=plan.probe_ids, logits=plan.probe_logits)


def _changed(model: Any, origin: Origin) -> bool:
    _, logits = same_model.probe(model, origin.ids)
    was = torch.tensor(origin.logits)
    difference = (torch.tensor(logits) - was).abs().max() / was.abs().max().clamp(min=1e-30)
    return not float(difference) <= _ROUNDING.get(same_model.number_type_of(model), _COARSE)
