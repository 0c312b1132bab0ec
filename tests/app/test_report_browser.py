"""A report that is taken along, and a figure for a paper."""

from pathlib import Path

import pytest
from browser import complaints, looking, outside

pytestmark = [pytest.mark.browser, pytest.mark.long]
CARDS = ("drift_by_layer", "drift", "ranks", "module_counts", "perplexity")
# the perplexity is drawn for each of the two texts
FIGURES = [*CARDS, "perplexity"]


@pytest.fixture(scope="module")
def report_file(chromium, shared_server, tmp_path_factory):
    """A report that was made on the page and downloaded."""
    file = tmp_path_factory.mktemp("taken") / "report.html"
    with looking(chromium, *shared_server) as visit:
        page = visit.page("report?" + "&".join(f"rp_cards={name}" for name in CARDS), accept_downloads=True)
        page.get_by_role("button", name="Create report").click()
        page.get_by_role("button", name="Download", exact=True).wait_for()
        assert page.get_by_text("MiB, 6 figures").is_visible()
        with page.expect_download() as download:
            page.get_by_role("button", name="Download", exact=True).click()
        download.value.save_as(file)
    return file


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_opens_offline_with_every_figure_reads_on_a_phone_and_runs_nothing_else(visit, report_file, scheme):
    context = visit.person(False, viewport={"width": 390, "height": 800}, color_scheme=scheme)
    context.set_offline(True)
    page = context.new_page()
    requested, errors = outside(page), complaints(page)
    page.goto(report_file.as_uri())
    page.wait_for_function("document.documentElement.dataset.drawn")
    figure = page.locator(".js-plotly-plot:has(.main-svg)")
    assert figure.evaluate_all("plots => plots.map(plot => plot.dataset.name)") == FIGURES
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert all(box["width"] <= 390 for box in map(lambda item: item.bounding_box(), figure.all()))
    assert page.locator("nav li a").count() == len(FIGURES)
    page.get_by_text("Table: ").first.click()
    assert page.locator("section table").first.is_visible()
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ground == ("rgb(255, 255, 255)" if scheme == "light" else "rgb(20, 20, 26)")
    assert [item for item in requested if not item.startswith("file:")] == [] and errors == []
    # the policy of the file holds: a script that somebody adds does not run
    page.evaluate(
        """() => {
            const script = document.createElement("script");
            script.textContent = "document.title = 'run'";
            document.body.append(script);
        }"""
    )
    assert page.title().startswith("Report of")
    context.set_offline(False)
    assert page.evaluate("fetch('https://example.org/').then(() => 'fetched', () => 'refused')") == "refused"


def test_a_card_gives_its_figure_as_text_and_shapes_at_the_width_of_a_column(visit):
    page = visit.page("drift", accept_downloads=True)
    page.locator(".st-key-rd_joint_take button:visible").first.click()
    dialog = page.get_by_role("dialog")
    for words, width in (("One column, 85 mm", 321), ("Two columns, 175 mm", 661)):
        dialog.get_by_text(words).click()
        plot = dialog.locator(f".js-plotly-plot:has(.main-svg[width='{width}'])")
        plot.wait_for()
        with page.expect_download() as download:
            plot.locator(".modebar-btn").first.click()
        rendered = Path(download.value.path()).read_text(encoding="utf-8")
        assert rendered.startswith("<svg") and f'width="{width}"' in rendered
        # marks are shapes, and letters can be read and searched
        assert "<image" not in rendered and rendered.count("<path") > 60 and "rank on science-docs</text>" in rendered
