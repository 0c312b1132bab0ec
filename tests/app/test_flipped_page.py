"""The tab Changed answers in every state, and a question that is opened in a browser."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from app_driver import charts, numbers, open_page, plain_words, show, words
from browser import expect, visiting
from made_runs import an_accuracy
from synthetic_measurements import ACCURACY, EVIL
from synthetic_run import MAKERS, a_study, the_run, write_run

from gprune.analysis import accuracy, changed_answers
from gprune.app.figures import flipped_questions as figures
from gprune.app.pages import flipped_questions as answers_page
from gprune.pipeline import packs, stages
from gprune.records import Accuracy
from gprune.store import Store
from gprune.study.settings import EvaluationSettings

TASKS = ("piqa", "boolq")


def a_study_with_tasks(tasks=TASKS, **changes):
    evaluation = EvaluationSettings(texts=("science-docs",), windows=16, tasks=tasks)
    return a_study(**({"methods": ("dense", "gprune", "flap"), "evaluation": evaluation} | changes))


def test_questions_that_were_asked_and_not_kept_are_told(cache):
    def more(task):
        created = MAKERS["answers"](task)
        return replace(created, documents=160) if task.asked == "piqa" else created

    app = show("questions", cache, study=a_study_with_tasks(), makers={**MAKERS, "answers": more})
    table = app.dataframe[1].value
    assert table["questions"].tolist() == [100] * 4 and table["asked"].tolist() == [160] * 2 + [100] * 2
    text = plain_words(app)
    assert "piqa: 100 of 160 questions shown. A run keeps" in text and "boolq: 100 of" not in text
    assert "(piqa, of its first 100 questions)" in text
    assert "first 100 questions)" not in words(open_page("questions", fq_task="1"))


def test_what_moved_most_is_open_and_every_task_and_method_is_counted(cache, monkeypatch):
    write_run(cache, study=a_study_with_tasks())
    app = open_page("questions", fq_method="flap", fq_kind="lost")
    listed = app.dataframe[2].value
    assert np.all(np.diff(listed["shift"].abs()) <= 0) and (listed["shift"] < 0).all()
    assert (listed["dense chose"] == listed["right"]).all()
    assert (listed["FLAP chose"] != listed["right"]).all()
    first, second = listed["number"][:2]
    assert f"Question {first}: the dense model is right, FLAP wrong" in words(app)
    app = open_page("questions", fq_method="flap", fq_kind="lost", fq_question=str(second))
    assert f"Question {second}: the dense model is right" in words(app)
    options = app.dataframe[3].value
    assert options["right"].tolist().count("✓") == 1
    assert "Dense" in options["chosen by"][options["right"] == "✓"].item()
    (figure,) = charts(app)
    assert [trace["name"] for trace in figure["data"]] == ["Dense", "GPrune", "FLAP"]
    rendered = {trace["name"]: trace["y"][int(np.argmax(trace["x"]))] for trace in figure["data"]}
    assert rendered["Dense"].endswith("✓") and not rendered["FLAP"].endswith("✓")
    app = show("questions", cache, study=a_study_with_tasks())
    table = app.dataframe[1].value
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
    table = numbers(open_page("questions", fq_rule="acc_norm"), 1)
    assert table["figure"].tolist() == ["acc_norm"] * 2 + ["acc"] * 2
    assert any(EVIL in code.value for code in app.code)
    assert "![x](" not in words(app) and "<script>" not in json.dumps(charts(app))
    assert not any(item.proto.allow_html for item in app.markdown)
    text = words(open_page("questions", fq_question="101", fq_task="7", fq_rule="odd"))
    assert 'Unknown fq_question "101". Use 1 to 100.' in text.replace("\\", "")
    # one that does not flip can be opened all the same
    retained = words(open_page("questions", fq_question="1"))
    assert "Question 1: the dense model is" in retained
    monkeypatch.setattr(answers_page, "MOST_ROWS", 3)
    app = open_page("questions", fq_method="flap")
    (piqa, _) = figures.answered_tasks(run)
    flips = changed_answers.flips(*(piqa.choices(name, "acc") for name in ("dense", "flap")))
    assert len(app.dataframe[2].value) == 3 < len(flips)
    assert f"3 of {len(flips)} shown; the others shift less" in words(app)


def test_the_list_and_its_question_come_with_the_rest_of_the_page(cache, monkeypatch):
    monkeypatch.setattr(answers_page.frame, "is_rest_deferred", lambda: True)
    app = show("questions", cache, study=a_study_with_tasks())
    assert len(app.dataframe) == 2 and not app.get("plotly_chart")
    assert "largest shift first" not in words(app)


def test_a_pack_has_the_answers_and_not_the_questions(cache, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    name = write_run(elsewhere, study=a_study_with_tasks())
    store = Store(elsewhere)
    packs.write_pack(store, packs.pack_contents(store, name), elsewhere / "run.zip")
    packs.unpack(elsewhere / "run.zip", Store(cache))
    app = open_page("questions")
    assert "which the pack of this run does not contain, because texts can be recovered" in words(app)
    assert len(charts(app)) == 1 and not app.error
    assert app.dataframe[3].value["text"].tolist() == ["–"] * 4


def test_a_task_of_another_metric_is_named_and_in_the_mean_if_it_is_a_share():
    figures = {"acc_norm": math.nan, "acc_error": 0.1, "acc_norm_error": math.nan, "samples": 8, "limit": 0}
    figures |= {"chance": math.nan, "version": "", "data": ""}
    exact = Accuracy(task="gsm8k", acc=0.25, metric="exact_match,strict-match", **figures)
    words = Accuracy(task="wikitext", acc=12.345, metric="word_perplexity", is_share=False, **figures)
    words = replace(words, higher_is_better=False)
    plain = Accuracy(task="boolq", acc=0.75, ability="knowledge", **figures)
    results = {"dense": {each.task: each for each in (exact, words, plain)}}
    table = answers_page.accuracy_table(results, "max").set_index("task")["Dense"]
    assert table["gsm8k (exact_match,strict-match)"].startswith("25.0 ±")
    assert table["wikitext (word_perplexity, lower is better)"] == "12.35"
    assert table["mean of 2 tasks"].startswith("50.0 ±") and table["knowledge (tasks: 1)"].startswith("75.0 ±")


def test_accuracy_shows_what_counts_under_each_rule(cache):
    evaluation = EvaluationSettings(texts=("c4",), tasks=("piqa", "hellaswag", "boolq"), limit=200)
    study = a_study(methods=("dense", "gprune"), evaluation=evaluation)
    app = show("questions", cache, study=study, missing_tasks={"hellaswag": f"no data {EVIL}"})
    table = next(item.value for item in app.dataframe if "chance" in item.value)
    assert table["task"].tolist() == ["piqa", "boolq", "mean of 2 tasks"]
    assert table["Dense"].tolist() == ["80.0 ± 5.9", "60.0 ± 5.9", "70.0 ± 4.2"]
    assert table["GPrune"].tolist()[:2] == ["70.0 ± 7.8ⁿ", "55.0 ± 5.9"]
    assert table["chance"].tolist() == ["50.0", "50.0", "50.0"]
    visible = words(app)
    assert "limited to 200 documents per task" in visible and r"lm\-eval 0\.4\.13" in visible
    assert "hellaswag was left out" in visible and "![x](" not in visible
    app.radio(key="fq_accuracy_rule_radio").set_value("fixed").run()
    table = next(item.value for item in app.dataframe if "chance" in item.value)
    assert table["Dense"].tolist()[:2] == ["70.0 ± 7.8ⁿ", "60.0 ± 5.9"]


def test_both_figures_are_in_the_table_behind(cache):
    evaluation = EvaluationSettings(tasks=("piqa", "boolq"))
    write_run(cache, study=a_study(methods=("dense", "gprune"), evaluation=evaluation))
    result = answers_page.load_accuracies(the_run(cache))
    table = answers_page.accuracy_details(result, "max")
    assert table["task"].tolist() == ["boolq", "boolq", "piqa", "piqa"]
    assert table["acc_norm"].isna().tolist() == [True, True, False, False]
    assert table["counts"].tolist() == ["acc", "acc", "acc", "acc_norm"]
    mean = accuracy.mean_accuracy(result["gprune"].values(), "max")
    assert mean.value == pytest.approx((0.7 + 0.55) / 2)


def test_a_method_without_all_tasks_gets_no_mean_and_sizes_have_a_unit():
    partly = ACCURACY | {"flap": {"piqa": an_accuracy("piqa", 0.5, 0.7)}}
    table = answers_page.accuracy_table(partly, "max")
    assert table["FLAP"].tolist() == ["70.0 ± 7.8ⁿ", "–", "–"]


def test_accuracy_that_is_missing_can_be_measured_without_data(cache, started):
    app = show("questions", cache)
    assert "This run has no task results" in words(app)
    app.button(key="fq_tasks").click().run()
    ((study, _),) = started
    assert study.evaluation.tasks and all(task.startswith("demo_") for task in study.evaluation.tasks)


def test_generated_answers_show_length_ends_and_loops_and_open_ones_what_multiple_choice_hides(cache):
    evaluation = EvaluationSettings(texts=("science-docs",), windows=16, tasks=("gsm8k", "piqa"), open_questions=True)
    study = a_study(methods=("dense", "flap"), evaluation=evaluation)
    app = show("questions", cache, {"fq_task": "0", "fq_answer": "1"}, study=study)
    assert not app.error and "FLAP: answers 1.0× as long as dense, 20% cut off, 20% in a loop" in plain_words(app)
    table = next(item.value for item in app.dataframe if "loops" in item.value)
    assert table[["tokens", "length ÷ dense", "cut off", "loops"]].to_numpy().tolist() == [[9, 1, 20, 20]] * 2
    assert [code.value for code in app.code].count("(empty answer)") >= 2
    assert "Dense, 9 tokens" in words(app)
    looping = open_page("questions", fq_task="0", fq_answer="3")
    assert "FLAP, 9 tokens, cut off, ends in a loop" in words(looping)
    openly = open_page("questions", fq_task="1")
    assert "Multiple choice overrates FLAP: against dense, accuracy changes by" in plain_words(openly)
    table = next(item.value for item in openly.dataframe if "only openly" in item.value)
    kinds = ["both right", "only with options", "only openly", "both wrong"]
    assert table[kinds].to_numpy().sum(axis=1).tolist() == [100, 100]
    run = the_run(cache)
    hit = changed_answers.choices(run.load(stages.answers, "flap", "piqa"), "acc").hit
    assert table["only with options"][1] == (hit & (np.arange(100) % 10 < 8)).sum()
    # the first example is right with options only
    first = int(openly.selectbox(key="fq_open_answer_selectbox").value) - 1
    assert hit[first] and first % 10 < 8


@pytest.mark.browser
@pytest.mark.long
def test_person_sees_what_a_model_answers_without_options(cache, chromium):
    evaluation = EvaluationSettings(texts=("science-docs",), windows=16, tasks=("piqa",), open_questions=True)
    write_run(cache, study=a_study(methods=("dense", "flap"), evaluation=evaluation))
    with visiting(chromium, cache) as visit:
        page = visit.page("questions?fq_method=flap", viewport={"width": 1280, "height": 900})
        card = page.locator(".st-key-card_fq_open_answers")
        page.mouse.wheel(0, 4000)
        expect(card.get_by_text("Multiple choice overrates FLAP")).to_be_visible()
        card.get_by_role("combobox").click()
        page.keyboard.type("96")
        page.keyboard.press("Enter")
        expect(card.get_by_text("(empty answer)").first).to_be_visible()
