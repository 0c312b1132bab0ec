"""The page of changed answers in every state, and a question that is opened in a browser."""

import json
from dataclasses import replace

import numpy as np
import pytest
from app_driver import charts, open_page, show, words
from browser import PLOT, expect, visiting
from synthetic_measurements import EVIL
from synthetic_run import MAKERS, a_study, the_run, write_run

from gprune.analysis import changed_answers
from gprune.app.pages.flipped_questions import page as list_card
from gprune.app.pages.flipped_questions import task_answers
from gprune.pipeline import packs, stages
from gprune.records import Accuracy, Questions
from gprune.store import Store
from gprune.study.settings import EvaluationSettings

TASKS = ("piqa", "boolq")
NO_ANSWERS = {name: made for name, made in MAKERS.items() if name not in ("answers", "questions")}


def a_study_with_tasks(tasks=TASKS, **changes):
    evaluation = EvaluationSettings(texts=("science-docs",), windows=16, tasks=tasks)
    return a_study(**({"methods": ("dense", "gprune", "flap"), "evaluation": evaluation} | changes))


def page(**query):
    return open_page("flipped_questions", **query) if query else open_page("flipped_questions")


def test_questions_that_were_asked_and_not_kept_are_told(cache):
    def more(task):
        made = MAKERS["answers"](task)
        return replace(made, documents=160) if task.asked == "piqa" else made

    app = show("flipped_questions", cache, study=a_study_with_tasks(), makers={**MAKERS, "answers": more})
    table = app.dataframe[0].value
    assert table["questions"].tolist() == [100] * 4 and table["asked"].tolist() == [160] * 2 + [100] * 2
    told = words(app).replace("\\", "")
    assert "piqa: 100 of 160 questions shown, because" in told and "boolq: 100 of" not in told
    assert "(piqa, of its first 100 questions)" in told
    assert "first 100 questions)" not in words(page(fq_task="1"))


@pytest.mark.parametrize("moved", [0.0, 0.01])
def test_answers_of_another_pass_than_the_accuracy_are_told(cache, moved):
    write_run(cache, study=a_study_with_tasks(("piqa",)))
    run, store = the_run(cache), Store(cache)
    for method in run.study.methods:
        known, key = run.load(stages.answers, method, "piqa"), run.key(stages.accuracy, method, "piqa")
        acc, norm = (float(changed_answers.choices(known, rule).hit.mean()) for rule in ("acc", "acc_norm"))
        norm += moved if method == "flap" else 0.0
        measured = replace(store.get("accuracy", key, Accuracy), acc=acc, acc_norm=norm)
        store.discard("accuracy", key)
        store.put("accuracy", key, measured)
    told = words(page()).replace("\\", "")
    # one question of a hundred is enough
    assert ("come from another pass than the accuracy" in told) == (moved > 0)
    assert ("piqa, FLAP: acc_norm" in told) == (moved > 0) and "piqa, GPrune: acc" not in told


def test_what_moved_most_is_open_and_every_task_and_method_is_counted(cache, monkeypatch):
    write_run(cache, study=a_study_with_tasks())
    app = page(fq_method="flap", fq_kind="lost")
    listed = app.dataframe[1].value
    assert np.all(np.diff(listed["moved"].abs()) <= 0) and (listed["moved"] < 0).all()
    assert (listed["dense chose"] == listed["right"]).all()
    assert (listed["FLAP chose"] != listed["right"]).all()
    first, second = listed["no."][:2]
    assert f"Question {first}: the dense model is right, FLAP wrong" in words(app)
    assert app.button(key="fq_previous").disabled
    app.button(key="fq_next").click().run()
    assert f"Question {second}: the dense model is right" in words(app)
    assert app.query_params["fq_question"] == str(second)
    options = app.dataframe[2].value
    assert options["right"].tolist().count("✓") == 1
    assert "Dense" in options["chosen by"][options["right"] == "✓"].item()
    (figure,) = charts(app)
    assert [trace["name"] for trace in figure["data"]] == ["Dense", "GPrune", "FLAP"]
    drawn = {trace["name"]: trace["y"][int(np.argmax(trace["x"]))] for trace in figure["data"]}
    assert drawn["Dense"].endswith("✓") and not drawn["FLAP"].endswith("✓")
    app = show("flipped_questions", cache, study=a_study_with_tasks())
    table = app.dataframe[0].value
    assert table["method"].tolist() == ["GPrune", "FLAP"] * 2
    assert table["task"].tolist() == ["piqa"] * 2 + ["boolq"] * 2
    run = the_run(cache)
    base, other = (changed_answers.choices(run.load(stages.answers, name, "piqa"), "acc") for name in ("dense", "flap"))
    row = table.iloc[1]
    assert row["right → wrong"] == (base.hit & ~other.hit).sum() > 0
    assert row["wrong → right"] == (~base.hit & other.hit).sum()
    kinds = ["right → wrong", "wrong → right", "both right", "both wrong"]
    assert row[kinds].sum() == row["questions"] == 100
    assert 0 < row["p"] <= 1 and not app.error
    # the task without a normalised figure stands with its plain one
    assert page(fq_rule="acc_norm").dataframe[0].value["figure"].tolist() == ["acc_norm"] * 2 + ["acc"] * 2
    assert any(EVIL in code.value for code in app.code)
    assert "![x](" not in words(app) and "<script>" not in json.dumps(charts(app))
    assert not any(item.proto.allow_html for item in app.markdown)
    told = words(page(fq_question="101", fq_task="7", fq_rule="odd"))
    assert "fq_question = 101" in told.replace("\\", "") and "1 to 100 is meant" in told
    # one that does not flip can be opened all the same
    kept = words(page(fq_question="1"))
    assert "Question 1: the dense model is" in kept
    monkeypatch.setattr(list_card, "MOST_ROWS", 3)
    app = page(fq_method="flap")
    run = the_run(cache)
    (piqa, _) = task_answers.of(run)
    flips = changed_answers.flips(*(piqa.choices(name, "acc") for name in ("dense", "flap")))
    assert len(app.dataframe[1].value) == 3 < len(flips)
    assert f"3 of {len(flips)} shown: the others moved less" in words(app)


