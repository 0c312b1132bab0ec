"""The tokens that come with the demo are those of its texts, and a run reads them without a tokenizer."""

import numpy as np
import pytest
from safetensors import safe_open

from gprune.data.demo import texts
from gprune.data.texts import bundled
from gprune.pipeline.stages import Graph, RunContext, tokens
from gprune.pipeline.stages.inputs import read_inputs
from gprune.study.demo import demo_study


@pytest.mark.long
def test_every_one_is_what_its_text_gives():
    from scripts.bundle_tokens import draw_tokens

    rendered = draw_tokens()
    with safe_open(bundled.FILE, framework="numpy") as file:
        assert rendered.keys() == set(file.keys()), "run python scripts/bundle_tokens.py"
        for key, (ids, available) in rendered.items():
            assert np.array_equal(ids, file.get_tensor(key)) and available == int(file.metadata()[key])


def test_the_demo_reads_no_text_and_the_same_tokens(tmp_path, monkeypatch):
    monkeypatch.setattr(texts, "documents", None)
    monkeypatch.setattr(RunContext, "tokenizer", None)
    study = demo_study()
    graph = Graph(study, read_inputs(study))
    work = RunContext(study, graph.inputs, tmp_path)
    rendered = tokens(graph, "auxiliary").make(work)
    assert (rendered.text, rendered.ids.shape, rendered.ids.dtype) == (study.auxiliary, (48, 128), np.int32)
    assert rendered.available > 48 and work.stream(study.auxiliary).shape == (32 * 128,)
    assert bundled.FILE.stat().st_size < 200_000 and not list(tmp_path.iterdir())
