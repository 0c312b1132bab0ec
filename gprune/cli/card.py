"""`card`: print or write the calibration card of a text of a run."""

import argparse
import sys
from typing import Any

from gprune.cli import add_cache, add_command, add_run, load_run, say, to_path

_ABOUT = (
    "Reports whether a calibration text is large enough, whether its choice changes the model, and whether it is "
    "distinct from the other texts. It reads the results of a run and does not run the model."
)


def add(commands: Any) -> None:
    """Register the command."""
    card = add_command(commands, "card", _card, _ABOUT)
    add_run(card)
    card.add_argument("text", metavar="TEXT", help="A, B or C, the role of a text (such as primary), or its name")
    card.add_argument("-o", "--out", metavar="FILE", type=to_path, help="also write FILE.html or FILE.json")
    add_cache(card)


def _card(options: argparse.Namespace) -> int:
    from gprune.analysis import calibration_report
    from gprune.analysis.calibration_report import writing
    from gprune.system.errors import StoreError
    from gprune.system.safe_parsing import quote

    results, record = load_run(options)
    letter, run = calibration_report.letter_of(results.graph.study, options.text), options.run
    cards = calibration_report.measure(results, run, record.get("texts"))
    if letter not in cards:
        raise StoreError(f"the run {quote(run)} has not measured its text {letter} yet: run the study first")
    if options.out is not None:
        writing.save(cards[letter], options.out)
        say(f"{options.out}: the card of {letter}", file=sys.stderr)
    say(f"{letter}: {cards[letter].name}")
    for verdict in calibration_report.verdicts(cards[letter]):
        say(f"\n{verdict.question}\n  {verdict.answer}")
    say()
    for name, value in writing.size(cards[letter]):
        say(f"{name:<18}{value}")
    return 0
