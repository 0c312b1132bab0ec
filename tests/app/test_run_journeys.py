"""Journeys of whoever has many runs: a model is chosen, a run is found and cloned."""

import re

import pytest
import tiny_study
from browser import AT_REST, choose, expect, looking, served
from synthetic_run import a_study, write_run
from test_speed_page import a_timed_study
from waiting import wait_for

from gprune import pipeline
from gprune.analysis.decision import COSTS
from gprune.app.ui.address import EDIT
from gprune.app.ui.run_status import SPEEDS
from gprune.jobs import queue
from gprune.store import Store
from gprune.study import from_dict

pytestmark = pytest.mark.browser


@pytest.mark.long
def test_the_cost_of_the_pareto_chart_is_switched(chromium, tmp_path):
    write_run(tmp_path, study=a_timed_study())
    with served(tmp_path) as server, looking(chromium, server, tmp_path) as visit:
        page = visit.page("compare")
        axis = page.locator(".st-key-dc_front_chart .xtitle")
        expect(axis.filter(has_text=COSTS["parameters"])).to_be_visible()
        page.get_by_test_id("stButtonGroup").get_by_text(COSTS["time"], exact=True).click()
        # the chart before can still be there for a moment
        expect(axis.filter(has_text=COSTS["time"])).to_be_visible()
        page.wait_for_url("**dc_cost=time**")


@pytest.mark.long
def test_a_run_is_chosen_by_its_address_and_cloned_into_the_form(visit):
    page = visit.page(f"runs?jobs_tab=runs&runs_chosen={visit.runs['Second']}")
    page.wait_for_function(AT_REST)
    page.get_by_role("button", name="Clone into the form").click()
    expect(page.get_by_text(re.compile("The settings of “Second.*” are in the form below"))).to_be_visible()
    expect(page.get_by_role("tab", name="Start")).to_have_attribute("aria-selected", "true")
    expect(page.locator(".st-key-launch_seed input")).to_have_value("1")


@pytest.mark.slow
@pytest.mark.long
def test_speed_that_is_measured_later_stands_on_the_page_of_its_run(chromium, tmp_path):
    values = tiny_study.made(tmp_path, device="cpu")
    pipeline.run(from_dict(values), Store(tmp_path / "cache"), lambda *_: None)
    with served(tmp_path / "cache") as server, looking(chromium, server, tmp_path / "cache") as visit:
        name = visit.first.name
        page = visit.page(f"runs?run={name}&jobs_tab=start")
        page.get_by_text("Measure an existing run").click()
        choose(page, page.locator("[class*=evaluation-speed] input").last, SPEEDS["cpu"])
        page.get_by_role("button", name="Start the evaluation").click()
        wait_for(lambda: [job.state for job in queue.jobs(tmp_path / "cache")] == ["done"], 60)
        (job,) = queue.jobs(tmp_path / "cache")
        page.goto(f"{visit.address}/compare?tab=speed&run={job.run}")
        measured = page.locator(".st-key-card_sx_speed .trace.scatter")
        measured.first.wait_for(state="attached")
        expect(page.get_by_role("heading", name=re.compile("GPrune decodes"))).to_be_visible()


@pytest.mark.process
@pytest.mark.long
def test_whoever_failed_changes_the_settings_in_the_form(chromium, tmp_path):
    write_run(tmp_path)
    job = queue.submit(tmp_path, a_study(model="/nowhere", seed=7))
    wait_for(lambda: queue.get(tmp_path, job.id).state == "failed", 60)
    with served(tmp_path) as server, looking(chromium, server, tmp_path) as visit:
        page = visit.page(f"runs?jobs_tab=jobs&jobs_job={job.id}")
        expect(page.get_by_text("/nowhere").first).to_be_visible()
        page.get_by_role("button", name=EDIT).click()
        expect(page.get_by_role("tab", name="Start")).to_have_attribute("aria-selected", "true")
        expect(page.get_by_text(re.compile("The settings of “.*” are in the form below"))).to_be_visible()
        expect(page.locator(".st-key-launch_seed input")).to_have_value("7")
        # as it stands it would fail again
        expect(page.get_by_role("button", name="Start the run")).to_be_disabled()
