"""The table of jobs: their names are read whole in a window of 1280 pixels."""

import pytest

from gprune.app.pages import jobs

ROOM = 932
"""pixels of the table in a window of 1280"""
LONG = "LLaMA2-7B, FLAP at 50%, least squares with a bias on A and B, seed 2"


def row(job="Bundled demo", **changes):
    reference = {"job": job, "state": "done", "device": "this machine", "stage": "", "progress": 1.0}
    return reference | {"elapsed": "2 min", "time left": "", "submitted": "2026-11-25 22:01"} | changes


@pytest.mark.parametrize(("stage", "left"), [("", ""), ("statistics on A", ""), ("statistics on A", "3 min")])
def test_columns_fit_the_window_and_the_name_has_what_empty_ones_leave(stage, left):
    table, columns, look = jobs.table_of_jobs([row(), row("Second", stage=stage, **{"time left": left})])
    widths = {name: columns[name]["width"] for name in table.columns}
    # the name takes at least a fifth, and what would stand empty is not there
    assert 0.9 * ROOM < sum(widths.values()) <= ROOM and widths["job"] >= 200
    assert ("stage" in widths) == bool(stage) and ("time left" in widths) == bool(left)
    assert look == {} and table["progress"].tolist() == [100.0, 100.0]


def test_a_name_that_is_longer_than_its_column_takes_two_lines():
    _, columns, look = jobs.table_of_jobs([row(), row(LONG, stage="statistics on A")])
    # a lower row breaks no words
    lines = look["row_height"] // 22
    assert lines == 3 and lines * columns["job"]["width"] / 7.5 >= len(LONG)
    # alone it has the room that the others leave
    assert jobs.table_of_jobs([row(LONG[:50])])[2] == {}
