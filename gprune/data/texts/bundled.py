"""Tokens of the embedded texts that come with the package, so that a first run of the demo tokenizes no text.

The demo's calibration sets and the starts of its streams are in one file beside its model, each under a hash of
everything that decides it. The script `scripts/bundle_tokens.py` writes the file.
"""

import hashlib
import json

import numpy as np
from safetensors import safe_open

from gprune.data.demo import MODEL_FOLDER
from gprune.data.texts.tokens import token_fingerprint
from gprune.records import Array, Tokens

FILE = MODEL_FOLDER.parent / "tokens.safetensors"


def key(text: str, tokenizer: str, **sizes: int) -> str:
    """Return the key of some tokens: a hash of the digests of a text and of a tokenizer, and of sizes and seed."""
    content = {"text": text, "tokenizer": tokenizer, **sizes}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def bundled_calibration(name: str, text: str, tokenizer: str, samples: int, length: int, seed: int) -> Tokens | None:
    """Return the calibration set that `draw` makes of the text `name`, None if it does not come with the package.

    `text` and `tokenizer` are digests of their content.
    """
    tokens = _read(key(text, tokenizer, samples=samples, length=length, seed=seed))
    if tokens is None:
        return None
    ids, available = tokens
    return Tokens(text=name, fingerprint=token_fingerprint(ids), ids=ids, available=available)


def bundled_stream(text: str, tokenizer: str, limit: int | None) -> Array | None:
    """Return the (limit,) start of a stream as `stream` of this package gives it, None if it is not there."""
    tokens = None if limit is None else _read(key(text, tokenizer, limit=limit))
    return None if tokens is None else tokens[0]


def _read(name: str) -> tuple[Array, int] | None:
    """Return the int32 ids under a key, and how many sequences their text has in all."""
    with safe_open(FILE, framework="numpy") as file:
        counts = file.metadata()
        if name not in file.keys():  # noqa: SIM118
            return None
        ids: Array = file.get_tensor(name).astype(np.int32)
        return ids, int(counts[name])
