"""Repairs and recipes that are chosen on held-out text: what is drawn, tried, chosen, kept and shown."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tiny_study
import torch
from tiny_study import results_of

from gprune import pipeline
from gprune.analysis import choices
from gprune.app.figures import comparison as panels
from gprune.app.preview import Question, Source, repair_of
from gprune.app.preview.requests import resolve
from gprune.cli import progress
from gprune.evaluation.perplexity import window_losses
from gprune.models.export import model_card
from gprune.pipeline import stages
from gprune.pipeline.estimate import estimate_study
from gprune.pipeline.estimate.dimensions import of_model
from gprune.pipeline.estimate.memory import Case, memory_need
from gprune.pipeline.stages import Graph
from gprune.pipeline.stages.inputs import choice_roles, read_inputs, roles
from gprune.pruning.choosing import DIVERGENCE, WEIGHTS
from gprune.pruning.repair import fitting
from gprune.records import REPAIRS
from gprune.store import Store
from gprune.study import Study, from_dict
from gprune.study.methods import METHODS as KNOWN
from gprune.study.settings import MOST_CANDIDATES
from gprune.system.errors import CorpusError, MethodError, NumericsError, SettingsError

pytestmark = pytest.mark.slow

METHODS = ["dense", "gprune", "flap", "recommended"]
CHOICE = {"sequences": 8, "fresh": "self:#length=24&seed=1"}


def values_of(folder, **choice):
    """A study that chooses, over the smallest model."""
    values = tiny_study.made(folder, device="cpu", methods=METHODS)
    values["repair"] = {"kind": "auto", "sampled": "self:#length=24"}
    return values | {"choice": CHOICE | choice}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The study's values, its run and what it ended with."""
    folder = tmp_path_factory.mktemp("chosen")
    values = values_of(folder)
    return values, *tiny_study.finished(values, folder / "cache")


def number(candidate, base):
    """The weighted geometric mean of the ratios of two candidates’ figures, written out."""
    logarithms = [
        np.log(row.mean() / other.mean()) if name == DIVERGENCE else row.mean() - other.mean()
        for name, row, other in zip(candidate.measures, candidate.nats, base.nats, strict=True)
    ]
    weights = [WEIGHTS[name] for name in candidate.measures]
    return float(np.exp(np.dot(logarithms, weights) / sum(weights)))


def test_the_choice_is_the_lowest_number_of_the_stored_figures(made):
    _, opened, result = made
    results = results_of(opened)
    for name in ("gprune", "flap", "recommended"):
        choice = results.get(stages.choice, name)
        outcome = [results.get(stages.candidate, *item) for item in zip(choice.masks, choice.repairs, strict=True)]
        numbers = [number(item, outcome[0]) for item in outcome]
        np.testing.assert_allclose(choice.numbers, numbers, rtol=1e-9)
        assert choice.chosen == int(np.argmin(numbers)) and choice.reference == 0
        message = result["choice"][name]["tried"]
        assert [row["number"] for row in message] == sorted(row["number"] for row in message)
        assert message[0]["chosen"] and message[0]["repair"] == choice.repair
    # FLAP's own repair is tried beside none; GPrune has none of its own
    assert results.get(stages.choice, "flap").repairs[:2] == ("none", "own")
    assert results.get(stages.choice, "gprune").repairs[:2] == ("none", "least_squares_bias:both")
    recipe = results.get(stages.choice, "recommended")
    # scales are learned for the first masks alone
    rest = len(opened.study.choice.masks) - 1
    assert len(recipe.masks) == (rest + 1) * (1 + len(opened.study.choice.repairs)) - rest
    scaled = [item for item, word in zip(recipe.masks, recipe.repairs, strict=True) if "scales" in word]
    assert scaled == ["gprune"]
    assert len(recipe.masks) <= MOST_CANDIDATES


