"""What a study will take, as the command line prints it before anything runs."""

import sys

from gprune.cli import say
from gprune.pipeline.estimate import Forecast, judged
from gprune.system.units import duration


def shown_forecast(found: Forecast | None) -> None:
    """Prints memory and time of what is to be made, and whether they fit, on stderr; None is not known."""
    if found is None:
        say("memory and time: not known before the model is on this machine", file=sys.stderr)
        return
    verdict = judged(found)
    for line in (*_table(found), *verdict.lines):
        say(line, file=sys.stderr)


def _table(found: Forecast) -> list[str]:
    """One line a stage: memory on the device and beside it, sequences at a time, and time."""
    if not found.stages:
        return []
    widest = max(len(one.identity.name) for one in found.stages)
    lines = [f"{'estimate':<{widest}}  {'device GiB':>10}  {'host GiB':>8}  {'at a time':>9}  {'time':>8}"]
    for one in found.stages:
        device, host = (on(one.need, one.need.asked) / 2**30 for on in (found.on_device, found.on_host))
        batch = str(one.need.asked) if one.need.setting else ""
        time = "" if one.seconds is None else duration(one.seconds, 1)
        lines.append(
            f"{one.identity.name:<{widest}}  {device:>10.1f}  {host:>8.1f}  {batch:>9}  {time:>8}".rstrip()
        )
    return lines
