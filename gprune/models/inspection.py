"""Describe the folder of a dense or pruned model, from names and shapes in its files.

Widths are read from the headers of the weight files and compared with the configuration. Needs no torch.
"""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gprune.models import families, identity, loadable, vocabulary, weight_headers
from gprune.models.expert_families import EXPERT_FAMILIES
from gprune.models.export.model_card import EXPERTS_FILE, PRUNING_FILE, PruningRecord, read_record
from gprune.system.errors import ModelError
from gprune.system.safe_parsing import quote

_STOCK_EXPERTS = f"stock model without some experts; {EXPERTS_FILE} lists those that were kept"


@dataclass(frozen=True, slots=True)
class FolderContents:
    """Contents of the folder of a model."""

    folder: Path
    model_type: str
    """model type in its configuration"""
    family: str
    """display name of the family; empty if it is not supported"""
    form: str
    """description of the pruning, or that the model is dense"""
    record: PruningRecord | None
    """its ``pruning.json``, if it has one"""
    parameters: int
    """number of parameters; tied weights count once"""
    bytes: int
    """size of its weights"""
    layers: int
    """number of decoder layers; 0 if unknown"""
    experts: str
    """number of experts of a mixture, and of those that process a token; empty for a dense model"""
    neurons: tuple[int, ...]
    """FFN neurons of each layer; empty if unknown, or if the model has mixtures"""
    groups: tuple[int, ...]
    """key/value groups of each layer; empty if unknown"""
    dense_neurons: int
    """neurons of a dense layer; 0 if unknown"""
    dense_groups: int
    """key/value groups of a dense layer; 0 if unknown"""
    prunable: str
    """description of the units that can be pruned, or the reason why none can"""
    loads: str
    """description of how it loads, and whether it needs custom code"""
    tokenizer: str
    """its vocabulary file, or the reason why there is none"""


def inspect(name: str) -> FolderContents:
    """Describe a model by its files; no weights are read.

    `name` is a folder, a downloaded hub model or ``demo``. Raises ModelError if there is no such model, it has no
    weights of its own or only pickled ones, or a file is damaged. Raises CheckpointError if the damaged file is
    ``pruning.json``.
    """
    folder = identity.locate(name)
    values = identity.configuration(folder)
    tensors = weight_headers.tensors(identity.weight_files(folder))
    if not tensors:
        raise ModelError(f"{name} has no weights of its own: give the folder of a model that has")
    model_type = str(values.get("model_type"))
    layout = families.FAMILIES.get(families.dense_type(model_type))
    sizes = loadable.stored_sizes(values, tensors)
    needs_our_class = model_type.startswith(families.PRUNED_PREFIX)
    record = read_record(folder) if (folder / PRUNING_FILE).is_file() else None
    dense_neurons, dense_groups = (0, 0) if sizes.shape is None else (sizes.shape.neurons, sizes.shape.kv_heads)
    if record is not None and not needs_our_class:
        dense_neurons, dense_groups = record.neurons, record.key_value_groups
    parameters = identity.parameter_tensors(folder)
    return FolderContents(
        folder=folder,
        model_type=model_type,
        family=layout.label if layout is not None else _expert_label(model_type),
        form=_STOCK_EXPERTS if (folder / EXPERTS_FILE).is_file() else _describe_form(record, needs_our_class, sizes),
        record=record,
        parameters=sum(tensor.numbers for tensor in parameters),
        bytes=sum(tensor.bytes for tensor in parameters),
        layers=len(sizes.neurons) or int(families.language_values(values).get("num_hidden_layers") or 0),
        experts=_describe_experts(values),
        neurons=sizes.neurons,
        groups=sizes.groups,
        dense_neurons=dense_neurons,
        dense_groups=dense_groups,
        prunable=_describe_prunable(folder),
        loads=_describe_loading(folder, values, sizes.disagreement),
        tokenizer=_describe_tokenizer(folder),
    )


