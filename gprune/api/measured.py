"""What a run has measured of its methods, as data frames."""

import pandas as pd

from gprune.api import frames
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import MissingResultError, Run


def perplexity(run: Run) -> pd.DataFrame:
    """One row a method and text that is there.

    Raises:
        MissingResultError: none is.
    """
    from gprune.pipeline.summary import sizes

    pairs = [(method, text) for method in run.study.methods for text in run.study.evaluation.texts]
    there = [pair for pair in pairs if run.has(stages.perplexity, *pair)]
    if pairs and not there:
        raise MissingResultError(stages.perplexity(run.graph, *pairs[0]).title)
    known = sizes(run.results, list(dict.fromkeys(method for method, _ in there))) if there else {}
    found = [(method, run.load(stages.perplexity, method, text)) for method, text in there]
    return frames.perplexity(found, known.get("retention", {}), known.get("parameters", {}))


def accuracy(run: Run) -> pd.DataFrame:
    """One row a method and task that is there.

    Raises:
        MissingResultError: none is, and the study has tasks that have data.
    """
    tasks = [task for task in run.study.evaluation.tasks if task in run.graph.inputs.tasks]
    pairs = [(method, task) for method in run.study.methods for task in tasks]
    there = [pair for pair in pairs if run.has(stages.accuracy, *pair)]
    if pairs and not there:
        raise MissingResultError(stages.accuracy(run.graph, *pairs[0]).title)
    return frames.accuracy((method, run.load(stages.accuracy, method, task)) for method, task in there)
