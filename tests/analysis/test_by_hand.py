"""Masks edited by hand: the budget is met again by the named rule, what is fixed stays fixed, sets repeat."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic_run import SMALL, a_study, write_run

from gprune.analysis.mask_edits import Edit, edited, mask_sets, rebalance
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import all_runs
from gprune.records import PruningMasks, budget
from gprune.study import SparsitySettings
from gprune.study.methods import METHODS
from gprune.system.errors import MethodError, SettingsError

ALL = (
    "dense",
    "gprune",
    "flap",
    "flap_pooled",
    "flap_rank_average",
    "llm_pruner",
    "wanda_sp",
    "flap_uniform",
    "gates",
)
EDITABLE = ("gprune", "gates", "flap", "flap_pooled", "flap_rank_average", "llm_pruner", "flap_uniform")


@pytest.fixture(scope="module", params=[1, 4], ids=["exact", "blocks of 4"])
def run(request, tmp_path_factory):
    root = tmp_path_factory.mktemp("hand")
    sparsity = SparsitySettings(alignment=request.param)
    write_run(root, study=a_study(methods=ALL, sparsity=sparsity, retention=0.6))
    return all_runs(str(root))[0][0]


def base_of(run, method):
    return run.load(stages.masks, METHODS[method].masks)


@pytest.mark.parametrize("method", EDITABLE)
def test_without_edits_the_masks_are_the_methods_own(run, method):
    if run.study.sparsity.alignment > 1:
        pytest.skip("made-up masks have widths that are no whole blocks")
    found, base = edited(run.results, method, []), base_of(run, method)
    assert np.array_equal(found.masks.ffn, base.ffn) and np.array_equal(found.masks.heads, base.heads)
    assert (found.by_hand, found.groups, found.added, found.removed) == (0, 0, 0, 0)


@pytest.mark.parametrize("method", EDITABLE)
def test_the_budget_is_met_to_half_a_neuron_or_block_and_what_is_fixed_is_not_touched(run, method):
    base, partition = base_of(run, method), run.load(stages.partition)
    edits = [Edit(False, "module", 1, 3), Edit(True, "group", 2, 0), Edit(True, "neuron", 0, 7)]
    edits += [Edit(False, "neuron", 3, number) for number in range(20)]
    found = edited(run.results, method, edits)
    weights = (found.masks.retention - base.retention) * SMALL.decoder_weights
    assert abs(weights) <= run.study.sparsity.alignment * SMALL.neuron_weights / 2 + 1e-6
    assert found.masks.retention == budget.retention(SMALL, found.masks.ffn, found.masks.heads)
    assert not found.masks.ffn[1][partition.labels[1] == 3].any() and not found.masks.ffn[3, :20].any()
    assert found.masks.ffn[0, 7] and found.masks.heads[2, 0]
    others = np.ones_like(base.heads)
    others[2, 0] = False
    assert np.array_equal(found.masks.heads[others], base.heads[others])


def test_those_that_come_back_are_the_highest_removed_and_those_that_go_the_lowest_kept(run):
    if run.study.sparsity.alignment > 1:
        pytest.skip("blocks come and go together")
    for method in ("gprune", "gates", "flap"):
        base = base_of(run, method)
        margin = rebalance.margins(run.results, method, base)
        kept = np.flatnonzero(base.ffn[0])[:9]
        more = edited(run.results, method, [Edit(False, "neuron", 0, int(n)) for n in kept])
        came = more.masks.ffn & ~base.ffn
        assert more.added == came.sum() == len(kept) == more.by_hand and more.removed == 0
        free = ~base.ffn & ~came
        free[0, kept] = False
        assert margin[came].min() >= margin[free].max()
        gone = np.flatnonzero(~base.ffn[0])[:9]
        less = edited(run.results, method, [Edit(True, "neuron", 0, int(n)) for n in gone])
        went = base.ffn & ~less.masks.ffn
        stayed = base.ffn & less.masks.ffn
        best = np.where(base.ffn, margin, -np.inf).argmax(axis=1)
        stayed[np.arange(SMALL.layers), best] = False
        assert less.removed == went.sum() == 9 and margin[went].max() <= margin[stayed].min()


def test_learned_margins_are_quantiles_above_the_thresholds(run):
    base = base_of(run, "gprune")
    margin = rebalance.margins(run.results, "gprune", base)
    scores, partition = run.load(stages.adapted).scores, run.load(stages.partition)
    thresholds = run.load(stages.learning).thresholds
    for layer, number in ((0, 0), (2, 41), (3, 59)):
        mates = partition.global_labels[layer] == partition.global_labels[layer, number]
        better = (scores[layer][mates] < scores[layer, number]).sum()
        expected = (better + 0.5) / mates.sum() - thresholds[partition.global_labels[layer, number]]
        assert margin[layer, number] == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("edits", "told"),
    [
        ([Edit(False, "group", 1, number) for number in range(2)], "would lose all its 2 key/value groups"),
        ([Edit(False, "module", 2, number) for number in range(6)], "layer 2 would lose all its 60 neurons"),
        ([Edit(True, "module", n % 4, n // 4) for n in range(24)], "the budget cannot be met again"),
    ],
)
def test_a_list_that_cannot_be_carried_out_gets_a_sentence(run, edits, told):
    with pytest.raises(MethodError, match=told):
        edited(run.results, "flap", edits)


@pytest.mark.parametrize(
    ("edit", "told"),
    [
        (Edit(False, "neuron", 9, 0), "no layer 9: the model has the layers 0 to 3"),
        (Edit(False, "neuron", 0, 60), "no neuron 60: choose one from 0 to 59"),
        (Edit(True, "module", 0, 6), "no module 6"),
        (Edit(True, "group", 0, 2), "no key/value group 2"),
    ],
)
def test_what_the_model_does_not_have_is_named(run, edit, told):
    with pytest.raises(SettingsError, match=told):
        edited(run.results, "gprune", [edit])


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_list_meets_the_budget_or_is_refused(data):
    rng = np.random.default_rng(data.draw(st.integers(0, 2**20)))
    shape = replace(SMALL, neurons=12)
    partition = type("Modules", (), {"labels": np.tile(np.arange(12) // 4, (4, 1)), "counts": np.full(4, 3)})
    base = PruningMasks("flap", rng.random((4, 12)) < 0.6, rng.random((4, 2)) < 0.7, 0.5, 0.5)
    base.ffn.flags.writeable = base.heads.flags.writeable = True
    base.ffn[:, 0] = base.heads[:, 0] = True
    kinds = st.sampled_from([("neuron", 12), ("module", 3), ("group", 2)])
    edits = [
        Edit(data.draw(st.booleans()), kind, data.draw(st.integers(0, 3)), data.draw(st.integers(0, most - 1)))
        for kind, most in data.draw(st.lists(kinds, max_size=8))
    ]
    margin = rng.standard_normal((4, 12))
    try:
        found = rebalance.repaired(shape, base, margin, partition, edits)
    except MethodError:
        return
    wanted = budget.retention(shape, base.ffn, base.heads)
    assert abs(found.masks.retention - wanted) * shape.decoder_weights <= shape.neuron_weights / 2 + 1e-6
    assert found.masks.ffn.any(axis=1).all() and found.masks.heads.any(axis=1).all()
    neurons, groups = rebalance.fixed(edits, shape, partition)
    assert found.masks.ffn[neurons > 0].all() and not found.masks.ffn[neurons < 0].any()
    assert found.masks.heads[groups > 0].all() and not found.masks.heads[groups < 0].any()


def test_a_set_is_kept_by_its_edits_and_repeats(run, tmp_path):
    edits = (Edit(False, "module", 1, 3), Edit(True, "neuron", 0, 7))
    name = "../../<b>mine</b>"
    chosen = mask_sets.made(run.results, f"  {name} ", "gprune", edits)
    mask_sets.save(run.results, chosen)
    (file,) = (run.results.store.root / "by_hand").glob("*.json")
    assert file.stem.isalnum() and json.loads(file.read_text())["edits"][0]["number"] == 3
    sets, faults = mask_sets.kept(run.results)
    assert sets == [chosen] and chosen.name == name and not faults
    again = mask_sets.repeated(run.results, mask_sets.named(run.results, name))
    assert mask_sets.digest_of(again.masks) == chosen.digest
    with pytest.raises(MethodError, match="gives other masks than when it was saved"):
        mask_sets.repeated(run.results, replace(chosen, digest="0"))
    with pytest.raises(MethodError, match="made on other masks"):
        mask_sets.repeated(run.results, replace(chosen, masks="other"))
    (file.parent / "broken.json").write_text("[")
    assert "broken.json" in mask_sets.kept(run.results)[1][0]
    mask_sets.SETS.delete(run.root, chosen)
    with pytest.raises(SettingsError, match="has no mask set"):
        mask_sets.named(run.results, name)


def test_a_name_stands_for_one_set_of_a_run(tmp_path):
    write_run(tmp_path, study=a_study(methods=("dense", "gprune", "flap", "flap_no_bias")))
    results = all_runs(str(tmp_path))[0][0].results
    edits = (Edit(True, "neuron", 0, 7),)
    first, same, other = (
        mask_sets.made(results, "mine", method, edits) for method in ("flap", "flap_no_bias", "gprune")
    )
    mask_sets.save(results, first)
    # the second has the same masks and another model
    assert same.masks == first.masks and same.digest == first.digest and same.identity != first.identity
    for refused in (same, other, *mask_sets.SETS.read(mask_sets.SETS.export([other]))):
        with pytest.raises(SettingsError, match="is that of a set of FLAP: delete that one"):
            mask_sets.save(results, refused)
    assert mask_sets.kept(results) == ([first], [])
    longer = mask_sets.made(results, "mine", "flap", (*edits, Edit(False, "module", 1, 3)))
    mask_sets.save(results, longer)
    assert mask_sets.named(results, "mine", longer.identity) == longer
    with pytest.raises(SettingsError, match="another than when it was asked for"):
        mask_sets.named(results, "mine", first.identity)
    # two files of one name, as runs that share masks can leave them
    (tmp_path / "by_hand" / "0.json").write_bytes(mask_sets.SETS.export([other]))
    sets, (fault,) = mask_sets.kept(results)
    assert sets == [other] and "another set is called 'mine'" in fault


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"version": 2}, "version 2 and 1 is read here"),
        ({"name": ""}, "needs a name"),
        ({"masks": 5}, "masks must be text"),
        ({"edits": 3}, "edits must be a list"),
        ({"edits": [{"keep": 1, "kind": "neuron", "layer": 0, "number": 0}]}, "keep must be true or false"),
        ({"edits": [{"keep": True, "kind": "neuron", "layer": 0, "number": -1}]}, "number must be 0 or more"),
        ({"edits": [{}]}, r"lacks edits\[0\].keep"),
    ],
)
def test_a_file_that_is_no_set_is_refused(run, changed, told):
    whole = json.loads(
        mask_sets.SETS.export([mask_sets.made(run.results, "mine", "flap", (Edit(True, "group", 0, 1),))])
    )
    assert mask_sets.SETS.read(json.dumps(whole).encode())[0].name == "mine"
    with pytest.raises(SettingsError, match=told):
        mask_sets.SETS.read(json.dumps(whole | changed).encode())
