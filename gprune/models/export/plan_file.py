"""Answers: which units of which dense model does a checkpoint hold?

``plan.json`` lists the kept units of every layer, so that the same cut can be made again from the dense
model. Where the cut gave the model other biases, which rest on the calibration text, the plan holds these
biases themselves; of other weights that were repaired it names the file beside it (`repaired_file`), and so
it does of what recovery has trained (`recovered_file`).
"""

import base64
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gprune.records import REPAIRS, Array, PrunedModel, PruningMasks
from gprune.records.repairs import COMPENSATION, in_order
from gprune.system import safe_parsing
from gprune.system.errors import CheckpointError

PLAN_FILE = "plan.json"
OUTPUT_MAPS = ("o_proj", "down_proj")
"""Projections back into the residual stream, which repairs change."""
_FORMAT = "gprune-plan"
_VERSION = 1
# far beyond any model: 64 times the layers and the neurons of the largest
_MOST_LAYERS, _MOST_UNITS = 8192, 2**22


@dataclass(frozen=True, slots=True)
class Recovery:
    """What recovery has added to the weights, and where that is."""

    kind: str
    """how it was trained: lora"""
    rank: int
    """of what was added to each linear map"""
    scale: float
    """by which the products of the factors are multiplied"""
    digest: str
    """SHA-256 of the file of factors beside the plan"""


@dataclass(frozen=True, slots=True)
class CutPlan:
    """How a checkpoint was made, and a short answer of the model by which it is known again."""

    pruned: PrunedModel
    """the kept units of the dense model, and what was done to their weights"""
    source: str
    """the dense model as the person named it"""
    fingerprint: str
    """SHA-256 of the dense model's configuration and weights"""
    study: dict[str, Any] | None
    """the settings that led to the masks, where known"""
    probe_ids: tuple[int, ...]
    """token ids of a short input"""
    probe_logits: tuple[float, ...]
    """logits after its last token, at tokens spread evenly over the vocabulary"""
    dtype: str | None = None
    """number type of the weights, as ``float32``; None in plans of version 0.1"""
    weights: str | None = None
    """SHA-256 of the repaired weights beside the plan; None where no repair changes weights"""
    biases: dict[str, Array] | None = None
    """by projection in ``OUTPUT_MAPS``: (layers, hidden) float32 biases after the repairs; None without, and
    in plans of version 0.1"""
    recovery: Recovery | None = None
    """None where nothing was trained after the repairs"""
    trained: bool = False
    """whether the weights were changed after all of that, so that this plan does not give them"""


def write(folder: Path, plan: CutPlan) -> None:
    """Writes ``plan.json`` into a folder."""
    masks = plan.pruned.masks
    values = {
        "format": _FORMAT,
        "version": _VERSION,
        "source": plan.source,
        "fingerprint": plan.fingerprint,
        "method": masks.method,
        "retention": masks.retention,
        "target": masks.target,
        COMPENSATION: any(one.name == COMPENSATION for one in plan.pruned.repairs),
        **{one.name: True for one in plan.pruned.repairs},
        "neurons": masks.ffn.shape[1],
        "key_value_heads": masks.heads.shape[1],
        "kept_neurons": [np.flatnonzero(row).tolist() for row in masks.ffn],
        "kept_key_value_groups": [np.flatnonzero(row).tolist() for row in masks.heads],
        "probe": {"ids": list(plan.probe_ids), "logits": list(plan.probe_logits)},
        "study": plan.study,
        "dtype": plan.dtype,
        "biases": _encoded(plan.biases),
        **({} if plan.weights is None else {"repaired_weights": plan.weights}),
        **({} if plan.recovery is None else {"recovery": asdict(plan.recovery)}),
        **({"trained": True} if plan.trained else {}),
    }
    (folder / PLAN_FILE).write_text(json.dumps(values) + "\n", encoding="utf-8")