def _describe_form(record: PruningRecord | None, needs_our_class: bool, sizes: loadable.StoredSizes) -> str:
    if sizes.disagreement:
        kind = "damaged" if needs_our_class else "pruned elsewhere, with a configuration that does not match"
        return f"{kind}: {sizes.disagreement}"
    if record is None and not needs_our_class:
        return "stock model: dense, or pruned to equal widths"
    pruning, widths = "", "of the same width: a stock model"
    if record is not None:
        repair = f", {record.pruned.repaired_by}" if record.repairs else ""
        training = ", trained afterwards" if record.trained or record.recovery else ""
        pruning = f" by {record.method} to {record.retention:.2%} of the decoder's weights{repair}{training}"
        widths = "padded with zeros to the same width: a stock model" if record.padded else widths
    if needs_our_class:
        is_equal = all(len(set(layers)) == 1 for layers in (sizes.neurons, sizes.groups))
        widths = "of the same width, but no stock model has these weights" if is_equal else "of its own width"
    return f"pruned here{pruning}, every layer {widths}"


def _describe_prunable(folder: Path) -> str:
    try:
        if identity.configuration(folder).get("model_type") in EXPERT_FAMILIES:
            loadable.require_expert_model(folder)
            return "experts, by methods such as experts_reap"
        return loadable.require_loadable(folder).pruned_units
    except ModelError as error:
        return f"nothing: {error}"


def _expert_label(model_type: str) -> str:
    return EXPERT_FAMILIES[model_type].label if model_type in EXPERT_FAMILIES else ""


def _describe_experts(values: dict[str, Any]) -> str:
    if values.get("model_type") not in EXPERT_FAMILIES:
        return ""
    experts, selected, groups, _ = families.expert_counts(values)
    in_groups = f" in {groups} groups" if groups > 1 else ""
    return f"{experts} in a mixture{in_groups}, {selected} per token"


def _describe_tokenizer(folder: Path) -> str:
    try:
        identity.require_tokenizer(folder)
    except ModelError as error:
        return f"none: {error}"
    source = identity.tokenizer_folder(folder)
    file = next(name for name in identity.VOCABULARY_FILES if (source / name).is_file())
    return "; ".join(filter(None, (file, vocabulary.embedding_notice(str(folder)))))


def _describe_loading(folder: Path, values: dict[str, Any], disagreement: str) -> str:
    from transformers.models.auto import configuration_auto

    model_types = vars(configuration_auto)["CONFIG_MAPPING_NAMES"]
    model_type, has_code = str(values.get("model_type")), bool(values.get("auto_map"))
    if model_type.startswith(families.PRUNED_PREFIX):
        if disagreement:
            return f"not: {disagreement}"
        return f"{'with trust_remote_code=True anywhere, ' if has_code else ''}without it after `import gprune`"
    if model_type not in model_types:
        if has_code:
            return "only with its custom code (trust_remote_code=True)"
        return f"not: transformers knows no model type {quote(model_type)}, and the folder has no custom code"
    if "per_layer_config" in values:
        return "if transformers' model class of the family reads per_layer_config (not tested here)"
    if disagreement:
        return f"{'only with its custom code' if has_code else 'not'}: {disagreement}"
    try:
        loadable.require_whole(folder)
    except ModelError:
        return "not without changes"
    description = "without custom code" + (", although the folder has some" if has_code else "")
    return "; ".join(filter(None, (description, loadable.attention_notice(folder))))


def format_widths(widths: tuple[int, ...], dense: int) -> str:
    """Format the widths of all layers: one number if all are equal, followed by the dense width if any differs."""
    if not widths:
        return "not known"
    width, count = Counter(widths).most_common(1)[0]
    text = str(width) if count == len(widths) else ", ".join(map(str, widths))
    return text + (f" of {dense}" if dense and widths != (dense,) * len(widths) else "")
