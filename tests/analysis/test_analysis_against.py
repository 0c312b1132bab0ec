"""GPrune against the best baseline of each text and two controls: the figures against plain arithmetic."""

import numpy as np

from gprune.analysis.studies import StudyRow
from gprune.analysis.vs_baselines import against

BEST = "best baseline (GPrune over it)"
LAYERS = "control: MSL, one module a layer (GPrune over it)"


def row(method: str, wiki: float, c4: float, seed: int = 0, *, control: bool = False) -> StudyRow:
    values = {"ppl:wiki": wiki, "ppl:c4": c4, "accuracy": 50.0}
    labels = {"retention": "50%", "method": method}
    return StudyRow(labels, method, 0.5, seed, values=values, errors={"ppl:wiki": 1.5}, control=control)


def test_the_best_baseline_is_chosen_on_each_text_and_is_no_control_and_no_form_of_another():
    rows = [row("gprune:flap", 40.0, 60.0), row("flap", 50.0, 100.0), row("llm_pruner", 80.0, 58.0)]
    rows += [row("flap_no_bias", 30.0, 30.0), row("flap_uniform", 45.0, 66.0, control=True)]
    wiki, c4 = against(rows).to_dict("records")
    assert (wiki["text"], wiki[BEST]) == ("wiki", "FLAP 50.00 ± 1.50 (0.800)")
    assert c4[BEST] == f"LLM-Pruner 58.00 ({60 / 58:.3f})"
    assert wiki["GPrune (FLAP)"] == "40.00 ± 1.50" and wiki["retention"] == "50 %"
    assert wiki["control: FLAP, one ratio (GPrune over it)"] == "45.00 ± 1.50 (0.889)"
    # a control that was not measured is not made up
    assert wiki[LAYERS] == "–" and list(wiki)[3:] == [
        BEST,
        "control: FLAP, one ratio (GPrune over it)",
        LAYERS,
    ]


def test_of_several_seeds_ratios_are_paired_and_have_their_deviation():
    rows = [row("gprune:flap", 40.0 + seed, 60.0, seed) for seed in range(3)]
    rows += [row("flap", 80.0 + 4 * seed, 60.0, seed) for seed in range(3)]
    rows.append(row("msl_layers", 41.0, 60.0, 1, control=True))
    wiki = against(rows).to_dict("records")[0]
    each = [(40 + seed) / (80 + 4 * seed) for seed in range(3)]
    spread = f"{84.0:.2f} ± {np.std([80, 84, 88]):.2f}"
    assert wiki[BEST] == f"FLAP {spread} ({np.mean(each):.3f} ± {np.std(each):.3f})"
    assert wiki["GPrune (FLAP)"] == f"41.00 ± {np.std([40, 41, 42]):.2f}"
    # the seed that both have
    assert wiki[LAYERS] == "41.00 ± 1.50 (1.000)"
    rows[-1] = row("msl_layers", 41.0, 60.0, 7, control=True)
    assert against(rows).to_dict("records")[0][LAYERS] == "41.00 ± 1.50 (no seed in common)"


def test_without_gprune_there_is_nothing_to_compare():
    assert against([row("flap", 50.0, 60.0)]).empty
