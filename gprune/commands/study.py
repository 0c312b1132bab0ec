"""`study`: write a study as JSON, from options that are the study's own fields."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import fields
from typing import Any

from gprune.errors import SettingsError
from gprune.methods import METHODS
from gprune.study import METRIC_NAMES, Study, from_dict

_SHORTHANDS = {
    "metric": "metric",
    "retention": "retention",
    "samples": "calibration.samples",
    "length": "calibration.length",
    "epochs": "sparsity.epochs",
    "seed": "seed",
    "substitute": "substitute",
    "methods": "methods",
    "evaluate": "evaluation.texts",
    "tasks": "evaluation.tasks",
    "preset": "evaluation.preset",
    "windows": "evaluation.windows",
    "device": "device",
    "dtype": "dtype",
    "name": "name",
}


def add(commands: Any) -> None:
    """Registers the command."""
    parser = commands.add_parser("study", help="write a study as JSON to stdout")
    text = "by name (see `texts`), file or dataset folder; options follow a #, as in " + (
        "c4.jsonl#fields=prefix+gold_completion"
    )
    parser.add_argument("--model", required=True, help="folder or hub name of the dense model, or `demo`")
    parser.add_argument("--primary", default="wikitext2", help=f"primary calibration text A, {text}")
    parser.add_argument("--auxiliary", default="ptb", help="auxiliary calibration text B")
    parser.add_argument("--substitute", help="third calibration text C, for the agreement figure")
    parser.add_argument("--metric", help=f"base importance metric: {', '.join(METRIC_NAMES)}")
    parser.add_argument("--retention", type=float, help="fraction of the decoder's weights to keep")
    parser.add_argument("--samples", type=int, help="sequences of each calibration text")
    parser.add_argument("--length", type=int, help="tokens of each sequence")
    parser.add_argument("--epochs", type=int, help="epochs of modular sparsity learning")
    parser.add_argument("--seed", type=int, help="seed of every random choice")
    parser.add_argument(
        "--methods", nargs="+", metavar="METHOD", help=f"what to compare: {', '.join(METHODS)}"
    )
    parser.add_argument(
        "--tasks", nargs="+", metavar="TASK", help="zero-shot tasks: names or own .jsonl files"
    )
    parser.add_argument("--evaluate", nargs="+", metavar="TEXT", help="texts to measure perplexity on")
    parser.add_argument("--preset", help="perplexity windows: 128 (the paper's), 2048 or a number of tokens")
    parser.add_argument("--windows", type=int, help="windows to measure at most (default: all)")
    parser.add_argument("--device", help="auto, cpu or cuda")
    parser.add_argument("--dtype", help="auto, float32, bfloat16 or float16")
    parser.add_argument("--name", help="what to call the study on the pages")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="FIELD=VALUE",
        help="any other field, as reliability.drift_quantile=0.85 (repeatable)",
    )
    parser.set_defaults(command=_study)


def _study(options: argparse.Namespace) -> int:
    top = {f.name for f in fields(Study)}
    values: dict[str, Any] = {
        "model": options.model,
        "primary": options.primary,
        "auxiliary": options.auxiliary,
    }
    for option, field in _SHORTHANDS.items():
        value = getattr(options, option)
        if value is None:
            continue
        section, _, name = field.rpartition(".")
        if field in top:
            values[field] = value
        else:
            values.setdefault(section, {})[name] = value
    study = from_dict(values)
    if options.set:
        study = study.with_settings(dict(assignment(word) for word in options.set))
    sys.stdout.write(study.to_json())
    return 0


def assignment(word: str) -> tuple[str, Any]:
    """Reads FIELD=VALUE; the value is JSON, or text where it is none.

    Raises:
        SettingsError: there is no sign of equality.
    """
    field, sign, value = word.partition("=")
    if not sign:
        raise SettingsError(f"--set takes FIELD=VALUE (got {word!r}), as reliability.drift_quantile=0.85")
    try:
        return field, json.loads(value)
    except json.JSONDecodeError:
        return field, value
