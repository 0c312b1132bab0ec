"""The table of pages and their places, for navigation, links and reports.

A page shows one place, or several places in one tab each. Every link is made from this table.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import urlencode

TOOL = "GPrune Studio"
PURPOSE = (
    "see which neurons of a language model change importance with the calibration text, adjust the RASA "
    "thresholds, prune, and compare the result with other methods"
)
"""what the tool is for; follows its name and a colon"""
TAB = "tab"
"""key in the address: the open tab of a page"""

NAMES = {
    "overview": "Overview",
    "calibration_data": "Texts",
    "drift": "Drift",
    "neurons": "Neurons",
    "experts": "Experts",
    "masks": "Masks",
    "rasa": "RASA thresholds",
    "comparison": "Methods",
    "studies": "Studies",
    "flipped_questions": "Changed answers",
    "speed_export": "Speed",
    "jobs": "Launch & jobs",
    "report": "Report",
    "help": "Help",
}
"""titles of pages and tabs, by the module that draws them"""

EXPERTS = NAMES["experts"]
"""title of the page Neurons for runs that prune experts"""


@dataclass(frozen=True, slots=True)
class Page:
    """A page of the app."""

    url: str
    """the last part of its address; the first page is also at the root"""
    file: str
    """its file, by which Streamlit identifies it"""
    name: str
    icon: str
    question: str
    """the question that it answers, in a few words"""
    places: dict[str, str]
    """labels of its tabs by place; the first is open by default, and a single place has no tab"""


def _page(url: str, stem: str, name: str, icon: str, question: str, places: dict[str, str]) -> Page:
    return Page(url, f"pages/{stem}.py", name, f":material/{icon}:", question, places)


SECTIONS = {
    "Explore": (
        _page("home", "overview", "Overview", "dashboard", "The result of a run", {"home": "Overview"}),
        _page(
            "texts", "calibration_texts", "Texts", "dataset", "Which texts calibrate the run?",
            {"card": "Calibration card", "calibration": "All texts"},
        ),
        _page(
            "drift", "text_drift", "Drift", "swap_vert", "Which neurons shift, and do modules survive?",
            {"drift": "Rank drift", "agreement": "Module agreement"},
        ),
        _page(
            "neurons", "neuron_inspection", "Neurons", "frame_inspect", "What does this neuron respond to?",
            {"inspector": "Inspector", "map": "Neuron map", "lens": "Text lens"},
        ),
        _page(
            "masks", "mask_decisions", "Masks", "grid_on", "Which units are kept?",
            {"decisions": "Pruning decisions", "atlas": "Mask atlas"},
        ),
    ),
    "Decide": (
        _page("tune", "tuning", "Tune", "tune", "What changes with other thresholds?", {"rasa": NAMES["rasa"]}),
        _page(
            "compare", "comparison", "Compare", "leaderboard", "Which method is better?",
            {
                "compare": NAMES["comparison"],
                "questions": NAMES["flipped_questions"],
                "speed": NAMES["speed_export"],
                "studies": NAMES["studies"],
            },
        ),
        _page(
            "runs", "runs_and_export", "Runs & export", "rocket_launch", "Start, follow and export runs",
            {"launch": NAMES["jobs"], "export": "Export", "report": NAMES["report"]},
        ),
    ),
    "Help": (
        _page(
            "help", "reading_help", "Help", "help", "What do the pages and terms mean?",
            {"reading": "How to read", "words": "Glossary", "keys": "Keys", "features": "Where everything is"},
        ),
    ),
}  # fmt: skip
"""the pages under their headings, in the order of the navigation"""
PAGES = tuple(page for pages in SECTIONS.values() for page in pages)
PAGE_OF = {place: page for page in PAGES for place in page.places}
"""the page of each place"""


def page_at(url: str) -> Page:
    """Return the page at a URL; the first page at the root."""
    return next((candidate for candidate in PAGES if candidate.url == url), PAGES[0])


def first_place(url: str) -> str:
    """Return the default place of a page."""
    return next(iter(page_at(url).places))


def tab(place: str) -> dict[str, str]:
    """Return the query that opens a place on its page; empty for the default place."""
    return {} if first_place(PAGE_OF[place].url) == place else {TAB: place}


def describe_place(place: str) -> str:
    """Return a place in words: `Drift page, Module agreement tab`."""
    page_of_place = PAGE_OF[place]
    return f"{page_of_place.name} page" + (
        f", {page_of_place.places[place]} tab" if len(page_of_place.places) > 1 else ""
    )


def path(place: str, query_pairs: Iterable[tuple[str, str]] = ()) -> str:
    """Return the address of a place relative to the app, with further query values."""
    url = PAGE_OF[place].url
    query = urlencode([*tab(place).items(), *query_pairs])
    return f"/{'' if url == PAGES[0].url else url}" + (f"?{query}" if query else "")
