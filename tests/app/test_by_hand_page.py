"""The page By hand: units by selection and by number, the budget, the measured change, sets under names."""

import json
from pathlib import Path

import numpy as np
import pytest
from app_driver import on, open_page, opened, show, words
from synthetic_run import a_study, the_run, write_run
from test_lab_page import FakePool

from gprune.analysis.mask_edits import Edit, edited, mask_sets
from gprune.app import preview
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import all_runs


def removed(cache, **query):
    """The page after module 3 of layer 1 was removed."""
    write_run(cache)
    app = open_page("by_hand", layer="1", module="3", **query)
    return app.button(key="hand_remove_module").click().run()


def test_the_selected_module_is_removed_at_the_same_budget(cache):
    app = removed(cache)
    run = the_run(cache)
    found = edited(run.results, "gprune", [Edit(False, "module", 1, 3)])
    assert f"{found.by_hand} neurons changed by hand, {found.added} came back" in words(app)
    row = app.dataframe[0].value.iloc[0]
    members = run.load(stages.partition).labels[1] == 3
    assert (row["decision"], row["unit"], row["units"]) == ("remove", "module", members.sum())
    assert row["kept by the method"] == run.load(stages.masks, "gprune").ffn[1][members].sum()
    # the other decision about the same unit takes its place
    app.button(key="hand_keep_module").click().run()
    assert app.dataframe[0].value["decision"].tolist() == ["keep"]
    app.button(key="hand_empty").click().run()
    assert "The list is empty" in words(app)


def test_any_unit_can_be_named_and_what_is_impossible_says_why(cache):
    app = show("by_hand", cache)
    app.segmented_control(key="hand_kind").set_value("group")
    app.number_input(key="hand_layer").set_value(2)
    app.number_input(key="hand_number").set_value(1).run()
    app.button(key="hand_keep_other").click().run()
    assert app.dataframe[0].value.iloc[0]["unit"] == "key/value group"
    app.number_input(key="hand_number").set_value(2).run()
    app.button(key="hand_remove_other").click().run()
    assert ["choose one from 0 to 1" in error.value for error in app.error] == [True]
    assert len(app.dataframe[0].value) == 1
    app = open_page("by_hand")
    app.segmented_control(key="hand_kind").set_value("group").run()
    for number in (0, 1):
        app.number_input(key="hand_number").set_value(number).run()
        app.button(key="hand_remove_other").click().run()
    assert any("would lose all its 2 key/value groups" in error.value for error in app.error)
    assert len(app.dataframe[0].value) == 2 and not app.exception


def test_the_change_is_measured_beside_the_method_itself(cache, monkeypatch):
    pool = FakePool(more=0.05)
    monkeypatch.setattr(preview, "pool", lambda: pool)
    app = removed(cache)
    assert pool.asked == []
    app.toggle(key="hand_live_toggle").set_value(True).run()
    question, base = pool.asked[0]
    own = the_run(cache).load(stages.masks, "gprune")
    assert (question.method, base.method, base.masks) == ("gprune", "gprune", None)
    assert question.masks.retention == pytest.approx(own.retention, abs=1e-3)
    assert not np.array_equal(question.masks.ffn, own.ffn)
    difference = pool.latest(f"{question.text} 1").difference
    told = words(app)
    assert f"{difference.nats:+.4f} ± {difference.nats_error:.4f} nats, paired over windows" in told
    assert "of GPrune itself" in told and "40 of 40 windows" in told


def test_a_set_is_saved_measured_taken_up_exported_and_deleted(cache, started, monkeypatch):
    pool = FakePool(more=0.05)
    monkeypatch.setattr(preview, "pool", lambda: pool)
    app = removed(cache)
    app.text_input(key="hand_name").set_value("../../<b>evil</b>").run()
    app.button(key="hand_save").click().run()
    (file,) = (cache / "by_hand").iterdir()
    assert file.stem.isalnum() and json.loads(file.read_text())["name"] == "../../<b>evil</b>"
    table = app.dataframe[1].value
    assert table["set"].tolist() == ["../../<b>evil</b>"] and "nats" not in table
    app.button(key="hand_sets_measure").click().run()
    table = app.dataframe[1].value
    assert table["windows"].tolist() == ["40 of 40"] and table["nats"][0] == pytest.approx(0.05, abs=0.01)
    app.button(key="hand_empty").click().run()
    app.button(key="hand_sets_use").click().run()
    assert app.dataframe[0].value["number"].tolist() == [3]
    run = the_run(cache)
    shown = on(app, "speed_export")
    shown.button(key="sx_cut").click().run()
    ((_, arguments),) = started
    identity = mask_sets.named(run.results, "../../<b>evil</b>").identity
    assert arguments[:3] == ("cut", run.name, "../../<b>evil</b>")
    assert arguments[4:] == ("--identity", identity, "--cache", run.root) and identity[:8] in arguments[3]
    assert Path(arguments[3]).parent == cache / "exports" / run.name
    on(app, "by_hand").button(key="hand_sets_delete").click().run()
    assert list((cache / "by_hand").iterdir()) == [] and "No mask set of this run" in words(app)


def test_a_set_of_other_masks_is_not_offered_and_a_broken_file_is_named(cache, name):
    results = the_run(cache).results
    mask_sets.save(results, mask_sets.made(results, "mine", "gprune", ()))
    write_run(cache, study=a_study(retention=0.4, name="Other"))
    (cache / "by_hand" / "broken.json").write_text("{}")
    app = on(
        opened(run=next(run.name for run in all_runs(str(cache))[0] if run.study.retention == 0.4)), "by_hand"
    )
    assert "No mask set of this run" in words(app) and any(
        "broken\\.json" in item.value for item in app.warning
    )


def test_methods_that_cannot_be_edited_say_so(cache):
    app = show("by_hand", cache, {"hand_method": "wanda_sp"})
    assert any("keeps no score of every neuron" in item.value for item in app.info) and not app.error


def test_a_run_without_masks_says_what_is_missing(cache):
    app = show("by_hand", cache, stages="drift")
    assert any("masks of GPrune" in item.value for item in app.info) and not app.exception


def test_a_list_of_the_inspector_is_removed_by_hand(cache, monkeypatch):
    app = show("inspection", cache, {"layer": "2", "module": "1"})
    app.button(key="ins_lists_add").click().run()
    app.button(key="ins_lists_remove").click().run()
    assert not app.exception and not app.error
    members = np.flatnonzero(the_run(cache).load(stages.partition).labels[2] == 1)
    table = on(app, "by_hand").dataframe[0].value
    assert table["number"].tolist() == members.tolist() and set(table["decision"]) == {"remove"}
    # kept after all, each line once; and a list that is too long gets a sentence
    on(app, "inspection").button(key="ins_lists_keep").click().run()
    table = on(app, "by_hand").dataframe[0].value
    assert len(table) == len(members) and set(table["decision"]) == {"keep"}
    monkeypatch.setattr("gprune.app.pages.by_hand.listed.MOST_EDITS", len(members))
    app.button(key="hand_remove_module").click().run()
    assert any("lines at most" in error.value for error in app.error)