def read(place: Path) -> CutPlan:
    """Reads the ``plan.json`` of a checkpoint folder, or such a file under any name.

    Raises CheckpointError where it is missing, is not such a plan, or names units that cannot exist.
    """
    with safe_parsing.refused_as(CheckpointError):
        place = safe_parsing.path(str(place), "the plan")
        path = place if place.is_file() else safe_parsing.path(str(place / PLAN_FILE), "the plan")
    try:
        return _checked(safe_parsing.json_file(path, "it", finite=False), path)
    except FileNotFoundError as error:
        raise CheckpointError(f"the folder {str(place)!r} has no {PLAN_FILE}: it is no pruned checkpoint") from error
    except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError, OverflowError) as error:
        what = f"{error} is missing" if isinstance(error, KeyError) else safe_parsing.sentence(error, 160)
        raise CheckpointError(f"{str(path)!r} cannot be read ({what}): save the checkpoint again") from error


def _checked(values: Any, path: Path) -> CutPlan:
    if not isinstance(values, dict) or values.get("format") != _FORMAT:
        raise CheckpointError(f"{str(path)!r} is no plan of a cut: take the {PLAN_FILE} of a pruned model")
    if values["version"] != _VERSION:
        shown = safe_parsing.quoted(values["version"])
        raise ValueError(f"its version is {shown}, this program reads {_VERSION!r}")
    return _plan(values)


def _plan(values: dict[str, Any]) -> CutPlan:
    masks = PruningMasks(
        method=str(values["method"]),
        ffn=_mask(values["kept_neurons"], values["neurons"]),
        heads=_mask(values["kept_key_value_groups"], values["key_value_heads"]),
        retention=float(values["retention"]),
        target=float(values["target"]),
    )
    return CutPlan(
        pruned=PrunedModel(masks, in_order(name for name in REPAIRS if values.get(name))),
        source=str(values["source"]),
        fingerprint=str(values["fingerprint"]),
        study=_of(values["study"], dict, "study", None),
        probe_ids=tuple(_whole(i, _MOST_UNITS) for i in _of(values["probe"]["ids"], list, "probe")),
        probe_logits=tuple(float(x) for x in _of(values["probe"]["logits"], list, "probe")),
        dtype=_of(values.get("dtype"), str, "dtype", None),
        weights=_of(values.get("repaired_weights"), str, "repaired_weights", None),
        biases=_decoded(values.get("biases"), len(masks.ffn)),
        recovery=_recovery(_of(values.get("recovery"), dict, "recovery", None)),
        trained=_of(values.get("trained", False), bool, "trained"),
    )


def _recovery(values: dict[str, Any] | None) -> Recovery | None:
    if values is None:
        return None
    scale = _of(values["scale"], float, "recovery.scale")
    words = (_of(values[name], str, f"recovery.{name}") for name in ("kind", "digest"))
    kind, digest = words
    return Recovery(kind, _whole(values["rank"], _MOST_UNITS), scale, digest)


def _of(value: Any, kind: type, field: str, other: Any = ...) -> Any:
    """A value that is of a kind, or the one other value that may stand there."""
    if not isinstance(value, kind) and value is not other:
        raise ValueError(f"{field} is {safe_parsing.quoted(value)}")
    return value


def _whole(value: Any, most: int) -> int:
    """A whole number from 0 that is less than `most`: a switch or a fraction is none."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < most:
        raise ValueError(f"{safe_parsing.quoted(value)} is no number from 0 to {most - 1}")
    return value


def _mask(kept: Any, units: Any) -> Array:
    layers, width = len(_of(kept, list, "kept units")), _whole(units, _MOST_UNITS)
    if not 1 <= layers <= _MOST_LAYERS:
        raise ValueError(f"it has {layers} layers, and 1 to {_MOST_LAYERS} are read")
    mask = np.zeros((layers, width), dtype=bool)
    for row, index in zip(mask, kept, strict=True):
        row[[_whole(unit, width) for unit in _of(index, list, "kept units")]] = True
    return mask


def _encoded(biases: dict[str, Array] | None) -> dict[str, str] | None:
    """Base64 of the little-endian bytes: exact, and half of what the digits would take."""
    if biases is None:
        return None
    return {name: base64.b64encode(biases[name].astype("<f4").tobytes()).decode() for name in OUTPUT_MAPS}


def _decoded(texts: dict[str, str] | None, layers: int) -> dict[str, Array] | None:
    if texts is None:
        return None
    return {
        name: np.frombuffer(base64.b64decode(texts[name], validate=True), "<f4").reshape(layers, -1)
        for name in OUTPUT_MAPS
    }
