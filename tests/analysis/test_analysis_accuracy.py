"""Which figure of a task counts, the mean over tasks, and by what protocol a figure was measured."""

import math
from dataclasses import replace

import numpy as np
import pytest

from gprune.analysis.accuracy import mean_accuracy, metric_of, reported_accuracy, reported_error
from gprune.evaluation import protocol
from gprune.records import Accuracy, Perplexity

NAN = math.nan


def measured(acc, acc_norm, chance=0.25):
    """Errors are a tenth of the figures, so that each is known by its value."""
    return Accuracy("task", acc, acc_norm, acc / 10, acc_norm / 10, 100, 0, chance, "1.0", "data")


# The rules of section 4 and of the appendix on fixed-metric accuracy.
@pytest.mark.parametrize(
    ("acc", "acc_norm", "rule", "metric"),
    [
        (0.6, 0.5, "max", "acc"),
        (0.5, 0.6, "max", "acc_norm"),
        (0.5, 0.5, "max", "acc"),
        (0.6, NAN, "max", "acc"),
        (0.6, 0.5, "fixed", "acc_norm"),
        (0.5, 0.6, "fixed", "acc_norm"),
        (0.6, NAN, "fixed", "acc"),
        (0.0, 0.0, "fixed", "acc_norm"),
    ],
)
def test_the_rule_chooses_the_figure_and_its_error(acc, acc_norm, rule, metric):
    accuracy = measured(acc, acc_norm)
    expected = acc if metric == "acc" else acc_norm
    assert metric_of(accuracy, rule) == metric
    assert reported_accuracy(accuracy, rule) == expected
    assert reported_error(accuracy, rule) == expected / 10


def test_mean_weighs_tasks_equally_whatever_their_size():
    tasks = [measured(0.6, NAN, 0.5), measured(0.4, 0.2, 0.25), measured(0.1, 0.3, 0.2)]
    highest, fixed = mean_accuracy(tasks, "max"), mean_accuracy(iter(tasks), "fixed")
    assert highest.value == pytest.approx((0.6 + 0.4 + 0.3) / 3, rel=1e-12)
    assert fixed.value == pytest.approx((0.6 + 0.2 + 0.3) / 3, rel=1e-12)
    assert highest.error == pytest.approx(math.sqrt(0.06**2 + 0.04**2 + 0.03**2) / 3, rel=1e-12)
    assert fixed.error == pytest.approx(math.sqrt(0.06**2 + 0.02**2 + 0.03**2) / 3, rel=1e-12)
    assert (highest.chance, highest.tasks) == (pytest.approx(0.95 / 3, rel=1e-12), 3)
    mean = mean_accuracy([measured(0.4, 0.5)], "max")
    assert (mean.value, mean.error, mean.chance, mean.tasks) == (0.5, 0.05, 0.25, 1)


MADE = {"gprune": "0.1.0", "torch": "2.13.0", "transformers": "5.1", "lm_eval": "0.4.13", "commit": "abc"}


def ppl(text="python-code", windows=80, length=128):
    return Perplexity(text, str(length), length, windows, 40.0, 1.0, np.zeros(windows))


def test_a_stamp_says_windows_stream_limit_rule_and_versions():
    result = protocol.of_perplexity(ppl(), MADE, "float32", 96)
    assert result.line == (
        "perplexity over 80 windows of 128 tokens (at most 96); one stream, a BOS, if any, at the start of each "
        "document only, consecutive windows, incomplete last window dropped; perplexity = exp(mean loss over 127 "
        "predictions per window); float32; gprune 0.1.0, torch 2.13.0, transformers 5.1"
    )
    assert "(all)" in protocol.of_perplexity(ppl(), MADE).line
    joined = protocol.of_perplexity(ppl("wikitext2"), {}).line
    assert "documents joined by blank lines, a BOS, if any, at its start only" in joined
    assert joined.endswith("versions not recorded")
    assert "joined" not in protocol.of_perplexity(ppl("c4"), {}).line
    assert "documents joined by blank lines" in protocol.of_perplexity(ppl("a.jsonl#join=blank-line"), {}).line
    assert result.to_dict()["versions"] == {"gprune": "0.1.0", "torch": "2.13.0", "transformers": "5.1"}


def test_the_stamp_of_an_accuracy_names_task_harness_and_rule():
    record = Accuracy("piqa", 0.5, 0.6, 0.1, 0.1, 48, 48, 0.5, "1.0, lm-eval 0.4.13", "")
    line = protocol.of_accuracy(record, MADE, "fixed").line
    assert line.startswith("accuracy on 48 documents (at most 48); zero-shot, task version 1.0, lm-eval 0.4.13")
    assert "rule fixed" in line and line.endswith("transformers 5.1, lm-eval 0.4.13")


def test_equal_stamps_have_no_mark_and_many_have_one_each():
    first, second = (protocol.of_perplexity(ppl(), MADE, "float32", limit) for limit in (80, None))
    assert first == second and protocol.Marks({"c": [first, second]}).footnotes == []
    many = [protocol.of_perplexity(ppl(windows=count), MADE) for count in range(1, 40)]
    result = protocol.Marks({"c": many})
    signs = [result.of("c", item) for item in many]
    assert signs.count("") == 1 and all(signs[1:]) and len(result.footnotes) == 38


def test_the_commonest_stamp_has_no_mark_and_the_others_say_how_they_differ():
    usual = protocol.of_perplexity(ppl(), MADE, "float32")
    few = protocol.of_perplexity(ppl(windows=48), MADE, "float32")
    later = protocol.of_perplexity(ppl(), MADE | {"torch": "2.14"}, "bfloat16")
    marked = protocol.Marks({"c": [few, usual, None, later, usual], "d": [later, usual, usual], "e": [few]})
    assert [marked.of("c", item) for item in (usual, few, later, None)] == ["", "ᵃ", "ᵇ", ""]
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
