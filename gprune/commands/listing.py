"""`texts` and `runs`: what is known by name, and what is in the cache."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from gprune import run_records
from gprune.commands import add_cache
from gprune.store import Store


def add(commands: Any) -> None:
    """Registers both commands."""
    texts = commands.add_parser("texts", help="list the texts that are known by name")
    texts.set_defaults(command=_texts)
    runs = commands.add_parser("runs", help="list the runs in the cache")
    runs.set_defaults(command=_runs)
    add_cache(runs)


def _texts(_: argparse.Namespace) -> int:
    from gprune import corpora

    for entry in corpora.known():
        print(f"{entry.name:<18} {entry.description}")
    return 0


def _runs(options: argparse.Namespace) -> int:
    store = Store(options.cache)
    found = list(run_records.every(store))
    for name, record in found:
        study = record["study"]
        words = (
            run_records.standing(record),
            study.get("model"),
            study.get("metric"),
            study.get("retention"),
        )
        print(f"{name:<52} " + "  ".join(str(word) for word in words))
    if not found:
        print(f"no runs in {store.root}: start one with `run demo`", file=sys.stderr)
    return 0
