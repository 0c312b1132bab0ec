"""The grammar of text names: what is accepted, and what each mistake is answered with."""

import pytest

from gprune.data import texts
from gprune.data.texts.naming import parse
from gprune.data.texts.source import resolve
from gprune.system.errors import CorpusError, SettingsError


def test_place_and_options_are_taken_apart():
    name = parse("  c4.jsonl#fields=prefix+gold_completion&documents=1280:1480 ")
    assert name.place == "c4.jsonl"
    assert name.fields == ("prefix", "gold_completion")
    assert name.documents == slice(1280, 1480)
    assert not name.joined
    assert parse("wikitext2").documents == slice(None, None)
    assert parse("a#documents=-5:").documents == slice(-5, None)
    assert parse("a#join=blank-line").joined


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("   ", "is empty"),
        ("c4#", "lacks a place or its options"),
        ("#split=test", "lacks a place or its options"),
        ("c4#splt=test", "unknown option 'splt': did you mean 'split'.*c4.jsonl#fields="),
        ("c4#colour=red", "unknown option 'colour': Options are split, config"),
        ("c4#split", "'split' .* has no value: the split, as in split=test"),
        ("c4#split=", "'split' .* has no value"),
        ("c4#split=test&split=train", "'split' twice"),
        ("c4#split=test&", "unknown option ''"),
        ("c4#documents=5", "documents=5 .* is no slice"),
        ("c4#documents=1:2:3", "is no slice"),
        ("c4#documents=a:b", "is no slice"),
        ("c4#fields=a++b", "empty field"),
        ("c4#join=space", "join=space .* is unknown: join=blank-line"),
    ],
)
def test_mistakes_in_names(text, message):
    with pytest.raises(SettingsError, match=message):
        parse(text)


def test_path_with_a_hash_that_exists_is_that_path(tmp_path):
    odd = tmp_path / "run#1&a=b.txt"
    odd.write_text("words")
    assert parse(str(odd)).place == str(odd)
    folder = tmp_path / "set#2"
    folder.mkdir()
    (folder / "rows.jsonl").write_text('{"a": "x", "b": "y"}\n')
    name = parse(f"{folder}/rows.jsonl#fields=b")
    assert (name.place, name.fields) == (f"{folder}/rows.jsonl", ("b",))
    assert "1 documents, 1 characters" in texts.describe(f"{folder}/rows.jsonl#fields=b")


def test_known_name_wins_over_a_folder_of_that_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wikitext2").mkdir()
    (tmp_path / "wikitext2" / "train.txt").write_text("words")
    assert resolve("wikitext2", "calibration").kind == "hub"
    assert resolve("./wikitext2", "calibration").kind == "folder"


def test_default_splits_by_role():
    splits = {
        (text, role): resolve(text, role).split
        for text in ("wikitext2", "ptb", "c4", "python-code", "hub:a/b")
        for role in ("calibration", "evaluation")
    }
    assert {split for (_, role), split in splits.items() if role == "calibration"} == {"train"}
    assert splits["wikitext2", "evaluation"] == "test"
    assert splits["ptb", "evaluation"] == "validation"
    assert splits["c4", "evaluation"] == "validation"
    assert splits["python-code", "evaluation"] == "test"
    assert splits["hub:a/b", "evaluation"] == "test"
    assert resolve("ptb#split=test", "evaluation").split == "test"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("wikitext2#split=tset", "no split 'tset', only train, validation, test.*wikitext2#split=test"),
        ("c4#split=test", "no split 'test', only train, validation"),
        ("python-code#split=validation", "only train, test"),
        ("wikitext2#fields=text", "known by name and has no option 'fields': it takes split, documents"),
        ("python-code#join=blank-line", "embedded text and has no option 'join'"),
        ("hub:a b", "names no hub dataset"),
        ("hub:", "names no hub dataset"),
    ],
)
def test_options_that_do_not_fit(text, message):
    with pytest.raises(SettingsError, match=message):
        resolve(text, "calibration")


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


def test_unknown_role_is_refused():
    with pytest.raises(SettingsError, match="role must be calibration or evaluation"):
        texts.fingerprint("wikitext2", "training")  # type: ignore[arg-type]
