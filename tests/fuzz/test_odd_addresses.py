"""Every page with an odd value under every key that it reads: it is drawn, and says what it did not use."""

import re
from pathlib import Path

import pytest
from app_driver import PAGES, on, opened, words
from synthetic_run import write_run

pytestmark = pytest.mark.slow

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
def keys() -> list[str]:
    """Every key of an address that a page asks for, found in the source."""
    found = set()
    for file in (Path(__file__).resolve().parents[2] / "gprune" / "app").rglob("*.py"):
        source = file.read_text(encoding="utf-8")
        found |= set(re.findall(r"\"((?:rd|ma|rasa|pd|cd|cp|sp|se|ov|ins)_[a-z_]+)\"", source))
    assert len(found) > 30
    return sorted(found | {"run", "card", "layer", "module", "neuron", "tour", "retention", "runs", "level"})


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
    app = on(opened(), page)
    for place, key in enumerate(keys):
        app.query_params[key] = ODD[(place + 5 * turn) % len(ODD)]
    app.run()
    assert not app.exception, [item.value[:300] for item in app.exception]
    told = [str(item.value) for item in app.warning if "address has" in str(item.value)]
    assert all(len(one) <= 700 and "\n" not in one for one in told)
    assert "GPrune" in words(app) or app.title
