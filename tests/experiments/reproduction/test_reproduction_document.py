"""Tables in a document: rewritten with command, commit, seeds and spread, and none without them."""

import re
import sys
from dataclasses import replace

import pandas as pd
import pytest
from reproduction.fake_runs import finish
from reproduction.test_reproduction_command import call
from synthetic_tables import filled, write_tables

from gprune.analysis.claims import RECOMMENDED, repaired_id
from gprune.experiments.reproduction import tables, work
from gprune.experiments.reproduction.grid import Series
from gprune.experiments.reproduction.lookup import Answer, ResultLookup
from gprune.experiments.reproduction.scale import choose
from gprune.records import REPAIRS
from gprune.store import Store
from gprune.study import profiles
from gprune.study.methods import CONTROLS
from gprune.study.profiles import Profile
from scripts import results_document as document

VERSIONS = {"gprune": "0.1.0", "commit": "abc123", "torch": "2.13.0", "uncommitted_changes": False}
MARKS = "before\n<!-- table: {} of demo at demo -->\nold\n<!-- end of table -->\nafter\n"


def with_versions(row):
    return replace(filled(row), versions=VERSIONS)


def test_a_table_is_written_between_its_marks_with_what_repeats_it(tmp_path):
    write_tables(tmp_path, "ablation", fill=with_versions)
    text, missing = document.rewritten(MARKS.format("ablation"), tmp_path)
    assert not missing and text.startswith("before\n") and text.endswith("<!-- end of table -->\nafter\n")
    assert "old" not in text
    assert "- Command: `python -m gprune reproduce ablation --model demo`" in text
    assert "- Commit: abc123; gprune 0.1.0, torch 2.13.0" in text
    assert "- Seeds: 0; ± is half the width of the 95% interval over windows" in text
    assert "| GPrune (FLAP) | yes | yes | yes | 50.0% | 40.00 ± 1.96 | 80.00 ± 1.96 | 120.00 ± 1.96 |" in text
    assert document.rewritten(text, tmp_path) == (text, [])
    dirty = VERSIONS | {"uncommitted_changes": True}
    write_tables(tmp_path, "ablation", fill=lambda row: replace(filled(row), versions=dirty))
    text, _ = document.rewritten(text, tmp_path)
    assert "- Commit: abc123 with changes that were not committed" in text


def test_a_table_as_csv_is_a_file_beside_the_document_with_the_same_cells(tmp_path):
    write_tables(tmp_path, "ablation", fill=with_versions)
    mark = MARKS.format("ablation").replace(" -->\nold", " as csv -->\nold")
    text, missing = document.rewritten(mark, tmp_path, tmp_path / "results")
    assert not missing and "### [ablation](results/ablation.csv): " in text and "- Commit: abc123" in text
    assert "| --- |" not in text and text.count("- Notes: ") == 1
    cells = pd.read_csv(tmp_path / "results" / "ablation.csv", dtype=str)
    (row,) = cells[(cells["method"] == "GPrune (FLAP)") & (cells["RASA"] == "yes")].to_dict("records")
    assert row["python-reference PPL"] == "40.00 ± 1.96" and row["kept"] == "50.0%"


def test_what_the_cache_does_not_have_stays_and_is_named(tmp_path):
    write_tables(tmp_path, "ablation", fill=lambda row: Answer(row, reason="not run yet"))
    text = MARKS.format("ablation") + MARKS.format("main")
    assert document.rewritten(text, tmp_path) == (text, ["ablation of demo at demo", "main of demo at demo"])
    # a mark without its end is no table
    lone = "<!-- table: main of demo at demo -->\nold\n"
    assert document.rewritten(lone, tmp_path) == (lone, [])


def test_reproductions_that_differ_in_their_seed_alone_are_taken_together(tmp_path):
    write_tables(tmp_path, "main", fill=with_versions)
    for seed in (1, 2):
        write_tables(tmp_path, "main", fill=with_versions, scale=choose("demo", "demo", {"seeds": (seed,)}))
    # another size is another table
    write_tables(tmp_path, "main", fill=with_versions, scale=choose("demo", "demo", {"seeds": (3,), "samples": 48}))
    text, _ = document.rewritten(MARKS.format("against"), tmp_path)
    assert "- Seeds: 0, 1, 2; ± is the standard deviation over seeds" in text and text.count("gprune reproduce") == 1
    # 40, 40.4 and 40.8 against FANG's 45, 45.45 and 45.9
    assert "| 50% | python-reference | 40.40 ± 0.33 | FANG 45.45 ± 0.37 (0.889 ± 0.000) |" in text


@pytest.mark.parametrize(
    ("table", "line"),
    [
        ("metric-gap", "50% | 50.5 ± 0.4082 | 20.2 ± 0.1633 | 0.6 ± 0 |\n"),
        ("gain-by-retention", "50.5 ± 0.4082 | 40.4 ± 0.3266 | 0.8 ± 0 | ratio | 3 of 3 seeds |\n"),
    ],
)
def test_a_table_that_is_computed_from_others_is_computed_once_a_seed(tmp_path, table, line):
    for seed in (2, 0, 1):
        scale = choose("demo", "demo", {"seeds": (seed,)})
        write_tables(tmp_path, table, fill=with_versions, scale=scale)
    text, missing = document.rewritten(MARKS.format(table), tmp_path)
    assert not missing and f"| python-reference PPL | {line}" in text
    assert "- Seeds: 0, 1, 2; ± is the standard deviation over seeds" in text and text.count("gprune reproduce") == 1


