"""GPrune Studio: chooses which page answers which question. Start it with `make app`."""

import streamlit as st

from gprune.app.ui import frame
from gprune.app.ui.page_names import NAMES, TOOL

st.set_page_config(page_title=TOOL, page_icon="✂️", layout="wide", initial_sidebar_state=264)


def _page(stem: str, package: str, icon: str, url: str, question: str, *, default: bool = False) -> st.Page:
    return st.Page(
        f"pages/{stem}.py", title=NAMES[package], icon=icon, url_path=url, help=question, default=default
    )


sections = {
    "Explore": [
        _page("overview", "overview", ":material/dashboard:", "home", "A run in half a minute", default=True),
        _page("rank_drift", "rank_drift", ":material/swap_vert:", "drift", "Which neurons move?"),
        _page("module_agreement", "module_agreement", ":material/hub:", "agreement", "Do modules survive?"),
        _page("reliability", "rasa", ":material/tune:", "rasa", "Which modules are adapted?"),
        _page("pruning_decisions", "pruning_decisions", ":material/cut:", "decisions", "Who is kept?"),
    ],
    "Inspect": [
        _page("inspection", "inspector", ":material/frame_inspect:", "inspector", "What is this neuron?"),
        _page("neuron_map", "neuron_map", ":material/scatter_plot:", "map", "Which neurons are alike?"),
        _page("mask_atlas", "mask_atlas", ":material/grid_on:", "atlas", "What does the text decide?"),
        _page("by_hand", "by_hand", ":material/back_hand:", "byhand", "What if I keep or remove these?"),
        _page("text_lens", "text_lens", ":material/search:", "lens", "What does it get wrong?"),
        _page("calibration_data", "calibration_data", ":material/dataset:", "calibration", "Which texts?"),
    ],
    "Run": [_page("jobs", "jobs", ":material/rocket_launch:", "launch", "Start and follow runs")],
    "Compare": [
        _page("comparison", "comparison", ":material/leaderboard:", "compare", "Which method is better?"),
        _page("flipped_questions", "flipped_questions", ":material/quiz:", "questions", "What changes?"),
        _page("report_file", "report", ":material/description:", "report", "Figures in one file"),
        _page("speed_export", "speed_export", ":material/speed:", "speed", "How fast? How to load it?"),
    ],
    "Help": [_page("guide", "help", ":material/help:", "help", "What do the words mean?")],
}
frame.run(sections)
