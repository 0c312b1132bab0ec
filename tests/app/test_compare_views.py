"""The other views of the compare page: reproduced tables, the recorded comparison, mask sets by hand."""

import json
from dataclasses import replace

import pytest
from app_driver import charts, numbers, open_page, plain_words, words
from synthetic_run import a_study, grouped_runs, write_run
from synthetic_tables import filled, write_tables

from gprune.app.pages import studies
from gprune.app.ui import documents
from gprune.experiments.reproduction import catalogue, tables
from gprune.experiments.reproduction.lookup import Answer
from gprune.experiments.reproduction.scale import choose

# every test walks through pages
pytestmark = pytest.mark.slow


def on_studies(table, **query):
    return open_page("studies", cp_study=table, **query)


def commands(app):
    return [code.value for code in app.code if "reproduce" in code.value]


def test_a_table_that_is_not_there_says_how_to_make_it(cache):
    write_run(cache, study=a_study(model="/models/my model"))
    app = on_studies("ablation")
    assert "No results for this table yet" in words(app) and not charts(app)
    assert commands(app) == ["python -m gprune reproduce ablation --model '/models/my model' --scale demo"]


def test_main_shows_rows_and_gains_and_seeds_are_one_row_or_a_row_each(cache, name):
    write_tables(cache, "main")
    app = on_studies("main")
    table = numbers(app)
    assert table["method"].tolist()[:3] == ["dense", "LLM-Pruner", "Wanda-sp"] and len(table) == 34
    assert "controls included; additional controls that are not in the paper: 12" in plain_words(app)
    text = table.columns[3]
    assert text == "python-reference PPL ↓"
    # FLAP at 80 %: 50 * 0.5 / 0.8 = 31.25, against the dense model's 20 at 50 %
    assert table[text][table.index[4]] == "31.25 ± 1.96 (+56.2%)"
    # of one seed within their errors: 23.75 and 25, each ± 1.96
    assert all(table[text][table.index[location]].endswith("★") for location in (5, 7))
    write_tables(cache, "gain-by-retention")
    app = on_studies("gain-by-retention")
    assert "GPrune against its base metric: python-reference PPL in 9 comparisons" in words(app)
    # 100 - 50 before and 60 - 40 after, at every retention and text
    assert "Gap between Wanda-sp and FLAP, before and after GPrune" in words(app)
    gap = numbers(app, 1)
    assert gap["reduction"].tolist() == pytest.approx([0.6] * 9)
    assert len(numbers(app)) == 9
    write_tables(cache, "seeds")
    app = on_studies("seeds")
    # 45, 45.45 and 45.9: mean 45.45, deviation 0.45 * sqrt(2 / 3)
    assert numbers(app)["n"].tolist() == [3, 3]
    assert numbers(app).iloc[0, 3] == "45.45 ± 0.37 ☆"
    assert numbers(app).iloc[1, 3] == "38.38 ± 0.31 (−15.6%) ★"
    app.toggle(key="cp_study_each_toggle").set_value(True).run()
    assert numbers(app)["seed"].tolist() == ["0", "1", "2"] * 2 and "n" not in numbers(app).columns


def test_a_table_that_is_not_whole_says_why_and_calls_no_best(cache, name):
    def half(row):
        adapts = row.study.reliability.selection != "none"
        return filled(row) if adapts else Answer(row, reason="the disk is <b>full</b>")

    write_tables(cache, "ablation", fill=half)
    app = on_studies("ablation")
    assert numbers(app)["not filled because"].tolist() == ["", *["the disk is <b>full</b>"] * 2, *[""] * 4]
    assert numbers(app).iloc[1, 5] == "–" and "5 of 7 rows" in words(app)
    assert "2 of 7 rows: the disk is \\<b\\>full" in words(app)
    assert commands(app) == ["python -m gprune reproduce ablation --model demo --scale demo"]
    assert "is best on every measure" not in words(app)
    write_tables(cache, "ablation", fill=lambda row: Answer(row, reason="not run yet"))
    app = on_studies("ablation")
    assert "No row of this table is measured yet" in words(app)
    assert "7 of 7 rows: not run yet" in words(app)

    def uneven(row):
        return replace(filled(row), retention=0.52 if row.method == "flap" else 0.5)

    write_tables(cache, "ablation", fill=uneven)
    app = on_studies("ablation")
    assert "No best row: the retentions differ by 2" in plain_words(app)
    assert "★" not in " ".join(numbers(app).astype(str).to_numpy().ravel())
    write_tables(cache, "ablation")
    app = on_studies("ablation")
    measured, neighbours = numbers(app, 0), numbers(app, 1)
    assert "42.81" in neighbours.to_numpy().ravel() and "42.81" not in measured.to_numpy().ravel()
    assert not set(measured.columns) & {"wikitext2 PPL", "protocol"}
    assert "published, not run here" in words(app)


