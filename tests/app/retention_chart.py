"""The chart of the retention line in a page of its own, without the app: for what it reads off its curves."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gprune.app.pages.rasa import dragging, retention_line
from gprune.app.pages.rasa.retention_line import Series

_MOUNT = """async ([source, data]) => {
    const address = URL.createObjectURL(new Blob([source], { type: "text/javascript" }))
    const module = await import(address)
    module.default({ parentElement: document.body, data, setStateValue: () => {} })
}"""


def mounted(chromium: Any, series: Sequence[Series], dense: float, retention: float) -> Any:
    """A page with the chart, as the app would send it.

    Args:
        chromium: the browser.
        series: what is known of the methods.
        dense: the dense model's perplexity.
        retention: where the line stands.
    """
    own, shared = Path(retention_line.__file__).parent, Path(dragging.__file__).parent
    text = {name: (own / f"retention_line.{name}").read_text() for name in ("html", "css", "js")}
    looks = (shared / "dragging.css").read_text() + text["css"]
    page = chromium.new_page(viewport={"width": 900, "height": 600})
    page.set_content(f"<style>{looks}</style><div style='width: 800px'>{text['html']}</div>")
    data = retention_line.data(series, dense, retention, (0.05, 0.98)) | {"alt": "a chart"}
    page.evaluate(_MOUNT, [(shared / "dragging.js").read_text() + text["js"], data])
    page.locator(".retention-line[data-retention]").wait_for()
    return page
