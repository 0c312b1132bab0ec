"""Answers: what is in the folder of a model, dense or pruned by anybody, as far as names and shapes tell?

Widths are read from the heads of the weight files and held against the configuration. Needs no torch.
"""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gprune.models import families, identity, loadable, weight_headers
from gprune.models.export import plan_file
from gprune.records import ModelShape
from gprune.system.errors import CheckpointError, ModelError
from gprune.system.safe_parsing import quoted


@dataclass(frozen=True, slots=True)
class Inspected:
    """What a folder holds."""

    folder: Path
    """where it lies"""
    model_type: str
    """as its configuration says"""
    family: str
    """what people call it; empty where it is none of ours"""
    form: str
    """dense, or how it was pruned, in words"""
    parameters: int
    """numbers in its weights; tied ones once"""
    bytes: int
    """of its weights"""
    neurons: tuple[int, ...]
    """FFN neurons of each layer; nothing where they cannot be told"""
    groups: tuple[int, ...]
    """key/value groups of each layer; nothing where they cannot be told"""
    of_neurons: int
    """neurons of a dense layer by the configuration, or by the plan; 0 where they do not say"""
    of_groups: int
    """key/value groups likewise"""
    prunable: str
    """what can be pruned, or why nothing"""
    loads: str
    """how it loads, and whether without code of its own"""
    tokenizer: str
    """its vocabulary file, or why there is none to use"""


def inspect(name: str) -> Inspected:
    """Looks at a folder, a hub name that is on this machine, or ``demo``; reads no weights.

    Raises ModelError where there is no such model, it has no weights of its own or only pickled ones, or a
    file is damaged.
    """
    folder = identity.locate(name)
    values = identity.configuration(folder)
    found = weight_headers.tensors(identity.weight_files(folder))
    if not found:
        raise ModelError(f"{name} has no weights of its own: give the folder of a model that has")
    model_type = str(values.get("model_type"))
    layout = families.FAMILIES.get(families.dense_type(model_type))
    sizes = loadable.stored_sizes(values, found)
    shape, neurons, groups, odd = sizes.shape, sizes.neurons, sizes.groups, sizes.disagreement
    plan, own = _plan(folder), model_type.startswith(families.PRUNED_PREFIX)
    of_neurons, of_groups = _dense(plan, own, shape)
    counted = weight_headers.counted(found, bool(families.language_values(values).get("tie_word_embeddings")))
    return Inspected(
        folder=folder,
        model_type=model_type,
        family=layout.label if layout is not None else "",
        form=_form(plan, own, odd, (neurons, groups)),
        parameters=sum(one.numbers for one in counted),
        bytes=sum(one.bytes for one in counted),
        neurons=neurons,
        groups=groups,
        of_neurons=of_neurons,
        of_groups=of_groups,
        prunable=_prunable(folder),
        loads="; ".join(filter(None, [_loads(folder, values, odd), loadable.attention_notice(folder)])),
        tokenizer=_tokenizer(folder),
    )


def _dense(plan: plan_file.CutPlan | str | None, own: bool, shape: ModelShape | None) -> tuple[int, int]:
    """Neurons and key/value groups of a dense layer; the plan alone tells them of an ordinary pruned one."""
    if isinstance(plan, plan_file.CutPlan) and not own:
        return plan.pruned.masks.ffn.shape[1], plan.pruned.masks.heads.shape[1]
    return (0, 0) if shape is None else (shape.neurons, shape.kv_heads)


def _plan(folder: Path) -> plan_file.CutPlan | str | None:
    """The plan in a folder of ours, why it cannot be read, or None where there is none."""
    if not (folder / plan_file.PLAN_FILE).is_file():
        return None
    try:
        return plan_file.read(folder)
    except CheckpointError as error:
        return f" (its plan cannot be read: {error})"


def _form(plan: plan_file.CutPlan | str | None, own: bool, odd: str, widths: tuple[tuple[int, ...], ...]) -> str:
    told = plan if isinstance(plan, str) else ""
    if isinstance(plan, plan_file.CutPlan):
        masks = plan.pruned.masks
        repaired = f", {plan.pruned.repaired_by}" if plan.pruned.repairs else ""
        trained = ", trained after it" if plan.trained or plan.recovery is not None else ""
        told = f" by {masks.method} to {masks.retention:.2%} of the decoder's weights{repaired}{trained}"
    equal = all(len(set(one)) == 1 for one in widths)
    if own and odd:
        return f"damaged: {odd}"
    if own:
        every = "of the same width, which no ordinary model has" if equal else "of its own width"
        return f"pruned here{told}, every layer {every}"
    if odd:
        return f"pruned elsewhere, without a configuration that says so: {odd}"
    if plan is not None:
        return f"pruned here{told}, every layer of the same width: an ordinary model"
    return "ordinary: dense, or pruned to equal widths"


def _prunable(folder: Path) -> str:
    try:
        return loadable.require_loadable(folder).pruned
    except ModelError as error:
        return f"nothing: {error}"


def _tokenizer(folder: Path) -> str:
    try:
        identity.require_tokenizer(folder)
    except ModelError as error:
        return f"none: {error}"
    place = identity.tokenizer_folder(folder)
    return next(name for name in identity.VOCABULARY_FILES if (place / name).is_file())


def _loads(folder: Path, values: dict[str, Any], odd: str) -> str:
    from transformers.models.auto import configuration_auto

    known = vars(configuration_auto)["CONFIG_MAPPING_NAMES"]
    model_type, own = str(values.get("model_type")), bool(values.get("auto_map"))
    if model_type.startswith(families.PRUNED_PREFIX):
        if odd:
            return f"not: {odd}"
        anywhere = "with trust_remote_code=True anywhere, " if own else ""
        return f"{anywhere}without it after `import gprune`"
    if model_type not in known:
        if own:
            return "only with code of its own (trust_remote_code=True)"
        return f"not: transformers knows no model type {quoted(model_type)}, and the folder brings no code"
    if "per_layer_config" in values:
        return "where transformers' own modelling of the family reads per_layer_config (not tried here)"
    if odd:
        return f"{'only with code of its own' if own else 'not'}: {odd}"
    try:
        loadable.require_whole(folder)
    except ModelError:
        return "not as it is"
    return "without code of its own" + (", although it brings some" if own else "")


def in_words(widths: tuple[int, ...], of: int) -> str:
    """Widths by layer: one number where all are equal, and of how many."""
    if not widths:
        return "not known"
    most, count = Counter(widths).most_common(1)[0]
    words = str(most) if count == len(widths) else ", ".join(map(str, widths))
    return words + (f" of {of}" if of and widths != (of,) * len(widths) else "")
