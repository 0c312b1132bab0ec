"""Published figures beside ours: which studies they ask for, what is said of each, and the command itself."""

from __future__ import annotations

import argparse
import csv
import io
import math
import re
from pathlib import Path
from typing import Any

import pytest
import tiny_study
from huggingface_hub import constants
from reproduction.fake_runs import finish
from small_hub import serving

from gprune import jobs, published
from gprune.commands import EXIT_UNFILLED, accept
from gprune.errors import ModelError, SettingsError
from gprune.published.claims import COLUMNS, Claim, claims
from gprune.reproduction import acceptance, presets, work
from gprune.reproduction.acceptance import Acceptance, Compared
from gprune.reproduction.scale import choose
from gprune.reproduction.series import Series
from gprune.store import Store

DEMO_TEXT = "science-docs"


def parsed(*words: object) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    accept.add(parser.add_subparsers())
    return parser.parse_args(["accept", *map(str, words)])


def call(*words: object) -> int:
    options = parsed(*words)
    return int(options.command(options))


def asked(*words: object) -> Acceptance:
    return accept._acceptance(parsed(*words))


def listed(place: Path, *rows: dict[str, Any]) -> Path:
    """A list of published figures, as people write one."""
    file = io.StringIO()
    writer = csv.DictWriter(file, COLUMNS)
    writer.writeheader()
    common = {"model": "Small", "samples": 16, "settings": "", "source": "a paper", "figure": DEMO_TEXT}
    writer.writerows(common | row for row in rows)
    place.write_text(file.getvalue())
    return place


def accepted(name: str, model: str = "") -> Acceptance:
    """The package's own list for one of the three models."""
    model = model or presets.PRESETS[name].hub
    chosen = [claim for claim in claims() if claim.model == name and claim.figure != "accuracy"]
    scale = choose(model, "paper", {"tasks": ()})
    scale = choose(model, "paper", {"tasks": ()} | acceptance.scale_for(chosen, scale))
    return Acceptance(name, Series(model, scale), chosen)


def test_the_list_has_the_figures_of_the_three_models() -> None:
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
def test_figures_of_one_setting_share_a_row_and_rows_of_one_retention_a_study(
    name: str, rows: int, studies: int
) -> None:
    found = accepted(name)
    errands = work.needed([found.table], found.series)
    assert (len(found.table.rows(found.series)), len(errands)) == (rows, studies)
    assert {errand.until for errand in errands} == {"perplexity"}
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
def test_a_model_is_known_by_its_name(model: str, name: str) -> None:
    assert presets.named(model) == name
    assert presets.named(model, "LLaMA2-7B") == "LLaMA2-7B"


def test_a_model_of_another_name_or_size_is_refused(tmp_path: Path) -> None:
    for model in ("meta-llama/Llama-2-13b-hf", "/somewhere/weights", "meta-llama/Llama-3.2-1B"):
        with pytest.raises(
            SettingsError, match="is no model that figures are published for: say which it is wit"
        ):
            presets.named(model)
    with pytest.raises(SettingsError, match="--as must be one of LLaMA1-7B, .*got 'LLaMA9'"):
        presets.named("x", "LLaMA9")
    with pytest.raises(
        SettingsError, match="is not Llama3.1-8B: it has num_hidden_layers 6 and not 32, .*Get meta"
    ):
        call("--model", "demo", "--as", "Llama3.1-8B", "--cache", tmp_path)
    assert presets.PRESETS["LLaMA2-7B"].weights == 6_476_005_376
    assert presets.PRESETS["Llama3.1-8B"].weights == 6_979_321_856


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
def test_three_per_cent_is_the_line(ours: float, verdict: str) -> None:
    claim = Claim("m", "flap", 0.5, "t", 100.0, 16, "", "a paper")
    assert Compared(claim, None, ours, 0.5).verdict == verdict  # type: ignore[arg-type]


def test_a_list_of_ones_own_is_checked_line_by_line(tmp_path: Path) -> None:
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
    (tmp_path / "c.csv").write_text("model,method\nSmall,flap\n")
    with pytest.raises(
        SettingsError, match="lacks the columns retention, figure, value, samples, settings, source"
    ):
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


