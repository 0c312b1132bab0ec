"""The table `study`: its rows, and the report of which claims hold; on runs made by hand."""

import pytest
from reproduction.fake_runs import finish
from reproduction.test_reproduction_command import call

from gprune.analysis.claims import RECOMMENDED, repaired
from gprune.experiments.reproduction import control_rows, tables, work
from gprune.experiments.reproduction.grid import Series
from gprune.experiments.reproduction.lookup import Finished
from gprune.experiments.reproduction.scale import choose
from gprune.records import REPAIRS
from gprune.store import Store
from gprune.study import Study, profiles
from gprune.study.methods import CONTROLS
from gprune.study.profiles import Profile

OTHER = (("sparsity.learning_rate", 0.1),)
PERPLEXITIES = {"gprune": 20.0, "flap": 40.0, "flap_pooled": 30.0, "msl_layers": 19.0, "gprune_no_rasa": 20.0}


@pytest.fixture
def series(monkeypatch: pytest.MonkeyPatch) -> Series:
    known = {"paper": Profile("paper", (), ""), "recommended": Profile("recommended", OTHER, "")}
    monkeypatch.setattr(profiles, "profile", known.__getitem__)
    return Series("demo", choose("demo", "study", {"seeds": (0, 1), "retentions": (0.5, 0.3)}))


def value(study: Study, method: str, text: str) -> float:
    """The same on every text but for a half more at the lower retention; recommended settings are better."""
    better = 0.9 if study.sparsity.learning_rate == 0.1 and method == "gprune" else 1.0
    return better * PERPLEXITIES.get(method, 50.0) * (1.0 if study.retention == 0.5 else 1.5)


def test_the_rows_are_every_method_its_controls_and_both_profiles_under_every_seed(series):
    rows = control_rows.fair_rows(series)
    names = [control_rows.identifier(row) for row in rows]
    assert names[0] == "dense" and names.count("dense") == 1
    assert set(CONTROLS) < set(names) and "wanda_sp_dense" not in names
    assert (
        names.count("gprune")
        == names.count(RECOMMENDED)
        == names.count(repaired(REPAIRS["bias_compensation"]))
        == names.count("flap_pooled")
        == 4
    )
    assert {control_rows.identifier(row) for row in rows if row.extra} == set(CONTROLS)
    # one study a retention and seed for all methods, one more each for compensation and the other profile
    entries = work.needed([tables.TABLES["study"]], series)
    assert len(entries) == 12 and sum(len(entry.study.methods) > 1 for entry in entries) == 4


def test_the_report_says_what_holds_and_what_does_not(tmp_path, series, capsys):
    store = Store(tmp_path)
    for entry in work.needed([tables.TABLES["study"]], series):
        finish(store, entry, value=value)
    assert Finished(store).answer(control_rows.fair_rows(series)[-1]) is not None
    words = ["study", "--model", "demo", "--seeds", 0, 1, "--cache", tmp_path]
    assert call(*words, "--report", tmp_path / "study.md") == 0
    assert "demo: every study is there" in capsys.readouterr().err
    text = (tmp_path / "study.md").read_text()
    claims = {line.split(" | ")[0]: line for line in text.splitlines() if " | " in line}
    # 20 against 40 and 30 on three texts at two retentions
    assert "| holds | 6 better, 0 within noise, 0 worse | −50.0 % |" in text
    assert claims["| GPrune is better than the best baseline"].endswith("worse | −33.3 % |")
    assert "does not hold | 0 better, 6 within noise" in claims["| RASA makes the model better"]
    against = claims["| the modules bring something beyond one learned threshold a layer"]
    assert "does not hold | 0 better, 0 within noise, 6 worse" in against
    assert "## demo at 50 %" in text and "## demo at 30 %" in text
    table = text.partition("## demo at 50 %")[2].partition("##")[0]
    (row,) = (line for line in table.splitlines() if line.startswith("| FLAP |"))
    assert row.count("40.00 ± 0.00") == 3 and row.count("+100.0 ± 0.0 %, worse") == 3
    assert "| MSL, one module a layer (FLAP) (control) |" in table
    assert "recommended profile | not recorded | 18.00 ± 0.00" in table


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["main", "--model", "demo", "--report", "x.md"], "made of the table 'study'"),
        (["study", "--model", "demo", "other", "--out", "x"], "--out takes the tables of one model"),
    ],
)
def test_what_cannot_be_written_is_refused(tmp_path, more, words):
    with pytest.raises(ValueError, match=words):
        call(*more, "--cache", tmp_path)
