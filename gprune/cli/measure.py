"""`measure`: the perplexity of a mask set that was saved by hand, on every evaluation text of its run."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from gprune.cli import registered, say
from gprune.cli.cut import add_set, set_of
from gprune.cli.export import shown

if TYPE_CHECKING:
    from gprune.analysis.mask_edits import MaskSet
    from gprune.pipeline.stages import Results
    from gprune.records import Perplexity

_ABOUT = (
    "Measures a mask set that was saved on the tab Mask editor as the methods of its run are measured: on "
    "every evaluation text, on the same windows. What is measured is kept, and the page Compare shows it."
)


def add(commands: Any) -> None:
    """Registers the command."""
    parser = registered(commands, "measure", _measure, _ABOUT)
    add_set(parser)
    parser.add_argument("--json", action="store_true", help="write the figures as one line of JSON to stdout")


def _measure(options: argparse.Namespace) -> int:
    from gprune.analysis.mask_edits import mask_sets
    from gprune.analysis.paired_test import half_interval

    results, chosen = set_of(options)
    with shown("measure", options.job) as progress:
        found = mask_sets.measure(results, chosen, lambda _stage, *event: progress(*event))
    lines = [_line(results, chosen, text, one) for text, one in found.items()]
    if options.json:
        say(json.dumps({"set": chosen.name, "method": chosen.method, "texts": lines}))
        return 0
    for one in lines:
        own = f", {chosen.method} {one['method']:.4f}" if one["method"] is not None else ""
        change, freedom = "", one["windows"] - 1
        if one["nats"] is not None:
            change = f" ({one['nats']:+.5f} ± {half_interval(one['nats_error'], freedom):.5f} nats/token)"
        margin = half_interval(one["standard_error"], freedom)
        say(f"{one['text']}: {one['perplexity']:.4f} ± {margin:.4f}{own}{change}")
    say("± is half the 95 % interval over windows; differences are paired.")
    return 0


def _line(results: Results, chosen: MaskSet, text: str, found: Perplexity) -> dict[str, Any]:
    """A perplexity beside that of the method itself, where the run has it."""
    from gprune.analysis.paired_test import over_windows
    from gprune.pipeline import stages

    line: dict[str, Any] = {"text": text, "perplexity": found.perplexity, "windows": found.windows}
    line |= {"standard_error": found.standard_error, "method": None, "nats": None, "nats_error": None}
    stage = stages.perplexity(results.graph, chosen.method, text)
    if not results.there(stage):
        return line
    own = results.record(stage)
    if len(own.losses) != len(found.losses):
        return line | {"method": own.perplexity}
    change = over_windows(found.losses, own.losses)
    return line | {"method": own.perplexity, "nats": change.nats, "nats_error": change.nats_error}
