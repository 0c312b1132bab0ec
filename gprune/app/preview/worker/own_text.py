"""A text of one's own against the texts of a run: the rank drift that a study with it as C would compute.

The stages are the study's own, made with the model on the masked. What the cache has is read from it; of what
is computed here nothing goes into it, and the text itself is forgotten with the question.
"""

from pathlib import Path
from typing import Any

from gprune.app.preview.worker.masked_model import MaskedModel, require_same_text
from gprune.app.preview.worker.messages import OWN_PAIRS
from gprune.data import texts
from gprune.pipeline.stages import KINDS, Graph, Results, RunContext, Stage, drift, resolve, served
from gprune.pipeline.stages.inputs import from_plain, tokens_read
from gprune.store import Store
from gprune.study import from_dict
from gprune.system.errors import SettingsError


def drifts(masked: MaskedModel, question: dict[str, Any]) -> dict[str, str]:
    """Measures the drift of every pair and leaves it in the folder of the question (see worker.messages).

    Gives its key there by the name of the pair; GpruneError says what is wrong and what to do.
    """
    asked = question["own"]
    study, inputs = from_dict(asked["study"]), from_plain(asked["inputs"])
    if inputs is None:
        raise SettingsError("the run does not say what it has read: run the study again")
    maker = _Maker(masked, Graph(study, inputs))
    found, into = {}, Store(Path(asked["folder"]))
    for name, pair in OWN_PAIRS.items():
        stage = drift(maker.results.graph, *pair)
        into.put(stage.kind, stage.key, maker.record(stage))
        found[name] = stage.key
    masked.kept = maker.of_the_run()
    return found


class _Maker:
    """Makes results with the model on the masked, and keeps none on disk."""

    def __init__(self, masked: MaskedModel, graph: Graph) -> None:
        self.results = Results(masked.store, graph)
        self._work = RunContext(graph.study, graph.inputs, masked.store.texts)
        self._work.decoder = masked.decoder
        self._work.tokenizer = masked.decoder.tokenizer
        self._before = masked.kept
        self._made: dict[Stage[Any], Any] = {}

    def record(self, stage: Stage[Any]) -> Any:
        """The record of a stage, from the cache, from the question before, or made now."""
        stage = served(stage, self.results.holds)
        if stage not in self._made:
            self._made[stage] = self._found(stage)
        return self._made[stage]

    def _found(self, stage: Stage[Any]) -> Any:
        if stage.key in self._before:
            return self._before[stage.key]
        if self.results.holds(stage):
            return self.results.record(stage)
        if stage.kind == "tokens":
            self._require_same(stage.id.texts[0])
        return stage.make(self._work, **resolve(stage.needs, self.record))

    def _require_same(self, role: str) -> None:
        """Checks a text before it is read: its tokens go under a key that the run's record decides.

        Raises CorpusError where it is gone or has changed.
        """
        graph = self.results.graph
        name = str(getattr(graph.study, role))
        # one that the model writes is drawn by its recipe, of the model that was loaded
        if not texts.is_sampled(name):
            wanted = tokens_read(graph.study, role)
            digest, cache = graph.inputs.calibration[role], self.results.store.texts
            require_same_text(name, "calibration", digest, wanted, cache)

    def of_the_run(self) -> dict[str, Any]:
        """What was made of the run's own texts alone: the next text is held against the same."""
        own = (stage for stage in self._made if "substitute" not in stage.id.texts)
        return {stage.key: self._made[stage] for stage in own if KINDS[stage.kind].record is not None}
