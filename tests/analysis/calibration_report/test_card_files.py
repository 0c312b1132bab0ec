"""A card as a file that stands alone whatever a name says, and the sentences that its numbers choose."""

import json
import re
from html.parser import HTMLParser

import pytest
from calibration_report.cards import a_card, against

from gprune.analysis.calibration_report import figures, verdicts, writing
from gprune.analysis.resampling import Law
from gprune.system.errors import SettingsError, StoreError

HOSTILE = "</script><img src=x onerror=alert(1)>"


class Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.addresses, self.words, self.inside = [], [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.inside.append(tag)
        self.addresses += [value for name, value in attrs if name in ("src", "href")]

    def handle_endtag(self, tag):
        while self.inside and self.inside.pop() != tag:
            pass

    def handle_data(self, data):
        if not {"script", "style"} & set(self.inside):
            self.words.append(data)


def read(card):
    tags = Tags()
    tags.feed(writing.page(card))
    return tags, " ".join(tags.words)


def test_the_page_stands_alone_and_says_what_the_card_says_and_a_hostile_name_is_text_in_every_form():
    tags, words = read(a_card(against(), against(letter="C", name="c", label="c4")))
    assert tags.addresses == [] and "link" not in tags.tags and "img" not in tags.tags
    assert "Calibration card of a" in words and "64 sequences would keep it below 25%" in words
    assert "100 of 1,000" in words and "Jaccard index of kept neurons" in words
    assert " c4 " in words and "C: c4" not in words and tags.tags.count("table") == 2
    card = a_card(against(name=HOSTILE, label=HOSTILE), name=HOSTILE, label=HOSTILE, run=HOSTILE)
    tags, words = read(card)
    assert "img" not in tags.tags and HOSTILE in words
    match = re.search(r"<script type='application/json' id='numbers'>(.*?)</script>", writing.page(card), re.S)
    assert json.loads(match[1])["name"] == HOSTILE


def test_json_holds_every_number_and_no_number_that_json_has_not():
    card = a_card(against(), drift=Law(float("nan"), 0.0))
    values = json.loads(writing.as_json(card, 0.5), parse_constant=pytest.fail)
    assert values["drift"] == {"scale": None, "shift": 0.0} and values["recommended"] == {"B": None}
    assert values["size"]["tokens"] == 12800 and values["others"][0]["jaccard"] == 0.6
    assert values["share"] == 0.5 and len(values["verdicts"]) == 3
    assert values["resampled"]["sequences"] == [25.0, 50.0]


def test_a_file_is_written_in_the_form_of_its_name_or_not_at_all(tmp_path):
    card = a_card(against(), name="half a pair \ud83d")
    for form in writing.SUFFIXES:
        writing.save(card, tmp_path / f"card{form}")
        assert (tmp_path / f"card{form}").stat().st_size > 500
    with pytest.raises(SettingsError, match=r"one of .html, .json \(got 'card.pdf'\)"):
        writing.save(card, tmp_path / "card.pdf")
    with pytest.raises(StoreError, match="cannot be written .*: choose another place"):
        writing.save(card, tmp_path / "card.json" / "inside.json")


def test_the_figure_marks_what_was_drawn_and_what_is_asked_for():
    figure = figures.plot_sampling_drift(a_card(against(), against(letter="C", drift_beyond=0.04)), 0.25)
    lines = {shape.x0 for shape in figure.layout.shapes if shape.x0 == shape.x1}
    assert lines == {100, 400}
    levels = {shape.y0 for shape in figure.layout.shapes if shape.y0 == shape.y1}
    assert levels == {0.025, 0.01}
    # names in the legend cover no data
    names = [shape.name for shape in figure.layout.shapes]
    assert names == [*["25% of the drift to ptb"] * 2, "100 sequences (this run)", "400 sequences (25%)"]
    # a law that nothing is known of, and texts that are the same, leave a figure
    for card in (a_card(), a_card(against(drift_beyond=0.0), drift=Law(float("nan"), 0.0))):
        assert figures.plot_sampling_drift(card, 0.25).data


NONE = float("nan")


def answers(card, share=0.25):
    return [verdict.answer for verdict in verdicts(card, share)]


def test_a_text_is_large_enough_where_sampling_is_a_small_part_of_the_drift():
    enough = verdicts(a_card(against()))[0]
    assert enough.good is True and enough.question == "Is wiki large enough?"
    text = "Resampling 100 sequences shifts ranks by 0.020 (median), 20% of the drift to ptb (0.100 beyond sampling)"
    assert enough.answer == f"Yes. {text}. 64 sequences would keep it below 25%; the text has 1,000."
    # 0.04 / 0.01^2 = 400
    few = verdicts(a_card(against()), 0.1)[0]
    assert few.good is False and few.answer == f"No. {text}. 400 sequences would keep it below 10%; the text has 1,000."


@pytest.mark.parametrize(
    ("available", "share", "ending"),
    [
        (300, 0.1, "400 sequences would keep it below 10%; the text has 300."),
        (9000, 0.05, "1,600 sequences (extrapolated) would keep it below 5%; the text has 9,000."),
        (None, 0.1, "400 sequences would keep it below 10%."),
    ],
)
def test_too_few_sequences_say_how_many_and_whether_the_text_has_them(available, share, ending):
    assert answers(a_card(against(), available=available), share)[0].endswith(ending)


def test_unknown_answers_are_neither_good_nor_bad():
    unclear = verdicts(a_card(against(), drift=Law(NONE, 0.0)))[0]
    assert unclear.good is None and unclear.answer.startswith("Unknown: ")
    same = verdicts(a_card(against(drift=0.015, drift_beyond=0.0)))[0]
    assert same.good is False and same.answer.endswith("(median), as much as ptb does (0.015).")
    alone = verdicts(a_card())
    assert alone[0].answer.endswith("0.020 (median). The run has no other text to compare it with.")
    assert [verdict.good for verdict in alone] == [None, None, None]
    assert "no tokens to compare" in answers(a_card(against(runs_shared=NONE)))[2]


@pytest.mark.parametrize(
    ("changed", "sampling", "start"),
    [
        (0.2, 0.05, "Yes. Using ptb instead changes 20.0% of the neuron decisions (Jaccard 0.60"),
        (0.08, 0.05, "In part. Using ptb instead changes 8.0%"),
        (0.06, 0.05, "Hardly more than another sample would. Using ptb instead changes 6.0%"),
        (0.2, NONE, "Unknown: the effect of sampling is not measured. Using ptb instead changes 20.0% of the neuron"),
    ],
)
def test_whether_another_text_gives_another_model(changed, sampling, start):
    answer = answers(a_card(against(changed=changed, changed_sampling=sampling)))[1]
    assert answer.startswith(start) and "(Jaccard 0.60; chance 0.30) and 12.5% of the key/value groups." in answer
    assert (f" Another sample changes {100 * sampling:.1f}% of the neurons." in answer) == (sampling == sampling)
    # other methods decide otherwise, so that the share says by which rule it is
    assert " Setting: FLAP scores, " in answer and "Across" not in answer
    assert "Across 3 texts" in answers(a_card(against(changed=changed), against(letter="C")))[1]


def test_a_text_with_verbatim_overlap_is_not_distinct():
    overlap = verdicts(a_card(against(runs_shared=0.4), against(letter="C", label="c4", token_distance=0.2)))[2]
    assert overlap.good is False
    assert overlap.answer == (
        "No: 40.00% verbatim overlap with ptb (runs of 13 tokens). Half of wiki differs in its token frequencies by "
        "0.45 from half of c4 and by 0.30 from the other half of wiki."
    )
    assert answers(a_card(against()))[2].startswith("Yes: no verbatim overlap with ptb (")
    assert answers(a_card(against(runs_shared=5e-3)))[2].startswith("Yes: 0.50% verbatim")
