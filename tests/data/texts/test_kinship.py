"""Which texts are of one corpus, and which part of it, by what their names declare."""

import pytest

from gprune.data.texts.corpus_relation import OTHER, PART, SAME, corpus, kinship


def kin(evaluated: str, calibrated: str) -> str:
    return kinship(corpus(evaluated, "evaluation"), corpus(calibrated, "calibration"))


@pytest.mark.parametrize(
    ("evaluated", "calibrated", "expected"),
    [
        # the split that a role means where none is typed: test, or PTB's and C4's validation
        ("wikitext2", "wikitext2", PART),
        ("wikitext2", "wikitext2#split=test", SAME),
        ("ptb", "ptb#split=validation", SAME),
        ("python-code", "python-code", PART),
        ("python-code#split=train", "python-code", SAME),
        ("c4", "wikitext2", OTHER),
        ("python-code", "python-reference", OTHER),
        # one corpus under another owner, as a folder or as a file is still that corpus
        ("hub:Salesforce/wikitext#config=wikitext-103-raw-v1", "wikitext2", PART),
        ("hub:somebody/wikitext#split=train", "wikitext2", SAME),
        ("hub:x/b", "hub:y/b", PART),
        ("hub:x/b", "hub:x/c", OTHER),
        ("data/wikitext-2-raw/wiki.test.raw", "wikitext2", PART),
        ("data/ptb/ptb.test.txt", "ptb", PART),
        ("data/penn-treebank/words.txt", "ptb", PART),
        ("data/webtext/c4.utf8", "data/c4/c4.jsonl", PART),
        # names that only hold the letters
        ("data/adaptbase.txt", "ptb", OTHER),
        ("data/abc4.txt", "c4", OTHER),
        # files whose names differ in a split only
        ("data/law.test.txt", "data/law.train.txt", PART),
        ("data/law/test.txt", "data/law/train.txt", PART),
        ("data/law/test.txt", "data/./law/test.txt", SAME),
        ("data/law.txt", "data/medicine.txt", OTHER),
        ("texts/user/law-test-0123456789ab.txt", "texts/user/law-train-ba9876543210.txt", PART),
        # slices of documents
        ("a.jsonl#documents=100:200", "a.jsonl#documents=0:100", PART),
        ("a.jsonl#documents=99:200", "a.jsonl#documents=0:100", SAME),
        ("a.jsonl#documents=-5:", "a.jsonl#documents=0:100", SAME),
        # what cannot be a name at all is itself
        ("a#b=c", "a#b=c", SAME),
        ("a\0b", "c", OTHER),
    ],
)
def test_texts_are_related_by_corpus_split_and_documents(evaluated, calibrated, expected):
    assert kin(evaluated, calibrated) == expected


def test_files_are_known_by_their_resolved_path(tmp_path):
    first, link = tmp_path / "law.txt", tmp_path / "another.txt"
    first.write_text("a", encoding="utf-8")
    link.symlink_to(first)
    assert kin(str(link), str(first)) == SAME
    folder = tmp_path / "novels"
    folder.mkdir()
    assert kin(str(folder), str(folder)) == PART and kin(str(folder), f"{folder}#split=test") == SAME
    assert kin(str(folder / "train.txt"), f"{folder}#split=train") == SAME
