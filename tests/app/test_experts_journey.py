"""A person's way through a run of experts in a real browser: from the launch form to a report that opens offline."""

import pytest
from browser import AT_REST, PLOT, complaints, expect, outside, visiting
from waiting import limit

from gprune import pipeline
from gprune.store import Store
from gprune.study.demo import experts_demo

pytestmark = [pytest.mark.browser, pytest.mark.long]


def test_a_run_of_experts_from_the_form_to_the_report(chromium, tmp_path):
    with visiting(chromium, tmp_path / "cache") as visit:
        page = visit.page("launch", accept_downloads=True)
        page.get_by_role("button", name="Experts", exact=True).click()
        expect(page.get_by_text("Pruned: experts.")).to_be_visible()
        page.wait_for_function(AT_REST)
        page.get_by_role("button", name="Start the run").click()
        page.locator("[class*=st-key-ended_open_] button").click(timeout=1000 * limit(180))
        page.get_by_role("heading", name="At 50% retention, perplexity on unseen text").wait_for()

        page.wait_for_function(AT_REST)
        page.get_by_test_id("stSidebar").get_by_role("link", name="Experts").click()
        page.get_by_role("heading", name="Experts", exact=True).wait_for()
        page.wait_for_function(AT_REST)
        page.get_by_role("radio", name="Frequency", exact=True).click()
        page.wait_for_url("**xp_criterion=frequency**")
        page.get_by_role("heading", name="Frequency ranks shift by").wait_for()
        page.wait_for_function(AT_REST)
        page.get_by_role("radio", name="Score on python-code").click()
        page.wait_for_url("**xp_quantity=score_b**")
        page.get_by_text("Score on python-code by Frequency.").wait_for()
        page.wait_for_function(AT_REST)
        page.reload()
        page.get_by_text("Score on python-code by Frequency.").wait_for()
        page.wait_for_function(AT_REST)
        page.go_back()
        page.get_by_text("Rank drift by Frequency.").wait_for()

        study = experts_demo()
        second = study.with_settings({"retention": 0.75, "name": "three quarters"})
        pipeline.run(second, Store(tmp_path / "cache"), lambda *_: None)
        runs = [f"cp_runs={visit.runs[name]}" for name in (study.name, second.name)]
        visit.go(page, f"compare?{'&'.join(runs)}")
        expect(page.get_by_text("Settings that differ: retention: 0.5 / 0.75.")).to_be_visible()
        expect(page.locator(PLOT)).not_to_have_count(0)

        visit.go(page, f"report?run={visit.runs[study.name]}")
        page.get_by_role("button", name="Add Experts").click()
        page.wait_for_url("**expert_masks**")
        page.wait_for_function(AT_REST)
        page.get_by_role("button", name="Create report").click()
        with page.expect_download() as download:
            page.get_by_role("button", name="Download", exact=True).click()
        download.value.save_as(tmp_path / "report.html")
        offline = visit.person(False)
        offline.set_offline(True)
        reader = offline.new_page()
        requests, errors = outside(reader), complaints(reader)
        reader.goto((tmp_path / "report.html").as_uri())
        reader.wait_for_function("document.documentElement.dataset.drawn")
        names = reader.locator(".js-plotly-plot:has(.main-svg)").evaluate_all("plots => plots.map(p => p.dataset.name)")
        assert {"cost", "expert_map", "expert_adaptation", "expert_masks", "expert_dependence"} <= set(names)
        assert not errors and all(item.startswith("file:") for item in requests)
