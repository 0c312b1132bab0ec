"""The table `experts`: its studies, and a small run on the bundled mixture against studies of their own."""

import csv
from dataclasses import replace

import pytest
from reproduction.test_reproduction_command import call

from gprune import pipeline
from gprune.experiments.reproduction import tables, work
from gprune.experiments.reproduction.grid import Series
from gprune.experiments.reproduction.scale import choose
from gprune.store import Store
from gprune.study.methods import EXPERT_METHODS

SIZES = {"samples": 8, "windows": 2, "retentions": (0.5,), "seeds": (0, 1)}


def test_a_retention_and_seed_have_a_study_of_each_text_b():
    series = Series("demo-experts", choose("demo-experts", "experts"), "experts_reap")
    rows, entries = tables.expert_rows(series), work.needed_studies([tables.TABLES["experts"]], series)
    assert (
        len(rows) == 6 * (1 + 17 + 12)
        and len({(r.target, r.study.retention, r.study.seed, r.identifier) for r in rows}) == 180
    )
    assert len(entries) == 12 and {entry.study.retention for entry in entries} == {0.75, 0.5}
    assert {entry.study.auxiliary for entry in entries} == {"python-code", "self:science-docs#prompt=16"}


@pytest.mark.long
def test_the_report_has_the_numbers_of_studies_run_on_their_own(tmp_path, capsys):
    series, store = Series("demo-experts", choose("demo-experts", "experts", SIZES), "experts_reap"), Store(tmp_path)
    for entry in work.needed_studies([tables.TABLES["experts"]], series):
        pipeline.run(entry.study, store, lambda *_: None, until="perplexity")
    words = ["experts", "--model", "demo-experts", "--samples", 8, "--windows", 2, "--retentions", 0.5, "--seeds", 0, 1]
    assert call(*words, "--cache", tmp_path, "--report", tmp_path / "experts.md") == 0
    assert "all studies are finished" in capsys.readouterr().err
    study = series.base.with_settings({"methods": ["dense", "experts_man_score_average"], "seed": 1, "retention": 0.5})
    alone = pipeline.run(study, Store(tmp_path / "alone"), lambda *_: None, until="perplexity")
    expected = alone["perplexity"]["experts_man_score_average"]
    (path,) = tmp_path.glob("reproductions/*/experts.csv")
    rows = [
        r
        for r in csv.DictReader(path.open())
        if (r["method id"], r["seed"], r["text B"]) == ("experts_man_score_average", "1", "python-code")
    ]
    assert {row["subject"]: float(row["value"]) for row in rows} == pytest.approx(expected, rel=1e-6)
    text = (tmp_path / "experts.md").read_text()
    assert all(f"| {EXPERT_METHODS[name].label} |" in text for name in EXPERT_METHODS)
    first = pipeline.run(replace(study, seed=0), store, lambda *_: None, until="drift")
    drift = sum(result["expert_drift"]["man"]["drift"] for result in (first, alone)) / 2
    assert f"| demo-experts | MAN | python-code | {drift:.3g} |" in text
    (line,) = (line for line in text.splitlines() if line.startswith("| REAP on A is better than random experts"))
    assert line.count(" | ") == 5 and " of 2 | " in line and "REAP, ICLR 2026" in line
