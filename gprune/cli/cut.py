"""`cut` and `measure`: the model that a mask set edited by hand leaves of a run's, and its perplexities."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from gprune.cli import add_cache, add_job, place, registered, say
from gprune.cli.export import recorded, shown

if TYPE_CHECKING:
    from gprune.analysis.mask_edits import Edited, MaskSet
    from gprune.pipeline.stages import Results
    from gprune.records import Perplexity
    from gprune.system.progress import Progress

_ABOUT = (
    "Carries out a mask set that was saved on the tab Mask editor and writes the pruned model, with the "
    "repair of its method. The masks are made again from the edits and compared with those saved."
)
_STEPS = 3


def add(commands: Any) -> None:
    """Registers both commands."""
    cut = registered(commands, "cut", _cut, _ABOUT)
    _add_set(cut)
    cut.add_argument("out", metavar="OUT", type=place, help="folder to write")
    measure = registered(commands, "measure", _measure, _MEASURED)
    _add_set(measure)
    words = "write the figures as one line of JSON to stdout"
    measure.add_argument("--json", action="store_true", help=words)


def _add_set(parser: argparse.ArgumentParser) -> None:
    """Adds what names a mask set of a run; see `_set_of`."""
    parser.add_argument("run", metavar="RUN", help="name of a run, as `runs` lists it")
    parser.add_argument("set", metavar="SET", help="name of a mask set of this run")
    add_job(parser)
    # the set as a page has seen it
    parser.add_argument("--identity", default="", help=argparse.SUPPRESS)
    add_cache(parser)


def _set_of(options: argparse.Namespace) -> tuple[Results, MaskSet]:
    """The results of the run and the mask set that a command names; GpruneError where there are none."""
    from gprune.analysis.mask_edits import mask_sets

    results, _ = recorded(options)
    return results, mask_sets.named(results, options.set, options.identity)


def _cut(options: argparse.Namespace) -> int:
    from gprune.analysis.mask_edits import mask_sets

    results, chosen = _set_of(options)
    with shown("cut", options.job) as progress:
        found = mask_sets.repeated(results, chosen)
        _write(results, chosen, found, options, progress)
    masks = found.masks
    say(
        f"{options.out}: {results.graph.study.model} cut by {masks.method} to {masks.retention:.2%}, "
        "read back and compared"
    )
    return 0


def _write(results: Results, chosen: MaskSet, found: Edited, options: argparse.Namespace, progress: Progress) -> None:
    """Cuts the dense model and saves what is left."""
    from gprune.models import identity
    from gprune.models.export import checkpoint
    from gprune.pipeline import lazy_results, stages

    graph = results.graph
    progress(0, _STEPS, "checking the dense model")
    identity.require_same(graph.study.model, graph.inputs.model)
    progress(1, _STEPS, "reading the dense model and cutting")
    # on the CPU a copied row or column is the same whatever machine the run had
    study = replace(graph.study, device="cpu", offload=False)
    work = stages.RunContext(study, graph.inputs, results.store.texts)
    needs = stages.pruned_by_hand(graph, chosen.method, chosen.digest, lambda: found.masks)
    for fitted in stages.every_need(needs):
        if stages.KINDS[fitted.kind].on_demand:
            lazy_results.made(results, fitted, lambda _stage, *event: progress(*event))
    pruned = stages.pruned_model(graph, chosen.method, found.masks, **stages.resolve(needs, results.record))
    model = work.pruned(pruned)
    progress(2, _STEPS, "writing and reading back")
    told = graph.origin
    told["study"] |= {"by_hand": _told(chosen)}
    checkpoint.save(model, work.tokenizer, options.out, pruned or found.masks, **told)
    progress(_STEPS, _STEPS, "cut")


def _told(chosen: MaskSet) -> dict[str, Any]:
    """What the plan says of the edits behind its masks."""
    edits = [asdict(one) for one in chosen.edits]
    return {"name": chosen.name, "method": chosen.method, "masks": chosen.masks, "edits": edits}


_MEASURED = (
    "Measures a mask set that was saved on the tab Mask editor as the methods of its run are measured: on "
    "every evaluation text, on the same windows. What is measured is kept, and the page Compare shows it."
)


def _measure(options: argparse.Namespace) -> int:
    from gprune.analysis.mask_edits import mask_sets
    from gprune.analysis.paired_test import half_interval

    results, chosen = _set_of(options)
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