def table_of(text: str) -> list[list[str]]:
    lines = [line for line in text.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_finished_runs_are_held_against_the_list_without_a_job(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [
        {"method": "dense", "retention": 1.0, "value": 20.0},
        {"method": "flap", "retention": 0.5, "value": 40.0, "source": "one"},
        {"method": "flap", "retention": 0.5, "value": 44.0, "source": "two"},
        {"method": "gprune:flap", "retention": 0.5, "value": 30.0},
    ]
    file = listed(tmp_path / "list.csv", *rows)
    words = ["--model", "demo", "--as", "Small", "--published", file, "--cache", tmp_path / "cache"]
    words += ["--primary", "python-reference", "--auxiliary", "python-code"]
    found = asked(*words)
    ours = {"dense": 20.4, "flap": 41.2, "gprune": 31.0}
    for errand in work.needed([found.table], found.series):
        finish(Store(tmp_path / "cache"), errand, value=lambda study, method, text: ours[method])
    assert call(*words) == 0
    text = capsys.readouterr().out
    assert "2 of 4 figures within 3%, 2 outside." in text
    assert [line[-2:] for line in table_of(text)] == [
        ["+2.0%", "within 3%"],
        ["+3.0%", "within 3%"],
        ["-6.4%", "outside 3%"],
        ["+3.3%", "outside 3%"],
    ]
    assert table_of(text)[1][:6] == [
        "FLAP",
        "50%",
        f"perplexity, {DEMO_TEXT}",
        "40.00",
        "one",
        "41.20 ± 0.50",
    ]
    for words_ in (
        "versions: ",
        "device: ",
        "commit ",
        "command: `python -m gprune",
        "16 sequences a text",
        "2 windows of 128",
    ):
        assert words_ in text
    assert not jobs.jobs(tmp_path / "cache")
    (written,) = (tmp_path / "cache" / "acceptance").glob("*/acceptance.md")
    assert written.read_text() == text


def test_a_row_that_cannot_be_had_is_named_and_ends_with_three(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [
        {"method": "flap", "retention": 0.5, "value": 40.0},
        {"method": "fang", "retention": 0.5, "value": 40.0},
    ]
    file = listed(tmp_path / "list.csv", *rows)
    words = ["--model", "demo", "--as", "Small", "--published", file, "--cache", tmp_path / "cache"]
    words += ["--primary", "python-reference", "--auxiliary", "python-code"]
    found = asked(*words)
    for errand in work.needed([found.table], found.series):
        finish(Store(tmp_path / "cache"), errand, unavailable={"fang": "this model is too narrow"})
    assert call(*words) == EXIT_UNFILLED
    text = capsys.readouterr().out
    assert ", 1 not measured." in text and "- FANG: this model is too narrow" in text


def test_the_estimate_counts_passes_through_the_decoder() -> None:
    found = accepted("LLaMA1-7B")
    weights = presets.PRESETS["LLaMA1-7B"].weights
    assert acceptance.weights_of(found) == weights
    rows = found.table.rows(found.series)
    large, small, text = 1024 * 128, 128 * 128, 340_000
    # statistics of two texts under both settings, a sequential pass for each Wanda-sp, a text for each row
    expected = 2 * weights * (2 * large + 2 * small + 2 * small + 6 * text)
    assert acceptance.operations(rows, weights) == pytest.approx(expected)
    assert re.search(
        r"estimate: [\d.]+ PFLOP .* about [\d.]+ (s|min|h) at", acceptance.estimate(rows, weights)
    )


def test_a_dry_run_plans_and_an_absent_model_is_one_sentence_before_the_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--model", "huggyllama/llama-7b", "--cache", tmp_path]
    assert call(*words, "--dry-run") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "LLaMA1-7B: 9 figures in 6 rows, from 5 studies, 5 of them missing"
    assert [line.split()[0] for line in lines[1:]] == ["until"] * 5 + ["model:", "estimate:"]
    with pytest.raises(
        ModelError, match="'huggyllama/llama-7b' is not a folder on this machine, and the hub"
    ):
        call(*words)
    assert not (tmp_path / "jobs").exists()


def test_a_gated_model_says_how_to_get_access_in_the_plan_and_before_the_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    name = "meta-llama/Llama-3.1-8B"
    files = {"config.json": b"{}", "model.safetensors": b"0" * 3 * 2**20, "tokenizer.json": b"{}"}
    with serving(monkeypatch) as small:
        small.models[name] = files
        words = ["--model", name, "--cache", tmp_path / "cache"]
        assert call(*words, "--dry-run") == 0
        fetched = f"model: 3.0 MiB of '{name}' are to be fetched into '{tmp_path}/hub', with "
        assert capsys.readouterr().out.splitlines()[7].startswith(fetched)
        small.gated.add(name)
        assert call(*words, "--dry-run") == 0
        gated = (
            f"the model '{name}' is gated: ask for access at {small.address}/{name}, and when it is granted"
        )
        assert capsys.readouterr().out.splitlines()[7].startswith(f"model: {gated}")
        with pytest.raises(ModelError, match="is gated: ask for access at"):
            call(*words)
        small.gated.clear()
        # what was fetched is not the model whose figures these are
        with pytest.raises(
            SettingsError, match="is not Llama3.1-8B: it has num_hidden_layers None and not 32"
        ):
            call(*words)
    assert not (tmp_path / "cache" / "jobs").exists()


@pytest.mark.process
def test_a_small_model_is_held_against_a_list_for_real_and_goes_on_where_it_was(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    cache, texts = tmp_path / "cache", tiny_study.write_texts(tmp_path / "texts")
    model = tiny_study.write_model(tmp_path / "tiny", texts)
    settings = "calibration.flap_variant=released"
    rows = [
        {"method": "dense", "retention": 1.0, "value": 1.0},
        *({"method": "flap", "retention": kept, "value": 1.0} for kept in (0.7, 0.5)),
    ]
    common = {"figure": texts[2], "settings": settings}
    words = [
        "--model",
        model,
        "--as",
        "Small",
        "--cache",
        cache,
        "--primary",
        texts[0],
        "--auxiliary",
        texts[1],
    ]
    for size in ("calibration.length=16", 'evaluation.preset="16"', "evaluation.windows=6"):
        words += ["--set", size]
    first = listed(tmp_path / "first.csv", *(common | row for row in rows))
    assert call(*words, "--published", first) == 0
    assert {job.state for job in jobs.jobs(cache)} == {"done"} and len(jobs.jobs(cache)) == 2
    here = [float(line[5].split(" ")[0]) for line in table_of(capsys.readouterr().out)]
    assert all(value > 1 for value in here)
    # what others would have published had they measured a little, or much, less than we
    theirs = [value * share for value, share in zip(here, (1.0, 0.98, 0.9), strict=True)]
    others = [common | row | {"value": f"{value:.4f}"} for row, value in zip(rows, theirs, strict=True)]
    assert call(*words, "--published", listed(tmp_path / "second.csv", *others)) == 0
    text = capsys.readouterr().out
    assert [line[-1] for line in table_of(text)] == ["within 3%", "within 3%", "outside 3%"]
    assert "2 of 3 figures within 3%, 1 outside." in text
    assert len(jobs.jobs(cache)) == 2
