"""Content keys: a changed setting changes the keys of what depends on it, and of nothing else."""

from gprune.pipeline import stages
from gprune.pipeline.stages import Graph, Inputs
from gprune.study import from_dict, run_name
from gprune.study.demo import demo_study

INPUTS = Inputs(
    model="m",
    tokenizer="t",
    precision="float32",
    calibration={"primary": "a", "auxiliary": "b", "substitute": "c"},
    evaluation={text: f"e{i}" for i, text in enumerate(demo_study().evaluation.texts)},
)


def keys(study, inputs=INPUTS):
    graph = Graph(study, inputs)
    text = study.evaluation.texts[0]
    found = {
        "tokens": stages.tokens(graph),
        "statistics": stages.statistics(graph),
        "scores": stages.scores(graph),
        "drift": stages.drift(graph),
        "partition": stages.partition(graph),
        "modules": stages.modules(graph),
        "adapted": stages.adapted(graph),
        "learning": stages.learning(graph),
        "masks": stages.masks(graph),
        "flap": stages.masks(graph, "flap"),
        "wanda_sp": stages.masks(graph, "wanda_sp"),
        "checkpoint": stages.checkpoint(graph),
        "dense": stages.perplexity(graph, "dense", text),
        "pruned": stages.perplexity(graph, "gprune", text),
    }
    return {name: stage.key for name, stage in found.items()}


def test_another_model_or_text_changes_what_reads_it():
    study = demo_study()
    other_model = keys(study, Inputs(**{**_fields(INPUTS), "model": "n"}))
    assert {n for n, k in keys(study).items() if other_model[n] == k} == {"tokens"}
    other_text = keys(
        study, Inputs(**{**_fields(INPUTS), "calibration": {**INPUTS.calibration, "auxiliary": "z"}})
    )
    same = {n for n, k in keys(study).items() if other_text[n] == k}
    assert same == {"tokens", "statistics", "scores", "flap", "wanda_sp", "dense"}


def test_run_names_are_safe_and_follow_the_settings_but_not_the_display_name():
    study = demo_study()
    name = run_name(study)
    assert name.startswith("bundled-demo-") and "/" not in name
    assert run_name(study.renamed("x/../y")).rpartition("-")[2] == name.rpartition("-")[2]
    assert run_name(study.with_settings({"seed": 1})) != name
    odd = from_dict({"model": "../m/ö", "primary": "a", "auxiliary": "b"})
    assert run_name(odd).startswith("study-") or run_name(odd)[0].isalnum()


def _fields(inputs):
    return {name: getattr(inputs, name) for name in inputs.__slots__}