def test_the_run_behind_a_row_becomes_the_run_of_every_page(cache):
    main_run, created = grouped_runs(cache)
    write_tables(cache, "ablation", fill=lambda row: filled(row, created[2]))
    app = on_studies("ablation")
    assert app.selectbox(key="frame_run").value == main_run
    assert app.selectbox(key="cp_study_run_selectbox").options == ["FLAP · part · seed 3"]
    app.button(key="cp_study_open").click().run()
    assert app.selectbox(key="frame_run").value == created[2] and not app.exception


@pytest.mark.parametrize("name", tables.TABLES)
def test_every_table_can_be_shown(cache, name):
    run = write_run(cache)
    write_tables(cache, name, fill=lambda row: filled(row, run))
    app = on_studies(name)
    assert "measured here" in words(app) and not app.error and len(numbers(app))
    ranked = "★" in " ".join(numbers(app).astype(str).to_numpy().ravel())
    assert not (ranked and name.startswith("figure-"))


def test_a_damaged_table_costs_itself_only_and_names_are_text(cache, name):
    folder = write_tables(cache, "ablation", "seeds")
    index = json.loads((folder / "index.json").read_text(encoding="utf-8"))
    index["tables"]["ablation"]["rows"]["max"][0].pop("labels")
    (folder / "index.json").write_text(json.dumps(index), encoding="utf-8")
    app = on_studies("ablation")
    assert len(app.error) == 1 and "the table 'ablation' in" in app.error[0].value
    assert "1 required positional argument" in app.error[0].value
    assert not on_studies("seeds").error
    # the files beside the index are for other programs
    (folder / "seeds.csv").unlink()
    assert not on_studies("seeds").error
    (folder / "index.json").write_text("{", encoding="utf-8")
    assert "No results for this table yet" in words(on_studies("seeds"))
    evil = "<script>alert(1)</script> ![x](http://example.org/x.png)"
    write_tables(cache, "ablation", fill=lambda row: replace(filled(row), run=evil), model=evil)
    app = on_studies("ablation")
    assert "![x](" not in words(app) and "<script>" not in str(charts(app)) and not app.exception


def test_a_scale_of_its_own_goes_on_by_its_recorded_command(cache):
    write_tables(cache, "ablation", scale=choose("demo", "demo", {"samples": 32}))
    write_tables(cache, "ablation")
    results = {
        created.name: studies.continue_command("ablation", created) for created in catalogue.reproductions(cache)
    }
    assert results.pop("demo-demo").endswith("--scale demo")
    assert list(results.values()) == ["python -m gprune reproduce ablation --model demo"]
    assert all(isinstance(created, catalogue.Reproduction) for created in catalogue.reproductions(cache))


def test_the_document_is_shown_whole_with_its_claims_first(name):
    app, saved = open_page("studies", cp_view="fair"), documents.DOCUMENT.read_text()
    visible = [part.value for part in app.markdown]
    rows = [line for line in saved.splitlines() if line.startswith("| ")]
    assert rows and all(any(row in part for part in visible) for row in rows)
    headings = [line.removeprefix("## ") for line in saved.splitlines() if line.startswith("## ")]
    assert app.subheader[0].value == headings[0]
    assert [item.label for item in app.expander if item.label in headings] == headings[1:]
    assert "recorded, not this run" in words(app) and "sequences of A" in words(app)
    assert "reproduce study --model" in words(app)


def test_a_view_that_is_recorded_is_read_without_a_run_and_says_how_it_is_made(cache, tmp_path, monkeypatch):
    assert open_page("studies", cp_view="fair").subheader[0].value == "Which claims hold here"
    monkeypatch.setattr(documents, "DOCUMENT", tmp_path / "study.md")
    write_run(cache)
    assert "python -m gprune reproduce study --report study.md" in words(open_page("studies", cp_view="fair"))
