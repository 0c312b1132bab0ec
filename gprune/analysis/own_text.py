"""Answers: is a person's own text nearer to A or to B, and is it further from both than chance?"""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from gprune.analysis.drift import Distribution, middle, shares
from gprune.records import RankDrift

A_OWN, B_OWN, A_B = "A | own", "B | own", "A | B"
PAIRS = (A_OWN, B_OWN, A_B)
FLOOR = "own re-sampled"
"""the drift between the even and the odd shards of the own text: what sampling alone does"""
CLOSE = 1.25
"""a drift of less than so many times that of half against half is not told from sampling"""
ALIKE = 0.05
"""drifts that differ by less than this part are called equally far"""


def curves(found: Mapping[str, RankDrift], bins: int) -> list[Distribution]:
    """The drift histogram of every pair that is there, and of the own text against itself, on halves all.

    A half holds half the sequences, which moves ranks more than whole sets do: only halves compare with the
    own text's two. `found` is by the name of the pair; `bins` divide [0, 1].
    """
    rows = [(name, found[name].half, found[name].correlation_half) for name in PAIRS if name in found]
    floor = _floor(found)
    if floor is not None:
        rows.append((FLOOR, floor.resample_auxiliary, floor.correlation_auxiliary))
    return [
        Distribution(name, shares(values, bins), float(np.median(values)), middle(rho)) for name, values, rho in rows
    ]


def pair_table(found: Mapping[str, RankDrift]) -> pd.DataFrame:
    """Mean and median drift and the rank correlation of every pair, on whole sets and on halves."""
    rows = [
        (name, one.magnitude, one.half, one.correlation, one.correlation_half)
        for name in PAIRS
        if (one := found.get(name)) is not None
    ]
    lines = [
        {
            "texts": name,
            "mean drift": float(np.mean(whole)),
            "median drift": float(np.median(whole)),
            "Spearman": middle(rho),
            "mean drift, halves": float(np.mean(half)),
            "Spearman, halves": middle(half_rho),
        }
        for name, whole, half, rho, half_rho in rows
    ]
    floor = _floor(found)
    if floor is not None:
        own = floor.resample_auxiliary
        lines.append(
            {
                "texts": FLOOR,
                "mean drift": float("nan"),
                "median drift": float("nan"),
                "Spearman": float("nan"),
                "mean drift, halves": float(np.mean(own)),
                "Spearman, halves": middle(floor.correlation_auxiliary),
            }
        )
    return pd.DataFrame(lines)


def layer_table(found: Mapping[str, RankDrift]) -> pd.DataFrame:
    """The rank correlation of every layer, on halves: of each pair, and of the own text's two."""
    columns = {name: found[name].correlation_half for name in PAIRS if name in found}
    floor = _floor(found)
    if floor is not None:
        columns[FLOOR] = floor.correlation_auxiliary
    layers = len(next(iter(columns.values())))
    return pd.DataFrame({"layer": np.arange(layers)} | columns)


def headline(found: Mapping[str, RankDrift], name: str) -> str:
    """The finding about the text `name`, whose drift from A is among those found, in one sentence."""
    mean = {pair: float(np.mean(one.magnitude)) for pair, one in found.items()}
    floor = float(np.mean(found[A_OWN].resample_auxiliary))
    close = [pair[0] for pair in (A_OWN, B_OWN) if pair in found and float(np.mean(found[pair].half)) < CLOSE * floor]
    beside = f", where A and B are {mean[A_B]:.3f} apart" if A_B in mean else ""
    if close:
        return f"{name} cannot be told from {' or '.join(close)}: two halves of it are {floor:.3f} apart"
    if B_OWN not in mean:
        return f"{name} is {mean[A_OWN]:.3f} from A{beside}"
    to_a, to_b = mean[A_OWN], mean[B_OWN]
    if abs(to_a - to_b) < ALIKE * max(to_a, to_b):
        return f"{name} is equally far from A and B: mean drift {to_a:.3f} and {to_b:.3f}{beside}"
    near, far = ("A", "B") if to_a < to_b else ("B", "A")
    low, high = sorted((to_a, to_b))
    return f"{name} is nearer to {near} than to {far}: mean drift {low:.3f} and {high:.3f}{beside}"


def _floor(found: Mapping[str, RankDrift]) -> RankDrift | None:
    """A drift whose second text is the own one."""
    return found.get(A_OWN) or found.get(B_OWN)
