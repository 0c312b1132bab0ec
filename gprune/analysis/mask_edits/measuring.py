"""Mask sets measured as methods are: perplexity on every evaluation text of their run, same windows."""

from __future__ import annotations

from gprune.analysis.mask_edits import mask_sets
from gprune.analysis.mask_edits.mask_sets import MaskSet
from gprune.models import identity
from gprune.pipeline import lazy_results, stages
from gprune.pipeline.record import Listener
from gprune.pipeline.stages import Results, Stage
from gprune.pipeline.stages.inputs import content_of
from gprune.records import Perplexity, PruningMasks
from gprune.system.errors import CorpusError
from gprune.system.safe_parsing import quoted


def perplexities(results: Results, chosen: MaskSet) -> dict[str, Stage[Perplexity]]:
    """The handle of a set's perplexity on each evaluation text; nothing is computed.

    Args:
        results: of the run on whose masks the set was made.
        chosen: the set.
    """

    def edited() -> PruningMasks:
        return mask_sets.repeated(results, chosen).masks

    graph = results.graph
    return {
        text: stages.edited_perplexity(graph, chosen.method, text, chosen.digest, edited)
        for text in graph.study.evaluation.texts
    }


def measure(results: Results, chosen: MaskSet, listener: Listener) -> dict[str, Perplexity]:
    """The perplexity of a set on each evaluation text of its run; what is there is not measured again.

    Args:
        results: of the run on whose masks the set was made.
        chosen: the set.
        listener: told of progress; may raise Cancelled.

    Raises:
        MethodError: the set gives other masks today than when it was saved.
        CorpusError: a text is gone, or says something else than when the run was made.
        ModelError: the dense model is gone, or has changed.
        StoreError: the run lacks what a repair of its method needs.
    """
    wanted = perplexities(results, chosen)
    missing = [text for text, stage in wanted.items() if not results.whole(stage)]
    if missing:
        # before the model is loaded
        mask_sets.repeated(results, chosen)
        identity.locate(results.graph.study.model)
    for text in missing:
        _require_same(results, text)
    return dict(zip(wanted, lazy_results.every(results, list(wanted.values()), listener), strict=True))


def _require_same(results: Results, text: str) -> None:
    """Checks that a text is the one that the run has measured on.

    Raises:
        CorpusError: it is gone, or has changed.
    """
    study, known = results.graph.study, results.graph.inputs
    memory = results.store.digests
    found = content_of(study, known.model, known.precision, text, "evaluation", memory=memory)
    if found != known.evaluation[text]:
        raise CorpusError(
            f"the text {quoted(text)} has changed since the run: put the old one back, or run the study again"
        )
