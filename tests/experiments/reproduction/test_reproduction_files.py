"""Reproduced tables on disk: full numbers, safe names and cells, and a catalogue that reads them back."""

import json
from concurrent.futures import ThreadPoolExecutor

import pandas as pd
import pytest
from reproduction.fake_runs import a_scale, a_series, perplexity_of, run_tables

from gprune.experiments.reproduction import catalogue, tables, work
from gprune.experiments.reproduction.assembly import NOT_RUN
from gprune.pipeline import runs
from gprune.system.errors import StoreError

TEXTS = ("python-reference", "science-docs", "python-code")


def a_work(store, *names, series=None):
    series = series or a_series()
    folder = store.root / "reproductions" / catalogue.folder_name(series.model, series.scale)
    return work.TableWork(store, series, tables.choose_tables(names), folder, command="python -m gprune reproduce")


def test_writers_at_the_same_time_lose_no_table(store):
    names = ("ablation", "calibration-pair", "figure-1a", "figure-3a", "module-overlap")
    run_tables(store, *names)
    works = [a_work(store, name) for name in names]
    with ThreadPoolExecutor(len(works)) as pool:
        for _ in pool.map(lambda work: work.write(work.tables), works * 3):
            pass
    assert set((catalogue.read_index(works[0].folder) or {})["tables"]) == set(names)


def test_files_hold_the_numbers_in_full_and_the_published_ones_apart(store):
    run_tables(store, "main")
    done = a_work(store, "main")
    done.write(done.tables)
    long = pd.read_csv(done.folder / "main.csv")
    # three texts, and of three tasks the second has a normalised accuracy as well
    assert len(long) == 22 * (3 + 4)
    row = long[(long["method id"] == "gprune:twflap") & (long["target"] == 0.7) & (long["subject"] == TEXTS[2])]
    study = next(
        r.study for r in tables.main(a_series()) if r.method_id == "gprune:twflap" and r.study.retention == 0.7
    )
    assert row["value"].item() == perplexity_of(study, "gprune", TEXTS[2])
    assert row["run"].item() in dict(runs.read_all(store))
    assert (row["calibration.samples"].item(), row["windows"].item(), row["retained"].item()) == (96, 2, 0.699)
    assert 37.02 in pd.read_csv(done.folder / "main-published.csv")["wikitext2 PPL"].to_numpy()
    text = (done.folder / "main.md").read_text()
    measured, published = text.split("## published, LLaMA2-7B")
    assert "37.02" in published and "37.02" not in measured
    assert (done.folder / "main.tex").read_text().count(r"\begin{tabular}") == 2
    assert "tasks demo_continuation, demo_order, demo_cloze, at most 48 documents each, in the studies" in text


@pytest.mark.parametrize("model", ["../../x", "/a/b/../..", "..", "a/../../../etc/passwd", "über modell/", "x" * 300])
def test_no_model_name_leaves_the_cache(model, tmp_path):
    folder = tmp_path / "reproductions" / catalogue.folder_name(model, a_scale())
    assert folder.parent == tmp_path / "reproductions"
    assert catalogue._NAME.fullmatch(folder.name)


def test_the_catalogue_lists_and_loads_what_was_written(store):
    assert catalogue.reproductions(store.root) == []
    run_tables(store, "ablation")
    first = a_work(store, "ablation")
    (written,) = first.write(first.tables)
    second = a_work(store, "seeds")
    second.write(second.tables)
    (listed,) = catalogue.reproductions(store.root)
    assert (listed.name, listed.model, listed.tables) == ("demo-demo", "demo", ("ablation", "seeds"))
    assert listed.scale["samples"] == 96
    ablation, empty = (catalogue.load(store.root, listed.name, name) for name in ("ablation", "seeds"))
    assert ablation is not None and empty is not None
    assert catalogue.load(store.root, listed.name, "speed") is None
    rows = ablation.rows["max"]
    assert ablation.filled == 4 and [row.reason for row in rows] == [""] * 4
    assert all(runs.read(store, row.run) for row in rows)
    assert [row.method for row in rows][:2] == ["flap", "gprune:flap"]
    # what the pages compare is what the table was made of, to the last digit
    assert rows == written.rows["max"]
    assert set(ablation.rows) == {"max", "fixed"} and all(
        sum("ppl:" in name for name in row.values) == 3 for row in rows
    )
    assert ablation.display.equals(written.display)
    assert "37.02" in set(ablation.published["wikitext2 PPL"])
    assert sum(pd.read_csv(listed.folder / "ablation.csv")["measure"] == "perplexity") == 12
    assert {row.reason for row in empty.rows["fixed"]} == {NOT_RUN}


def test_a_damaged_or_foreign_index_is_passed_over_or_named(store):
    done = a_work(store, "seeds")
    done.write(done.tables)
    index = done.folder / catalogue.INDEX
    for name in ("../reproductions/demo-demo", "", "absent"):
        with pytest.raises(StoreError, match="there is no reproduction"):
            catalogue.load(store.root, name, "seeds")
    entry = json.loads(index.read_text())["tables"]["seeds"]
    for odd in ({**entry, "filled": float("inf")}, {name: entry[name] for name in set(entry) - {"display"}}):
        index.write_text(json.dumps(json.loads(index.read_text()) | {"tables": {"seeds": odd}}))
        with pytest.raises(StoreError, match="damaged"):
            catalogue.load(store.root, "demo-demo", "seeds")
    index.write_text("{")
    assert catalogue.reproductions(store.root) == []
