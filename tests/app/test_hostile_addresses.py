"""Addresses of pages, whatever is in them."""

from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gprune.app.ui import address

pytestmark = pytest.mark.slow

WORDS = (
    "", " ", "²", "~nosuchuser", "a\0b", "x" * 5000, "../../etc/passwd", "/dev/null", "a#b=c", "###&&==", "nan",
    "1e400", "=1+1", "[", "<b>", "\u202e", "-1", "demo", "hub:../..", "a/" * 3000, "**/*", "\n", "-inf", "9" * 5000,
    "0.1", "7", "two", "b", "1_0",
)  # fmt: skip


class Address(dict[str, list[str]]):
    """What Streamlit offers of an address, without a browser."""

    def get_all(self, key):
        return self.get(key, [])

    def from_dict(self, values):
        self.clear()
        self.update(values)


def test_addresses(monkeypatch):
    def opened(query):
        page = SimpleNamespace(session_state={}, query_params=query)
        monkeypatch.setattr(address, "st", page)
        return page

    def read(query):
        message: list[str] = []
        page = opened(Address(query))
        address.read_address("page")
        assert 0.0 <= address.read_number("level", 0.5, 0.0, 1.0) <= 1.0
        assert 3 <= address.read_whole_number("count", 5, 3, 10) <= 10
        assert address.read_option("view", ("one", "two"), "one") in ("one", "two")
        assert address.read_flag("log") in (True, False)
        assert set(address.read_list("marks", ["a", "b"], ["a"])) <= {"a", "b"}
        layer = address.read_index("layer")
        assert layer is None or 0 <= layer < 2**63
        assert isinstance(address.read_text("run", ""), str)
        address.write_address(SimpleNamespace(warning=lambda words, icon: message.append(words)))
        assert all("\n" not in words and len(words) <= 900 for words in message), message
        # what was written is read again without complaint
        again = Address({key: list(value) for key, value in page.query_params.items()})
        opened(again)
        address.read_address("page")
        address.read_number("level", 0.5, 0.0, 1.0)
        address.read_whole_number("count", 5, 3, 10)
        address.read_index("layer")
        address.write_address(SimpleNamespace(warning=lambda words, icon: pytest.fail(words)))

    keys = st.sampled_from(["level", "count", "view", "log", "marks", "layer", "run", "strange"])
    fields = st.lists(st.sampled_from(WORDS) | st.text(max_size=12), min_size=1, max_size=3)

    @settings(max_examples=60, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.dictionaries(keys, fields, max_size=9))
    def check(address):
        read(address)

    check()
