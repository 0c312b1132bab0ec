"""Claims judge_claim on made-up cases, and GPrune against the best baseline of each text."""

from dataclasses import replace

import numpy as np
import pytest

from gprune.analysis import claims
from gprune.analysis.claims import Case, Claim, judge_claim
from gprune.analysis.studies import StudyRow
from gprune.records import REPAIRS
from gprune.study.methods import METHODS
from scripts.results_document import against

WINDOWS = np.linspace(3.0, 5.0, 50)
CLAIM = Claim("", "", "gprune", ("flap", "fang"))


def a_case(text="x", retention=0.5, unseen=False, model="m", **nats):
    """Losses of methods that lie a number above the same windows, under two seeds, almost without noise."""
    noise = np.random.default_rng(7).normal(0, 1e-3, (len(nats), 2, 50))
    losses = {name: dict(enumerate(WINDOWS + nats[name] + rows)) for name, rows in zip(nats, noise, strict=True)}
    return Case(model, retention, text, unseen, losses)


def test_a_claim_is_judged_against_the_best_of_its_rivals_in_each_case():
    cases = [a_case(gprune=0.1, flap=0.2, fang=0.3), a_case("y", gprune=0.1, flap=0.2, fang=-0.1)]
    result = judge_claim(CLAIM, cases)
    assert [other for _, other, _ in result.cases] == ["flap", "fang"]
    assert result.counts == "1 better, 0 within noise, 1 worse" and result.outcome == claims.FAILS
    assert result.change == pytest.approx(np.expm1((-0.1 + 0.2) / 2), abs=1e-3)
    # a seed counts by its mean over the cases, and only if both methods have it in every case
    shifted = [replace(case, losses=case.losses | {"flap": {1: WINDOWS + 0.5}}) for case in cases]
    assert result.seeds == "0 of 2" and judge_claim(replace(CLAIM, rivals=("flap",)), shifted).seeds == "1 of 1"


@pytest.mark.parametrize(
    ("values", "outcome"),
    [
        ((-0.2, -0.2, -0.2), claims.HOLDS),
        ((-0.2, -0.2, 0.0), claims.HOLDS),
        ((-0.2, 0.0, 0.0), claims.MIXED),
        ((-0.2, -0.2, 0.2), claims.MIXED),
        ((0.2, -0.2, 0.0), claims.FAILS),
        ((0.0, 0.0, 0.0), claims.FAILS),
        ((), claims.UNKNOWN),
    ],
)
def test_a_claim_holds_where_it_is_mostly_better_and_never_worse(values, outcome):
    cases = [a_case(str(index), gprune=value, flap=0.0) for index, value in enumerate(values)]
    assert judge_claim(CLAIM, cases).outcome == outcome


def test_only_what_both_sides_have_and_unseen_text_counts():
    cases = [a_case("a", gprune=0.5, flap=0.0), a_case("b", unseen=True, gprune=-0.5, flap=0.0)]
    result = judge_claim(Claim("", "", "gprune", ("flap",), where="unseen"), cases)
    assert [case.text for case, _, _ in result.cases] == ["b"] and result.outcome == claims.HOLDS
    case = a_case(gprune=0.0, flap=0.1)
    lone = Case("m", 0.5, "x", False, {"gprune": {0: WINDOWS}, "flap": {1: WINDOWS}})
    assert case.difference("gprune", "msl_layers") is None and lone.difference("gprune", "flap") is None
    assert judge_claim(CLAIM, [lone]).outcome == claims.UNKNOWN
    assert case.difference("gprune", "flap").nats == pytest.approx(-0.1, abs=1e-3)


def test_every_claim_names_methods_that_there_are_and_no_control_is_a_baseline():
    reference = {claims.repaired_id(repair) for repair in REPAIRS.values()} | {*map(claims.equal_width_id, METHODS)}
    for claim in claims.CLAIMS:
        assert {claim.first, *claim.rivals} <= {*METHODS, claims.RECOMMENDED, *reference}
        assert claim.first not in claim.rivals
    assert not any(METHODS[name].control for name in claims.BASELINES)
    assert {"llm_pruner", "flap", "fang", "wanda_sp", "flap_pooled"} <= set(claims.BASELINES)


BEST_BASELINE = "best baseline (GPrune over it)"
ONE_RATIO = "control: FLAP, one ratio (GPrune over it)"
LAYERS = "control: MSL, one module a layer (GPrune over it)"


def row(method, wiki, c4, seed=0, *, control=False):
    values = {"ppl:wiki": wiki, "ppl:c4": c4, "accuracy": 50.0}
    labels = {"retention": "50%", "method": method}
    return StudyRow(labels, method, 0.5, seed, values=values, errors={"ppl:wiki": 1.5}, control=control)


def test_the_best_baseline_is_chosen_on_each_text_and_is_no_control_and_no_form_of_another():
    rows = [row("gprune:flap", 40.0, 60.0), row("flap", 50.0, 100.0), row("llm_pruner", 80.0, 58.0)]
    rows += [row("flap_no_bias", 30.0, 30.0), row("flap_uniform", 45.0, 66.0, control=True)]
    wiki, c4 = against(rows).to_dict("records")
    assert (wiki["text"], wiki[BEST_BASELINE]) == ("wiki", "FLAP 50.00 ± 2.94 (0.800)")
    assert c4[BEST_BASELINE] == f"LLM-Pruner 58.00 ({60 / 58:.3f})"
    assert wiki["GPrune (FLAP)"] == "40.00 ± 2.94" and wiki["retention"] == "50%"
    assert wiki[ONE_RATIO] == "45.00 ± 2.94 (0.889)"
    # a control that was not measured is not made up
    assert wiki[LAYERS] == "–" and list(wiki)[3:] == [BEST_BASELINE, ONE_RATIO, LAYERS]


def test_of_several_seeds_ratios_are_paired_and_have_their_deviation():
    rows = [row("gprune:flap", 40.0 + seed, 60.0, seed) for seed in range(3)]
    rows += [row("flap", 80.0 + 4 * seed, 60.0, seed) for seed in range(3)]
    rows.append(row("msl_layers", 41.0, 60.0, 1, control=True))
    wiki = against(rows).to_dict("records")[0]
    each = [(40 + seed) / (80 + 4 * seed) for seed in range(3)]
    spread = f"{84.0:.2f} ± {np.std([80, 84, 88]):.2f}"
    assert wiki[BEST_BASELINE] == f"FLAP {spread} ({np.mean(each):.3f} ± {np.std(each):.3f})"
    assert wiki["GPrune (FLAP)"] == f"41.00 ± {np.std([40, 41, 42]):.2f}"
    # the seed that both have
    assert wiki[LAYERS] == "41.00 ± 2.94 (1.000)"
    rows[-1] = row("msl_layers", 41.0, 60.0, 7, control=True)
    assert against(rows).to_dict("records")[0][LAYERS] == "41.00 ± 2.94 (no seed in common)"


def test_without_gprune_there_is_nothing_to_compare():
    assert against([row("flap", 50.0, 60.0)]).empty
