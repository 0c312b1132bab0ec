"""What methods were given: texts from the graph, learning from the records, and where it is not the same."""

from pathlib import Path

import pytest
from synthetic_run import a_study, write_run

from gprune.pipeline import stages
from gprune.pipeline.runs.opened import Run, all_runs
from gprune.pipeline.stages import MethodInputs, given, unequal

METHODS = ("dense", "gprune", "flap", "flap_pooled", "flap_uniform", "msl_layers")


def run_of(root: Path, **changes: object) -> Run:
    write_run(root, study=a_study(methods=METHODS, **changes))
    return all_runs(str(root))[0][0]


def test_texts_and_steps_follow_from_what_the_masks_rest_on(tmp_path):
    run = run_of(tmp_path)
    found = {name: given(run.results, name) for name in METHODS}
    assert found.pop("dense") is None
    known = {name: one for name, one in found.items() if one is not None}
    texts = {name: "".join(one.texts) for name, one in known.items()}
    assert texts == {
        "gprune": "AB",
        "flap": "A",
        "flap_pooled": "AB",
        "flap_uniform": "A",
        "msl_layers": "AB",
    }
    steps = len(run.load(stages.learning).steps)
    assert {name: one.steps for name, one in known.items() if one.learned} == dict.fromkeys(
        ("gprune", "msl_layers"), steps
    )
    assert not any(one.attention for one in known.values())
    assert {name for name, one in known.items() if one.repairs} == {"flap", "flap_pooled"}


def a_given(method: str, texts: str, steps: int = 0) -> MethodInputs:
    return MethodInputs(method, tuple(texts), 1.0, 0.0, steps, False, False)


@pytest.mark.parametrize(
    ("compared", "said"),
    [
        ([a_given("flap", "A"), a_given("fang", "A")], ""),
        ([], ""),
        (
            [a_given("flap", "A"), a_given("fang", "A"), a_given("gprune", "AB", 36)],
            "Not given the same: GPrune has A and B and 36 steps of learning; "
            "2 methods have A and nothing learned",
        ),
        (
            [a_given("flap", "A"), a_given("flap_pooled", "AB")],
            "Not given the same: FLAP has A and nothing learned; "
            "FLAP, pooled has A and B and nothing learned",
        ),
    ],
)
def test_one_line_says_where_methods_were_not_given_the_same(compared, said):
    assert unequal(compared) == said
