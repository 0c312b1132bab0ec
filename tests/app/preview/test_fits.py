"""What-ifs with repaired weights: fitted in the worker, by key, with progress, given up when unwanted."""

import time
from dataclasses import replace

import numpy as np
import pytest
from preview.conftest import Workshop, random_masks
from preview.test_client import losses, resolved, source_of
from waiting import wait_for

from gprune.app.preview import Client, Question, Source, repair_of
from gprune.app.preview.request import FOREIGN, against, resolve
from gprune.app.preview.request_queue import CURVE
from gprune.app.preview.window_scheduler import WindowScheduler
from gprune.app.preview.worker import fits, messages
from gprune.app.preview.worker.masked_model import MaskedModel
from gprune.app.preview.worker.worker import RequestHandler
from gprune.evaluation.perplexity import perplexity
from gprune.pipeline import stages
from gprune.pipeline.stages import Graph, RunContext
from gprune.pruning.repair.fitting import fit
from gprune.pruning.sparsity.scales import learn_scales
from gprune.pruning.surgery import cut
from gprune.records import REPAIRS, PrunedModel
from gprune.study import RepairSettings
from gprune.system.errors import SettingsError, StoreError

KIND = "least_squares_bias"
SETTINGS = RepairSettings(KIND)


def sent(question, identity="a", numbers=(0, 1, 2)):
    return messages.line({"id": identity, "text": question.text, "numbers": list(numbers), "pruned": question.pruned})


@pytest.fixture
def counted(monkeypatch):
    """Counts fits, and lets them happen."""
    calls = []

    def counting(*args, **kwargs):
        calls.append(args[1])
        return fit(*args, **kwargs)

    monkeypatch.setattr(fits, "fit", counting)
    return calls


@pytest.mark.slow
@pytest.mark.parametrize("kv_heads", [2, 4])
def test_other_masks_repaired_lose_what_the_repaired_cut_model_loses(tiny_run, tmp_path, counted, kv_heads):
    source = tiny_run(kv_heads).copied(tmp_path)
    graph, study = source.graph, source.graph.study
    text, masks = study.evaluation.texts[1], random_masks(source.results.get(stages.shape), 4)
    asked = resolve(source, Question(text, "flap", masks, repair=SETTINGS))
    work = RunContext(study, graph.inputs, source.results.store.texts)
    tokens = [source.results.get(stages.tokens, role) for role in ("primary", "auxiliary")]
    weights = fit(work.decoder, masks, tokens, SETTINGS, study.calibration.batch)
    model = cut(work.decoder, PrunedModel(masks, (REPAIRS[KIND],), {"weights": weights}))
    expected = perplexity(model, work.stream(text), text, study.evaluation).losses
    bare = perplexity(cut(work.decoder, masks), work.stream(text), text, study.evaluation).losses
    masked = MaskedModel(source.model)
    found = masked.losses(messages.read(sent(asked, numbers=range(40))))
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    assert np.abs(np.array(found) - bare).max() > 1e-2
    # the second time nothing is fitted
    assert len(counted) == 1 and asked.pruned["inputs"]["weights"][0] == FOREIGN
    masked.losses(messages.read(sent(asked)))
    masked._prepared.clear()
    masked.losses(messages.read(sent(asked)))
    assert len(counted) == 1
    assert not (source.results.store.root / FOREIGN).exists()


@pytest.mark.slow
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
    losses = MaskedModel(source.model).losses(messages.read(sent(resolve(source, question), numbers=range(40))))
    np.testing.assert_allclose(losses, expected, rtol=1e-4)
    assert np.abs(np.array(losses) - without).max() > 1e-2


@pytest.mark.slow
def test_what_is_fitted_to_the_runs_own_masks_is_kept_for_everybody(tiny_run, tmp_path, counted):
    source = tiny_run().copied(tmp_path)
    asked = resolve(source, Question(source.graph.study.evaluation.texts[0], "gprune", repair=SETTINGS))
    kind, key = asked.pruned["inputs"]["weights"]
    first = MaskedModel(source.model).losses(messages.read(sent(asked)))
    assert kind == "repaired" and source.results.store.has(kind, key)
    graph = stages.with_repair(source.graph, {"kind": KIND})
    assert stages.repaired(graph, "gprune").key == key
    assert MaskedModel(source.model).losses(messages.read(sent(asked))) == first and len(counted) == 1


