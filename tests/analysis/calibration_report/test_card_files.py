"""A card as a file: it stands alone, holds every number, and whatever a name says."""

import json
import re
from html.parser import HTMLParser

import pytest
from calibration_report.cards import a_card, against

from gprune.analysis.calibration_report import figures, writing
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


def test_the_page_stands_alone_and_says_what_the_card_says():
    tags, words = read(a_card(against(), against(letter="C", name="c")))
    assert tags.addresses == [] and "link" not in tags.tags and "img" not in tags.tags
    assert "Calibration card of a" in words and "64 would bring it to 25%" in words
    assert "100 of 1,000" in words and "Jaccard index of the neurons kept" in words
    assert "C: c" in words and tags.tags.count("table") == 2


def test_a_hostile_name_is_text_in_every_form():
    card = a_card(against(name=HOSTILE), name=HOSTILE, run=HOSTILE)
    tags, words = read(card)
    assert "img" not in tags.tags and HOSTILE in words
    found = re.search(
        r"<script type='application/json' id='numbers'>(.*?)</script>", writing.page(card), re.S
    )
    assert json.loads(found[1])["name"] == HOSTILE
    formula = a_card(against(name="=1+1"), name="=cmd()")
    assert not [line for line in writing.as_csv(formula).splitlines() if line.startswith(("=", "+", "@"))]


def test_json_holds_every_number_and_no_number_that_json_has_not():
    card = a_card(against(), drift=Law(float("nan"), 0.0))
    values = json.loads(writing.as_json(card, 0.5), parse_constant=pytest.fail)
    assert values["drift"] == {"scale": None, "shift": 0.0} and values["recommended"] == {"B": None}
    assert values["size"]["tokens"] == 12800 and values["others"][0]["jaccard"] == 0.6
    assert values["share"] == 0.5 and len(values["verdicts"]) == 3
    assert values["resampled"]["sequences"] == [25.0, 50.0]


def test_a_file_is_written_in_the_form_of_its_name_or_not_at_all(tmp_path):
    card = a_card(against(), name="half a pair \ud83d")
    for form in writing.FORMS:
        writing.save(card, tmp_path / f"card{form}")
        assert (tmp_path / f"card{form}").stat().st_size > 500
    with pytest.raises(SettingsError, match=r"one of .html, .json, .csv \(got 'card.pdf'\)"):
        writing.save(card, tmp_path / "card.pdf")
    with pytest.raises(StoreError, match="cannot be written .*: choose another place"):
        writing.save(card, tmp_path / "card.csv" / "inside.csv")


def test_the_figure_marks_what_was_drawn_and_what_is_asked_for():
    drawn = figures.noise(a_card(against(), against(letter="C", drift_beyond=0.04)), 0.25)
    lines = {shape.x0 for shape in drawn.layout.shapes if shape.x0 == shape.x1}
    assert lines == {100, 400}
    levels = {shape.y0 for shape in drawn.layout.shapes if shape.y0 == shape.y1}
    assert levels == {0.025, 0.01}
    assert [mark.text for mark in drawn.layout.annotations][-2:] == ["100 drawn", "400 for 25%"]
    # a law that nothing is known of, and texts that are the same, leave a figure
    for card in (a_card(), a_card(against(drift_beyond=0.0), drift=Law(float("nan"), 0.0))):
        assert figures.noise(card, 0.25).data