def test_held_out_sequences_share_no_window_with_those_that_calibrate(made):
    values, opened, _ = made
    results = results_of(opened)
    for role in ("primary", "auxiliary"):
        used, stored = results.get(stages.tokens, role), results.get(stages.held_out, role)
        assert stored.ids.shape == (8, 16) and stored.available == used.available
        # the one cut of the text, and its one permutation: the places are other ones
        order = np.random.default_rng(values.get("seed", 0)).permutation(used.available)
        assert not set(order[:16]) & set(order[16:24])
        assert {row.tobytes() for row in used.ids}.isdisjoint(row.tobytes() for row in stored.ids)
    fitted, fresh = results.get(stages.tokens, "sampled"), results.get(stages.held_out, "fresh")
    assert {row.tobytes() for row in fitted.ids}.isdisjoint(row.tobytes() for row in fresh.ids)


def test_figures_are_of_the_model_that_the_run_measures(made):
    _, opened, _ = made
    results, settings = results_of(opened), replace(opened.study.evaluation, preset="16")
    ids = results.get(stages.held_out, "primary").ids
    for method in ("gprune", "flap", "recommended"):
        choice = results.get(stages.choice, method)
        losses = window_losses(opened.model(method).eval(), ids, "A", settings)
        assert choice.figures[choice.chosen][0] == pytest.approx(float(np.exp(losses.mean())), rel=1e-4)


def test_what_was_chosen_is_what_is_counted_saved_and_told(made):
    _, opened, result = made
    results = results_of(opened)
    for method, location in (("gprune", "checkpoint"), ("recommended", "recommended_checkpoint")):
        choice = results.get(stages.choice, method)
        kind = choice.repair.partition(":")[0]
        assert kind in REPAIRS, "the smallest model gains by a fit"
        plan = model_card.read_record(Path(result[location]))
        assert [repair.name for repair in plan.pruned.repairs] == [kind]
        assert np.array_equal(plan.pruned.masks.ffn, results.get(stages.masks, choice.masks[choice.chosen]).ffn)
        live = opened.model(method)
        assert result["parameters"][method] == sum(repair.numel() for repair in live.parameters())
        assert result["given"][method]["repair"].startswith(REPAIRS[kind].label)
    ids = torch.arange(3, 12)[None]
    same = opened.model("gprune", repair="auto")
    assert torch.equal(same(ids).logits, opened.model("gprune")(ids).logits)
    word = results.get(stages.choice, "gprune").repair
    kind, texts = word.split(":")
    repair = {"kind": kind.replace("_scales", "+scales"), "texts": texts, "sampled": "self:#length=24"}
    model = opened.model("gprune", repair=repair)
    torch.testing.assert_close(model(ids).logits, opened.model("gprune")(ids).logits)


def test_studies_share_what_was_tried_and_a_second_run_computes_nothing(made):
    values, opened, result = made
    store = results_of(opened).store
    again = pipeline.run(from_dict(values), store, tiny_study.silent)
    assert set(again["reused"]) == set(again["keys"]) and again["choice"] == result["choice"]
    graph = results_of(opened).graph
    plain = graph.study.with_settings({"repair.kind": "least_squares", "methods": ["gprune"]})
    fitted = stages.repaired_weights(Graph(plain, read_inputs(plain)), "gprune")
    assert fitted.key == stages.repaired_weights(graph, "gprune", "least_squares:both").key
    # without a choice no text is held out, and keys are what they were
    assert set(roles(plain)) == {"primary", "auxiliary"}
    text = plain.evaluation.texts[0]
    own = graph.study.with_settings({"repair.kind": "own", "methods": ["gprune"]})
    for study, is_same in ((own, True), (graph.study, False)):
        pair = study, study.with_settings({"choice.sequences": 7})
        first, second = (stages.perplexity(Graph(each, read_inputs(each)), "gprune", text).key for each in pair)
        assert (first == second) is is_same is (pair[0].digest == pair[1].digest)


