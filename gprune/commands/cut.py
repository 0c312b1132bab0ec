"""`cut`: a run's model without what a list of edits by hand removes, written as a folder."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gprune.commands import COMMANDS, add_cache, place
from gprune.commands.export import shown
from gprune.store import Store

if TYPE_CHECKING:
    from gprune.by_hand import Edited, MaskSet
    from gprune.progress import Progress
    from gprune.stages import Results

_ABOUT = (
    "Carries out a mask set that was saved on the page By hand and writes the pruned model, with the bias "
    "compensation of its method. The masks are made again from the edits and compared with those saved."
)
_STEPS = 3


def add(commands: Any) -> None:
    """Registers the command."""
    cut = commands.add_parser("cut", help=COMMANDS["cut"].about, description=_ABOUT)
    add_set(cut)
    cut.add_argument("out", metavar="OUT", type=place, help="folder to write")
    cut.set_defaults(command=_cut)


def add_set(parser: argparse.ArgumentParser) -> None:
    """Adds what names a mask set of a run; see `set_of`."""
    parser.add_argument("run", metavar="RUN", help="name of a run, as `runs` lists it")
    parser.add_argument("set", metavar="SET", help="name of a mask set of this run")
    parser.add_argument("--job", type=place, help=argparse.SUPPRESS)
    # the set as a page has seen it
    parser.add_argument("--identity", default="", help=argparse.SUPPRESS)
    add_cache(parser)


def set_of(options: argparse.Namespace) -> tuple[Results, MaskSet]:
    """The results of the run and the mask set that a command names.

    Raises:
        GpruneError: there is no such run or set.
    """
    from gprune import run_records
    from gprune.by_hand import mask_sets
    from gprune.packs.record import graph_of
    from gprune.stages import Results
    from gprune.untrusted import quoted

    store = Store(options.cache)
    record = run_records.required(store, options.run)
    results = Results(store, graph_of(record, f"the record of the run {quoted(options.run)}"))
    return results, mask_sets.named(results, options.set, options.identity)


def _cut(options: argparse.Namespace) -> int:
    from gprune.by_hand import mask_sets

    results, chosen = set_of(options)
    found = mask_sets.repeated(results, chosen)
    with shown("cut", options.job) as progress:
        _write(results, chosen, found, options, progress)
    masks = found.masks
    print(
        f"{options.out}: {results.graph.study.model} cut by {masks.method} to {masks.retention:.2%}, "
        "read back and compared"
    )
    return 0


def _write(
    results: Results, chosen: MaskSet, found: Edited, options: argparse.Namespace, progress: Progress
) -> None:
    """Cuts the dense model and saves what is left."""
    from gprune import stages
    from gprune.export import checkpoint

    graph = results.graph
    progress(0, _STEPS, "checking the dense model")
    _require_same(results)
    progress(1, _STEPS, "reading the dense model and cutting")
    # on the CPU a copied row or column is the same whatever machine the run had
    study = replace(graph.study, device="cpu", offload=False)
    work = stages.Work(study, graph.inputs, results.store.texts)
    needs = stages.pruned(graph, chosen.method).get("means", [])
    means = [results.record(stage) for stage in needs]
    model = work.pruned(found.masks, means)
    progress(2, _STEPS, "writing and reading back")
    checkpoint.save(
        model,
        work.tokenizer,
        options.out,
        found.masks,
        source=study.model,
        fingerprint=graph.inputs.model,
        bias_compensation=bool(means),
        study=graph.study.to_dict() | {"by_hand": _told(chosen)},
    )
    progress(_STEPS, _STEPS, "cut")


def _told(chosen: MaskSet) -> dict[str, Any]:
    """What the plan says of the edits behind its masks."""
    edits = [one.to_dict() for one in chosen.edits]
    return {"name": chosen.name, "method": chosen.method, "masks": chosen.masks, "edits": edits}


def _require_same(results: Results) -> None:
    """Checks that the dense model is the one that the run has read.

    Raises:
        ModelError: it is gone, or has changed.
    """
    from gprune.errors import ModelError
    from gprune.models import identity

    model = results.graph.study.model
    identity.locate(model)
    if identity.fingerprint(model) != results.graph.inputs.model:
        raise ModelError(
            f"the model {identity.resolve(model)!r} has changed since the run: put the model back, or run "
            "the study again"
        )
