"""What identifies a result: version of its formula, its settings, content of what it is made from."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any

# raise a stage's version when its formula changes: old results are then left alone and computed anew
VERSIONS = {
    "tokens": 1,
    "norms": 1,
    "contexts": 1,
    "context_statistics": 1,
    "groups": 1,
    "statistics": 1,
    "scores": 1,
    "drift": 1,
    "clusters": 1,
    "partition": 1,
    "agreement": 1,
    "modules": 1,
    "adapted": 1,
    "masks": 1,
    "history": 1,
    "checkpoint": 1,
    "perplexity": 1,
    "accuracy": 1,
    "speed": 1,
}


def content_key(stage: str, settings: dict[str, Any], needs: dict[str, str]) -> str:
    """Key of one result.

    Args:
        stage: name of the stage, in VERSIONS.
        settings: the settings it uses, as plain values.
        needs: keys or fingerprints of what it is made from, by name.

    Returns:
        32 hexadecimal digits.
    """
    content = {"stage": stage, "version": VERSIONS[stage], "settings": settings, "needs": needs}
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(canonical.encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class Inputs:
    """Fingerprints of everything a study reads from outside."""

    model: str
    """content of the model folder"""
    tokenizer: str
    """content of the tokenizer files"""
    precision: str
    """float32, bfloat16 or float16, as resolved on this machine"""
    calibration: dict[str, str]
    """content of the calibration texts, by role: primary, auxiliary, substitute"""
    evaluation: dict[str, str]
    """content of the evaluation texts, by the name they were given under"""
    tasks: dict[str, str] = field(default_factory=dict)
    """content of the zero-shot tasks that have data here, by the name they were given under"""
    scoring: str = ""
    """what asks and scores the tasks, with its version; empty without tasks"""
