"""Which configurations go on, and what counts as better, told by made-up losses."""

import numpy as np
import pytest

from gprune.experiments.search import halving
from gprune.experiments.search.plan import Plan, Rung
from gprune.study import from_dict

STUDY = {"model": "m", "primary": "a", "auxiliary": "b", "evaluation": {"texts": ["x", "y"]}}
SPACE = (
    ("modularization.temperature", (1.0, 0.1, 0.05)),
    ("sparsity.learning_rate", (0.05, 0.1, 0.2)),
    ("sparsity.epochs", (2, 3)),
)


def a_plan(*rungs, **changes):
    rungs = rungs or (Rung(8), Rung(3), Rung(2, seeds=(0, 1)))
    return Plan("t", **{"study": from_dict(STUDY), "space": SPACE, "rungs": rungs, **changes})


def measured(better, spread=0.01):
    """Losses that are lower by a number for some configurations, on two texts of 40 windows."""

    def measure(configuration, rung, seed):
        noise = np.random.default_rng([configuration.number, seed])
        shared = np.linspace(2, 4, 40)
        drop = better.get(configuration.number, 0.0)
        return tuple(shared + text - drop + noise.normal(0, spread, 40) for text in (0.0, 1.0))

    return measure


def test_the_configurations_differ_from_each_other_and_from_the_study_and_are_the_same_each_time():
    plan = a_plan()
    found = plan.configurations()
    assert [one.number for one in found] == list(range(9)) and found[0].settings == ()
    assert len({one.settings for one in found}) == 9 and found == a_plan().configurations()
    assert found != a_plan(seed=1).configurations()
    # what equals the study's own value is not named: 1.0, 0.05 and 2 are the defaults
    own = {("modularization.temperature", 1.0), ("sparsity.learning_rate", 0.05), ("sparsity.epochs", 2)}
    assert not own & {pair for one in found for pair in one.settings}


def test_the_best_go_on_and_the_study_itself_always_does():
    asked = []
    measure = measured({7: 0.5, 2: 0.4, 5: 0.3, 3: 0.2})

    def noted(configuration, rung, seed):
        asked.append((rung.configurations, configuration.number, seed))
        return measure(configuration, rung, seed)

    rounds = halving.search(a_plan(), noted)
    assert [[score.configuration.number for score in done.scores] for done in rounds[1:]] == [
        [0, 7, 2, 5],
        [0, 7, 2],
    ]
    assert len(asked) == 9 + 4 + 3 * 2 == len(set(asked))
    assert halving.winner(rounds[-1]).configuration.number == 7
    assert rounds[0].scores[1].objective == pytest.approx(3.5 - 0.5, abs=0.01)


def test_a_difference_within_its_noise_wins_nothing():
    clear = halving.search(a_plan(Rung(2)), measured({1: 0.05}))[-1]
    noisy = halving.search(a_plan(Rung(2)), measured({1: 0.05}, spread=2.0))[-1]
    assert halving.winner(clear).configuration.number == 1
    assert halving.winner(noisy) is noisy.scores[0]


def test_what_could_not_be_run_comes_last_and_never_wins():
    def measure(configuration, rung, seed):
        return None if configuration.number in (0, 1) else measured({2: 0.1})(configuration, rung, seed)

    last = halving.search(a_plan(Rung(3)), measure)[-1]
    assert [score.configuration.number for score in last.scores] == [0, 2, 3, 1]
    assert last.scores[-1].objective == np.inf
    assert halving.winner(last).configuration.number == 2
    nothing = halving.search(a_plan(Rung(1)), lambda *_: None)[-1]
    assert halving.winner(nothing).configuration.number == 0


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"rungs": (Rung(3), Rung(3))}, "ever fewer"),
        ({"rungs": (Rung(18),)}, "at most 17 configurations"),
        ({"rungs": ()}, "at least one round"),
        (
            {"space": (("sparsity.surrogate", ("sigmoid", "tanh")),), "rungs": (Rung(1),)},
            "sparsity.surrogate",
        ),
        ({"space": (("sparsity.epochs", (2, 2)),), "rungs": (Rung(1),)}, "several different values"),
        ({"space": (("retention", (0.5, 0.3)),), "rungs": (Rung(1),)}, "free to vary"),
        ({"study": from_dict({**STUDY, "evaluation": {}})}, "at least one text"),
    ],
)
def test_a_search_that_cannot_be_says_why(changes, words):
    with pytest.raises(ValueError, match=words):
        a_plan(**changes)
