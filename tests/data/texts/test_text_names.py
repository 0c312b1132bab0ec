"""The grammar of text names, also of those that the model writes, and what mistakes are answered."""

import pytest

from gprune.data import texts
from gprune.data.texts.naming import parse
from gprune.data.texts.sampled import EXAMPLE, OPTIONS, Sampling, sampling_of
from gprune.data.texts.source import read_documents, resolve
from gprune.system.errors import CorpusError, SettingsError


def test_place_and_options_are_taken_apart():
    name = parse("  c4.jsonl#fields=prefix+gold_completion&documents=1280:1480 ")
    assert (name.base, name.fields) == ("c4.jsonl", ("prefix", "gold_completion"))
    assert name.documents == slice(1280, 1480) and not name.joined
    assert parse("wikitext2").documents == slice(None, None)
    assert parse("a#documents=-5:").documents == slice(-5, None)
    assert parse("a#join=blank-line").joined


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("   ", "is empty"),
        ("c4#", "has nothing before or after the #"),
        ("#split=test", "has nothing before or after the #"),
        ("c4#splt=test", "unknown option 'splt': did you mean 'split'.*c4.jsonl#fields="),
        ("c4#colour=red", "unknown option 'colour': Options are split, config"),
        ("c4#split", "'split' .* has no value: the split, as in split=test"),
        ("c4#split=", "'split' .* has no value"),
        ("c4#split=test&split=train", "'split' twice"),
        ("c4#split=test&", "unknown option ''"),
        ("c4#documents=5", "documents=5 .* is not a slice"),
        ("c4#documents=1:2:3", "is not a slice"),
        ("c4#documents=a:b", "is not a slice"),
        ("c4#fields=a++b", "empty field"),
        ("c4#join=space", "join=space .* is unknown: join=blank-line"),
        ("wikitext2#split=tset", "no split 'tset', only train, validation, test.*wikitext2#split=test"),
        ("c4#split=test", "no split 'test', only train, validation"),
        ("python-code#split=validation", "only train, test"),
        ("wikitext2#fields=text", "known by name and has no option 'fields': its options are split, documents"),
        ("python-code#join=blank-line", "embedded text and has no option 'join'"),
        ("hub:a b", "names no hub dataset"),
        ("hub:", "names no hub dataset"),
        ("self:seed=0,keep=0.8", r"with options after a #, as in self:#seed=1&temperature=0.8"),
        ("self:#split=test", "has no option 'split': its options are seed, temperature, length, keep"),
        ("self:#temperature=0", "temperature='0' of the text .* must be a number from 0.01 to 10"),
        ("self:#temperature=nan", "must be a number from 0.01 to 10"),
        ("self:#temperature=1e1", "must be a number from 0.01 to 10"),
        ("self:#keep=.", "keep='.' .* must be a number from 0.05 to 1"),
        ("self:#keep=1.5", "must be a number from 0.05 to 1"),
        ("self:#length=1", "must be a whole number from 2 to"),
        ("self:#seed=-1", "seed='-1' .* must be a whole number from 0 to"),
        ("self:#seed=" + "9" * 5000, "must be a whole number from 0 to"),
        ("self:#seed=1&seed=2", "'seed' twice"),
    ],
)
def test_mistakes_in_names_and_options_are_said(text, message):
    with pytest.raises(SettingsError, match=message) as caught:
        resolve(text, "calibration")
    assert len(str(caught.value)) < 500


def test_path_with_a_hash_that_exists_is_that_path(tmp_path):
    odd = tmp_path / "run#1&a=b.txt"
    odd.write_text("words")
    assert parse(str(odd)).base == str(odd)
    folder = tmp_path / "set#2"
    folder.mkdir()
    (folder / "rows.jsonl").write_text('{"a": "x", "b": "y"}\n')
    name = parse(f"{folder}/rows.jsonl#fields=b")
    assert (name.base, name.fields) == (f"{folder}/rows.jsonl", ("b",))
    assert "1 documents, 1 characters" in texts.describe(f"{folder}/rows.jsonl#fields=b")


def test_known_name_wins_over_a_folder_of_that_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wikitext2").mkdir()
    (tmp_path / "wikitext2" / "train.txt").write_text("words")
    assert resolve("wikitext2", "calibration").kind == "hub"
    assert resolve("./wikitext2", "calibration").kind == "folder"


def test_default_splits_by_role():
    expected = {"wikitext2": "test", "ptb": "validation", "c4": "validation", "python-code": "test", "hub:a/b": "test"}
    for text, split in (expected | {"ptb#split=test": "test"}).items():
        assert resolve(text, "evaluation").split == split
        assert resolve(text, "calibration").split == ("test" if "#" in text else "train")


def test_missing_text_suggests_what_was_meant(tmp_path):
    (tmp_path / "valid.txt").write_text("words")
    for text, message in {
        "wikitxt2": "did you mean 'wikitext2'",
        f"{tmp_path}/vaild.txt": f"did you mean '{tmp_path}/valid.txt'",
        "allenai/c4": "on the hub type hub:allenai/c4",
        "allenai/c4#config=en": "type hub:allenai/c4#config=en",
        "qqqqqqqq": "give a file, a dataset folder, hub:owner/name, or one of .*wikitext2, ptb, c4",
        f"{tmp_path}/valid.txt/inside": "there is no text",
        "x" * 5000: "there is no text",
        "nul\0byte": "there is no text",
    }.items():
        with pytest.raises(CorpusError, match=message):
            resolve(text, "calibration")


def test_options_are_read_and_left_out_ones_have_defaults():
    assert sampling_of(parse("self:")) == Sampling(0, 1.0, 0, 0.8)
    every = "self:#keep=.5&length=64&temperature=0.75&seed=12"
    assert sampling_of(parse(every)) == Sampling(12, 0.75, 64, 0.5)
    assert sampling_of(parse(EXAMPLE)) == Sampling(1, 0.8, 0, 0.5)


@pytest.mark.parametrize("option", OPTIONS)
def test_other_texts_have_none_of_its_options(option, tmp_path):
    folder = tmp_path / "plain.txt"
    folder.write_text("words")
    for text in ("wikitext2", "python-reference", str(folder)):
        with pytest.raises(SettingsError, match=f"no option '{option}'"):
            resolve(f"{text}#{option}=1", "calibration")


def test_it_is_described_and_told_apart_without_a_model_and_it_cannot_be_read_without_a_run():
    words = "seed 2, temperature 1, documents of 64 tokens, the 80% of lowest perplexity"
    assert texts.describe("self:#seed=2&length=64") == f"written by the model itself ({words})"
    names = ("self:", "self:#seed=1", "self:#temperature=0.5", "self:#length=9", "self:#keep=1")
    assert len({texts.fingerprint(name, "calibration") for name in names}) == len(names)
    assert texts.fingerprint("self:", "evaluation") != texts.fingerprint("self:", "calibration")
    assert texts.fingerprint("self:#seed=0", "calibration") == texts.fingerprint("self:", "calibration")
    with pytest.raises(CorpusError, match="is written by the model during a run"):
        list(read_documents(resolve("self:", "calibration")))
    with pytest.raises(CorpusError, match="is written by the model during a run"):
        texts.draw("self:", object(), 2, 2, 0)