def test_the_script_rewrites_a_document_and_says_what_is_missing(project, tmp_path, monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(project / "scripts"))
    import results

    write_tables(tmp_path, "ablation", fill=with_versions)
    page = tmp_path / "page.md"
    page.write_text(MARKS.format("ablation") + MARKS.format("speed"), encoding="utf-8")
    assert results.main(["--cache", str(tmp_path), "--document", str(page)]) == results.INCOMPLETE
    assert "has no results of it: speed of demo at demo" in capsys.readouterr().err
    assert "abc123" in page.read_text(encoding="utf-8")
    assert results.main(["--cache", str(tmp_path), "--document", str(tmp_path / "none.md")]) == 2
    sys.modules.pop("results", None)


def test_every_table_of_the_results_says_what_repeats_it_or_that_this_is_not_known(project):
    text = (project / "docs" / "results.md").read_text(encoding="utf-8")
    blocks = re.split(r"<!-- table: .* -->|<!-- end of table -->", text.partition("\n## Reproduce a table\n")[0])
    outside, inside = blocks[0::2], blocks[1::2]
    assert len(inside) > 10 and not any(line.startswith("|") for part in outside for line in part.split("\n"))
    for part in inside:
        for fact in ("- Command: ", "- Commit: ", "- Seeds: ", "± is"):
            assert fact in part, part[:80]
    linked = re.findall(r"\]\((results/[a-z0-9-]+\.csv)\)", text)
    assert len(linked) > 10 and all((project / "docs" / file).is_file() for file in linked)


OTHER = (("sparsity.learning_rate", 0.1),)
PERPLEXITIES = {"gprune": 20.0, "flap": 40.0, "flap_pooled": 30.0, "msl_layers": 19.0, "gprune_no_rasa": 20.0}


@pytest.fixture
def series(monkeypatch):
    by_name = {"paper": Profile((), ""), "recommended": Profile(OTHER, "")}
    monkeypatch.setattr(profiles, "profile", by_name.__getitem__)
    return Series("demo", choose("demo", "study", {"seeds": (0, 1), "retentions": (0.5, 0.3)}))


def value(study, method, text):
    """The same on every text but for a half more at the lower retention; recommended settings are better."""
    better = 0.9 if study.sparsity.learning_rate == 0.1 and method == "gprune" else 1.0
    return better * PERPLEXITIES.get(method, 50.0) * (1.0 if study.retention == 0.5 else 1.5)


def test_the_rows_are_every_method_its_controls_and_both_profiles_under_every_seed(series):
    rows = tables.fair_rows(series)
    names = [row.identifier for row in rows]
    assert names[0] == "dense" and names.count("dense") == 1
    assert set(CONTROLS) < set(names) and "wanda_sp_dense" not in names
    expected = ("gprune", RECOMMENDED, repaired_id(REPAIRS["bias_compensation"]), "flap_pooled", "flap equal widths")
    assert [names.count(name) for name in (*expected, "recommended")] == [4] * 6
    assert {row.identifier for row in rows if row.extra} == set(CONTROLS)
    # one study a retention and seed for all methods, one more each for compensation, the other profile and
    # equal widths
    entries = work.needed_studies([tables.TABLES["study"]], series)
    assert len(entries) == 16 and sum(len(entry.study.methods) > 1 for entry in entries) == 8


def test_the_report_says_what_holds_and_what_does_not(tmp_path, series, capsys):
    store = Store(tmp_path)
    for entry in work.needed_studies([tables.TABLES["study"]], series):
        finish(store, entry, value=value)
    assert ResultLookup(store).answer(tables.fair_rows(series)[-1]) is not None
    words = ["study", "--model", "demo", "--seeds", 0, 1, "--cache", tmp_path]
    assert call(*words, "--report", tmp_path / "study.md") == 0
    assert "demo: all studies are finished" in capsys.readouterr().err
    text = (tmp_path / "study.md").read_text()
    claims = {line.split(" | ")[0]: line for line in text.splitlines() if " | " in line}
    # 20 against 40 and 30 on three texts at two retentions
    assert "| holds | 6 better, 0 within noise, 0 worse | −50.0% |" in text
    assert claims["| GPrune is better than the best baseline"].endswith("worse | −33.3% |")
    assert "does not hold | 0 better, 6 within noise" in claims["| RASA improves the model"]
    against = claims["| learned thresholds per module are better than one per layer"]
    assert "does not hold | 0 better, 0 within noise, 6 worse" in against
    assert "## demo at 50%" in text and "## demo at 30%" in text
    table = text.partition("## demo at 50%")[2].partition("##")[0]
    (row,) = (line for line in table.splitlines() if line.startswith("| FLAP |"))
    assert row.count("40.00 ± 0.00") == 3 and row.count("+100.0 ± 0.0%, worse") == 3
    assert "| MSL, one module a layer (FLAP) (control) |" in table
    assert "recommended profile | not recorded | 18.00 ± 0.00" in table
