"""No page has a serious fault for people who read by ear, at low contrast or with a keyboard: axe looks.

What Streamlit's own widgets do wrong is listed here, one rule and one place each, with its reason.
"""

import ast

import pytest
from app_driver import PROJECT

pytestmark = [pytest.mark.browser, pytest.mark.slow]
SERIOUS = ("serious", "critical")
EXCEPTIONS = {
    ("color-contrast", ".stCode .token"): "colours of st.code for words of a language: Streamlit's own theme",
    ("color-contrast", "button kbd"): "st.button draws the key of its shortcut paler than its words",
}
"""why a fault is not ours, by rule and by what it stands in"""


def addresses():
    """The addresses of all pages but one, as app.py lists them."""
    tree = ast.parse((PROJECT / "app.py").read_text(encoding="utf-8"))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    pages = [call for call in calls if isinstance(call.func, ast.Name) and call.func.id == "_page"]
    found = [ast.literal_eval(call.args[3]) for call in pages]
    assert len(found) == len(list((PROJECT / "pages").glob("*.py"))) and "report" in found
    return [where for where in found if where != "drift"]


def faults(page):
    """What axe finds serious on a page, but for the exceptions."""
    from axe_playwright_python.sync_playwright import Axe

    found = []
    for rule in Axe().run(page).response["violations"]:
        if rule["impact"] not in SERIOUS:
            continue
        allowed = [place for (name, place) in EXCEPTIONS if name == rule["id"]]
        for node in rule["nodes"]:
            if not any(page.locator(node["target"][0]).and_(page.locator(one)).count() for one in allowed):
                found.append(f"{rule['id']} at {node['target']}: {node['html'][:200]}")
    return found


@pytest.mark.parametrize(
    "where",
    [
        "drift",
        *(pytest.param(one, marks=pytest.mark.long) for one in [*addresses(), "drift?tour=2&present=1"]),
    ],
)
def test_no_page_has_a_serious_fault(visit, where):
    page = visit.page(where)
    page.wait_for_function("!document.querySelector('[data-test-script-state=running], .stSkeleton')")
    for scheme, ground in (("light", "rgb(255, 255, 255)"), ("dark", "rgb(17, 22, 29)")):
        page.emulate_media(color_scheme=scheme)
        page.wait_for_function(
            "ground => getComputedStyle(document.querySelector('.stApp')).backgroundColor === ground",
            arg=ground,
        )
        # colours fade over, on a busy machine for longer: a fault is what stays
        for _ in range(4):
            page.wait_for_timeout(500)
            if not (wrong := faults(page)):
                break
        assert not wrong, f"{scheme}: " + "\n".join(wrong)
