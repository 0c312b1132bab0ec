"""Top-activating examples of a neuron: its strongest positions on every text, with their context."""

import streamlit as st
from tokenizers import Tokenizer

from gprune.analysis import calibration as analysis
from gprune.analysis import inspection
from gprune.analysis.calibration_report.measuring import texts_of
from gprune.analysis.inspection import Activation
from gprune.app.pages.inspector import charts, every_token, firing
from gprune.app.pages.inspector.firing import Passage
from gprune.app.preview import Fired
from gprune.app.ui import buttons, job_runs, packed, url_state, work
from gprune.app.ui.card import Card
from gprune.app.ui.commands import command
from gprune.app.ui.text import plain, said, short
from gprune.app.ui.unit import Selection
from gprune.models import vocabulary
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import Run
from gprune.system.errors import ModelError

WINDOW = 16
FIELD = "ins_fires"
"""the card that holds the field for the window"""
UNTIL_POSITIONS = ("--until", "positions")


def draw(run: Run, drawn: Card, unit: Selection, key: str, live: bool) -> None:
    """Draws the card; `live` has the worker colour every token.

    Raises ModelError without a tokenizer, StoreError where a result is damaged.
    """
    letters = {analysis.ROLES[role]: role for role in texts_of(run.study)}
    there = {letter: role for letter, role in letters.items() if run.has(stages.positions, role)}
    lacking = [letter for letter in letters if letter not in there]
    shown = {letter: role for letter, role in there.items() if run.has(stages.tokens, role)}
    if shown:
        _texts(run, drawn, unit, shown, key, live)
    if without := [letter for letter in there if letter not in shown]:
        st.info(f"The tokens of {', '.join(without)} are not here: places without words say little.",
                icon=":material/inventory_2:")  # fmt: skip
    if lacking:
        _how_to_get(run, lacking, key)


def _texts(run: Run, drawn: Card, unit: Selection, shown: dict[str, str], key: str, live: bool) -> None:
    layer, neuron = unit.layer or 0, unit.neuron or 0
    window = _window(key)
    found = {
        letter: inspection.strongest(
            run.load(stages.positions, role), run.load(stages.tokens, role), layer, neuron, window
        )
        for letter, role in shown.items()
    }
    peaks = {letter: max((abs(one.value) for one in places), default=0.0) for letter, places in found.items()}
    most = max(peaks.values())
    drawn.title(_title(unit, peaks))
    reader = _reader(run.study.model, run.graph.inputs.tokenizer)
    peaks_alone = {letter: [_passage(reader, one, most) for one in places] for letter, places in found.items()}

    def passages(fired: dict[str, Fired]) -> None:
        for column, (letter, alone) in zip(st.columns(len(found)), peaks_alone.items(), strict=True):
            drawn_now = alone
            if letter in fired:
                drawn_now = every_token.coloured(alone, found[letter], fired[letter], most)
            with column:
                st.markdown(f"**{letter}** {plain(short(getattr(run.study, shown[letter])))}")
                alt = f"top-activating examples on {letter}"
                firing.draw(drawn_now, charts.COLORS[letter], alt, f"{key}_{letter}")

    if live:
        every_token.show(run, unit, {letter: shown[letter] for letter in found}, found, key, passages)
    else:
        passages({})
        st.caption(
            "The strongest token of each of these sequences, its activation before down_proj on its left: "
            "the deeper the colour, the stronger; underlined is negative. Other tokens' strengths are not "
            "kept: “Ask the model” has the worker compute them."
        )


def _window(key: str) -> int:
    """Tokens on either side; what is pinned follows the field of what is selected."""
    if key != FIELD:
        return url_state.whole("ins_window", WINDOW, 4, 48)
    return int(url_state.slider("Tokens on either side", "ins_window", WINDOW, 4, 48, 4, width=240))


def _title(unit: Selection, peaks: dict[str, float]) -> str:
    subject = f"Neuron {unit.neuron} of layer {unit.layer}"
    if not any(peaks.values()):
        return f"{subject} is active nowhere"
    strongest = max(peaks, key=lambda letter: peaks[letter])
    return f"{subject} activates most on {strongest}: {peaks[strongest]:.3g}"


@st.cache_resource(max_entries=4, show_spinner=False)
def _reader(model: str, _digest: str) -> Tokenizer:
    try:
        return vocabulary.tokenizer(model)
    except ModelError as error:
        raise ModelError(f"the words cannot be read without the model's tokenizer: {error}") from error


def _passage(reader: Tokenizer, one: Activation, most: float) -> Passage:
    before, token, after = vocabulary.around(reader, one.ids, one.at)
    return Passage(
        before=before,
        token=token,
        after=after,
        value=f"{one.value:+.3g}",
        strength=abs(one.value) / most if most else 0.0,
        negative=one.value < 0,
        where=f"sequence {one.sequence}, token {one.position}",
    )


def _how_to_get(run: Run, lacking: list[str], key: str) -> None:
    """Says why positions are not there, and offers the job that makes them."""
    texts = ", ".join(lacking)
    if not run.study.calibration.positions:
        st.info(
            "This study keeps no positions (calibration.positions is 0): start one that does on the page "
            "Runs & export.",
            icon=":material/info:",
        )
        return
    if job_runs.is_live(run):
        st.info(f"The top-activating examples on {texts} are not there yet.", icon=":material/hourglass_top:")
        return
    if run.packed and (why := packed.lacking(run)):
        left = "The pack of this run brought no top-activating examples: ask for one made with --with-contexts."
        st.info(f"{left} {said(why)}", icon=":material/inventory_2:")
        return
    st.info(
        f"The top-activating examples on {texts} were not kept when this run was made. One pass of the model "
        "over each text makes them; nothing else changes.",
        icon=":material/info:",
    )
    with st.container(horizontal=True, vertical_alignment="center"):
        clicked = buttons.pressed("Make them", key=f"{key}_make", icon=":material/play_arrow:", type="primary")
        st.code(command(run.study, told=UNTIL_POSITIONS), language="bash", wrap_lines=True)
    if clicked and work.start(run.root, run.study, UNTIL_POSITIONS) is not None:
        st.rerun()
