"""Lists of edits under names: kept beside the runs, repeated from the edits, and taken elsewhere as a file.

    <cache>/by_hand/<hash of the name and of the masks it starts from>.json

A name is what people read and never a part of a path. A set holds the edits and the keys of the masks and of
the modules that they were made on, so that it means the same units or says that it does not; the digest of
the masks that came out says whether repeating it gives them again.
"""

import hashlib
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import numpy as np

from gprune.analysis.mask_edits.edits import MOST_EDITS, Edit
from gprune.analysis.mask_edits.rebalance import Edited, edited
from gprune.models import identity
from gprune.pipeline import lazy_results, stages
from gprune.pipeline.record import Listener
from gprune.pipeline.stages import Results, Stage
from gprune.pipeline.stages.inputs import content_of
from gprune.records import Perplexity, PruningMasks
from gprune.store import named as named_files
from gprune.study.methods import METHODS
from gprune.system import safe_parsing
from gprune.system.errors import CorpusError, MethodError, SettingsError
from gprune.system.forms import Listed, LooseForm, shorter
from gprune.system.safe_parsing import quoted

_WORDS = ("name", "method", "masks", "modules", "digest")
_Key = Annotated[str, shorter(128)]


@dataclass(frozen=True, slots=True)
class MaskSet(LooseForm):
    """Edits of a method's masks under a name."""

    name: Annotated[_Key, named_files.name_of("a mask set", hyphen=False)]
    """what people call it"""
    method: _Key
    """whose masks were edited, one of METHODS"""
    edits: Annotated[Listed[Edit], shorter(MOST_EDITS, "a list", "edits")]
    """the list; a later line counts more than an earlier one"""
    masks: _Key
    """key of the masks that were edited"""
    modules: _Key
    """key of the modules that numbers of modules mean"""
    digest: _Key
    """of the masks that came out, see `digest_of`"""

    @property
    def identity(self) -> str:
        """Which model comes out: methods that share masks may differ in their biases."""
        return hashlib.sha256(f"{self.method} {self.digest}".encode()).hexdigest()[:16]


def _plain(chosen: MaskSet) -> dict[str, Any]:
    edits = [asdict(one) for one in chosen.edits]
    return {field: getattr(chosen, field) for field in _WORDS} | {"edits": edits}


SETS: named_files.Collection[MaskSet] = named_files.Collection(
    "by_hand", "gprune-mask-set", "mask sets", MaskSet, _plain, identity=lambda one: f"{one.masks} {one.name}"
)


def made(results: Results, name: str, method: str, edits: tuple[Edit, ...]) -> MaskSet:
    """A set of the edits of a run's masks.

    Raises GpruneError where the name is none, or the edits cannot be carried out (see
    `gprune.analysis.mask_edits.edited`).
    """
    found = edited(results, method, edits)
    # the command `cut` is told the name
    name = named_files.cleaned(name, "a mask set", hyphen=False)
    return MaskSet(name, method, edits, *_keys(results, method), digest_of(found.masks))


def repeated(results: Results, chosen: MaskSet) -> Edited:
    """Carries a set out again.

    Raises MethodError where the run's masks or modules are others, or the rule gives other masks today; see
    also `gprune.analysis.mask_edits.edited`.
    """
    if not fits(results, chosen):
        raise MethodError(
            f"the mask set {safe_parsing.quoted(chosen.name)} was made on other masks than this run's: "
            "choose the run that it was made on"
        )
    found = edited(results, chosen.method, chosen.edits)
    require_digest(chosen, found)
    return found


def require_digest(chosen: MaskSet, found: Edited) -> None:
    """Raises MethodError where masks are not those that came out when the set was saved."""
    if digest_of(found.masks) != chosen.digest:
        raise MethodError(
            f"the mask set {safe_parsing.quoted(chosen.name)} gives other masks than when it was saved: "
            "save it again to take the new ones"
        )


def fits(results: Results, chosen: MaskSet) -> bool:
    """Whether a set was made on the masks and modules that a run has."""
    return chosen.method in METHODS and _keys(results, chosen.method) == (chosen.masks, chosen.modules)


