"""Ticks of logarithmic axes: plain numbers in one size, where Plotly writes bare minor digits."""

import math
from typing import Any

MOST = 7
"""labelled ticks of an axis at most"""


def logarithmic(lowest: float, highest: float) -> dict[str, Any]:
    """Entries of an axis that place and name the ticks between two positive values.

    Gives type, mode, values and names of the ticks: powers of ten over a wide range, else 1, 2 and 5 of each.
    """
    first, last = math.floor(math.log10(lowest)), math.ceil(math.log10(highest))
    for digits in (tuple(range(1, 10)), (1, 2, 5), (1, 3), (1,)):
        values = [digit * 10.0**power for power in range(first, last + 1) for digit in digits]
        values = [value for value in values if lowest <= value <= highest]
        if len(values) <= MOST:
            break
    else:
        values = values[:: -(-len(values) // MOST)]
    if len(values) < 2:
        step = (highest - lowest) / 3
        values = [float(f"{lowest + number * step:.3g}") for number in range(4)]
    return {
        "type": "log",
        "tickmode": "array",
        "tickvals": values,
        "ticktext": [_named(value) for value in values],
        "minor": {"ticks": "", "showgrid": False},
    }


def _named(value: float) -> str:
    if 1e-4 <= value < 1e6:
        return f"{value:.10f}".rstrip("0").rstrip(".") if value < 1 else f"{value:,.10g}"
    mantissa, exponent = f"{value:.2e}".split("e")
    return f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"
