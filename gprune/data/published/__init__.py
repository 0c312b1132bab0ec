"""The figures that the paper itself reports, number by number.

The figures are those of the paper's tables and text (Liu et al., GPrune-LLM), kept as data files beside this
module; README.md there says which table each comes from and in which unit. Nothing here was measured by this
project: a published figure may stand beside a measured one, never among them.
"""

from gprune.data.published.figures import MODELS, RULES, TABLES, frame, paper_name, table
from gprune.data.published.rows import METHODS, TASKS, Figure
