"""Study files, settings and names of texts: read or refused with an error of ours, whatever is in them."""

import pytest
from fuzz import odd
from hypothesis import strategies as st

from gprune.data.texts import naming, source
from gprune.study import field_names, from_dict, from_file
from gprune.study.fields import assignment

pytestmark = pytest.mark.slow

STUDY = from_dict({"model": "demo", "primary": "python-reference", "auxiliary": "science-docs"})


def test_study_files_and_settings(fuzz, tmp_path):
    file = tmp_path / "study.json"

    def read(data):
        file.write_bytes(data)
        study = from_file(file)
        assert from_dict(study.to_dict()) == study and len(study.digest) == 64
        study.to_json().encode()

    fuzz(odd.files(STUDY.to_dict()), read)
    fields = st.sampled_from(list(field_names())) | odd.words
    signs = st.sampled_from(["=", "=", "=", "", "=="])
    given = st.tuples(fields, signs, odd.values.map(odd.written) | odd.words).map("".join)
    fuzz(given, lambda word: STUDY.with_settings(dict([assignment(word)])))


def test_text_names(fuzz, tmp_path, monkeypatch):
    # a folder is a text as well: beside this one stand those of all other tests
    inside = tmp_path / "inside"
    inside.mkdir()
    monkeypatch.chdir(inside)
    (inside / "a#b.jsonl").write_text('{"text": "words"}\n')
    sound = st.sampled_from(["documents=0:1", "fields=text", "split=train", "join=blank-line"])
    slices = st.integers(-(10**25), 10**25).map(lambda number: f"documents={number}:")
    pairs = st.tuples(st.sampled_from([*naming.OPTIONS, "x", ""]), st.just("="), odd.words).map("".join)
    options = st.lists(sound | sound | slices | pairs, min_size=1, max_size=2).map("&".join)
    known = ["a#b.jsonl", "a#b.jsonl", "python-code", "wikitext2", "hub:a/b", "hub:", ".", "~nosuchuser"]
    places = st.sampled_from(known) | odd.words
    names = st.tuples(places, st.sampled_from(["#", "#", "", "##"]), options).map("".join)

    def read(name):
        found = source.resolve(name, "calibration")
        if found.kind == "records":
            list(source.documents(found))

    fuzz(names, read)
