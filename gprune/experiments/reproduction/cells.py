"""Formats numbers and labels for the short form of a table."""

from typing import Any

import numpy as np
import pandas as pd

from gprune.study import short


def heading(metric: str) -> str:
    """Return a metric's column title: `wikitext2 PPL`, `accuracy (max)`, `boolq`."""
    kind, sign, subject = metric.partition(":")
    if not sign:
        return kind
    return f"{short(subject)} PPL" if kind == "ppl" else short(subject)


def decimals(metric: str) -> int:
    """Return the decimals: two for perplexities, accuracies and tokens a second, else three."""
    if metric.endswith("MiB"):
        return 1
    return 2 if metric.startswith(("ppl:", "accuracy")) or metric.endswith("tokens/s") else 3


def format_number(value: float, metric: str) -> str:
    """Format a number as short text; empty if there is none."""
    return "" if np.isnan(value) else f"{value:.{decimals(metric)}f}"


def format_with_error(text: str, error: float, digits: int = 3) -> str:
    """Format a short number with its spread, if there is one."""
    return text if not text or np.isnan(error) else f"{text} ± {error:.{digits}f}"


def format_parameter_count(parameters: int) -> str:
    """Format a number of parameters in millions or billions; empty if not known."""
    if not parameters:
        return ""
    return f"{parameters / 1e9:.2f}B" if parameters >= 1e9 else f"{parameters / 1e6:.2f}M"


def format_cell(value: Any, name: str) -> str:
    """Format a label or a number; retentions are percentages."""
    if value is None or (isinstance(value, float) and np.isnan(value)) or value is pd.NA:
        return ""
    if name == "retention":
        return f"{value:.0%}"
    if name == "parameters":
        return format_parameter_count(int(value))
    return f"{value:.4g}" if isinstance(value, float) else str(value)
