"""Tables in a document: rewritten with command, commit, seeds and spread, and none without them."""

import re
import sys
from dataclasses import replace

from synthetic_tables import filled, write_tables

from gprune.experiments.reproduction import document
from gprune.experiments.reproduction.grid import Row
from gprune.experiments.reproduction.lookup import Answer
from gprune.experiments.reproduction.scale import choose

VERSIONS = {"gprune": "0.1.0", "commit": "abc123", "torch": "2.13.0", "uncommitted_changes": False}
MARKS = "before\n<!-- table: {} of demo at demo -->\nold\n<!-- end of table -->\nafter\n"


def known(row: Row) -> Answer:
    return replace(filled(row), versions=VERSIONS)


def test_a_table_is_written_between_its_marks_with_what_repeats_it(tmp_path):
    write_tables(tmp_path, "ablation", fill=known)
    text, missing = document.rewritten(MARKS.format("ablation"), tmp_path)
    assert not missing and text.startswith("before\n") and text.endswith("<!-- end of table -->\nafter\n")
    assert "old" not in text
    assert "- Command: `python -m gprune reproduce ablation --model demo`" in text
    assert "- Commit: abc123; gprune 0.1.0, torch 2.13.0" in text
    assert "- Seeds: 0; ± is the standard error over windows" in text
    assert "| GPrune (FLAP) | yes | yes | yes | 50.0% | 40.00 ± 1.00 | 80.00 ± 1.00 | 120.00 ± 1.00 |" in text
    assert document.rewritten(text, tmp_path) == (text, [])


def test_what_the_cache_does_not_have_stays_and_is_named(tmp_path):
    write_tables(tmp_path, "ablation", fill=lambda row: Answer(row, reason="not run yet"))
    text = MARKS.format("ablation") + MARKS.format("main")
    assert document.rewritten(text, tmp_path) == (text, ["ablation of demo at demo", "main of demo at demo"])
    # a mark without its end is no table
    lone = "<!-- table: main of demo at demo -->\nold\n"
    assert document.rewritten(lone, tmp_path) == (lone, [])


def test_reproductions_that_differ_in_their_seed_alone_are_taken_together(tmp_path):
    write_tables(tmp_path, "main", fill=known)
    for seed in (1, 2):
        write_tables(tmp_path, "main", fill=known, scale=choose("demo", "demo", {"seeds": (seed,)}))
    # another size is another table
    write_tables(tmp_path, "main", fill=known, scale=choose("demo", "demo", {"seeds": (3,), "samples": 48}))
    text, _ = document.rewritten(MARKS.format("against"), tmp_path)
    assert "- Seeds: 0, 1, 2; ± is the deviation over seeds" in text and text.count("- Command: ") == 1
    # 40, 40.4 and 40.8 against FANG's 45, 45.45 and 45.9
    assert "| 50 % | python-reference | 40.40 ± 0.33 | FANG 45.45 ± 0.37 (0.889 ± 0.000) |" in text


def test_the_script_rewrites_a_document_and_says_what_is_missing(project, tmp_path, monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(project / "scripts"))
    import results

    write_tables(tmp_path, "ablation", fill=known)
    page = tmp_path / "page.md"
    page.write_text(MARKS.format("ablation") + MARKS.format("speed"), encoding="utf-8")
    assert results.main(["--cache", str(tmp_path), "--document", str(page)]) == results.UNFILLED
    assert "left as it is: speed of demo at demo" in capsys.readouterr().err
    assert "abc123" in page.read_text(encoding="utf-8")
    assert results.main(["--cache", str(tmp_path), "--document", str(tmp_path / "none.md")]) == 2
    sys.modules.pop("results", None)


def test_every_table_of_the_results_says_what_repeats_it_or_that_this_is_not_known(project):
    text = (project / "docs" / "results.md").read_text(encoding="utf-8")
    blocks = re.split(r"<!-- table: .* -->|<!-- end of table -->", text)
    outside, inside = blocks[0::2], blocks[1::2]
    assert len(inside) > 10 and not any(line.startswith("|") for part in outside for line in part.split("\n"))
    for part in inside:
        for said in ("- Command: ", "- Commit: ", "- Seeds: ", "± is"):
            assert said in part, part[:80]


def test_changes_that_were_not_committed_are_told(tmp_path):
    def dirty(row: Row) -> Answer:
        return replace(filled(row), versions=VERSIONS | {"uncommitted_changes": True})

    write_tables(tmp_path, "ablation", fill=dirty)
    text, _ = document.rewritten(MARKS.format("ablation"), tmp_path)
    assert "- Commit: abc123 with changes that were not committed" in text
