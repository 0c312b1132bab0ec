"""Origin of a pruned model in memory: the dense model and the kept units.

The origin is an attribute of the model that copies and training preserve. ``gprune.save`` writes model card and
``pruning.json`` from it; ``save_pretrained`` does not need it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from gprune.models import identity
from gprune.models.export import checkpoint, model_card
from gprune.models.export.model_card import Figure, PruningRecord
from gprune.records import PrunedModel
from gprune.system.errors import GpruneError, SettingsError

_ORIGIN = "gprune_origin"
_ROUNDING, _COARSE_ROUNDING = 1e-5, 1e-2
"""largest relative difference of the logits of an unchanged model, in float32 and in half precision"""


@dataclass(frozen=True, slots=True)
class Origin:
    """Origin of a model in memory."""

    record: PruningRecord
    """kept units, repairs and dense model, with logits of the newly pruned model"""
    figures: tuple[Figure, ...] = ()
    """perplexities of the model"""


def remember_origin(
    model: Any, pruned: PrunedModel, figures: tuple[Figure, ...] = (), ids: Sequence[int] = (), **facts: Any
) -> Any:
    """Attach its origin to a newly pruned model, and return the model.

    `ids` are the tokens of a short input for the stored logits; if empty, `checkpoint.probe` chooses them. `facts` are
    fields of `PruningRecord`, such as source and fingerprint.
    """
    ids, logits = checkpoint.probe(model, ids)
    pruned = PrunedModel(pruned.masks, pruned.repairs)
    record = PruningRecord.of(pruned, **facts, probe_tokens=ids, probe_logits=logits)
    setattr(model, _ORIGIN, Origin(record, figures))
    return model


def source_of(model: Any) -> dict[str, Any]:
    """Return source (folder or hub name) and fingerprint of a dense model in memory; what is unknown is empty."""
    source = str(getattr(model, "name_or_path", "") or "")
    try:
        return {"source": source, "fingerprint": identity.fingerprint(source) if source else ""}
    except GpruneError:
        return {"source": source, "fingerprint": ""}


def origin_of(model: Any) -> Origin:
    """Return the origin of a pruned model; it is marked as trained if the logits differ from the stored ones.

    In that case the origin has no figures. Raises SettingsError if neither the model nor the folder from which it was
    loaded has an origin.
    """
    origin, folder = getattr(model, _ORIGIN, None), Path(str(getattr(model, "name_or_path", "") or ""))
    if origin is None and (folder / model_card.PRUNING_FILE).is_file():
        origin = Origin(model_card.read_record(folder), model_card.figures_of(folder))
    # a padded model has other widths than its record, which therefore does not describe it
    if origin is None or origin.record.padded:
        raise SettingsError(
            "the model has no record of its pruning: save one from run.model, gprune.prune or a "
            "pruned folder, or use save_pretrained"
        )
    record = origin.record
    _, logits = checkpoint.probe(model, record.probe_tokens)
    rounding = _ROUNDING if model.dtype == torch.float32 else _COARSE_ROUNDING
    difference = checkpoint.relative_difference(torch.tensor(record.probe_logits), torch.tensor(logits))
    # negated, so that a difference of NaN counts as a change
    is_changed = not difference <= rounding
    # a recovered model stays marked as trained, because its weights differ from those of pruning alone
    trained = is_changed or record.trained or bool(record.recovery)
    return Origin(record.model_copy(update={"trained": trained}), () if is_changed else origin.figures)
