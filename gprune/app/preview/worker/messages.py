"""Messages between the app and the worker: one JSON object a line over stdin and stdout of the worker.

The first line from the app says which model to load; every later one asks for the losses of some windows:

    {"model": {...}}                                        -> {"ready": true}
    {"text": {...}}                                         -> {"windows": 80}
    {"text": {...}, "numbers": [3, 17], "pruned": {...} | null}
                                                            -> {"losses": [3.21, 3.4]}

What is pruned has masks, the repairs of its weights, and where the records are that these need:

    {"masks": {...}, "repairs": [name, ...], "inputs": {parameter: [[kind, key], ...] or [kind, key]}}

Weights that are fitted to masks, and may have to be fitted now, have beside these what it takes; the worker
then says how far it is before it answers, and how long it took besides measuring:

    {"masks": ..., "inputs": {"weights": [kind, key]},
     "fit": {"settings": {...}, "texts": [[kind, key], ...], "batch": 16,
             "scales": {"settings": {...}, "seed": 0, "texts": [[kind, key], ...]}}}    scales are optional
                       -> {"id": ..., "progress": [layer, layers, "repairing the kept weights"]}, ...
                       -> {"losses": [3.21, 3.4], "fitting": 5.8}

Where nobody wants it any more, {"drop": ID} has it given up between two layers, and the answer is
{"dropped": true}.

The windows of a calibration text are the sequences that a run has drawn, of which the text says the place:
"tokens": [kind, key].

A passage is read token by token, a window of a text or what was typed; a prompt is gone on from, a few tokens
a question, each drawn at a temperature with a seed, the likeliest at temperature 0. Both say what is silent
as above, and how many tokens there were in all; `places` are the model's positions, 0 where it does not say:

    {"read": {"text": {...}, "number": 3} | {"typed": "..."}, ...}
                       -> {"pieces": [["The", 1, 1], ...], "losses": [...], "total": 128, "places": 4096}
    {"write": {"prompt": "...", "most": 40, "temperature": 0.8, "seed": 0}, "ids": [5, 9], "tokens": 4, ...}
                       -> {"ids": [3, 1], "text": "...", "ended": false, "read": 12, "total": 12}

A neuron of the dense model is asked for its inputs of down_proj at every token of passages, each a sequence
of a run's tokens with its first and last token:

    {"fires": {"tokens": [kind, key], "layer": 2, "neuron": 7, "places": [[0, 3, 35], ...]}}
                       -> {"passages": [{"pieces": [["The", 1, 1], ...], "values": [0.2, ...]}, ...]}

Its activations on all of a text are counted in bins, 2 to a power wide, some sequences after those counted
before; and the tokens are named to whose logits its column of down_proj adds most, and least:

    {"spread": {"tokens": [kind, key], "layer": 2, "neuron": 7}, "sequences": 16}
                       -> {"power": -5, "first": -2, "counts": [1, 40, 9], "sequences": 32, "wanted": 256,
                           "total": 2048}
    {"direction": {"layer": 2, "neuron": 7}}
                       -> {"promoted": [[" the", 0.31], ...], "suppressed": [["ing", -0.28], ...]}

An answer carries the `id` of its question. Where there is no result it has a `problem`, one sentence, and
says with `ready` whether the model is there for other questions. Masks travel as packed bits in base64.
"""

import base64
import json
from typing import Any

import numpy as np

from gprune.records import Array, PruningMasks
from gprune.system import safe_parsing
from gprune.system.errors import SettingsError, UnreadableError

SCALING = "learning scales"
"""words of the progress of learned scales, whose unit is a step and not a layer"""


def packed(masks: PruningMasks) -> dict[str, Any]:
    """Masks as plain values: shape and bits of either array, the last axis running fastest."""
    return {"ffn": _pack(masks.ffn), "heads": _pack(masks.heads)}


def unpacked(values: Any) -> PruningMasks:
    """The masks that were packed; name and retention, which change no loss, do not travel.

    Raises SettingsError where the values are not those of packed masks.
    """
    try:
        ffn, heads = _unpack(values["ffn"]), _unpack(values["heads"])
    except (KeyError, TypeError, ValueError, OverflowError, MemoryError) as error:
        raise SettingsError(f"the masks of a question cannot be read ({error}): ask again") from error
    return PruningMasks("preview", ffn, heads, float("nan"), float("nan"))


def line(message: dict[str, Any]) -> bytes:
    """A message as it is sent; a loss that is not finite has no place in it."""
    return (json.dumps(message, allow_nan=False) + "\n").encode()


def read(data: bytes) -> dict[str, Any] | None:
    """The message of a line; None where it holds none."""
    try:
        return safe_parsing.json_object(data, "the message", finite=False)
    except UnreadableError:
        return None


def _pack(mask: Array) -> dict[str, Any]:
    bits = np.packbits(np.asarray(mask, dtype=bool)).tobytes()
    return {"shape": list(mask.shape), "bits": base64.b64encode(bits).decode()}


def _unpack(values: dict[str, Any]) -> Array:
    layers, units = (int(size) for size in values["shape"])
    bits = np.frombuffer(base64.b64decode(values["bits"], validate=True), dtype=np.uint8)
    if min(layers, units) < 0 or layers * units > 8 * len(bits):
        raise ValueError(f"{len(bits)} bytes hold no {layers} x {units} bits")
    return np.unpackbits(bits, count=layers * units).astype(bool).reshape(layers, units)
