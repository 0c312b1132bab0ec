"""GPrune Studio: chooses which page answers which question. Start it with `make app`."""

import streamlit as st

from gprune.views.frame import frame

st.set_page_config(page_title="GPrune Studio", page_icon="✂️", layout="wide", initial_sidebar_state=264)


def _page(stem: str, title: str, icon: str, url: str, question: str, *, default: bool = False) -> st.Page:
    return st.Page(f"pages/{stem}.py", title=title, icon=icon, url_path=url, help=question, default=default)


sections = {
    "Explore": [
        _page("overview", "Overview", ":material/dashboard:", "home", "A run in half a minute", default=True),
        _page("rank_drift", "Rank drift", ":material/swap_vert:", "drift", "Which neurons move?"),
        _page("module_agreement", "Module agreement", ":material/hub:", "agreement", "Do modules survive?"),
        _page("reliability", "RASA thresholds", ":material/tune:", "rasa", "Which modules are adapted?"),
        _page("pruning_decisions", "Pruning decisions", ":material/cut:", "decisions", "Who is kept?"),
    ],
    "Inspect": [
        _page("inspection", "Inspector", ":material/frame_inspect:", "inspector", "What is this neuron?"),
        _page("neuron_map", "Neuron map", ":material/scatter_plot:", "map", "Which neurons are alike?"),
        _page("mask_atlas", "Mask atlas", ":material/grid_on:", "atlas", "What does the text decide?"),
        _page("by_hand", "By hand", ":material/back_hand:", "byhand", "What if I keep or remove these?"),
        _page("text_lens", "Text lens", ":material/search:", "lens", "What does it get wrong?"),
        _page("calibration_data", "Calibration data", ":material/dataset:", "calibration", "Which texts?"),
    ],
    "Run": [_page("jobs", "Launch & jobs", ":material/rocket_launch:", "launch", "Start and follow runs")],
    "Compare": [
        _page("comparison", "Compare", ":material/leaderboard:", "compare", "Which method is better?"),
        _page("flipped_questions", "Flipped questions", ":material/quiz:", "questions", "What goes wrong?"),
        _page("report", "Report", ":material/description:", "report", "Figures in one file"),
        _page("speed_export", "Speed & export", ":material/speed:", "speed", "How fast? How to load it?"),
    ],
    "Help": [_page("guide", "Help", ":material/help:", "help", "What do the words mean?")],
}
frame.run(sections)
