"""`map`: lay out the neurons of one layer of a run in a plane by UMAP."""

import argparse
from typing import Any

from gprune.cli import add_cache, add_command, add_job, add_run, load_run, say
from gprune.cli.jobs import submit_command
from gprune.cli.progress import show_progress
from gprune.study.settings import require

_ABOUT = (
    "Places similar neurons of a layer near each other. Similarity is that of their behaviour on the texts, which "
    "is read from the results of the run, or that of their weights, which needs the model. The result is stored in "
    "the cache, from which the page Neuron map reads it."
)


def add(commands: Any) -> None:
    """Register the command."""
    parser = add_command(commands, "map", _map, _ABOUT)
    add_run(parser)
    parser.add_argument("--layer", type=int, required=True, help="the layer, from 0")
    parser.add_argument(
        "--of",
        choices=("behaviour", "parameters"),
        default="behaviour",
        help="measure of similarity (default: behaviour)",
    )
    add_job(parser, submit_command)
    add_cache(parser)


def _map(options: argparse.Namespace) -> int:
    from gprune.pipeline import computing, stages

    with show_progress("map", options.job) as progress:
        results, _ = load_run(options)
        graph = results.graph
        layers = results.get(stages.shape).layers
        require(0 <= options.layer < layers, "--layer", options.layer, f"0 to {layers - 1}")
        texts = stages.mapped_texts(graph, results.holds)
        stage = stages.neuron_map(graph, options.layer, options.of, texts)
        layout = computing.compute_result(results, stage, lambda _stage, *event: progress(*event))
    say(
        f"{stage.title}: {len(layout.places):,} neurons, seed {graph.study.seed}; {layout.kept.mean():.0%} of "
        "the nearest neighbours are also nearest in the plane"
    )
    return 0
