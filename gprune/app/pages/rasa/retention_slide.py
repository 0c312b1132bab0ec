"""The figure of the last slide: the retention curve, filled in by the worker, with a line to drag."""

from functools import partial

from gprune.app import preview
from gprune.app.pages.rasa import controls, curve_card, lab
from gprune.app.preview import Source
from gprune.app.ui import asking, derived_cache, packed, story
from gprune.pipeline.runs.opened import Run

LINE = "slide_retention"


def show(run: Run) -> None:
    """Draw the curve of GPrune and its rival on the headline's text.

    Raises MissingResultError where no pruned model is measured on that text.
    """
    text, _ = story.on_unseen(run)
    points = curve_card.measured(derived_cache.measurements(run), text)
    methods = [method for method in ("gprune", story.rival(run)) if method in run.cut]
    if packed.lacking(run) or not methods:
        curve_card.draw_line(points, controls.retention(run), LINE, fills=True)
        return
    choice = lab.choice(run, run.study.reliability)
    requests = curve_card.curve_requests(run, choice, methods, text)
    identities = preview.pool().ask_many(Source(run.root, run.graph), requests.questions, asking.owner("slide"))
    curve = dict(zip(requests.points, identities, strict=True))
    # live points lack what is fitted to the run's own masks
    points = [point for point in points if point[0] in methods and not preview.left_out(run.graph, point[0])]
    asking.look(run, partial(asking.coming, identities), lambda _: _draw(run, points, curve))


def _draw(run: Run, measured: list[curve_card.Known], curve: dict[tuple[str, float], str]) -> None:
    points = curve_card.answered(curve, measured)
    curve_card.draw_line(points, controls.retention(run), LINE, fills=True)
