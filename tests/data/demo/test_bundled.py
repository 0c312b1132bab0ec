"""Are the tokens that come with the demo those of its texts, and does a run that finds them build none?"""

import platform

import numpy as np
import pytest
from safetensors import safe_open

from gprune.data.demo import texts
from gprune.data.texts import bundled
from gprune.pipeline.stages import Graph, RunContext, tokens
from gprune.pipeline.stages.inputs import read
from gprune.pipeline.stages.texts_to_build import to_build
from gprune.study.demo import TABLE, TEXTS, demo_study, strong_drift_demo

with safe_open(bundled.FILE, framework="numpy") as opened:
    KEPT = {place: opened.get_tensor(place) for place in opened.keys()}  # noqa: SIM118
    ABOUT = opened.metadata()
NEW = "run python scripts/bundle_tokens.py"
pytestmark = pytest.mark.skipif(
    platform.python_version() != ABOUT[bundled.PYTHON],
    reason=f"the tokens are of the texts of Python {ABOUT[bundled.PYTHON]}",
)


@pytest.mark.long
def test_every_one_is_what_its_text_gives(text_cache):
    from scripts.bundle_tokens import made

    drawn = made(text_cache)
    assert drawn.keys() == KEPT.keys(), NEW
    for place, (ids, available) in drawn.items():
        assert np.array_equal(ids, KEPT[place]) and available == int(ABOUT[place]), NEW


def test_the_demo_has_no_text_to_build_and_reads_the_same_tokens(tmp_path, monkeypatch):
    monkeypatch.setattr(texts, "_build", None)
    monkeypatch.setattr(RunContext, "tokenizer", None)
    study = demo_study()
    assert to_build(study) == [], NEW
    graph = Graph(study, read(study))
    work = RunContext(study, graph.inputs, tmp_path)
    drawn = tokens(graph, "auxiliary").make(work)
    assert (drawn.text, drawn.ids.shape, drawn.ids.dtype) == (study.auxiliary, (144, 128), np.int32)
    assert drawn.available > 144 and work.stream(study.auxiliary).shape == (80 * 128,)
    assert bundled.FILE.stat().st_size < 200_000 and not list(tmp_path.iterdir())


def test_whatever_reads_more_or_other_tokens_has_its_texts_built():
    assert set(to_build(strong_drift_demo())) == {TABLE}
    changes = ({"seed": 1}, {"calibration.samples": 143}, {"evaluation.tasks": ("demo_code",)})
    for changed in changes:
        assert set(to_build(demo_study().with_settings(changed))) == set(TEXTS)
    for windows in (None, 79):
        study = demo_study().with_settings({"evaluation.windows": windows, "substitute": "nowhere.txt"})
        assert to_build(study) == ["nowhere.txt", *TEXTS]
