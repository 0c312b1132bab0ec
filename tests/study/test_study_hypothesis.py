"""Study files and settings with odd values: read, or refused in one sentence of at most 300 characters."""

import copy
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gprune.study import field_names, from_dict, from_file
from gprune.study.fields import assignment
from gprune.system import safe_parsing
from gprune.system.errors import GpruneError

pytestmark = pytest.mark.slow

STUDY = from_dict({"model": "demo", "primary": "python-reference", "auxiliary": "science-docs"})
RAW = {"@nan@": "NaN", "@overflow@": "1e400", "@digits@": "9" * 5000, "@deep@": "[" * 5000 + "]" * 5000}
"""JSON texts that json.dumps does not write, by the text that stands for them until then"""
WORDS = ("", "²", "~nosuchuser", "a\0b", "x" * 5000, "../../etc/passwd", "a#b=c", "1e400", "\ud800", "hub:../..", *RAW)

words = st.sampled_from(WORDS) | st.text(max_size=12)
scalars = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | words
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=2))
profile = settings(
    max_examples=200, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck)
)


@st.composite
def changed_studies(draw):
    """Return the bytes of a study file with some values replaced, removed or added, and perhaps cut off."""
    document = copy.deepcopy(STUDY.to_dict())
    for _ in range(draw(st.integers(0, 3))):
        sections = [document, *(value for value in document.values() if isinstance(value, dict))]
        section = draw(st.sampled_from(sections))
        name = draw(st.sampled_from([*section, "added"]))
        section.pop(name, None)
        if draw(st.booleans()):
            section[name] = draw(values)
    data = _to_json(document).encode()
    return data[: draw(st.integers(0, len(data)))] if draw(st.integers(0, 9)) == 0 else data


def _to_json(value):
    text = json.dumps(value)
    for mark, raw in RAW.items():
        text = text.replace(f'"{mark}"', raw)
    return text


def read_or_refuse(read):
    try:
        return read()
    except GpruneError as error:
        sentence = safe_parsing.sentence(error)
        assert 10 <= len(sentence) <= 300 and "\n" not in sentence
        return None


def test_a_changed_study_file_is_read_back_equal_or_refused_in_a_sentence(tmp_path):
    file, outcomes = tmp_path / "study.json", []

    @profile
    @given(changed_studies())
    def check(data):
        file.write_bytes(data)
        study = read_or_refuse(lambda: from_file(file))
        outcomes.append(study is None)
        if study is not None:
            assert from_dict(study.to_dict()) == study and len(study.digest) == 64

    check()
    assert 20 < sum(outcomes) < len(outcomes) - 20


@profile
@given(st.sampled_from(list(field_names())) | words, st.sampled_from(["=", "", "=="]), values.map(json.dumps) | words)
def test_an_assignment_on_the_command_line_is_taken_or_refused_in_a_sentence(field, sign, value):
    read_or_refuse(lambda: STUDY.with_settings(dict([assignment(f"{field}{sign}{value}")])))
