"""On runs that GPrune wins, loses and ties, overview, slides and Compare say the same."""

import re

import numpy as np
import pytest
from app_driver import numbers, open_page, opened, plain_words
from synthetic_run import MAKERS, a_study, the_run, write_run

from gprune.app.figures import overview
from gprune.app.ui import documents, story
from gprune.records import Perplexity
from gprune.study import EvaluationSettings

METHODS = ("dense", "gprune", "flap", "fang")
WINS, LOSES, TIES = (
    {"gprune": 60.0, "flap": 118.0, "fang": 70.0},
    {"gprune": 118.0, "flap": 90.0, "fang": 70.0},
    {"gprune": 70.0, "flap": 118.0, "fang": 70.001},
)
NOISE = "GPrune and FANG are within noise ("


def measured(levels):
    """Perplexities whose windows share their difficulty, with a little noise of each method."""

    def perplexity(task):
        shared = 0.4 * np.random.default_rng(1).normal(size=96)
        losses = np.log(levels.get(task.stage.id.method, 40.0)) + shared + 0.01 * task.random.normal(size=96)
        mean, error = float(np.exp(losses.mean())), float(losses.std(ddof=1) / np.sqrt(96))
        return Perplexity(task.asked, "128", 128, 96, mean, mean * error, losses)

    return {**MAKERS, "perplexity": perplexity}


def study(**changes):
    evaluation = EvaluationSettings(texts=("c4",), windows=96)
    return a_study(evaluation=evaluation, methods=METHODS, **changes)


@pytest.mark.parametrize(
    ("levels", "ending", "costs", "finding", "compared"),
    [
        (WINS, "", "GPrune costs least", "% lower perplexity than FANG", "GPrune has the lowest perplexity on c4"),
        (LOSES, "GPrune has a 6", "FANG costs least", "% higher perplexity than FANG", "FANG has the lowest perpl"),
        (TIES, NOISE, ": too close to call", NOISE, "have the lowest perplexity, within noise on c4"),
    ],
)
def test_who_wins_is_said_alike_everywhere(cache, levels, ending, costs, finding, compared):
    write_run(cache, study=study(), makers=measured(levels))
    overview = plain_words(opened())
    assert ending in overview and costs in overview
    assert ("higher perplexity than FANG" in overview) == (levels is LOSES)
    # FLAP is the metric's own method, and both it and the best other one have their error
    assert "GPrune against FLAP " in overview and "; FANG " in overview
    assert overview.count(" ± ") >= 2 and "95% interval, paired; one seed)" in overview
    assert finding in story.comparison_finding(the_run(cache))
    compare = plain_words(open_page("compare"))
    assert finding in plain_words(opened(slide="6")) and compared in compare
    assert (levels is TIES) == ("has the lowest perplexity" not in compare)


def test_seeds_are_joined_alike_on_the_overview_and_on_compare(cache):
    levels = (79.0, 72.0, 60.0)
    for seed, level in enumerate(levels):
        write_run(cache, study=study(seed=seed), makers=measured(TIES | {"gprune": level}))
    run, mean, app, compare = the_run(cache), np.exp(np.log(levels).mean()), plain_words(opened()), open_page("compare")
    assert "|  | :green[:material/check_circle:] Seeds: 0, 1, 2 |" in app
    assert "no spread over seeds" not in app and story.compared_seeds(run) == (0, 1, 2)
    assert "95% interval, paired; 3 seeds)" in app and "paired over windows and 3 seeds" in app
    # seed 2 alone would win
    assert NOISE in app and "GPrune and FANG have the lowest perplexity, within noise" in plain_words(compare)
    dense, pruned = map(float, re.findall(r"\(geometric mean of 3 seeds\): \w+ ([\d.]+).*?GPrune ([\d.]+)\.", app)[0])
    (mark,) = (trace.x[0] for trace in overview.cost(run).figure.data if trace.name == "GPrune")
    assert pruned / dense == pytest.approx(mean / 40, rel=0.005) == mark
    assert float(re.findall(r"rises (\d+)% with GPrune", app)[0]) == pytest.approx(100 * (mean / 40 - 1), abs=1)
    table = numbers(compare).set_index("method")
    assert table["seeds"]["GPrune"] == 3 and set(table[""][["GPrune", "FANG"]]) == {"★"}


def test_what_was_found_on_other_models_stands_beside_the_runs_own_diagnostics(cache):
    write_run(cache, study=study(), makers=measured(WINS))
    document = documents.fair_study()
    assert document is not None
    visible = plain_words(opened())
    for claim in ("GPrune is better than the best baseline", "RASA improves the model"):
        assert f"“{claim}” – {document.claims[claim]}" in visible
    assert "better, " in document.claims["RASA improves the model"]
    assert "behavior-consistent modules are better than random modules” – " in visible
    assert "RASA: changes " in visible and "of the rank drift’s variance, random modules " in visible
