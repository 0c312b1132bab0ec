"""Stamps of figures: what they say, when two are alike, and the marks of those that are not."""

from dataclasses import replace

import numpy as np

from gprune.evaluation import protocol
from gprune.records import Accuracy, Perplexity

MADE = {"gprune": "0.1.0", "torch": "2.13.0", "transformers": "5.1", "lm_eval": "0.4.13", "commit": "abc"}


def ppl(text: str = "python-code", windows: int = 80, length: int = 128) -> Perplexity:
    return Perplexity(text, str(length), length, windows, 40.0, 1.0, np.zeros(windows))


def test_a_stamp_says_windows_stream_limit_rule_and_versions():
    found = protocol.of_perplexity(ppl(), MADE, "float32", 96)
    assert found.line == (
        "perplexity over 80 windows of 128 tokens (at most 96); one stream, consecutive windows, tail "
        "dropped; exp of the mean loss of 127 predictions a window; float32; gprune 0.1.0, torch 2.13.0, "
        "transformers 5.1"
    )
    assert "(all)" in protocol.of_perplexity(ppl(), MADE).line
    joined = protocol.of_perplexity(ppl("wikitext2"), {}).line
    assert "documents joined by blank lines" in joined and joined.endswith("versions not recorded")
    assert "joined" not in protocol.of_perplexity(ppl("c4"), {}).line
    own = protocol.of_perplexity(ppl("a.jsonl#join=blank-line"), {}).line
    assert "documents joined by blank lines" in own
    assert found.to_dict()["versions"] == {"gprune": "0.1.0", "torch": "2.13.0", "transformers": "5.1"}


def test_the_stamp_of_an_accuracy_names_task_harness_and_rule():
    record = Accuracy("piqa", 0.5, 0.6, 0.1, 0.1, 48, 48, 0.5, "1.0, lm-eval 0.4.13", "")
    line = protocol.of_accuracy(record, MADE, "fixed").line
    assert line.startswith(
        "accuracy on 48 documents (at most 48); zero-shot, task version 1.0, lm-eval 0.4.13"
    )
    assert "rule fixed" in line and line.endswith("transformers 5.1, lm-eval 0.4.13")


def test_equal_stamps_have_no_mark_and_many_have_one_each():
    first, second = (protocol.of_perplexity(ppl(), MADE, "float32", limit) for limit in (80, None))
    assert first == second and protocol.Marks({"c": [first, second]}).footnotes == []
    many = [protocol.of_perplexity(ppl(windows=count), MADE) for count in range(1, 40)]
    found = protocol.Marks({"c": many})
    signs = [found.of("c", one) for one in many]
    assert signs.count("") == 1 and all(signs[1:]) and len(found.footnotes) == 38


def test_the_commonest_stamp_has_no_mark_and_the_others_say_how_they_differ():
    usual = protocol.of_perplexity(ppl(), MADE, "float32")
    few = protocol.of_perplexity(ppl(windows=48), MADE, "float32")
    later = protocol.of_perplexity(ppl(), MADE | {"torch": "2.14"}, "bfloat16")
    marked = protocol.Marks({"c": [few, usual, None, later, usual], "d": [later, usual, usual], "e": [few]})
    assert [marked.of("c", one) for one in (usual, few, later, None)] == ["", "ᵃ", "ᵇ", ""]
    assert marked.usual == {"c": usual, "d": usual, "e": few}
    # the same difference has the same mark in every column, and a column of one stamp has none
    assert marked.of("d", later) == "ᵇ" and marked.of("e", few) == "" and marked.of("c", few, later) == "ᵃᵇ"
    assert marked.footnotes == [
        "ᵃ perplexity over 48 windows of 128 tokens instead of perplexity over 80 windows of 128 tokens",
        "ᵇ bfloat16 instead of float32; torch 2.14 instead of torch 2.13.0",
    ]
    unknown = replace(usual, versions=())
    assert protocol.difference(unknown, usual) == "versions not recorded"
    assert protocol.Marks({"c": []}).footnotes == protocol.Marks({}).footnotes == []
