"""The module agreement page: which comparisons it draws, how, and what it offers."""

import numpy as np
from app_driver import charts, open_page, plain_words, show
from synthetic_run import a_study, exchange, the_run, write_run

from gprune.app.figures import drift as figures
from gprune.app.ui.chart_style import BLUE, PURPLE
from gprune.pipeline import stages
from gprune.pipeline.stages.rasa import COMPARISONS
from gprune.records import Agreement
from gprune.study.methods import DEFAULT

WITH_FANG = (*DEFAULT, "fang")


def drawn(chart):
    return [trace["name"].rsplit(": ", 1)[0] for trace in chart["data"]]


def an_agreement(*compared):
    ari = np.repeat(np.linspace(0.1, 0.9, len(compared))[:, None], 3, axis=1)
    return Agreement(compared, ari, ari)


def test_comparisons_keep_their_look_and_the_plot_its_height():
    figure = figures.plot_agreement(an_agreement(*COMPARISONS), COMPARISONS, a_study())
    looks = {trace.name.rsplit(": ", 1)[0]: trace for trace in figure.data}
    fang = [trace for name, trace in looks.items() if name.startswith("FANG")]
    assert {trace.line.color for trace in fang} == {PURPLE}
    controls = [trace for name, trace in looks.items() if name.startswith("control")]
    assert {(trace.line.color, "FANG" in trace.name) for trace in controls} == {(BLUE, False), (PURPLE, True)}
    assert all("open" in trace.marker.symbol and trace.line.dash != "solid" for trace in controls)
    visible = [(trace.line.color, trace.line.dash, trace.marker.symbol) for trace in figure.data]
    assert len(set(visible)) == len(COMPARISONS)
    assert len({trace.marker.symbol for trace in figure.data}) == len(COMPARISONS)
    assert figure.data[0].name == "science-docs replaced by python-code: 0.10 ± 0.00" and visible[0][0] == BLUE
    full = {trace.name: trace.line.to_plotly_json() for trace in figure.data}
    (alone,) = figures.plot_agreement(an_agreement(*COMPARISONS), ["fang_bc"], a_study()).data
    assert alone.line.to_plotly_json() == full[alone.name]
    heights = []
    for chosen in (["ab_ac"], list(COMPARISONS)):
        layout = figures.plot_agreement(an_agreement(*COMPARISONS), chosen, a_study()).layout
        heights.append(layout.height - layout.margin.b - layout.margin.t)
    assert heights[0] == heights[1]
    assert figures.plot_agreement(an_agreement("ab_ac"), [], a_study()).layout.yaxis.range == (-0.03, 1.03)


def test_fang_stands_beside_the_substitutions_and_any_pair_can_be_chosen(cache):
    app = show("agreement", cache, study=a_study(methods=WITH_FANG))
    expected = [f"{text} replaced by python-code" for text in ("science-docs", "python-reference")]
    expected += ["python-reference replaced by science-docs"]
    expected += ["control: same texts, another seed", "FANG: python-reference and science-docs"]
    assert drawn(charts(app)[0]) == expected and set(expected) <= set(app.multiselect[0].options)
    # the title has the number of the legend, and not the mean over every pair of texts
    (legend,) = [trace["name"] for trace in charts(app)[0]["data"] if trace["name"].startswith("FANG")]
    mean = legend.removeprefix(f"{expected[-1]}: ").partition(" ")[0]
    assert f"{mean} for FANG’s groups of python-reference and science-docs" in plain_words(app)
    assert "FANG has 2 groups per layer; the modules number about 6 (median)" in plain_words(app)
    app.multiselect[0].set_value(["fang_bc", "ab_bc"]).run()
    assert drawn(charts(app)[0]) == [expected[1], "FANG: science-docs and python-code"]
    app.multiselect[0].set_value([]).run()
    assert len(drawn(charts(app)[0])) == 9


def test_the_swap_is_drawn_at_once_for_token_weighted_flap_only(cache):
    write_run(cache, study=a_study(metric="twflap"))
    assert "swap: python-reference and science-docs" in drawn(charts(open_page("agreement"))[0])


def test_module_counts_that_differ_strongly_are_told(cache, name):
    other = write_run(cache, modules=2, study=a_study(name="Other", seed=9))
    coarse = the_run(cache, other).load(stages.partition)
    exchange(cache, name, coarse, stages.partition, "auxiliary", "substitute")
    app = open_page("agreement", run=name)
    warnings = [item.value.replace("\\", "") for item in app.warning]
    assert len(warnings) == 2
    assert warnings[0].startswith("python-reference replaced by python-code: layer 0 has 6 modules on one side and 2")
