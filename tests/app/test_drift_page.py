"""The drift page: the scatter opens on the layer that the titles name; numbers stay with their sign."""

import numpy as np
import pytest
from app_driver import charts, open_page, words
from synthetic_run import a_study, the_run, write_run

from gprune.app.ui.text import join_numbers
from gprune.pipeline import stages


def test_the_scatter_opens_on_the_layer_that_drifts_most_and_follows_the_selection(cache):
    for seed in range(20):
        write_run(cache, study=a_study(seed=seed))
        medians = np.median(the_run(cache).load(stages.drift).magnitude, axis=1)
        layer = int(medians.argmax())
        # the middle layer is the default elsewhere
        if layer != len(medians) // 2:
            break
    app = open_page("drift")
    assert f"Layer {layer} drifts most" in words(app) and f" in layer {layer}: Spearman" in words(app)
    assert app.number_input(key="rd_layer").value == layer
    assert charts(app)[2]["layout"]["xaxis"]["title"]["text"] == "rank on python-reference"
    other = (layer + 1) % len(medians)
    app = open_page("drift", layer=str(other))
    assert app.number_input(key="rd_layer").value == other
    assert f" in layer {other}: Spearman" in words(app)


@pytest.mark.parametrize(
    ("text", "joined"),
    [
        ("ARI 0.81 ± 0.02 over 8 layers", "ARI 0.81_±_0.02 over 8 layers"),
        ("shift 4.0 × the noise, d ≈ 0.12", "shift 4.0_× the noise, d ≈_0.12"),
        ("no % here, 3 layers", "no % here, 3 layers"),
    ],
)
def test_a_number_stays_with_its_sign_and_error(text, joined):
    assert join_numbers(text) == joined.replace("_", "\u00a0")


def test_titles_of_cards_are_drawn_with_joined_numbers(cache):
    write_run(cache)
    app = open_page("agreement")
    titles = [item.value for item in app.markdown if item.value.startswith("#### ")]
    assert any("% of the drift" in title for title in titles)
    assert not any(" %" in title for title in titles)