def test_a_text_that_is_too_short_is_refused_before_the_model_runs(tmp_path):
    study, store = from_dict(values_of(tmp_path, sequences=5000)), Store(tmp_path / "cache")
    with pytest.raises(CorpusError) as refused:
        pipeline.run(study, store, tiny_study.silent)
    tokens = pipeline.stages.RunContext(study, read_inputs(study), store.texts).tokenizer
    with open(study.primary, encoding="utf-8") as file:
        available = len(tokens(file.read())["input_ids"]) // 16
    assert f"gives {available:,} sequences of 16 tokens" in str(refused.value)
    assert "5,016 were requested" in str(refused.value)
    assert not (store.root / "shape").exists() and not (store.root / "statistics").exists()


def test_a_check_text_takes_the_place_of_all_and_is_no_unseen_text(tmp_path):
    check = tmp_path / "check.txt"
    check.write_text((tmp_path.parent / "none").as_posix() + json.dumps(list(range(3000))), encoding="utf-8")
    study, store = from_dict(values_of(tmp_path, check_text=str(check))), Store(tmp_path / "cache")
    assert choice_roles(study) == ("check",) and "fresh" not in roles(study)
    result = pipeline.run(study, store, tiny_study.silent, until="perplexity")
    message = result["choice"]["gprune"]
    assert message["weights"] == {"check": 1.0}
    assert [row["number"] for row in message["tried"]] == sorted(row["number"] for row in message["tried"])
    assert [row["check"] for row in message["tried"]] == sorted(row["check"] for row in message["tried"])
    settings = result["texts"][study.evaluation.texts[0]]
    assert settings["declared"].keys() == {"A", "B", "the check text"} and len(settings["overlap"]) == 3
    with pytest.raises(SettingsError, match=r"choice.check_text must be .* not an evaluation text"):
        read_inputs(study.with_settings({"choice.check_text": study.evaluation.texts[0]}))
    copy = tmp_path / "copy.txt"
    copy.write_bytes(check.read_bytes())
    with pytest.raises(SettingsError, match="is the same text as .*copy.txt"):
        read_inputs(study.with_settings({"evaluation.texts": [str(copy)]}))


def test_what_chooses_is_fitted_to_by_nothing_and_few_are_chosen_from(tmp_path):
    with pytest.raises(SettingsError, match="has the same seed as 'self:#length=24', to which a repair is fitted"):
        read_inputs(from_dict(values_of(tmp_path, fresh="self:#seed=0")))
    study = Study("model", "A", "B", methods=("recommended",))
    for setting, values, message in (
        ("masks", ["gprune", "flap", "wanda_sp_uniform", "fang", "llm_pruner"], r"\(5\) times choice.repairs"),
        ("masks", ["recommended"], "choice.masks must be methods that prune"),
        ("repairs", ["least_squares"], "repairs as kind:texts"),
    ):
        with pytest.raises(SettingsError, match=message):
            study.with_settings({f"choice.{setting}": values})


def test_a_choice_without_a_failed_repair_is_incomplete_until_the_next_run_can_fit_it(made, tmp_path, monkeypatch):
    values, _, _ = made
    real = fitting.fit

    def failing(decoder, masks, texts, settings, *rest):
        if settings.kind == "least_squares_bias":
            raise NumericsError("it overflows")
        return real(decoder, masks, texts, settings, *rest)

    monkeypatch.setattr(fitting, "fit", failing)
    changed, store = from_dict(values | {"methods": ["gprune"]}), Store(tmp_path / "cache")
    result = pipeline.run(changed, store, tiny_study.silent, until="perplexity")
    message = {row["repair"]: row["number"] for row in result["choice"]["gprune"]["tried"]}
    failed = {word for word in changed.choice.repairs if word.startswith("least_squares_bias")}
    assert {word for word, value in message.items() if value is None} == failed
    assert result["choice"]["gprune"]["tried"][0]["chosen"] and not result["choice"]["gprune"]["complete"]
    assert pipeline.opened(changed, store).get(stages.choice, "gprune").chosen >= 0
    again = pipeline.run(changed, store, tiny_study.silent, until="perplexity")
    assert set(again["reused"]) == set(again["keys"]) == set(result["keys"]) and again["keys"] == result["keys"]
    monkeypatch.undo()
    full = pipeline.run(changed, store, tiny_study.silent, until="perplexity")
    assert full["choice"]["gprune"]["complete"] and full["keys"]["choice_gprune"] != result["keys"]["choice_gprune"]
    computed = {"choice_gprune", "chosen_gprune"}
    computed |= {f"{kind}_gprune_least_squares_bias_both" for kind in ("repaired", "candidate")}
    computed |= {f"perplexity.gprune.{index}" for index in range(len(changed.evaluation.texts))}
    assert set(full["keys"]) - set(full["reused"]) == computed


