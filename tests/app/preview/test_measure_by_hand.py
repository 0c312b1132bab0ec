"""A mask set is measured like a method: the cut model's own perplexity, once, on the texts of the run."""

import json
from pathlib import Path

import numpy as np
import pytest
from pruned_folder import compensating

from gprune.__main__ import main
from gprune.analysis.mask_edits import Edit, mask_sets
from gprune.evaluation import perplexity as measurement
from gprune.pipeline import stages
from gprune.pipeline.stages import RunContext
from gprune.pruning.surgery import cut
from gprune.system.errors import CorpusError

pytestmark = pytest.mark.slow
EDITS = (Edit(False, "module", 0, 0), Edit(True, "neuron", 1, 3))


def silent(*_):
    pass


@pytest.mark.parametrize("method", ["gprune", "flap"])
def test_a_set_has_the_perplexity_of_its_cut_model_and_is_measured_once(
    tiny_run, capsys, monkeypatch, method
):
    run = tiny_run()
    results = run.source.results
    graph = results.graph
    chosen = mask_sets.made(results, f"measured {method}", method, EDITS)
    mask_sets.save(results, chosen)
    command = ["measure", run.name, chosen.name, "--json", "--cache", str(run.root)]
    assert main(command) == 0
    told = json.loads(capsys.readouterr().out)
    work = RunContext(graph.study, graph.inputs, results.store.texts)
    means = results.get(stages.statistics, "primary") if method == "flap" else None
    masks = mask_sets.repeated(results, chosen).masks
    model = cut(work.decoder, compensating(masks, means) if means else masks)
    assert [line["text"] for line in told["texts"]] == list(graph.study.evaluation.texts)
    for line in told["texts"]:
        text = line["text"]
        expected = measurement.perplexity(model, work.stream(text), text, graph.study.evaluation)
        assert line["perplexity"] == pytest.approx(expected.perplexity, rel=1e-5)
        own = results.record(stages.perplexity(graph, method, text))
        assert line["nats"] == pytest.approx(np.mean(expected.losses - own.losses), abs=1e-5)
        assert line["method"] == own.perplexity
    # what is there is only read
    monkeypatch.setattr(measurement, "perplexity", None)
    assert main(command[:3] + command[4:]) == 0
    assert f"{method} {told['texts'][0]['method']:.4f}" in capsys.readouterr().out


def test_a_set_of_other_masks_has_another_key(tiny_run):
    results = tiny_run().source.results
    first, second = (
        mask_sets.perplexities(results, mask_sets.made(results, "one", "gprune", edits))
        for edits in (EDITS, (Edit(False, "module", 0, 1),))
    )
    keys = [stage.key for found in (first, second) for stage in found.values()]
    assert len(set(keys)) == len(keys)
    same = mask_sets.perplexities(results, mask_sets.made(results, "another name", "gprune", EDITS))
    assert [stage.key for stage in same.values()] == keys[: len(same)]


def test_a_text_that_has_changed_is_not_measured(tiny_run, tmp_path, monkeypatch):
    run = tiny_run()
    results = run.source.results
    chosen = mask_sets.made(results, "not measured", "gprune", EDITS[1:])
    changed = Path(results.graph.study.evaluation.texts[0])
    held = changed.read_text(encoding="utf-8")
    changed.write_text(held + "one line more\n", encoding="utf-8")
    try:
        with pytest.raises(CorpusError, match="has changed since the run: put the old one back"):
            mask_sets.measure(results, chosen, silent)
    finally:
        changed.write_text(held, encoding="utf-8")
