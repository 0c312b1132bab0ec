"""`search`: the settings that the paper leaves open, by successive halving on a development model."""

from __future__ import annotations

import argparse
import sys
from math import comb
from typing import TYPE_CHECKING, Any

from gprune.cli import add_cache, command_line, place, registered, say
from gprune.system import safe_parsing

if TYPE_CHECKING:
    from gprune.experiments.search.halving import Round, Trial
    from gprune.experiments.search.plan import Plan


def add(commands: Any) -> None:
    """Registers the command."""
    parser = registered(
        commands,
        "search",
        _search,
        "Runs the configurations of a search file in rounds, the better ones on more data, and "
        "writes all that was measured. Started again, it resumes.",
    )
    parser.add_argument("plan", type=place, metavar="FILE", help="a search file, as search.json")
    parser.add_argument(
        "--within",
        type=place,
        metavar="FOLDER",
        help="folder of the model and the texts that the file names by relative paths",
    )
    parser.add_argument(
        "--weights",
        action="store_true",
        help="the file searches the weights by which repairs and recipes are chosen, as choice.json",
    )
    parser.add_argument("--dry-run", action="store_true", help="list the configurations, and run nothing")
    parser.add_argument("--out", type=place, metavar="FOLDER", help="where to write (default: in the cache)")
    add_cache(parser)


def _search(options: argparse.Namespace) -> int:
    from gprune.experiments.search.plan import from_file, words

    if options.weights:
        return _weights(options)
    plan = from_file(options.plan, options.within)
    if options.dry_run:
        for configuration in plan.configurations():
            say(f"{configuration.number:>4}  {words(configuration)}")
        runs = sum((rung.configurations + 1) * len(rung.seeds) for rung in plan.rungs)
        say(f"{len(plan.rungs)} rounds, {runs} runs", file=sys.stderr)
        return 0
    return _run(options, plan)


def _run(options: argparse.Namespace, plan: Plan) -> int:
    from gprune.experiments.search import halving, report
    from gprune.experiments.search.halving import Trials
    from gprune.pipeline.provenance import versions
    from gprune.store import Store

    store = Store(options.cache)
    folder = options.out or store.root / "searches" / _name(plan)
    made = report.Made(command_line(), {name: str(value) for name, value in versions().items()})
    rounds: list[Round] = []

    def ended(done: Round) -> None:
        rounds.append(done)
        report.write(folder, plan, rounds, made)

    # stages of a trial are not told one by one: there are thousands
    halving.search(plan, Trials(plan, store, lambda *_: None, _Told(plan)).measure, ended)
    say(report.markdown(plan, rounds, made).rpartition("\n## ")[2].partition("\n\n")[2], end="")
    say(f"search: {folder}", file=sys.stderr)
    return 0


def _weights(options: argparse.Namespace) -> int:
    from gprune.experiments.search import weights
    from gprune.experiments.search.report import Made
    from gprune.pipeline.provenance import versions
    from gprune.store import Store

    plan = weights.from_file(options.plan, options.within)
    if options.dry_run:
        pairs = sum(comb(len(one.evaluation.texts), 2) for one in plan.studies)
        say(f"{len(plan.retentions) * pairs} cases and {len(plan.weights)} weights", file=sys.stderr)
        return 0
    store = Store(options.cache)
    folder = options.out or store.root / "searches" / "choice"
    cases = weights.measured(plan, store, lambda words: say(words, file=sys.stderr, flush=True))
    made = Made(command_line(), {name: str(value) for name, value in versions().items()})
    weights.write(folder, plan, cases, made)
    say(weights.markdown(plan, cases, made).rpartition("\n## ")[2].partition("\n\n")[2], end="")
    say(f"search: {folder}", file=sys.stderr)
    return 0


def _name(plan: Plan) -> str:
    """Name of a search's folder in the cache, safe whatever it is called."""
    import hashlib
    import re

    stem = re.sub(r"[^a-z0-9]+", "-", plan.title.lower()).strip("-")[:40] or "search"
    return f"{stem}-{hashlib.sha256(repr(plan).encode()).hexdigest()[:8]}"


class _Told:
    """One line a trial."""

    def __init__(self, plan: Plan) -> None:
        self.total = sum((rung.configurations + 1) * len(rung.seeds) for rung in plan.rungs)
        self.done = 0

    def __call__(self, trial: Trial) -> None:
        from gprune.experiments.search.halving import Score
        from gprune.experiments.search.plan import words

        self.done += 1
        loss = Score(trial.configuration, (trial.losses,)).objective
        result = trial.reason or f"loss {loss:.4f}"
        there = ", there already" if trial.reused else ""
        told = safe_parsing.sentence(words(trial.configuration), 120)
        line = f"{self.done}/{self.total}  {trial.configuration.number} seed {trial.seed}: {result}{there}"
        say(f"{line}  ({told})", file=sys.stderr, flush=True)
