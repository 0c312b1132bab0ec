"""No stage reads anything behind its key's back: what a computation looks at changes its key.

The settings, the model and the tokenizer are watched while a real run of every method computes: what a stage
has read, and what neither its key nor the key of anything it needs depends on, would let a stale result pass
as current.
"""

import dataclasses
from dataclasses import replace

import pytest
import tiny_study
from stages.test_stage_settings import CHANGES

from gprune import pipeline
from gprune.pipeline import running
from gprune.pipeline.stages import Graph, RunContext, stages_by_name
from gprune.store import Store
from gprune.study import ChoiceSettings, Study, from_dict, settings
from gprune.study.demo import demo_study
from gprune.study.methods import METHODS

pytestmark = pytest.mark.slow

SECTIONS = {
    field.name: type(section)
    for field in dataclasses.fields(Study)
    if dataclasses.is_dataclass(section := getattr(demo_study(), field.name))
}
SPEED = {"calibration.batch", "evaluation.batch", "device", "trust_remote_code", "offload"}
"""fields that change how fast a result is made, or who is asked, and not what it says"""
READ_BY_CONTENT = {"model", "primary", "auxiliary", "substitute", "choice.check_text", "choice.fresh"}
READ_BY_CONTENT |= {"evaluation.texts", "evaluation.tasks", "evaluation.task_folder"}
"""fields whose content is in the digests"""


TRIED_REPAIRS = [word.replace(":", "_") for word in ChoiceSettings().repairs]
TRIED = tuple(f"repaired_{method.masks}_{word}" for method in METHODS.values() for word in TRIED_REPAIRS)
"""fits of the candidates of a choice"""
OTHER_PARTITIONS = ("partition_initialization", "partition_primary_substitute_initialization")
OTHER_PARTITIONS += ("partition_random", "partition_first_random")
READ_IN_VAIN = {
    # the statistics are asked for with or without the released recursion, whatever the study says
    "calibration.flap_variant": ("statistics",),
    # whether it is a mixture of experts, which the digest of the model tells too
    "methods": ("perplexity.dense", "accuracy.dense", "sampled_"),
    # what copies the section looks at all of it
    "calibration.positions": ("drift",),
    # it changes the scores of heads, and these results are of neurons alone
    "calibration.square_head_score": ("drift", "modules"),
    # a partition that is asked for under a kind of its own
    "modularization.kind": OTHER_PARTITIONS,
    # a control whose selection is none, whatever that of the study
    "reliability.selection": ("adapted_msl_", "adapted_gprune_no_rasa"),
    # a candidate's kind and texts are in its name
    "repair.kind": TRIED,
    "repair.texts": TRIED,
    # steps and rate of its own take their place
    "scales.learning_rate": ("gates_gates_scaled",),
    "scales.steps": ("gates_gates_scaled",),
    # candidates are measured under evaluation settings of their own: as long as a sequence, and of them all
    **{f"evaluation.{field.name}": ("candidate",) for field in dataclasses.fields(settings.EvaluationSettings)},
}
"""fields that stages of these names look at without depending on them, with the reason"""


ANOTHER = {"recovery.kind": "none"}
"""where the study that is watched has the value of the table already"""
OF_METHODS = {id(method.fit) for method in METHODS.values()}
"""settings that are a method's own, whatever the study says"""


