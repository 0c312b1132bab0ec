"""The stage behind Fig. 1b: do the modules survive when a calibration text is replaced (appendix)?"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gprune.errors import MethodError
from gprune.modularization.agreement import compare
from gprune.modularization.functional_groups import functional_groups
from gprune.pipeline import explore, inputs
from gprune.pipeline.session import Session
from gprune.plan import PAIR
from gprune.progress import Progress
from gprune.records import Agreement, Partition

_OTHER_SEED = ("control: A-B, another seed", "partition", "partition_ab_other_seed")
_SUBSTITUTIONS = (
    ("A-B against A-C", "partition", "partition_ac"),
    ("A-B against B-C", "partition", "partition_bc"),
    ("A-C against B-C", "partition_ac", "partition_bc"),
    _OTHER_SEED,
    (
        "control: initialization only, A-B against A-C",
        "partition_ab_initialization",
        "partition_ac_initialization",
    ),
)
_SWAP = ("swap: A-B against B-A", "partition", "partition_ba")
_GROUPS = (
    ("FANG: A against B", "groups_primary", "groups_auxiliary"),
    ("FANG: A against C", "groups_primary", "groups_substitute"),
    ("FANG: B against C", "groups_auxiliary", "groups_substitute"),
    ("control: FANG, another seed", "groups_primary", "groups_primary_other_seed"),
)


@dataclass
class _Made:
    """The partitions that are compared, and their keys."""

    partitions: dict[str, Partition] = field(default_factory=dict)
    keys: dict[str, str] = field(default_factory=dict)


def wanted(session: Session) -> bool:
    """Whether the study has anything to compare: a third text, or two texts under FANG or twFLAP."""
    return bool(session.study.substitute) or _with_groups(session)


def _with_groups(session: Session) -> bool:
    return "fang" in session.study.methods or session.study.metric == "twflap"


def agreement(session: Session) -> Agreement | None:
    """Agreement of modules under text substitution (Fig. 1b); None where there is nothing to compare."""
    if not wanted(session):
        return None
    made = _Made()
    comparisons = list(_substituted(session, made)) if session.study.substitute else []
    if session.study.metric == "twflap":
        _make(session, made, "partition", PAIR, {})
        _make(session, made, "partition_ba", ("auxiliary", "primary"), _profile(made))
        comparisons.append(_SWAP)
        if not session.study.substitute:
            other = _profile(made) | {"seed": session.study.seed + 1}
            _make(session, made, "partition_ab_other_seed", PAIR, other)
            comparisons.append(_OTHER_SEED)
    if _with_groups(session):
        comparisons += _grouped(session, made)
    if not comparisons:
        return None
    used = dict.fromkeys(name for _, *names in comparisons for name in names)
    key = session.plan.agreement([made.keys[name] for name in used])

    def compute(_: Progress) -> Agreement:
        rows = [compare(made.partitions[a], made.partitions[b]) for _, a, b in comparisons]
        titles = tuple(title for title, _, _ in comparisons)
        return Agreement(titles, np.stack([row[0] for row in rows]), np.stack([row[1] for row in rows]))

    return session.stage("agreement", "agreement", key, Agreement, compute)


def _make(session: Session, made: _Made, name: str, pair: tuple[str, str], changes: dict[str, Any]) -> None:
    made.partitions[name] = explore.partition(session, *pair, name, **changes)
    made.keys[name] = session.plan.partition(*pair, **changes)


def _profile(made: _Made) -> dict[str, str]:
    # the direction is decided once per metric (appendix), on the study's own pair
    profile = made.partitions["partition"].profile
    return {"direction": profile} if profile in ("magnitude", "direction") else {}


def _substituted(session: Session, made: _Made) -> tuple[tuple[str, str, str], ...]:
    """Makes the modules of every pair of the three texts, and of the controls."""
    inputs.statistics(session, "substitute")
    metric = "flap" if session.study.metric == "twflap" else session.study.metric
    explore.scores(session, "substitute", metric)
    _make(session, made, "partition", PAIR, {})
    profile, other = _profile(made), {"seed": session.study.seed + 1}
    _make(session, made, "partition_ac", ("primary", "substitute"), profile)
    _make(session, made, "partition_bc", ("auxiliary", "substitute"), profile)
    _make(session, made, "partition_ab_other_seed", PAIR, profile | other)
    start = {"kind": "initialization"}
    _make(session, made, "partition_ab_initialization", PAIR, start)
    _make(session, made, "partition_ac_initialization", ("primary", "substitute"), start)
    return _SUBSTITUTIONS


def _grouped(session: Session, made: _Made) -> list[tuple[str, str, str]]:
    """Makes FANG's functional groups from each text alone."""
    roles = ("primary", "auxiliary", *(("substitute",) if session.study.substitute else ()))
    wanted = [(role, None) for role in roles] + [("primary", session.study.seed + 1)]
    try:
        for role, seed in wanted:
            name = _groups_name(role, seed)
            made.partitions[name] = groups(session, role, seed)
            made.keys[name] = session.plan.groups(role, seed)
    except MethodError as error:
        session.listener("agreement", 0, 1, f"FANG left out: {error}")
        return []
    return [row for row in _GROUPS if {row[1], row[2]} <= set(made.keys)]


def _groups_name(role: str, seed: int | None) -> str:
    return f"groups_{role}" + ("" if seed is None else "_other_seed")


def groups(session: Session, role: str, seed: int | None = None) -> Partition:
    """FANG's functional groups of one text (section 4, baselines); the seed is that of its contexts."""
    measured = inputs.context_statistics(session, role, role, gradient=True, seed=seed)
    grouping = session.study.baselines.fang_grouping
    return session.stage(
        _groups_name(role, seed),
        "groups",
        session.plan.groups(role, seed),
        Partition,
        lambda _: functional_groups(measured.affinity, grouping),
    )
