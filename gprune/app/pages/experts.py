"""Page *Experts*: the experts of a mixture-of-experts model, and the methods that remove them."""

from gprune.app.ui import frame
from gprune.app.ui.page_names import EXPERTS
from gprune.pipeline.runs.opened import Run


@frame.declare_page(EXPERTS, "Which experts does each method remove, and does it depend on the text?", experts=True)
def show(run: Run) -> None:
    """Draw the page."""
