"""Masks that a person has edited: units kept or removed by hand, the same budget, a name, a checkpoint.

    found = edited(results, "gprune", [Edit(False, "module", 1, 3)])
    found.masks                       # as many weights as GPrune's own, without module 3 of layer 1

``edits`` says what a line of the list means, ``repair`` brings the budget back, ``mask_sets`` keeps lists
under names, and ``measuring`` has them measured as the methods are. Only that loads torch, when it measures.
"""

from gprune.analysis.mask_edits.edits import KINDS, Edit
from gprune.analysis.mask_edits.mask_sets import MaskSet
from gprune.analysis.mask_edits.rebalance import RULE, Edited, edited, obstacle
