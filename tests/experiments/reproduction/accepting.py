"""The command `accept` as tests call it, and lists of published figures as people write them."""

import argparse
import csv
import io
from pathlib import Path
from typing import Any

from gprune.cli import accept
from gprune.data.published.claims import COLUMNS
from gprune.experiments.reproduction.acceptance import Acceptance

DEMO_TEXT = "science-docs"


def listed(place: Path, *rows: dict[str, Any]) -> Path:
    """A list of published figures, as people write one."""
    file = io.StringIO()
    writer = csv.DictWriter(file, COLUMNS)
    writer.writeheader()
    common = {"model": "Small", "samples": 16, "settings": "", "source": "a paper", "figure": DEMO_TEXT}
    writer.writerows(common | row for row in rows)
    place.write_text(file.getvalue())
    return place


def parsed(*words: object) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    accept.add(parser.add_subparsers())
    return parser.parse_args(["accept", *map(str, words)])


def call(*words: object) -> int:
    options = parsed(*words)
    return int(options.command(options))


def asked(*words: object) -> Acceptance:
    return accept._acceptance(parsed(*words))
