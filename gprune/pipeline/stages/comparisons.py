"""The comparisons of the agreement figure (Fig. 1b; appendix, module agreement), each declared once.

The modules of two pairs of texts, FANG's groups of two texts, and the controls that belong to them: a shared
k-means seed alone makes partitions agree, hence the same texts under another seed, and the start of the
modularization before its refinement.
"""

from dataclasses import dataclass

SUBSTITUTION, SWAP, FANG, CONTROL = "substitution", "swap", "FANG", "control"
"""kinds of comparisons"""
OTHER_SEED, INITIALIZATION = "other_seed", "initialization"
"""variants of a partition"""


@dataclass(frozen=True, slots=True)
class Side:
    """A partition that is compared."""

    label: str
    """short name"""
    texts: tuple[str, ...]
    """the roles of its texts: a pair for modules, one for FANG's groups"""
    variant: str = ""
    """OTHER_SEED, INITIALIZATION or empty"""

    @property
    def fang(self) -> bool:
        """Return True for FANG's groups of one text."""
        return len(self.texts) == 1


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two partitions whose agreement is measured."""

    name: str
    """what identifies it"""
    title: str
    """as charts and tables call it"""
    kind: str
    """SUBSTITUTION, SWAP, FANG or CONTROL"""
    first: Side
    second: Side

    @property
    def fang(self) -> bool:
        """Return True if it compares FANG's groups."""
        return self.first.fang

    @property
    def texts(self) -> frozenset[str]:
        """Return the roles of the texts that it reads."""
        return frozenset(self.first.texts + self.second.texts)


_AB = Side("A-B", ("primary", "auxiliary"))
_AC = Side("A-C", ("primary", "substitute"))
_BC = Side("B-C", ("auxiliary", "substitute"))
_BA = Side("B-A", ("auxiliary", "primary"))
_AB_START = Side("A-B, initialization", _AB.texts, INITIALIZATION)
_AC_START = Side("A-C, initialization", _AC.texts, INITIALIZATION)
_AB_SEED = Side("A-B, another seed", _AB.texts, OTHER_SEED)
_A, _B, _C = (
    Side(f"FANG on {letter}", (role,)) for letter, role in zip("ABC", (*_AB.texts, "substitute"), strict=True)
)
_A_SEED = Side("FANG on A, another seed", _A.texts, OTHER_SEED)
_ALL = (
    Comparison("ab_ac", "A-B against A-C", SUBSTITUTION, _AB, _AC),
    Comparison("ab_bc", "A-B against B-C", SUBSTITUTION, _AB, _BC),
    Comparison("ac_bc", "A-C against B-C", SUBSTITUTION, _AC, _BC),
    Comparison("other_seed", "control: A-B, another seed", CONTROL, _AB, _AB_SEED),
    Comparison("initialization", "control: initialization only, A-B against A-C", CONTROL, _AB_START, _AC_START),
    Comparison("swap", "swap: A-B against B-A", SWAP, _AB, _BA),
    Comparison("fang_ab", "FANG: A against B", FANG, _A, _B),
    Comparison("fang_ac", "FANG: A against C", FANG, _A, _C),
    Comparison("fang_bc", "FANG: B against C", FANG, _B, _C),
    Comparison("fang_other_seed", "control: FANG, another seed", CONTROL, _A, _A_SEED),
)
COMPARISONS = {comparison.name: comparison for comparison in _ALL}


def list_comparisons(metric: str, methods: tuple[str, ...], substitute: str) -> tuple[Comparison, ...]:
    """Return the comparisons that a study makes, in the order of the figure.

    A swap of the texts says something of token-weighted FLAP only, since the size of the drift is the same in
    both orders; FANG's groups stand beside where FANG is among the methods, and beside token-weighted FLAP;
    without a third text, `substitute`, nothing is substituted.
    """
    weighted = metric == "twflap"
    grouped = weighted or "fang" in methods

    def is_compared(comparison: Comparison) -> bool:
        if "substitute" in comparison.texts and not substitute:
            return False
        if comparison.fang:
            return grouped
        if comparison.kind == SWAP:
            return weighted
        return bool(substitute) or (weighted and comparison.name == OTHER_SEED)

    return tuple(comparison for comparison in COMPARISONS.values() if is_compared(comparison))
