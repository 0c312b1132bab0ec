"""What is begun before a visitor asks: the browser's largest script, and the imports of the pages."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from server.asking import COOKIE, KEYS, PAGE, ask

from gprune.app.server.allowed_hosts import names
from gprune.app.server.auth import Guard
from gprune.app.server.serving import Hint


def page(kind: bytes, status: int = 200) -> Any:
    """An app with one answer."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", kind)]})
        await send({"type": "http.response.body", "body": b"<html>"})

    return app


def links(app: Any, scripts: Path, **headers: str) -> list[str]:
    guard = Guard(Hint(app, scripts), names("127.0.0.1", 8501), KEYS)
    return [value for name, value in ask("/", guarded=guard, **headers).headers if name == "link"]


def test_only_pages_for_whoever_is_let_in_name_the_script(tmp_path: Path) -> None:
    assert links(page(b"text/html"), tmp_path, **COOKIE) == [], "another version of Streamlit"
    (tmp_path / "PlotlyChart.D9Z0_fxz.js").touch()
    hint = ["</static/js/PlotlyChart.D9Z0_fxz.js>; rel=modulepreload"]
    assert links(page(b"text/html; charset=utf-8"), tmp_path, **COOKIE) == hint
    assert links(page(b"text/javascript"), tmp_path, **COOKIE) == []
    assert links(page(b"text/html", 404), tmp_path, **COOKIE) == []
    asked = {name.replace("-", "_"): value for name, value in PAGE.items()}
    assert links(page(b"text/html"), tmp_path, **asked) == [], "the form for the token"


@pytest.mark.process
def test_every_page_is_imported_and_no_torch(project: Path) -> None:
    code = (
        "import sys; from gprune.app.server.serving import import_views; import_views(); "
        "print(sorted(n for n in sys.modules if n.startswith('gprune.app.') and n.endswith('.page')), "
        "'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=project, capture_output=True, text=True)
    folders = sorted(
        folder.parent.name for folder in (project / "gprune" / "app" / "pages").glob("*/page.py")
    )
    pages = [*(f"gprune.app.pages.{name}.page" for name in folders), "gprune.app.report.page"]
    # outside of a server Streamlit says that it finds none
    assert done.returncode == 0 and "cannot be imported" not in done.stderr
    assert done.stdout.strip() == f"{pages} False"
