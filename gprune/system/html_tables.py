"""Tables in HTML for notebooks, from untrusted words."""

import html
from collections.abc import Mapping

from gprune.system import safe_parsing

_LONGEST = 160


def table(title: str, rows: Mapping[str, object]) -> str:
    """Return a title and a row for each name and value as HTML that holds nothing but these words.

    Every word is escaped, cut to bounded length, and free of what would change how the rest is read. Rows
    whose value is empty are left out.
    """
    left = "style='text-align:left'"
    cells = "".join(
        f"<tr><th {left}>{_word(name)}</th><td {left}>{_word(value)}</td></tr>"
        for name, value in rows.items()
        if value not in ("", None)
    )
    return f"<table><caption {left}><b>{_word(title)}</b></caption>{cells}</table>"


def _word(value: object) -> str:
    return html.escape(safe_parsing.sentence(value, _LONGEST))
