"""What-ifs with repaired weights: fitted in the worker, by key, with progress, interrupted when unwanted."""

from dataclasses import replace

import numpy as np
import pytest
from preview.conftest import answered, handler_of, random_masks

from gprune.app.preview import Question, Source, repair_of
from gprune.app.preview.requests import base_question, resolve
from gprune.app.preview.worker import masked_model
from gprune.app.preview.worker.loop import RequestHandler
from gprune.evaluation.perplexity import perplexity
from gprune.pipeline import stages
from gprune.pipeline.stages import Graph, RunContext
from gprune.pruning.repair.fitting import fit
from gprune.pruning.sparsity.scales import learn_scales
from gprune.pruning.surgery import cut
from gprune.records import REPAIRS, PrunedModel
from gprune.study import RepairSettings
from gprune.system.errors import SettingsError, StoreError

pytestmark = pytest.mark.slow

KIND = "least_squares_bias"
SETTINGS = RepairSettings(KIND)


@pytest.fixture
def fits(monkeypatch):
    """Counts fits, and lets them happen."""
    calls = []

    def counting(*args, **kwargs):
        calls.append(args[1])
        return fit(*args, **kwargs)

    monkeypatch.setattr(masked_model, "fit", counting)
    return calls


def test_other_masks_repaired_lose_what_the_repaired_cut_model_loses(tiny_run, tmp_path, fits):
    source = tiny_run().copied(tmp_path)
    graph, study = source.graph, source.graph.study
    text, masks = study.evaluation.texts[1], random_masks(source.results.get(stages.shape), 4)
    request = resolve(source, Question(text, "flap", masks, repair=SETTINGS))
    work = RunContext(study, graph.inputs, source.results.store.texts)
    tokens = [source.results.get(stages.tokens, role) for role in ("primary", "auxiliary")]
    weights = fit(work.decoder, masks, tokens, SETTINGS, study.calibration.batch)
    model = cut(work.decoder, PrunedModel(masks, (REPAIRS[KIND],), {"weights": weights}))
    expected = perplexity(model, work.stream(text), text, study.evaluation).losses
    bare = perplexity(cut(work.decoder, masks), work.stream(text), text, study.evaluation).losses
    handler = handler_of(source)
    losses = answered(handler, request).losses
    np.testing.assert_allclose(losses, expected, rtol=1e-4)
    assert np.abs(losses - bare).max() > 1e-2
    # the next times nothing is fitted, also where a base takes turns with it
    other = resolve(source, Question(text, "flap", random_masks(source.results.get(stages.shape), 5), repair=SETTINGS))
    for each in (request, other, request, other):
        answered(handler, each, turns=1)
    assert len(fits) == 2
    # the oldest makes way
    answered(handler, resolve(source, Question(text, "gprune", repair=SETTINGS)), turns=1)
    answered(handler, request, turns=1)
    assert len(fits) == 4


def test_scales_learned_after_the_fit_give_the_losses_of_the_cut_model(tiny_run, tmp_path):
    source = tiny_run().copied(tmp_path)
    study = source.graph.study
    text, masks = study.evaluation.texts[1], random_masks(source.results.get(stages.shape), 4)
    question = Question(text, "flap", masks, repair=repair_of(study, scaled=True))
    assert question.repair.kind == f"{KIND}+scales"
    work = RunContext(study, source.graph.inputs, source.results.store.texts)
    # the run has drawn no text of the model
    tokens = [source.results.get(stages.tokens, role) for role in ("primary", "auxiliary")]
    weights = fit(work.decoder, masks, tokens, SETTINGS, study.calibration.batch)
    repaired = PrunedModel(masks, (REPAIRS[KIND],), {"weights": weights})
    scales = learn_scales(work.decoder, cut(work.decoder, repaired), masks, "flap", tokens, study.scales, study.seed)
    scaled = PrunedModel(masks, (REPAIRS[KIND], REPAIRS["scales"]), {"weights": weights, "scales": scales})
    expected, without = (
        perplexity(cut(work.decoder, model), work.stream(text), text, study.evaluation).losses
        for model in (scaled, repaired)
    )
    losses = answered(handler_of(source), resolve(source, question)).losses
    np.testing.assert_allclose(losses, expected, rtol=1e-4)
    assert np.abs(losses - without).max() > 1e-2


def test_the_worker_reports_the_fit_and_is_interrupted_where_nobody_waits(tiny_run, tmp_path, fits):
    source = tiny_run().copied(tmp_path)
    text, shape = source.graph.study.evaluation.texts[0], source.results.get(stages.shape)
    reports, expected = [], True

    def go_on(*report):
        reports.append(report)
        return expected

    handler = RequestHandler(go_on)
    handler.answer("load", {"model": source.model})
    reports.clear()
    request = resolve(source, Question(text, "gprune", random_masks(shape, 1), repair=SETTINGS))
    assert answered(handler, request, turns=1).done == 2
    assert reports == [(done, shape.layers, "repairing the kept weights") for done in range(shape.layers + 1)]
    other = resolve(source, Question(text, "gprune", random_masks(shape, 2), repair=SETTINGS))
    expected = False
    assert answered(handler, other) == ("interrupted",) and len(reports) == shape.layers + 2
    expected = True
    assert answered(handler, other).done == 40 and len(fits) == 3


def test_both_sides_are_repaired_alike_and_a_run_that_is_repaired_so_has_its_own_figures(tiny_run, tmp_path):
    source = tiny_run().copied(tmp_path)
    text, masks = source.graph.study.evaluation.texts[0], random_masks(source.results.get(stages.shape), 3)
    question = Question(text, "gprune", masks, repair=SETTINGS)
    base = Question(text, "gprune", repair=SETTINGS)
    assert base_question(source, question, base) is base
    for each in (question, base):
        assert resolve(source, each).arguments["pruning"].fit.settings.kind == KIND
    assert base_question(source, question, replace(question, repair=None)).repair is None
    fitted = Source(source.root, stages.with_repair(source.graph, {"kind": KIND}))
    with pytest.raises(StoreError, match="repairing the kept weights|repaired"):
        resolve(fitted, base)
    # weights of the run's own masks are read where a result has them
    weights, graph = stages.repaired_weights(fitted.graph, "gprune"), source.graph
    work = RunContext(graph.study, graph.inputs, source.results.store.texts)
    tokens = [source.results.get(stages.tokens, role) for role in ("primary", "auxiliary")]
    run_masks = source.results.get(stages.masks, "gprune")
    record = fit(work.decoder, run_masks, tokens, SETTINGS, graph.study.calibration.batch)
    source.results.store.put(weights.kind, weights.key, record, {})
    stored = resolve(fitted, base)
    assert stored.arguments["pruning"].fit is None
    assert stored.identity == resolve(fitted, Question(text, "gprune")).identity == resolve(source, base).identity
    with pytest.raises(SettingsError, match="repair.kind 'bias' is not fitted to masks"):
        resolve(source, Question(text, "gprune", masks, repair=RepairSettings("bias")))


@pytest.mark.parametrize(
    ("kind", "texts", "expected"),
    [
        ("own", "sampled", (KIND, "both")),
        ("bias", "primary", (KIND, "both")),
        ("none", "both", (KIND, "both")),
        ("affine", "both_and_sampled", ("affine", "both_and_sampled")),
    ],
)
def test_the_repair_is_the_runs_own_where_it_fits_weights(tiny_run, kind, texts, expected):
    graph = stages.with_repair(tiny_run().source.graph, {"kind": kind, "texts": texts})
    result = repair_of(Graph(graph.study).study)
    assert (result.kind, result.texts) == expected
