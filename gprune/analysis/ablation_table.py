"""What each part of GPrune does, as tables for people.

Apart from gprune.analysis.ablation_effect, which every run reads: pandas takes longer to load than all of
that.
"""

import pandas as pd

from gprune.analysis.ablation_effect import PARTS, AblationEffect, Explained, kinds


def table(found: AblationEffect) -> pd.DataFrame:
    """One row a part: what it does, and the share of the decisions that it changes, in percent."""
    changes = found.decisions_changed.items()
    rows = [
        {"part": part, "does": PARTS[part], "decisions changed (%)": 100 * share} for part, share in changes
    ]
    return pd.DataFrame(rows)


def explained_table(found: Explained) -> pd.DataFrame:
    """One row a kind of modules: the share of the drift's variance that lies between them, in percent."""
    rows = [{"modules": name, "drift explained (%)": 100 * share} for name, share in kinds(found).items()]
    return pd.DataFrame(rows)
