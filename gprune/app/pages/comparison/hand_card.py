"""Mask sets of the mask editor, beside the method each starts from and the baseline."""

from typing import Any

import pandas as pd
import streamlit as st

from gprune.analysis import paired_test
from gprune.analysis.mask_edits import MaskSet, mask_sets
from gprune.analysis.paired_test import Measurement
from gprune.analysis.table import guarded
from gprune.app.pages.by_hand import listed
from gprune.app.pages.comparison.lines import Shown
from gprune.app.ui import derived_cache, offered_job, packed
from gprune.app.ui.card import Card
from gprune.app.ui.chart_style import called
from gprune.app.ui.text import plain
from gprune.pipeline.runs.opened import Run
from gprune.system.errors import GpruneError

_HOW = (
    "A set is measured like a method: every window of every evaluation text, and each difference is taken "
    "window by window. Its budget is that of the method it starts from. A person who has chosen units by "
    "what they do to a text has chosen on that text: there the set is not held out, and a text that nobody "
    "looked at says more."
)
_FORMS = {"nats/token to its method": "%+.4f", "nats/token to the baseline": "%+.4f", "perplexity": "%.2f"}
_FORMS |= {"± nats/token": "%.4f", "± nats/token to the baseline": "%.4f"}


def sets(shown: Shown) -> list[tuple[Run, MaskSet]]:
    """The mask sets of the runs that are compared."""
    return [(run, one) for run in shown.runs for one in mask_sets.kept(run.results)[0]]


def show(drawn: Card, shown: Shown, there: list[tuple[Run, MaskSet]]) -> None:
    """Draws the card."""
    rows: list[dict[str, Any]] = []
    missing: list[tuple[Run, MaskSet]] = []
    for run, chosen in there:
        found = _measured(run, chosen)
        rows += [_row(shown, run, chosen, one) for one in found]
        if len(found) < len(run.study.evaluation.texts):
            missing.append((run, chosen))
    if rows:
        table = pd.DataFrame(rows)
        drawn.title(_finding(table))
        drawn.table(
            table,
            shares={"kept": 2},
            forms=_FORMS,
            alt="mask sets",
            caption="nats/token: difference in log perplexity, paired over windows, ± its 95 % interval; "
            "below 0 the set is better.",
            how=_HOW,
        )
    for run, chosen in missing:
        _offer(run, chosen)


def _finding(table: pd.DataFrame) -> str:
    """How the sets do against the methods they start from, in words."""
    better, worse = (int((table["verdict"] == verdict).sum()) for verdict in (paired_test.BETTER, paired_test.WORSE))
    return (
        f"Mask sets against the method itself: {better} figures better, {worse} worse, "
        f"{len(table) - better - worse} within noise or not comparable"
    )


def _measured(run: Run, chosen: MaskSet) -> list[Measurement]:
    """The perplexities of a set that are there."""
    stages = mask_sets.perplexities(run.results, chosen)
    there = {text: stage for text, stage in stages.items() if run.there(stage)}
    if not there:
        return []
    size = _size(run, chosen)
    return [derived_cache.measurement(run, chosen.name, text, stage, *size) for text, stage in there.items()]


def _size(run: Run, chosen: MaskSet) -> tuple[float, int]:
    """Kept fraction of the decoder's weights, and parameters; not known where a set gives other masks now."""
    try:
        found = listed.outcome(run, chosen.method, chosen.edits)
        mask_sets.require_digest(chosen, found)
    except GpruneError:
        return float("nan"), 0
    return derived_cache.size_of(run, chosen.method, found.masks)


def _row(shown: Shown, run: Run, chosen: MaskSet, found: Measurement) -> dict[str, Any]:
    rows = {row.name: row for row in shown.rows}
    own = rows.get((run.name, chosen.method))
    pinned = shown.pinned.rows[0].cells.get(found.text)
    standing = shown.standing(found.text)
    to_own = _difference(found, own.cells.get(found.text) if own is not None else None)
    to_pinned = _difference(found, pinned)
    return {
        "set": guarded(chosen.name),
        "starts from": guarded(shown.names.get((run.name, chosen.method), called(chosen.method))),
        "text": found.text,
        "the text is": "" if standing is None else standing.brief,
        "perplexity": found.perplexity,
        "nats/token to its method": to_own.nats if to_own else None,
        "± nats/token": to_own.nats_margin if to_own else None,
        "verdict": to_own.verdict if to_own else "",
        "nats/token to the baseline": to_pinned.nats if to_pinned else None,
        "± nats/token to the baseline": to_pinned.nats_margin if to_pinned else None,
        "kept": found.retention,
        "edits": len(chosen.edits),
    }


def _difference(first: Measurement, second: Measurement | None) -> paired_test.Difference | None:
    """How much worse the first is, where both have read the same windows."""
    if second is None or not paired_test.same_windows(first, second):
        return None
    return paired_test.difference(first, second)


def _offer(run: Run, chosen: MaskSet) -> None:
    """Says that a set is not measured on every text yet, and offers the job that does it."""
    st.caption(f"{plain(chosen.name)} is not measured on every text of its run yet.")
    if packed.lacking(run):
        st.caption("A packed run has no model to measure.")
        return
    title, key = f"Mask set {chosen.name}", f"cp_hand_{chosen.identity}"
    offered_job.draw(run, arguments_of(run, chosen), title, words="Measure it", key=key)


def arguments_of(run: Run, chosen: MaskSet) -> tuple[str, ...]:
    """The command that measures a set, after `python -m gprune`."""
    return ("measure", run.name, chosen.name, "--identity", chosen.identity, "--cache", run.root)