@pytest.mark.slow
def test_the_worker_says_how_far_it_is_and_gives_up_what_nobody_wants(tiny_run, tmp_path, counted):
    source = tiny_run().copied(tmp_path)
    text, shape = source.graph.study.evaluation.texts[0], source.results.get(stages.shape)
    said = []
    desk = RequestHandler(said.append)
    assert desk.answer(messages.line({"model": source.model}))["ready"]
    asked = resolve(source, Question(text, "gprune", random_masks(shape, 1), repair=SETTINGS))
    reply = desk.answer(sent(asked))
    steps = [one["progress"] for one in said]
    assert {one["id"] for one in said} == {"a"}
    assert [done for done, _, _ in steps] == list(range(shape.layers + 1))
    assert steps[0][1:] == [shape.layers, "repairing the kept weights"]
    assert reply["fitting"] > 0 and len(reply["losses"]) == 3
    assert "fitting" not in desk.answer(sent(asked))
    other = resolve(source, Question(text, "gprune", random_masks(shape, 2), repair=SETTINGS))
    desk.drop("b")
    assert desk.answer(sent(other, "b")) == {"id": "b", "dropped": True}
    assert len(desk.answer(sent(other, "b"))["losses"]) == 3 and len(counted) == 3


@pytest.mark.slow
def test_both_sides_are_repaired_alike_and_a_run_that_is_repaired_so_has_its_own_figures(tiny_run, tmp_path):
    source = tiny_run().copied(tmp_path)
    text, masks = source.graph.study.evaluation.texts[0], random_masks(source.results.get(stages.shape), 3)
    question = Question(text, "gprune", masks, repair=SETTINGS)
    base = Question(text, "gprune", repair=SETTINGS)
    assert against(source, question, base) is base
    for one in (question, base):
        assert resolve(source, one).pruned["fit"]["settings"]["kind"] == KIND
    assert against(source, question, replace(question, repair=None)).repair is None
    fitted = Source(source.root, stages.with_repair(source.graph, {"kind": KIND}))
    with pytest.raises(StoreError, match="repairing the kept weights|repaired"):
        resolve(fitted, base)
    MaskedModel(source.model).losses(messages.read(sent(resolve(source, base))))
    own = resolve(fitted, base)
    assert "fit" not in own.pruned and own.identity == resolve(fitted, Question(text, "gprune")).identity
    with pytest.raises(SettingsError, match="repair.kind 'bias' is not fitted to masks"):
        resolve(source, Question(text, "gprune", masks, repair=RepairSettings("bias")))


@pytest.mark.slow
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
    found = repair_of(Graph(graph.study).study)
    assert (found.kind, found.texts) == expected


def repairing(model, message):
    """A worker that fits before it measures what has `repair` in its masks."""
    return losses(model, message)


@pytest.fixture
def shop(monkeypatch):
    monkeypatch.setattr("gprune.app.preview.client.resolve", resolved)
    monkeypatch.setattr("gprune.app.preview.worker_manager.LOOK_OUT_SECONDS", 0.0)
    return Workshop(repairing)


@pytest.fixture
def pool(shop):
    made = Client(idle=60.0, start=shop.start, waits_for=shop.waits_for)
    yield made
    made.close()


def test_a_fit_is_seen_under_way_and_is_dropped_with_its_question(pool, shop):
    shop.hold = True
    source = source_of("first")
    first = pool.ask(source, Question("t", "gprune"), owner="me")
    wait_for(lambda: len(shop.sent) == 1)
    worker, message = shop.made[0], shop.sent[0]
    worker.say({"id": message["id"], "progress": [2, 6, "repairing the kept weights"]})
    wait_for(lambda: pool.state(source).phase == "fitting")
    state = pool.state(source)
    assert state.reason == "The worker is repairing the kept weights: layer 3 of 6"
    assert state.share == pytest.approx(1 / 3)
    second = pool.ask(source, Question("t", "flap"), owner="me")
    wait_for(lambda: {"drop": message["id"]} in shop.sent)
    assert pool.latest(first).progress == "dropped"
    shop.hold = False
    worker.say({"id": message["id"], "dropped": True})
    worker.free.set()
    wait_for(lambda: pool.latest(second).progress == "complete")
    assert pool.state(source).phase == "warm"


def test_a_fit_says_nothing_about_the_pace_and_is_wanted_while_its_question_is_open():
    source, desk = source_of("first"), WindowScheduler()
    question, base = (resolved(source, Question("t", name)) for name in ("gprune", "flap"))
    desk.put([(question, base)], "me", CURVE, 0.0)
    model = question.model_key
    desk.heard(desk.next(model), {"windows": 12}, 0.1)
    item = desk.next(model)
    assert desk.wanted(item)
    desk.heard(item, {"losses": [1.0] * len(item.numbers), "fitting": 60.0}, 60.2)
    assert desk._pace[question.text_key] == pytest.approx(0.2 / len(item.numbers))
    desk.put([(resolved(source, Question("t", "fang")), base)], "me", CURVE, time.monotonic())
    assert not desk.wanted(item)