class Watch:
    """Notes which fields are read while a stage computes."""

    def __init__(self, monkeypatch):
        self.read, self.stage = {}, None
        for section, kind in SECTIONS.items():
            self._watch(monkeypatch, kind, section)
        self._watch(monkeypatch, Study, "")
        for name, digest in (("decoder", "model"), ("tokenizer", "tokenizer")):
            self._watch_loaded(monkeypatch, name, digest)
        monkeypatch.setattr(running._Runner, "_compute", self._computing(running._Runner._compute))

    def _watch(self, monkeypatch, kind, section):
        reference = {field.name for field in dataclasses.fields(kind)} - set(SECTIONS)
        plain = object.__getattribute__

        def read(settings_, name):
            if self.stage is not None and name in reference and id(settings_) not in OF_METHODS:
                self.read.setdefault(self.stage, set()).add(f"{section}.{name}" if section else name)
            return plain(settings_, name)

        monkeypatch.setattr(kind, "__getattribute__", read, raising=False)

    def _watch_loaded(self, monkeypatch, name, digest):
        load = getattr(RunContext, name).func

        def loaded(work):
            if self.stage is not None:
                self.read.setdefault(self.stage, set()).add(f"inputs.{digest}")
            if name not in work.__dict__:
                work.__dict__[name] = load(work)
            return work.__dict__[name]

        monkeypatch.setattr(RunContext, name, property(loaded))

    def _computing(self, compute):
        def watched(runner, stage, started):
            def make(*arguments, **needs):
                self.stage = stage.name
                try:
                    return stage.make(*arguments, **needs)
                finally:
                    self.stage = None

            return compute(runner, replace(stage, make=make), started)

        return watched


@pytest.fixture(scope="module", params=["flap", "twflap"])
def watched(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("reads")
    created = tiny_study.workshop(folder, questions=6)
    values = tiny_study.settings(created["model"], created["texts"], substitute=created["texts"][2])
    # every method under the metric that needs the most, and those that read the statistics of the other
    methods = list(METHODS) if request.param == "twflap" else ["dense", "gprune", "flap", "flap_uniform", "wanda_sp"]
    values |= {"metric": request.param, "methods": methods}
    values |= {"contexts": {"count": 3, "dimensions": 4, "tokens": 64}}
    values |= {"baselines": {"taylor_samples": 5, "taylor_length": 9}}
    if request.param == "twflap":
        values["repair"] = {"kind": "least_squares_bias"}
        values["recovery"] = {"kind": "lora", "steps": 2, "batch": 4}
    values["evaluation"] |= {"tasks": [created["questions"]], "limit": 4}
    study, store = from_dict(values), Store(folder / "cache")
    with pytest.MonkeyPatch.context() as monkeypatch:
        watch = Watch(monkeypatch)
        planned = [stage.name for stage in pipeline.stages.execution_plan(pipeline.opened(study, store).graph)]
        assert list(pipeline.run(study, store, lambda *_: None)["keys"]) == planned
    return study, store, watch.read


@pytest.mark.long
def test_every_field_that_a_stage_reads_changes_its_key(watched):
    created, store, read = watched
    inputs = pipeline.opened(created, store).graph.inputs
    # methods that decide by themselves how much of each layer stays refuse equal widths
    leveled = replace(created, methods=tuple(name for name in created.methods if METHODS[name].supports_equal_widths))
    stages = {name: fields - SPEED - READ_BY_CONTENT for name, fields in read.items()}
    # what is written into the pruned model's folder tells of the whole study; its key is that of the model
    stages = {name: fields for name, fields in stages.items() if not name.startswith("checkpoint")}
    blind = {}
    for field in sorted({field for fields in stages.values() for field in fields}):
        study = leveled if field == "sparsity.widths" else created
        before = stages_by_name(Graph(study, inputs))
        if field.startswith("inputs."):
            graph = Graph(study, replace(inputs, **{field.removeprefix("inputs."): "another"}))
        else:
            graph = Graph(study.with_settings({field: ANOTHER.get(field, CHANGES[field][0])}), inputs)
        after = stages_by_name(graph)
        for name in (name for name, fields in stages.items() if field in fields):
            if name.startswith(READ_IN_VAIN.get(field, ("-",))):
                continue
            if name in after and after[name].key == before[name].key:
                blind.setdefault(field, []).append(name)
    assert not blind, "\n".join(f"{field}: {', '.join(names)}" for field, names in blind.items())
