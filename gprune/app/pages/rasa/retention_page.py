"""The retention curve: how does perplexity grow as less is kept, by each method?"""

from gprune.app.pages.rasa import controls, lab, preview_card, retention_card
from gprune.app.ui import frame, story
from gprune.pipeline.runs.opened import Run


@frame.page("Retention curve", "How does perplexity grow as less is kept, and under which method least?")
def show(run: Run) -> None:
    """Draws the page."""
    offered = lab.methods(run)
    preview_card.show(run, [name for name in ("gprune", story.rival(run)) if name in offered])
    retention_card.show(run, controls.settings(run))
