"""A real run, packed, and looked at where neither its model nor its texts are: every page draws it."""

import shutil

import pytest
import tiny_study
from app_driver import CHARTS, PAGES, charts, on, open_page, opened, words
from synthetic_run import write_run

from gprune import pipeline
from gprune.app.pages.speed_export import page as pack_card
from gprune.pipeline import archive
from gprune.store import Store
from gprune.study import from_dict

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def brought(tmp_path_factory):
    """A pack, the folder in which its model and texts were, and the name of its run."""
    root = tmp_path_factory.mktemp("elsewhere")
    texts = tiny_study.write_texts(root / "texts")
    model = tiny_study.write_model(root / "model", texts)
    study = from_dict(tiny_study.settings(model, texts, substitute=texts[2]))
    store = Store(root / "cache")
    name = pipeline.run(study, store, lambda *_: None)["run"]
    archive.write(store, name, root / "run.zip")
    for folder in ("cache", "model", "texts"):
        shutil.rmtree(root / folder)
    return root / "run.zip", root, name


@pytest.fixture
def name(cache, brought):
    archive.unpack(brought[0], Store(cache))
    return brought[2]


def test_every_page_draws_it(name, brought):
    app = opened()
    drawn = {}
    for page in PAGES:
        told = on(app, page)
        assert not told.error, (page, [error.value for error in told.error])
        drawn[page] = len(charts(told))
    assert not list(brought[1].glob("*/"))
    assert drawn == CHARTS


def test_cards_say_what_did_not_come_along(name):
    app = opened()
    told = words(on(app, "calibration_data")).replace("\\", "")
    assert "Needs “drawing calibration text A”, which the pack of this run did not bring" in told
    assert "--with-contexts" in told
    told = words(on(app, "speed_export"))
    assert "a pack brings no model" in told and "Finish" not in told


def test_what_needs_the_model_says_so(name, brought, started):
    app = open_page("calibration_data")
    app.text_area(key="cd_own_text").set_value("some words of a text " * 20).run()
    (note,) = [info.value for info in app.info if "no model folder" in info.value]
    assert note.startswith("Needs what the pack of this run did not bring") and len(note) <= 300
    app = open_page("reliability", rasa_view="cost", rasa_live="1", rasa_keep="0.4")
    assert any("no model folder" in info.value for info in app.info)
    # a job would say the same, later and in its log
    app.button(key="rasa_full").click().run()
    assert any("no model folder" in error.value for error in app.error)
    assert not started and not app.exception


def test_a_run_is_packed_from_its_page(cache, monkeypatch):
    name = write_run(cache)
    app = open_page("speed_export")
    (button,) = [item for item in app.get("download_button") if "Pack this run" in item.proto.label]
    assert "KiB" in button.proto.label or "MiB" in button.proto.label
    assert f"python -m gprune pack {name}" in [code.value for code in app.code]
    made, there = cache / "a.zip", Store(cache / "there")
    made.write_bytes(pack_card.archive(str(cache), name))
    assert archive.unpack(made, there).run == name
    monkeypatch.setattr(pack_card, "MOST_DOWNLOADED", 1000)
    app = open_page("speed_export")
    assert not [item for item in app.get("download_button") if "Pack" in item.proto.label]
    assert "Too large to be downloaded" in words(app)
