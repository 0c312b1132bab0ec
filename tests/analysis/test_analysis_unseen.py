"""The one definition of an unseen text: what is declared, what is measured, and what is said of it."""

import numpy as np
import pytest

from gprune.evaluation import holdout
from gprune.evaluation.holdout import HoldoutStatus
from gprune.records import TextOverlap
from gprune.study import EvaluationSettings, Study


def overlap(text: str, *share: float, drawn: float = 0.1) -> TextOverlap:
    return TextOverlap(text, 17, 80, np.array(share), np.full(2, drawn))


def standing(text: str, *share: float, content: str = "", drawn: float = 0.1) -> HoldoutStatus:
    study = Study("demo", "wikitext2", "ptb", evaluation=EvaluationSettings(texts=(text,)))
    calibration = {"primary": "1", "auxiliary": "2", "substitute": "3"}
    measured = {text: overlap(text, *share, drawn=drawn)} if share else {}
    return holdout.standings(study, calibration, {text: content}, measured)[text]


@pytest.mark.parametrize(
    ("found", "brief", "is_unseen"),
    [
        (standing("c4", 0.0, 0.0004), "unseen", True),
        (standing("c4"), "other corpus, overlap unknown", False),
        (standing("wikitext2", 0.0, 0.0), "other split of A", False),
        (standing("ptb#split=test", 0.0, 0.0), "other split of B", False),
        (standing("wikitext2#split=train", 0.1, 0.0), "same text as A", False),
        # whatever its name, by its content or by what was measured
        (standing("news.txt", 0.0, 0.0, content="2"), "same text as B", False),
        (standing("news.txt", 0.11, 0.0), "overlaps A", False),
        (standing("news.txt", 0.02, 0.011), "overlaps A and B", False),
        # the third text prunes nothing
        (standing("news.txt", 0.0, 0.0, content="3"), "unseen", True),
    ],
)
def test_only_another_corpus_of_low_measured_overlap_is_unseen(found, brief, is_unseen):
    assert (found.brief, found.unseen) == (brief, is_unseen)
    assert ("unseen" in found.brief) == is_unseen
    assert found.to_dict()["unseen"] is is_unseen


def test_of_a_text_of_which_little_was_drawn_less_may_be_shared():
    # a copy would overlap by the 2 % that were drawn: 0.6 % is too much already
    assert standing("news.txt", 0.006, 0.0, drawn=0.02).copied == "A"
    assert standing("news.txt", 0.006, 0.0, drawn=0.5).unseen


def test_the_sentence_says_why_and_what_was_measured():
    assert standing("c4", 0.0, 0.00004).sentence == (
        "c4: another corpus than A and B: unseen; none of it stands word for word in A, "
        "< 0.01 % in B (runs of 17 tokens)"
    )
    assert standing("wikitext2", 0.125, 0.0).sentence == (
        "wikitext2: another split of the corpus of A, not unseen; "
        "12 % of it stands word for word in A, none in B (runs of 17 tokens)"
    )
    copy = standing("news.txt", 0.5, 0.0).sentence
    assert "another name, but it stands in A, so it is not unseen" in copy
    assert standing("c4").sentence.endswith("its overlap with A and B is not measured")


def test_findings_are_told_on_unseen_text_else_on_another_corpus_else_on_a():
    texts = ("wikitext2", "ptb", "news.txt", "c4")
    study = Study("demo", "wikitext2", "ptb", evaluation=EvaluationSettings(texts=texts))
    measured = {text: overlap(text, 0.0, 0.0) for text in texts}

    def first(left: tuple[str, ...], known: dict[str, TextOverlap]) -> str:
        own = Study("demo", "wikitext2", "ptb", evaluation=EvaluationSettings(texts=left))
        return holdout.first(holdout.standings(own, {}, {}, known), own)

    assert holdout.unseen(holdout.standings(study, {}, {}, measured)) == ["news.txt", "c4"]
    assert first(texts, measured) == "news.txt"
    assert first(texts, {"c4": measured["c4"]}) == "c4"
    assert first(texts, {}) == "news.txt" and first(("ptb", "wikitext2"), {}) == "wikitext2"
    assert first((), {}) == ""
