"""Mask editor: what if a person keeps or removes these units, at the same budget?"""

from gprune.app.pages.by_hand import edits_card, sets_card
from gprune.app.ui import frame
from gprune.pipeline.runs.opened import Run


@frame.page(
    "Mask editor",
    "What does it cost to force units to be kept or removed, at the budget that the method has met?",
)
def show(run: Run) -> None:
    """Draws the page."""
    edits_card.card(run)
    sets_card.show(run)
