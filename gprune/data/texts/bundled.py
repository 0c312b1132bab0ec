"""Precomputed tokens of the embedded texts, so that a first run of the demo does not tokenize text.

One file has the demo's calibration sets and the beginnings of its evaluation streams. Their keys are hashes of
everything that determines them. The script `scripts/bundle_tokens.py` writes the file.
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
    """Return the key of bundled tokens, a SHA-256.

    `text` and `tokenizer` are digests of their contents; `sizes` are the numbers that select the tokens, such as
    samples, length, seed and limit.
    """
    content = {"text": text, "tokenizer": tokenizer, **sizes}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def bundled_calibration(name: str, text: str, tokenizer: str, samples: int, length: int, seed: int) -> Tokens | None:
    """Return the calibration set that `draw` returns for the text `name`, or None if it is not bundled.

    `text` and `tokenizer` are digests of their content.
    """
    tokens = _read(key(text, tokenizer, samples=samples, length=length, seed=seed))
    if tokens is None:
        return None
    ids, available = tokens
    return Tokens(text=name, fingerprint=token_fingerprint(ids), ids=ids, available=available)


def bundled_stream(text: str, tokenizer: str, limit: int | None) -> Array | None:
    """Return the (limit,) ids at the beginning of an evaluation text, or None if they are not bundled.

    `text` and `tokenizer` are digests of their content. If `limit` is None, so is the result, because no complete text
    is bundled.
    """
    tokens = None if limit is None else _read(key(text, tokenizer, limit=limit))
    return None if tokens is None else tokens[0]


def _read(key: str) -> tuple[Array, int] | None:
    """Return the int32 ids of a key and the number of sequences in their text, or None if the key is not bundled."""
    with safe_open(FILE, framework="numpy") as file:
        counts = file.metadata()
        if key not in file.keys():  # noqa: SIM118
            return None
        ids: Array = file.get_tensor(key).astype(np.int32)
        return ids, int(counts[key])