def digest_of(masks: PruningMasks) -> str:
    """SHA-256 of which units are kept."""
    found = hashlib.sha256(repr((masks.ffn.shape, masks.heads.shape)).encode())
    for mask in (masks.ffn, masks.heads):
        found.update(np.packbits(np.asarray(mask, dtype=bool)).tobytes())
    return found.hexdigest()


def save(results: Results, chosen: MaskSet) -> None:
    """Keeps a set of a run; one of the same name, method and masks is replaced.

    Raises SettingsError where the name is that of another method's set of the run or there are too many sets,
    StoreError where the cache cannot be written.
    """
    taken = next((one for one in kept(results)[0] if one.name == chosen.name), None)
    if taken is not None and (taken.method, taken.masks) != (chosen.method, chosen.masks):
        raise SettingsError(
            f"the name {safe_parsing.quoted(chosen.name)} is that of a set of {METHODS[taken.method].label}: "
            "delete that one, or choose another name"
        )
    SETS.save(results.store.root, chosen)


def kept(results: Results) -> tuple[list[MaskSet], list[str]]:
    """The sets that were made on a run's masks, by name, and a sentence on each file that is left out.

    A name stands for one set. Runs that share masks can have given it to two: the first file counts.
    """
    files, faults = SETS.files(results.store.root)
    found = dict[str, MaskSet]()
    for file, (one,) in files:
        if fits(results, one) and found.setdefault(one.name, one) is not one:
            faults.append(f"{file}: another set is called {safe_parsing.quoted(one.name)}; delete that first")
    return sorted(found.values(), key=lambda one: one.name.casefold()), faults


def named(results: Results, name: str, identity: str = "") -> MaskSet:
    """The set of a run that has a name, and the identity that the asker knows where that is given.

    Raises SettingsError where there is none, or it was saved anew since with other masks.
    """
    sets = kept(results)[0]
    found = next((one for one in sets if one.name == name), None)
    if found is None:
        known = ", ".join(safe_parsing.quoted(one.name) for one in sets[:8]) or "none"
        raise SettingsError(
            f"this run has no mask set {safe_parsing.quoted(name)}: make it on the tab Mask editor (there: {known})"
        )
    if identity and found.identity != identity:
        raise SettingsError(
            f"the mask set {safe_parsing.quoted(name)} is another than when it was asked for: ask again"
        )
    return found


def _keys(results: Results, method: str) -> tuple[str, str]:
    graph = results.graph
    return stages.masks(graph, METHODS[method].masks).key, stages.partition(graph).key


def perplexities(results: Results, chosen: MaskSet) -> dict[str, Stage[Perplexity]]:
    """The handle of a set's perplexity on each evaluation text of its run; nothing is computed."""

    def edited() -> PruningMasks:
        return repeated(results, chosen).masks

    graph = results.graph
    return {
        text: stages.edited_perplexity(graph, chosen.method, text, chosen.digest, edited)
        for text in graph.study.evaluation.texts
    }


def measure(results: Results, chosen: MaskSet, listener: Listener) -> dict[str, Perplexity]:
    """The perplexity of a set on each evaluation text of its run; what is there is not measured again.

    The listener is told of progress and may raise Cancelled. Raises MethodError where the set gives other
    masks today than when it was saved, CorpusError or ModelError where a text or the dense model is gone or
    has changed, StoreError where the run lacks what a repair of its method needs.
    """
    wanted = perplexities(results, chosen)
    missing = [text for text, stage in wanted.items() if not results.whole(stage)]
    if missing:
        # before the model is loaded
        repeated(results, chosen)
        identity.locate(results.graph.study.model)
    for text in missing:
        _require_same(results, text)
    return dict(zip(wanted, lazy_results.every(results, list(wanted.values()), listener), strict=True))


def _require_same(results: Results, text: str) -> None:
    """Raises CorpusError where a text that the run has measured on is gone, or has changed."""
    study, known = results.graph.study, results.graph.inputs
    memory = results.store.digests
    found = content_of(study, known.model, known.precision, text, "evaluation", memory=memory)
    if found != known.evaluation[text]:
        raise CorpusError(
            f"the text {quoted(text)} has changed since the run: put the old one back, or run the study again"
        )
