"""Tables of speed: what a measurement says of a method, ratios to the dense model of its run, alignments."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from reproduction.fake_runs import a_series, finish, perplexity_of, throughput_of

from gprune.experiments.reproduction import tables, throughput, work, writing
from gprune.experiments.reproduction.assembly import REASON, Assembled, assemble
from gprune.experiments.reproduction.lookup import Finished
from gprune.records import Throughput
from gprune.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "cache")


def made(store: Store, name: str, **changes: Any) -> Assembled:
    return assemble(tables.TABLES[name], a_series(**changes), Finished(store))


def run_all(store: Store, *names: str, **changes: Any) -> None:
    for entry in work.needed(tables.choose(names), a_series(**changes)):
        finish(store, entry)


def test_rows_read_their_own_method_and_ratios_to_the_dense_model_of_their_run(store):
    run_all(store, "speed")
    table = made(store, "speed")
    assert table.filled == 8 and REASON not in table.display.columns
    # in a run the methods stand as dense, gprune, then the baselines: 10 tokens a second more each
    speeds = dict(zip(table.display["method"], table.display["whole tokens/s"], strict=True))
    assert speeds == {
        "dense": "100.00 ± 1.50",
        "LLM-Pruner": "120.00 ± 1.50",
        "Wanda-sp": "120.00 ± 1.50",
        "GPrune (Wanda-sp)": "110.00 ± 1.50",
        "FLAP": "130.00 ± 1.50",
        "GPrune (FLAP)": "110.00 ± 1.50",
        "FANG": "120.00 ± 1.50",
        "GPrune (twFLAP)": "110.00 ± 1.50",
    }
    assert list(table.display["whole ratio"])[:2] == ["1.000 ± 0.010", "1.200 ± 0.010"]
    assert {"prefill tokens/s", "prefill ratio", "decode tokens/s", "decode ratio"} <= set(table.display)
    assert set(table.display["memory MiB"]) == {"3.0"}
    assert not [name for name in table.display if "graph" in name or "PPL" in name]
    assert len({answer.run for answer in table.answers}) == 3
    # three runs, each with the dense model beside: 10 models in 3 phases
    assert len(table.attachments["runs"]) == 10 * 3
    assert "speed: float32 on cpu, batch 1; a processor, 2 threads" in table.notes
    assert "97.04" in set(table.published["tokens_per_second"])
    assert "6.74B" in set(table.published["parameters"])


def test_alignments_have_perplexities_beside_the_ratios(store):
    run_all(store, "alignment")
    table = made(store, "alignment")
    assert table.filled == 6
    assert list(table.display["alignment"]) == ["", "1", "8", "16", "32", "64"]
    assert list(table.display["whole ratio"]) == ["1.000 ± 0.010"] + ["1.100 ± 0.010"] * 5
    assert not [name for name in table.display if "tokens/s" in name]
    text = "science-docs"
    for answer, shown in zip(table.answers, table.display[f"{text} PPL"], strict=True):
        assert shown == f"{perplexity_of(answer.row.study, answer.row.method, text):.2f}"
    assert table.published.empty
    assert not any("as controls" in note for note in table.notes)
    assert any(note.startswith("not in the paper") for note in table.notes)
    long = table.long.drop_duplicates("row")
    assert list(long["sparsity.alignment"]) == [1, 1, 8, 16, 32, 64]
    assert not long["in paper"].any()


def test_a_method_that_cannot_run_leaves_the_others_their_speed(store):
    for entry in work.needed([tables.TABLES["speed"]], a_series()):
        out = {"llm_pruner": "no gradients: leave it out"} if "llm_pruner" in entry.study.methods else {}
        finish(store, entry, unavailable=out)
    table = made(store, "speed")
    assert [answer.reason for answer in table.answers] == ["", "no gradients: leave it out"] + [""] * 6
    assert work.missing([tables.TABLES["speed"]], a_series(), Finished(store)) == []


def test_a_run_of_fewer_methods_leaves_the_table_to_be_measured_side_by_side(store):
    row = next(row for row in tables.TABLES["speed"].rows(a_series()) if row.method_id == "gprune:flap")
    finish(store, replace(row.study, methods=("dense", "gprune")))
    assert Finished(store).answer(row) is None
    (entry,) = (
        t for t in work.missing([tables.TABLES["speed"]], a_series(), Finished(store)) if row in t.rows
    )
    assert entry.study.methods == ("dense", "gprune", "llm_pruner", "flap")


def test_the_tables_of_speed_are_written(store):
    run_all(store, "speed", "alignment")
    done = work.TableWork(store, a_series(), tables.choose(["speed", "alignment"]), store.root / "out")
    done.write(done.tables)
    index = writing.read_index(store.root / "out") or {}
    assert index["tables"]["speed"]["files"] == [
        "speed-published.csv",
        "speed-runs.csv",
        "speed.csv",
        "speed.md",
        "speed.tex",
    ]
    assert "alignment-published.csv" not in index["tables"]["alignment"]["files"]


def test_a_measurement_without_the_dense_model_first_says_nothing():
    study = a_series().study(changes={"evaluation.speed": "cpu"})
    record = throughput_of(study, ("gprune", "dense"))
    assert throughput.measures(record, "gprune") == []
    assert throughput.measures(Throughput("", "", ()), "gprune") == []
    found = throughput.measures(throughput_of(study, ("dense", "gprune")), "gprune")
    assert found[:2] == [("whole tokens/s", 110.0, 1.5), ("whole ratio", 1.1, 0.01)]
    assert throughput.measures(throughput_of(study, ("dense", "gprune")), "fang") == []
