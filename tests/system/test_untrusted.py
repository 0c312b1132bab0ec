"""What is handed in is read or refused in one sentence, never worse."""

import json
import math

import pytest

from gprune.system import safe_parsing
from gprune.system.errors import UnreadableError

REFUSED = {
    "deep lists": "[" * 100_000 + "]" * 100_000,
    "deep objects": '{"a":' * 90 + "1" + "}" * 90,
    "a number of 5,000 digits": "9" * 5000,
    "a number beyond 64 bits": "1" * 20,
    "an overflow": '{"retention": 1e400}',
    "not a number": "[NaN]",
    "infinity": "[-Infinity]",
    "half a file": '{"a": [1, 2',
    "no text": b"\xff\xfe\x00",
    "nothing": b"",
}


@pytest.mark.parametrize("data", REFUSED.values(), ids=REFUSED.keys())
def test_hostile_json_is_refused_in_one_sentence_that_names_it(data):
    with pytest.raises(UnreadableError) as refusal:
        safe_parsing.json_value(data, "the file 'a.json'")
    message = str(refusal.value)
    assert message.startswith("the file 'a.json' ") and len(message) <= 300 and "\n" not in message


def test_what_json_can_hold_comes_back():
    value = {"a": [1, -(10**18), 0.5, None, True, "ü²"], "b": {"c": []}}
    assert safe_parsing.json_value(json.dumps(value), "it") == value
    assert safe_parsing.json_value(b"\xef\xbb\xbf" + json.dumps(value).encode(), "it") == value
    nested = json.loads("[" * 64 + "]" * 64)
    assert safe_parsing.json_value(json.dumps(nested), "it") == nested


def test_our_own_files_may_hold_what_a_measurement_gave():
    value = safe_parsing.json_value("[NaN, Infinity, 1e400]", "it", finite=False)
    assert math.isnan(value[0]) and value[1] == value[2] == math.inf


@pytest.mark.parametrize("name", ["a\0b", "~nosuchuser/model", "x" * 5000, "a/" * 3000])
def test_a_path_that_no_file_can_have_is_refused(name):
    with pytest.raises(UnreadableError, match="the model cannot be ") as refusal:
        safe_parsing.path(name, "the model")
    assert len(str(refusal.value)) <= 300


def test_a_name_or_link_that_leads_outside_its_folder_is_refused(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "weights").write_text("w")
    (folder / "link").symlink_to(tmp_path / "secret")
    assert safe_parsing.inside(folder, "weights", "the index") == folder / "weights"
    for name in ("../secret", "/etc/passwd", "link", "", 3, None):
        with pytest.raises(UnreadableError, match="the index names"):
            safe_parsing.inside(folder, name, "the index")


def test_a_sentence_keeps_its_remedy_and_a_value_its_ends():
    long = safe_parsing.sentence("The start. " + "x" * 1000 + " do this instead")
    assert len(long) <= 300 and long.startswith("The start.") and long.endswith("do this instead")
    assert len(safe_parsing.quoted("y" * 1000)) == 80 and safe_parsing.quoted(10**5000) == "<int>"