def test_a_what_if_has_a_repair_that_is_fitted_to_its_masks_whatever_was_chosen(made):
    _, opened, _ = made
    results, text = results_of(opened), opened.study.evaluation.texts[0]
    source, repair = Source(str(results.store.root), results.graph), repair_of(opened.study)
    assert (repair.kind, repair.texts) == ("least_squares_bias", "both")
    masks, keys = results.get(stages.masks, "gprune"), set()
    for method in ("flap", "recommended"):
        pruning = resolve(source, Question(text, method, masks, repair=repair)).arguments["pruning"]
        assert pruning.repairs == ("least_squares_bias",) and pruning.fit.settings.kind == "least_squares_bias"
        keys.add(pruning.key)
    # fitted to the same masks, whosever they were
    assert len(keys) == 1
    recipe = resolve(source, Question(text, "recommended", repair=repair))
    chosen = results.get(stages.choice, "recommended")
    assert (recipe.arguments["pruning"].key in keys) == (chosen.masks[chosen.chosen] == "gprune")
    request, kind = resolve(source, Question(text, "recommended")), chosen.repair.partition(":")[0]
    assert request.stored is not None and request.arguments["pruning"].repairs == (kind,)


def test_estimates_count_every_candidate(made):
    study, graph = made[1].study, results_of(made[1]).graph
    case = Case(of_model(study.model), study, 4, gpu=False)
    fits = [stages.repaired_weights(graph, "gprune", word).id for word in study.choice.repairs]
    three, two = (next(fit for fit in fits if fit.variant[1] == texts) for texts in ("both_and_sampled", "both"))
    assert memory_need(three, case).fixed > memory_need(two, case).fixed
    candidate = stages.candidate(graph, "gprune", "none").id
    assert memory_need(candidate, case).on_device(1) > case.weights
    estimate = estimate_study(study)
    assert len([stage for stage in estimate.stages if stage.identity.kind == "candidate"]) == 15


def test_the_page_shows_every_candidate_and_the_command_the_chosen_one(made, capsys):
    _, opened, result = made
    run, panel = opened._loaded, panels.choice(opened._loaded)
    table = panel.table()
    assert list(table["chosen for"].unique()) == ["GPrune", "FLAP", "Recommended recipe"]
    assert (table["result"].str.startswith("chosen")).sum() == 3
    for name in ("gprune", "flap", "recommended"):
        choice = results_of(opened).get(stages.choice, name)
        own = table[table["chosen for"] == KNOWN[name].label]
        assert sorted(own[choices.NUMBER]) == pytest.approx(sorted(choice.numbers))
    chosen = {"recommended": panels.find_choices(run)["recommended"]}
    alone = choices.candidates_of(chosen, lambda word: stages.describe_candidate(run.graph, word))
    assert list(choices.candidate_table(alone)) == list(table.drop(columns="chosen for"))
    assert "25%" in panel.caption or "%" in panel.caption
    marks = [x for trace in panel.figure.data for x in trace.x]
    assert sorted(marks) == pytest.approx(sorted(table[choices.NUMBER]))
    progress.print_summary(result)
    visible = capsys.readouterr().out
    assert f"of {len(result['choice']['recommended']['tried'])} candidates" in visible
    plain = replace(opened.study, methods=("dense",))
    assert plain.chooses and not Study("model", "A", "B").chooses
    with pytest.raises(MethodError, match="chooses nothing by measurement"):
        # the same run, had it compared the dense model alone
        panels.choice(replace(run, study=plain, graph=Graph(plain, run.graph.inputs)))
