"""What the app is given: addresses, uploads, threshold sets, folders of jobs and of reproductions."""

import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from app_driver import PAGES, open_page, words
from fuzz import odd
from hypothesis import strategies as st
from synthetic_run import write_run

from gprune.analysis.table import Table
from gprune.app.pages.jobs import task_form
from gprune.app.ui import url_session, url_state
from gprune.app.ui.text import said
from gprune.data.published import RULES
from gprune.experiments.reproduction import catalogue
from gprune.jobs import folder as job_files
from gprune.jobs import queue
from gprune.study import from_dict

pytestmark = pytest.mark.slow

STUDY = from_dict({"model": "demo", "primary": "python-reference", "auxiliary": "science-docs"})
JOB = {
    "id": "20260131-120000-0123abcd",
    "created": 1.7e9,
    "label": "a job",
    "command": ["python"],
    "arguments": [],
    "fingerprint": "0" * 64,
    "cwd": "",
}
STATE = {
    "state": "failed",
    "pid": 4194305,
    "process_started": 1.0,
    "started": 1.7e9,
    "ended": 1.7e9,
    "cancel_requested": None,
    "error": "it ended",
    "run_id": "demo",
    "summary": {"retention": 0.5},
}
EVENT = {"ts": 1.7e9, "stage": "tokens", "done": 1, "total": 4, "message": "reading"}
ROW = {
    "method": "flap",
    "labels": {"text": "a"},
    "values": {"ppl:a": 1.5},
    "errors": {"ppl:a": 0.1},
    "retention": 0.5,
    "seed": 0,
    "kept": 0.5,
    "run": "demo",
    "reason": "",
}
FRAME = {"columns": ["method", "value"], "cells": [["a", "1.5"]], "title": "words"}
INDEX = {
    "format": 2,
    "model": "demo",
    "scale": {"name": "demo"},
    "command": "x",
    "updated": "2026",
    "study": {},
    "tables": {
        "main": {
            "title": "t",
            "notes": ["n"],
            "files": [],
            "filled": 1,
            "rows": {rule: [ROW] for rule in RULES},
            "display": FRAME,
            "published": FRAME,
            "versions": {},
        }
    },
}


class Address(dict[str, list[str]]):
    """What Streamlit offers of an address, without a browser."""

    def get_all(self, key):
        return self.get(key, [])

    def from_dict(self, values):
        self.clear()
        self.update(values)


def test_addresses(fuzz, monkeypatch):
    def opened(found):
        page = SimpleNamespace(session_state={}, query_params=found)
        for module in (url_state, url_session):
            monkeypatch.setattr(module, "st", page)
        return page

    def read(given):
        told: list[str] = []
        page = opened(Address(given))
        url_state.begin("page")
        assert 0.0 <= url_state.number("level", 0.5, 0.0, 1.0) <= 1.0
        assert 3 <= url_state.whole("count", 5, 3, 10) <= 10
        assert url_state.choice("view", ("one", "two"), "one") in ("one", "two")
        assert url_state.flag("log") in (True, False)
        assert set(url_state.several("marks", ["a", "b"], ["a"])) <= {"a", "b"}
        layer = url_state.index("layer")
        assert layer is None or 0 <= layer < 2**63
        assert isinstance(url_state.text("run", ""), str)
        url_state.names("card", "here")
        url_state.finish(SimpleNamespace(warning=lambda words, icon: told.append(words)))
        assert all("\n" not in words and len(words) <= 900 for words in told), told
        # what was written is read again without complaint
        again = Address({key: list(value) for key, value in page.query_params.items() if key != "card"})
        opened(again)
        url_state.begin("page")
        url_state.number("level", 0.5, 0.0, 1.0), url_state.whole("count", 5, 3, 10), url_state.index("layer")
        url_state.finish(SimpleNamespace(warning=lambda words, icon: pytest.fail(words)))

    keys = st.sampled_from(["level", "count", "view", "log", "marks", "layer", "run", "card", "strange"])
    odd_fields = st.sampled_from(["nan", "-inf", "9" * 5000, "0.1", "7", "two", "b", "1_0"])
    fields = st.lists(odd.words | odd_fields, min_size=1, max_size=3)
    fuzz(st.dictionaries(keys, fields, max_size=9), read)


def test_uploaded_questions(fuzz):
    question = {"question": "two and two is", "choices": ["four", "five"], "answer": 0}
    fuzz(st.tuples(odd.words, odd.lines(question)), lambda case: task_form.check(*case))


def test_job_files(fuzz, tmp_path):
    folder = job_files.root(tmp_path) / JOB["id"]
    folder.mkdir(parents=True)

    def read(case):
        for name, data in zip((job_files.JOB, job_files.STATE, job_files.EVENTS, job_files.STUDY), case, strict=True):
            (folder / name).write_bytes(data)
        for job in queue.jobs(tmp_path):
            assert len(said(job.error)) <= 900 and (job.elapsed or 0.0) >= 0.0
        progress = queue.progress(tmp_path, JOB["id"])
        assert 0.0 <= progress.fraction <= 1.0
        queue.log_tail(tmp_path, JOB["id"], 5)
        queue.study_of(tmp_path, JOB["id"])

    fuzz(st.tuples(odd.files(JOB), odd.files(STATE), odd.lines(EVENT), odd.files(STUDY.to_dict())), read)


def test_reproductions(fuzz, tmp_path):
    folder = tmp_path / "reproductions" / "demo-demo"
    folder.mkdir(parents=True)

    def read(data):
        (folder / "index.json").write_bytes(data)
        for made in catalogue.reproductions(tmp_path):
            for name in made.tables:
                table = catalogue.load(tmp_path, made.name, name)
                if table is not None:
                    Table(table.display).csv()

    fuzz(odd.files(INDEX), read)


ODD = (
    "-1",
    "9" * 5000,
    "nan",
    "²",
    "a\0b",
    "../../etc/passwd",
    "=1+1",
    "<b>x</b>",
    "x" * 5000,
    "",
    "1e400",
    "\u202e",
)


@pytest.fixture
def keys():
    """Every key of an address that a page asks for, found in the source."""
    found = set()
    for file in (Path(__file__).resolve().parents[2] / "gprune" / "app").rglob("*.py"):
        source = file.read_text(encoding="utf-8")
        found |= set(re.findall(r"\"((?:rd|ma|rasa|pd|cd|cp|sp|se|ov|ins)_[a-z_]+)\"", source))
    assert len(found) > 30
    return sorted(
        found | {"run", "card", "layer", "module", "neuron", "tour", "tab", "help", "retention", "runs", "level"}
    )


# in `make test` one value a key on every third page
@pytest.mark.parametrize(
    ("page", "turn"),
    [
        pytest.param(page, turn, marks=[pytest.mark.long] if turn or place % 3 else [])
        for place, page in enumerate(PAGES)
        for turn in range(8)
    ],
)
def test_a_page_with_an_odd_address_is_drawn(monkeypatch, tmp_path, keys, page, turn):
    monkeypatch.setenv("GPRUNE_CACHE", str(tmp_path))
    monkeypatch.setenv("GPRUNE_AUTOSTART", "0")
    write_run(tmp_path)
    app = open_page(page)
    for place, key in enumerate(keys):
        app.query_params[key] = ODD[(place + 5 * turn) % len(ODD)]
    app.run()
    assert not app.exception, [item.value[:300] for item in app.exception]
    told = [str(item.value) for item in app.warning if "address has" in str(item.value)]
    assert all(len(one) <= 700 and "\n" not in one for one in told)
    assert "GPrune" in words(app) or app.title
