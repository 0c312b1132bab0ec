"""The published figures: read from anywhere, held against the paper's sentences."""

import pandas as pd

from gprune.analysis import published as claims
from gprune.analysis import tables
from gprune.data import published

TWO_MODELS = ("LLaMA2-7B", "Vicuna1.5-7B")


def row(table, method, retention=0.5, **chosen):
    model = chosen.get("model", "LLaMA2-7B")
    rows = [
        item
        for item in published.table(table, model, chosen.get("rule", "max"))
        if (item.method, item.retention) == (method, retention) and chosen.get("variant", item.variant) == item.variant
    ]
    assert len(rows) == 1
    return rows[0]


def gain(base, retention, metric, model="LLaMA2-7B"):
    table = tables.gain_by_retention(claims.main_frame(model))
    rows = table[(table.base == base) & (table.retention == retention) & (table.metric == metric)]
    assert len(rows) == 1
    return rows.iloc[0]


def test_no_row_is_missing_and_none_means_every_model():
    rows = {name: published.table(name, None) for name in published.TABLES}
    assert sum(map(len, rows.values())) == 136
    assert len(rows["main"]) == sum(len(published.table("main", model)) for model in published.MODELS) == 63


def test_one_cell_of_each_kind_is_the_papers():
    fixed_rule = row("main", "gprune:twflap", model="LLaMA2-13B", rule="fixed", retention=0.3).values
    tasks = ("boolq", "piqa", "hellaswag", "winogrande", "arc_easy", "arc_challenge", "openbookqa")
    assert list(fixed_rule) == ["wikitext2_ppl", "ptb_ppl", *tasks, "mean_accuracy"]
    assert [*fixed_rule.values()] == [90.77, 391.91, 59.51, 55.17, 31.58, 51.85, 32.91, 26.62, 34.2, 41.69]
    assert row("ablation", "gprune:flap", variant="BCM+MSL").values["ptb_ppl"] == 147.31
    assert row("speed", "dense", 1.0).values == {"tokens_per_second": 97.04, "parameters": 6.74e9}
    few = row("calibration-samples", "gprune:flap", variant="512 samples 7 epochs").values
    assert (few["samples"], few["epochs"], few["mean_accuracy"]) == (512, 7, 46.71)
    second = [item for item in published.table("seeds") if item.seed == 1 and item.method == "fang"]
    assert [item.values["ptb_ppl"] for item in second] == [155.82]
    overlap = published.table("module-overlap")[0].values
    assert overlap == {"ari": 0.575, "ari_std": 0.121, "overlap": 0.707, "overlap_std": 0.122}
    bins = {(item.method, item.variant): item.values for item in published.table("figure-3a")}
    assert bins["gprune:flap", "0-80%"] == {"gain_lowest": 0.023, "gain_highest": 0.074}


def test_other_tables_have_accuracy_under_max_only_and_models_without_a_table_no_rows():
    ablation = row("ablation", "flap", variant="none", rule="fixed")
    assert ablation.values == {"wikitext2_ppl": 42.81, "ptb_ppl": 152.49}
    assert ablation.rule == "fixed" and "under max only" in ablation.note
    assert published.table("figure-1a", rule="fixed") == published.table("figure-1a")
    assert published.table("ablation", "LLaMA2-13B") == [] and published.frame([]).empty


def test_frame_has_the_columns_of_the_shared_arithmetic():
    frame = published.frame(published.table("main"))
    tasks = [f"accuracy:{task}" for task in published.TASKS]
    assert tables.metrics(frame) == ["ppl:wikitext2", "ppl:ptb", *tasks, "accuracy"]
    dense = frame[frame.method == "dense"].iloc[0]
    assert dense["retention"] == 1.0 and dense["ppl:ptb"] == 48.35 and pd.isna(dense["seed"])


# the paper's sentences


def test_perplexity_of_wanda_sp_falls_by_76_8_percent():
    gain_in_percent = gain("wanda_sp", 0.5, "ppl:wikitext2")
    assert (gain_in_percent.before, gain_in_percent.after) == (262.32, 60.80)
    assert round(100 * (gain_in_percent.gain - 1), 1) == -76.8 and gain_in_percent.better
    other = gain("wanda_sp", 0.5, "ppl:wikitext2", "Vicuna1.5-7B")
    assert (other.before, other.after) == (270.82, 71.07)


def test_gap_narrows_in_every_setting_by_18_to_73_percent_and_claims_carry_the_papers_numbers():
    reductions = pd.concat([tables.metric_gap(claims.main_frame(model)).reduction for model in TWO_MODELS])
    assert len(reductions) == 6 and (reductions > 0).all()
    assert [round(100 * value) for value in sorted(reductions)] == [18, 36, 54, 58, 62, 73]
    assert all((tables.metric_gap(claims.main_frame(model, "fixed")).reduction > 0).all() for model in published.MODELS)
    assert "0.62 when the text changes, 0.98 when" in claims.DRIFT.claim
    assert "0.51 for GPrune and 0.12 for FANG" in claims.SWAP.claim
    assert "from 0.437 to 0.349 and the other four gain 0.023 to 0.074" in claims.RETENTION.claim
    assert "0.710 in the most stable bin and 0.312" in claims.JACCARD.claim
    chance = 0.437 * 0.349 / (0.437 + 0.349 - 0.437 * 0.349)
    assert f"{chance:.3f}" == "0.241" and claims.JACCARD.setting.endswith("is then 0.241")
