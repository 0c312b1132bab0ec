"""A session of the app that nobody looks at: pages drawn in it say what they would show, and send it nowhere.

Streamlit's elements need a session; without one a slider gives its least value and a choice none at all. As
the tests of Streamlit do, this gives a thread a session of its own, with no browser behind it.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable
from typing import Any, TypeVar

from streamlit import runtime
from streamlit.runtime.fragment import MemoryFragmentStorage
from streamlit.runtime.memory_uploaded_file_manager import MemoryUploadedFileManager
from streamlit.runtime.pages_manager import PagesManager
from streamlit.runtime.scriptrunner_utils.exceptions import ScriptControlException
from streamlit.runtime.scriptrunner_utils.script_run_context import ScriptRunContext, add_script_run_ctx
from streamlit.runtime.state import SafeSessionState, SessionState
from streamlit.source_util import PageInfo

from gprune import installation

T = TypeVar("T")
_LOG = logging.getLogger(__name__)
_SCRIPT = str(installation.APP_FOLDER / "app.py")


def inside(draw: Callable[[], T]) -> T:
    """Calls a function in a thread that has a session of its own; what it draws goes nowhere.

    Args:
        draw: what is called; its error is raised here.
    """
    found: list[T] = []
    errors: list[BaseException] = []

    def work() -> None:
        name = f"unwatched-{uuid.uuid4().hex}"
        add_script_run_ctx(threading.current_thread(), _context(name))
        try:
            found.append(draw())
        except BaseException as error:
            errors.append(error)
        finally:
            _forget_files(name)

    thread = threading.Thread(target=work, name="unwatched page")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return found[0]


def page(show: Callable[[], Any]) -> None:
    """Draws a page as far as it goes, in a session of `inside`; where it asks to be drawn again, it ends.

    What a page cannot do without a browser ends it as well, and is logged.
    """
    try:
        show()
    except ScriptControlException:
        return
    except Exception as error:
        _LOG.warning("a page could only be drawn in part without a browser: %r", error)


def _context(name: str) -> ScriptRunContext:
    pages = PagesManager(_SCRIPT)
    # links between pages are drawn as well
    listed = sorted((installation.APP_FOLDER / "pages").glob("*.py"))
    known: dict[str, PageInfo] = {
        path.stem: {"script_path": str(path.resolve()), "page_script_hash": path.stem, "page_name": path.stem}
        for path in listed
    }
    pages.set_pages_and_resolve(known)
    return ScriptRunContext(
        session_id=name,
        _enqueue=lambda message: None,
        query_string="",
        session_state=SafeSessionState(SessionState(), lambda: None),
        uploaded_file_mgr=MemoryUploadedFileManager("/unwatched"),
        main_script_path=_SCRIPT,
        user_info={},
        fragment_storage=MemoryFragmentStorage(),
        pages_manager=pages,
    )


def _forget_files(name: str) -> None:
    """Lets the server forget what the session has offered for download."""
    if runtime.exists():
        files = runtime.get_instance().media_file_mgr
        files.clear_session_refs(name)
        files.remove_orphaned_files()
