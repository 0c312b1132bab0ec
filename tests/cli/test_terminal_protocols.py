"""What `run` prints of protocols and texts: one line each, and marks only where a text has several."""

from typing import Any

from gprune.cli import progress


def a_result(second: int = 0) -> dict[str, Any]:
    lines = ["perplexity over 48 windows of 128 tokens; torch 2.13", "perplexity over 48 windows; torch 2.14"]
    return {
        "settings": {"evaluation": {"texts": ["c4"], "preset": "128"}, "seed": 0},
        "run": "r",
        "retention": {"dense": 1.0, "flap": 0.5},
        "parameters": {"dense": 9, "flap": 5},
        "perplexity": {"dense": {"c4": 40.0}, "flap": {"c4": 50.0}},
        "protocols": [{"line": line} for line in lines[: second + 1]],
        "protocol of": {"perplexity": {"dense": {"c4": 0}, "flap": {"c4": second}}},
        "texts": {"c4": {"sentence": "c4: another corpus than A and B: unseen"}},
        "seconds": {},
        "reused": [],
    }


def test_one_protocol_is_one_line_without_a_mark(capsys):
    progress.summary(a_result())
    shown = capsys.readouterr().out
    assert "protocol: perplexity over 48 windows of 128 tokens; torch 2.13\n" in shown and "ᵃ" not in shown
    assert "text: c4: another corpus than A and B: unseen\n" in shown


def test_figures_of_two_protocols_in_a_column_are_marked(capsys):
    progress.summary(a_result(1))
    shown = capsys.readouterr().out
    assert "40.00ᵃ" in shown and "50.00ᵇ" in shown
    assert "protocol: ᵇ perplexity over 48 windows; torch 2.14\n" in shown


def test_protocols_of_other_seeds_are_told_where_they_differ(capsys):
    found = {"perplexity": {"flap": {"c4": {"mean": 50.0, "deviation": 0.0, "seeds": 2}}}}
    progress.seeds_summary(found, [a_result(), a_result(1)])
    shown = capsys.readouterr().out
    assert "protocol of another seed: perplexity over 48 windows; torch 2.14\n" in shown
    assert shown.count("torch 2.13") == 1