def test_a_run_without_tasks_offers_the_built_in_ones(cache, started):
    app = show("flipped_questions", cache)
    assert "measured on no task" in words(app) and not app.error
    app.button(key="fq_tasks").click().run()
    ((study, arguments),) = started
    assert study.evaluation.tasks == ("demo_continuation", "demo_order", "demo_cloze") and arguments == ()


def test_a_run_from_before_answers_were_kept_can_ask_again(cache, started):
    app = show("flipped_questions", cache, study=a_study_with_tasks(), makers=NO_ANSWERS)
    assert "are from before answers were kept" in words(app) and not charts(app) and not app.error
    app.button(key="fq_again").click().run()
    ((study, arguments),) = started
    assert study == the_run(cache).study and arguments == ("--until", "answers")


def test_a_run_on_its_way_and_one_that_lacks_the_dense_model_say_so(cache):
    write_run(cache, study=a_study_with_tasks(), stages="drift", state="cancelled")
    assert "Needs “answers of dense, task 1”" in words(page())
    write_run(cache, study=a_study_with_tasks(methods=("gprune", "flap")), seed=1)
    assert "Needs the dense model among the methods" in words(page())


def test_a_pack_has_the_answers_and_not_the_questions(cache, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    name = write_run(elsewhere, study=a_study_with_tasks())
    store = Store(elsewhere)
    packs.write_pack(store, packs.pack_contents(store, name), elsewhere / "run.zip")
    packs.unpack(elsewhere / "run.zip", Store(cache))
    app = page()
    assert "which the pack of this run did not bring, because its texts can be had back" in words(app)
    assert len(charts(app)) == 1 and not app.error
    assert app.dataframe[2].value["text"].tolist() == ["–"] * 4


@pytest.mark.browser
@pytest.mark.long
def test_a_flipped_question_opens(chromium, cache):
    makers = {
        **MAKERS,
        "questions": lambda task: Questions.of(
            task.asked, [(f"سؤال {n} 🤖", ["نعم", "لا", "a", "b"]) for n in range(100)]
        ),
    }
    write_run(cache, study=a_study_with_tasks(("/data/mine.jsonl",)), makers=makers)
    with visiting(chromium, cache) as visit:
        page = visit.page("compare")
        page.get_by_role("tab", name="Changed answers").click()
        page.locator(f".st-key-fq_item_chart {PLOT}").first.wait_for()
        expect(page.get_by_role("combobox", name="Task")).to_have_value("mine.jsonl")
        opened_first = page.locator(".st-key-card_fq_item h4").inner_text()
        assert "🤖" in page.locator(".st-key-card_fq_item code").first.inner_text()
        table = page.locator(".st-key-fq_rows canvas").first
        place = table.bounding_box()
        # the box of the third row
        page.mouse.click(place["x"] + 16, place["y"] + 38 + 2.5 * 35)
        page.wait_for_url("**fq_question=**")
        heading = page.locator(".st-key-card_fq_item h4")
        expect(heading).not_to_have_text(opened_first)
        number = page.url.partition("fq_question=")[2].partition("&")[0]
        expect(heading).to_contain_text(f"Question {number}:")
        expect(page.get_by_text("3 of", exact=False).first).to_be_visible()
        # the keyboard goes on
        following = page.get_by_role("button", name="Next")
        following.focus()
        page.keyboard.press("Enter")
        page.wait_for_url(lambda url: f"fq_question={number}" not in url)
        page.go_back()
        expect(heading).to_contain_text(f"Question {number}:")
