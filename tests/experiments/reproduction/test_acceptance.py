"""Published figures beside ours: which studies they ask for, and what is said of each."""

import math

import pytest
from reproduction.accepting import DEMO_TEXT, call, listed

from gprune.data import published
from gprune.data.published.claims import COLUMNS, Claim, claims
from gprune.experiments.reproduction import acceptance, presets, work
from gprune.experiments.reproduction.acceptance import Acceptance, Compared
from gprune.experiments.reproduction.grid import Series
from gprune.experiments.reproduction.scale import choose
from gprune.system.errors import SettingsError


def accepted(name):
    """The package's own list for one of the three models."""
    model = presets.PRESETS[name].hub
    chosen = [claim for claim in claims() if claim.model == name and claim.figure != "accuracy"]
    scale = choose(model, "paper", {"tasks": ()})
    scale = choose(model, "paper", {"tasks": ()} | acceptance.scale_for(chosen, scale))
    return Acceptance(name, Series(model, scale), chosen)


def test_the_list_has_the_figures_of_the_three_models():
    found = {(c.model, c.method, c.retention, c.source): c.value for c in claims() if c.figure == "wikitext2"}
    assert found["LLaMA1-7B", "flap", 0.5, "FLAP's paper"] == 31.80
    rerun = "FLAP's code re-run (llm-pruning-collection)"
    assert [found["LLaMA1-7B", "flap", kept, rerun] for kept in (0.8, 0.7, 0.5)] == [15.05, 18.28, 33.00]
    assert [found["Llama3.1-8B", "wanda_sp", kept, rerun] for kept in (0.8, 0.7, 0.5)] == [
        27.49,
        67.27,
        292.09,
    ]
    assert found["Llama3.1-8B", "dense", 1.0, rerun] == 14.31
    assert found["LLaMA2-7B", "gprune:twflap", 0.5, "GPrune-LLM's paper"] == 36.83
    own = [claim for claim in claims() if claim.model == "LLaMA2-7B"]
    assert len(own) == 3 * len(published.table("main", "LLaMA2-7B"))


@pytest.mark.parametrize(
    ("name", "rows", "studies"), [("LLaMA1-7B", 6, 5), ("LLaMA2-7B", 22, 9), ("Llama3.1-8B", 7, 6)]
)
def test_figures_of_one_setting_share_a_row_and_rows_of_one_retention_a_study(name, rows, studies):
    found = accepted(name)
    entries = work.needed([found.table], found.series)
    assert (len(found.table.rows(found.series)), len(entries)) == (rows, studies)
    assert {entry.until for entry in entries} == {"perplexity"}
    for claim, row in found.asked:
        study = row.study
        assert study.calibration.samples == claim.samples and study.evaluation.length == 128
        of_flap = name != "LLaMA2-7B" and claim.method in ("flap", "dense")
        assert study.calibration.flap_variant == ("released" if of_flap else "paper")
        # FLAP's code gives its Wanda-sp another text
        assert study.primary == ("c4" if "primary=c4" in claim.settings else "wikitext2")
        assert ("primary=c4" in claim.settings) == (claim.method == "wanda_sp" and name != "LLaMA2-7B")
        assert row.method_id == claim.method and (study.retention == claim.retention or row.method == "dense")


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("huggyllama/llama-7b", "LLaMA1-7B"),
        ("decapoda-research/llama-7b-hf", "LLaMA1-7B"),
        ("meta-llama/Llama-2-7b-hf", "LLaMA2-7B"),
        ("meta-llama/Llama-3.1-8B", "Llama3.1-8B"),
        ("/models/Meta-Llama-3.1-8B/", "Llama3.1-8B"),
    ],
)
def test_a_model_is_known_by_its_name(model, name):
    assert presets.named(model) == name
    assert presets.named(model, "LLaMA2-7B") == "LLaMA2-7B"


@pytest.mark.parametrize(
    ("ours", "verdict"),
    [
        (103.0, "within 3%"),
        (97.0, "within 3%"),
        (103.1, "outside 3%"),
        (96.9, "outside 3%"),
        (math.nan, "not measured"),
    ],
)
def test_three_per_cent_is_the_line(ours, verdict):
    claim = Claim("m", "flap", 0.5, "t", 100.0, 16, "", "a paper")
    assert Compared(claim, None, ours, 0.5).verdict == verdict  # type: ignore[arg-type]


def test_a_list_of_ones_own_is_checked_line_by_line(tmp_path):
    good = {"method": "flap", "retention": 0.5, "value": 30.0}
    (found,) = claims(listed(tmp_path / "a.csv", good))
    assert found == Claim("Small", "flap", 0.5, DEMO_TEXT, 30.0, 16, "", "a paper")
    for change, words in (
        ({"value": "x"}, "line 3 of '.*b.csv' holds no numbers as retention, value and samples"),
        ({"retention": 1.5}, "line 3 of '.*b.csv' is no figure: retention must be in"),
        ({"method": "dense"}, "1 for dense alone"),
        ({"figure": ""}, "figure the name of a text, or accuracy"),
    ):
        with pytest.raises(SettingsError, match=words):
            claims(listed(tmp_path / "b.csv", good, good | change))
    (tmp_path / "e.csv").write_text(",".join(COLUMNS) + '\n"' + "x" * 200_000 + '"\n')
    with pytest.raises(SettingsError, match="e.csv' is no CSV .field larger than field limit"):
        claims(tmp_path / "e.csv")
    (tmp_path / "c.csv").write_text("model,method\nSmall,flap\n")
    with pytest.raises(SettingsError, match="lacks the columns retention, figure, value, samples, settings, source"):
        claims(tmp_path / "c.csv")
    with pytest.raises(SettingsError, match="no method 'flop'|flop"):
        call(
            "--model",
            "demo",
            "--as",
            "Small",
            "--published",
            listed(tmp_path / "d.csv", good | {"method": "flop"}),
        )


def test_a_model_of_another_name_or_size_is_refused(tmp_path):
    for model in ("meta-llama/Llama-2-13b-hf", "/somewhere/weights", "meta-llama/Llama-3.2-1B"):
        with pytest.raises(SettingsError, match="is no model that figures are published for: say which it is wit"):
            presets.named(model)
    with pytest.raises(SettingsError, match="--as must be one of LLaMA1-7B, .*got 'LLaMA9'"):
        presets.named("x", "LLaMA9")
    with pytest.raises(SettingsError, match="is not Llama3.1-8B: it has num_hidden_layers 6 and not 32, .*Get meta"):
        call("--model", "demo", "--as", "Llama3.1-8B", "--cache", tmp_path)
    assert presets.PRESETS["LLaMA2-7B"].weights == 6_476_005_376
    assert presets.PRESETS["Llama3.1-8B"].weights == 6_979_321_856
