"""The page Experts of a run that prunes experts, the other pages of such a run, and runs of neurons next to it."""

import pytest
import tiny_study
from app_driver import PAGES, on, open_page, opened, words
from synthetic_run import write_run
from tiny_experts import study_of

from gprune import pipeline
from gprune.app.ui.page_names import PAGE_OF
from gprune.pipeline.runs.opened import run_named
from gprune.store import Store
from gprune.study import from_dict

WITHOUT_RUN = ("studies", "launch", "reading", "words", "keys", "features")
"""places that show more than the chosen run"""


@pytest.fixture(scope="module")
def expert_root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("experts")
    result = pipeline.run(from_dict(study_of(folder)), Store(folder / "cache"), tiny_study.silent)
    return folder / "cache", result["run"].rsplit("/", 1)[-1]


@pytest.fixture
def experts(expert_root, monkeypatch):
    """The run of experts, in the cache that the app uses."""
    root, name = expert_root
    monkeypatch.setenv("GPRUNE_CACHE", str(root))
    return run_named(str(root), name, experts=True)


def navigation(app):
    return [item.proto.label for item in app.get("page_link") if item.proto.label]


def test_every_page_of_such_a_run_works_or_refers_to_experts(experts):
    app = opened(layer="1", slide="2")
    for place in PAGES:
        app = on(app, place)
        page, assertions = PAGE_OF[place].url, words(app)
        assert not app.error, (place, [item.value for item in app.error])
        is_refused = "This run prunes experts. See Experts." in assertions
        assert is_refused == (page != "neurons" and place not in WITHOUT_RUN), place
        assert "Experts" in navigation(app) and "Neurons" not in navigation(app), place
        if page == "neurons":
            assert app.title[-1].value == "Experts"


def test_a_run_of_neurons_shows_no_trace_of_experts(experts, cache, monkeypatch):
    monkeypatch.setenv("GPRUNE_CACHE", experts.root)
    name = write_run(cache)
    alone = {place: (words(app), navigation(app)) for place in ("home", "compare", "map") for app in [None]}
    assert alone and name
