"""Describe a pruned model in its folder: ``pruning.json`` for programs and ``README.md``, the model card, for people.

``pruning.json`` lists the dense model, its kept units, and how they were chosen. The card has the hub's format. It
states the base model, the licence, what was pruned and how, the perplexities with their protocols, and how to load the
model. Needs no torch.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, NonNegativeInt, ValidationError, model_validator

from gprune.models import identity
from gprune.models.families import FAMILIES, NEWER_THAN_4, PRUNED_PREFIX, dense_type
from gprune.records import REPAIRS, Array, PrunedModel, PruningMasks
from gprune.records.repairs import in_order
from gprune.system.errors import CheckpointError, GpruneError, UnreadableError
from gprune.system.installation import __version__
from gprune.system.safe_parsing import contents, sentence

if TYPE_CHECKING:
    from huggingface_hub import ModelCardData


PRUNING_FILE = "pruning.json"
EXPERTS_FILE = "experts.json"
Units = list[list[int]]
"""indices of the kept units of each layer"""
CARD_FILE = "README.md"
_LICENCE_FILES = ("LICENSE*", "LICENCE*", "NOTICE*", "COPYING*", "USE_POLICY*")
_PROCESSOR_FILES = ("preprocessor_config.json", "processor_config.json", "video_preprocessor_config.json")
_LICENCE_FIELDS = ("license", "license_name", "license_link")
_TEXTS = ("primary", "auxiliary", "substitute")
_SETTINGS = ("metric", "retention", "seed")
# paragraphs of the card on how the model loads
_PADDED = "This is a stock transformers model without custom code: every layer is padded with zeros to the widest."
_STOCK = "This is a stock transformers model without custom code: every layer has the same width."
_STOCK_EXPERTS = "This is a stock transformers model without custom code: every mixture has the same number of experts."
_LOADING_CODE = (
    "```python\nfrom transformers import AutoModelForCausalLM, AutoTokenizer\n\n"
    'model = AutoModelForCausalLM.from_pretrained("FOLDER"{0})\n'
    'tokenizer = AutoTokenizer.from_pretrained("FOLDER"{0})\n```'
)
_UNEQUAL = "Layers differ in width"
_EQUAL = "Every layer has the same width, but no stock transformers model has exactly these weights"
_OWN_CODE = (
    "{}. `modeling_gprune.py` in this folder builds the model and needs torch and transformers. After `import gprune` "
    "the model loads without `trust_remote_code`."
)


class PruningRecord(BaseModel):
    """Description of how the model in an exported folder was pruned, with logits that verify the loaded model."""

    model_config = ConfigDict(frozen=True, strict=True)

    source: str
    """the dense model as the study names it"""
    fingerprint: str
    """SHA-256 of the dense model's configuration and weights"""
    run: str = ""
    """name of the run that chose the masks"""
    method: str
    retention: float
    """kept fraction of the decoder's linear weights"""
    target: float
    """the retention that the study requested"""
    repairs: list[str] = []
    """names in ``REPAIRS``"""
    recovery: str = ""
    """training after the repairs that is merged into the weights, such as "lora of rank 8\""""
    trained: bool = False
    """True if the weights were trained after pruning, repair and recovery, outside the run"""
    padded: bool = False
    """True if every layer is padded with zeros to the widest"""
    neurons: int
    """FFN neurons of a dense layer"""
    key_value_groups: int
    """key/value groups of a dense layer"""
    kept_neurons: Units
    kept_key_value_groups: Units
    probe_tokens: list[NonNegativeInt]
    """token ids of a short input"""
    probe_logits: list[float]
    """next-token logits after that input, for tokens spread evenly over the vocabulary"""
    study: dict[str, Any] | None = None
    """settings of the study, or None if not known"""

    @classmethod
    def of(cls, pruned: PrunedModel, **facts: Any) -> Self:
        """Describe a pruned model; `facts` are the fields that do not follow from its masks, repairs and recovery."""
        masks, recovered = pruned.masks, pruned.recovered
        return cls(
            method=masks.method,
            retention=masks.retention,
            target=masks.target,
            repairs=[repair.name for repair in pruned.repairs],
            recovery="" if recovered is None else f"{recovered.kind} of rank {recovered.rank}",
            neurons=masks.ffn.shape[1],
            key_value_groups=masks.heads.shape[1],
            kept_neurons=[np.flatnonzero(row).tolist() for row in masks.ffn],
            kept_key_value_groups=[np.flatnonzero(row).tolist() for row in masks.heads],
            **facts,
        )

    @model_validator(mode="after")
    def require_units(self) -> Self:
        """Raise ValueError if a kept unit is out of range, or the two kinds of units differ in the number of layers."""
        for units, width in ((self.kept_neurons, self.neurons), (self.kept_key_value_groups, self.key_value_groups)):
            out_of_range = [unit for layer in units for unit in layer if not 0 <= unit < width]
            if out_of_range:
                raise ValueError(f"it keeps unit {out_of_range[0]} of layers with {width} units")
        if len(self.kept_neurons) != len(self.kept_key_value_groups):
            raise ValueError("its lists of neurons and of key/value groups differ in the number of layers")
        return self

    @cached_property
    def pruned(self) -> PrunedModel:
        """Return masks and repairs; the repairs have only their names, without the statistics they were fitted to."""
        neurons = _mask(self.kept_neurons, self.neurons)
        groups = _mask(self.kept_key_value_groups, self.key_value_groups)
        masks = PruningMasks(self.method, neurons, groups, self.retention, self.target)
        return PrunedModel(masks, in_order(name for name in REPAIRS if name in self.repairs))

    @property
    def widths(self) -> tuple[list[int], list[int]]:
        """Return kept neurons and key/value groups of every layer."""
        return [len(units) for units in self.kept_neurons], [len(units) for units in self.kept_key_value_groups]


@dataclass(frozen=True, slots=True)
class ExpertRecord:
    """Description of a model without some of its experts, the content of ``experts.json``."""

    method: str
    retention: float
    """kept fraction of the parameters of experts and routers"""
    target: float
    """the retention that the study requested"""
    experts: int
    """experts of a mixture of the dense model"""
    kept_experts: Units
    """indices of the kept experts of each mixture"""
    probe_tokens: list[int]
    """token ids of a short input"""
    probe_logits: list[float]
    """next-token logits after that input, for tokens spread evenly over the vocabulary"""
    refitted_routers: bool = False
    """True if the routers were refitted by distillation from the dense model"""
    source: str = ""
    """the dense model as the study names it"""
    fingerprint: str = ""
    """SHA-256 of the dense model's configuration and weights"""
    run: str = ""
    """name of the run that chose the masks"""
    study: dict[str, Any] | None = None
    """settings of the study, or None if not known"""


def write_record(folder: Path, record: PruningRecord) -> None:
    """Write the ``pruning.json`` of a folder."""
    (folder / PRUNING_FILE).write_text(record.model_dump_json() + "\n", encoding="utf-8")


def read_record(folder: Path) -> PruningRecord:
    """Read the ``pruning.json`` of a folder. Raises CheckpointError if it is missing or cannot be read."""
    path = folder / PRUNING_FILE
    try:
        return PruningRecord.model_validate_json(contents(path, "it"))
    except FileNotFoundError as error:
        if (folder / EXPERTS_FILE).is_file():
            raise CheckpointError(
                f"{str(folder)!r} is a stock model without some experts, which needs no conversion here: use "
                "transformers, or convert_hf_to_gguf.py of llama.cpp for a GGUF file"
            ) from error
        raise CheckpointError(
            f"the folder {str(folder)!r} has no {PRUNING_FILE}, so it is not a pruned checkpoint: choose another"
        ) from error
    except (ValidationError, UnreadableError) as error:
        reason = str(error)
        if isinstance(error, ValidationError):
            fault = error.errors()[0]
            reason = " ".join([*(f"{part}:" for part in fault["loc"]), fault["msg"]])
        raise CheckpointError(
            f"{str(path)!r} cannot be read ({sentence(reason, 160)}): export the model again"
        ) from error


def _mask(kept_units: Units, width: int) -> Array:
    mask = np.zeros((len(kept_units), width), dtype=bool)
    for row, units in zip(mask, kept_units, strict=True):
        row[units] = True
    return mask


@dataclass(frozen=True, slots=True)
class Figure:
    """Perplexity on one text, for the card of the measured model."""

    text: str
    """the text, as the study names it"""
    perplexity: float
    standard_error: float
    dense: float | None
    """perplexity of the dense model on the same windows, or None if it was not measured"""
    protocol: str
    """protocol of the measurement in one line; see gprune.evaluation.protocol"""


def write(folder: Path, record: PruningRecord, figures: Sequence[Figure] = ()) -> None:
    """Write the model card into a folder that already holds configuration and weights.

    Licence files and image-processor files of the base model are copied into the folder.
    """
    _write_card(folder, record, (_title(record), _pruning(folder, record)), figures, _loading(folder, record))


def write_expert_card(folder: Path, record: ExpertRecord, figures: Sequence[Figure] = ()) -> None:
    """Write the model card of a model without some of its experts; see `write`."""
    source, experts = without_folders(record.source) or "a model", len(record.kept_experts[0])
    title = (
        f"# {source} with {experts} of {record.experts} experts\n\n{source} without the experts that the method "
        f"`{record.method}` of GPrune Studio {__version__} removes: every mixture keeps {experts} of {record.experts}. "
        f"Attention, shared experts and dense layers are those of {source}."
    )
    if record.refitted_routers:
        title += f" The routers were refitted: trained to match the next-token distributions of {source}."
    kept_experts = f"`{EXPERTS_FILE}` lists the kept experts of every mixture of the base model."
    loading = "\n\n".join(("## How to load it", _LOADING_CODE.format(""), _STOCK_EXPERTS, kept_experts))
    _write_card(folder, record, (title,), figures, loading)


def _write_card(
    folder: Path,
    record: PruningRecord | ExpertRecord,
    introduction: tuple[str, ...],
    figures: Sequence[Figure],
    loading: str,
) -> None:
    """Write a card from its sections, and copy the files of the base model; see `write`."""
    from huggingface_hub import ModelCard

    base = _base_folder(record.source)
    header = {} if base is None else card_header(base)
    for pattern in (*_LICENCE_FILES, *_PROCESSOR_FILES):
        for file in filter(Path.is_file, [] if base is None else base.glob(pattern)):
            shutil.copyfile(file, folder / file.name)
    licence = {name: header[name] for name in _LICENCE_FIELDS if isinstance(header.get(name), str)}
    data = _card_metadata(record, licence, figures)
    text = "\n\n".join((*introduction, _perplexities(figures), loading, _licence(licence, record.source))) + "\n"
    card = ModelCard(f"---\n{data.to_yaml()}\n---\n\n{text}")
    (folder / CARD_FILE).write_text(str(card), encoding="utf-8")


def figures_of(folder: Path) -> tuple[Figure, ...]:
    """Return the perplexities in the metadata of a folder's card, without those of the dense model.

    The result is empty if the card has none or cannot be read.
    """
    figures = []
    try:
        for result in card_header(folder)["model-index"][0]["results"]:
            name, metric = str(result["dataset"]["name"]), result["metrics"][0]
            error, protocol = float(metric["args"]["standard_error"]), str(metric["args"]["protocol"])
            figures.append(Figure(name, float(metric["value"]), error, None, protocol))
    except (KeyError, IndexError, TypeError, ValueError):
        return ()
    return tuple(figures)


def without_folders(name: str) -> str:
    """Return the name of a model or text; of a local path only the last part, so that no folder is published."""
    return Path(name).name if name.startswith(("/", "~", ".")) or name.count("/") > 1 else name


def card_header(folder: Path) -> dict[str, Any]:
    """Return the metadata fields of a folder's card; an empty dict if they cannot be read."""
    from huggingface_hub import metadata_load

    try:
        return metadata_load(folder / CARD_FILE) or {}
    except Exception:  # the file is missing, or the library cannot read it
        return {}


def _base_folder(source: str) -> Path | None:
    """Return the folder of the dense model; None if it is not known or not on this machine."""
    try:
        return identity.locate(source) if source else None
    except GpruneError:
        return None


def _card_metadata(
    record: PruningRecord | ExpertRecord, licence: dict[str, str], figures: Sequence[Figure]
) -> ModelCardData:
    from huggingface_hub import ModelCardData

    is_on_hub = identity.is_hub_name(record.source) and not Path(record.source).exists()
    return ModelCardData(
        base_model=record.source if is_on_hub else None,
        library_name="transformers",
        pipeline_tag="text-generation",
        tags=["pruned", "structured-pruning", "gprune", record.method],
        model_name=f"{without_folders(record.source) or 'model'}-{record.method}-{record.retention:.2f}",
        eval_results=[_eval_result(figure) for figure in figures] or None,
        **licence,  # type: ignore[arg-type]
    )


def _eval_result(figure: Figure) -> Any:
    from huggingface_hub import EvalResult

    text = without_folders(figure.text)
    return EvalResult(
        task_type="text-generation",
        dataset_type=text,
        dataset_name=text,
        metric_type="perplexity",
        metric_value=round(figure.perplexity, 4),
        metric_args={"protocol": figure.protocol, "standard_error": round(figure.standard_error, 4)},
    )


def _title(record: PruningRecord) -> str:
    """Return the heading and the introduction of a card."""
    source = without_folders(record.source) or "a model"
    return (
        f"# {source}, pruned by {record.method} to {100 * record.retention:.3g}%\n\n"
        f"{source} without the FFN neurons and key/value groups that the method `{record.method}` of GPrune "
        f"Studio {__version__} removes: {record.retention:.2%} of the linear weights of its decoder layers "
        f"are kept ({100 * record.target:.4g}% were requested). Embeddings, norms and head are those of "
        f"{source}."
    )


def _pruning(folder: Path, record: PruningRecord) -> str:
    """Return the section "What was pruned" of a card."""
    values = identity.configuration(folder)
    family = dense_type(values.get("model_type"))
    neurons, groups = record.widths
    training = f"{record.recovery}, merged into the weights" if record.recovery else "yes" if record.trained else "no"
    rows = [
        ("family", FAMILIES[family].label if family in FAMILIES else family),
        ("parameters", f"{sum(tensor.numbers for tensor in identity.parameter_tensors(folder)):,}"),
        ("number type", _number_types(folder, _base_folder(record.source))),
        ("FFN neurons per layer", f"{', '.join(map(str, neurons))} of {record.neurons}"),
        ("key/value groups per layer", f"{', '.join(map(str, groups))} of {record.key_value_groups}"),
        ("repair of the kept weights", record.pruned.repaired_by or "none"),
        ("trained after pruning", training),
        ("base model, SHA-256 of configuration and weights", f"`{record.fingerprint}`" if record.fingerprint else ""),
    ]
    study = record.study or {}
    rows += [(f"{name} calibration text", without_folders(str(study[name]))) for name in _TEXTS if study.get(name)]
    rows += [(name, str(study[name])) for name in _SETTINGS if name in study]
    table = "\n".join(f"| {name} | {value} |" for name, value in rows if value)
    return f"## What was pruned\n\n| | |\n| --- | --- |\n{table}"


def _number_types(folder: Path, base: Path | None) -> str:
    """Describe the number type of the saved weights, and that of the base model if it is known and differs."""
    dtype, base_dtype = (identity.number_type(path) if path else "" for path in (folder, base))
    differs = base_dtype and base_dtype != dtype
    return f"{dtype} (the base model has {base_dtype}: the run computed in {dtype})" if differs else dtype


def _perplexities(figures: Sequence[Figure]) -> str:
    if not figures:
        return "## Perplexity\n\nNo perplexity of this model was recorded."
    rows = [
        f"| {without_folders(figure.text)} | {figure.perplexity:.2f} ± {figure.standard_error:.2f} | "
        f"{'–' if figure.dense is None else f'{figure.dense:.2f}'} |"
        for figure in figures
    ]
    protocols = "\n".join(f"- {line}" for line in dict.fromkeys(figure.protocol for figure in figures))
    table = "\n".join(("| text | this model | base model |", "| --- | --- | --- |", *rows))
    return f"## Perplexity\n\n{table}\n\nMeasured by this protocol, ± one standard error:\n\n{protocols}"


def _loading(folder: Path, record: PruningRecord) -> str:
    """Return the section "How to load it" of a card."""
    model_type = str(identity.configuration(folder).get("model_type"))
    needs_code = model_type.startswith(PRUNED_PREFIX)
    option = ", trust_remote_code=True" if needs_code else ""
    if needs_code:
        has_equal_widths = all(len(set(layers)) == 1 for layers in record.widths)
        explanation = _OWN_CODE.format(_EQUAL if has_equal_widths else _UNEQUAL)
    else:
        explanation = _PADDED if record.padded else _STOCK
    code = _LOADING_CODE.format(option)
    family = dense_type(model_type)
    if family in NEWER_THAN_4:
        explanation += f" It needs transformers 5: version 4.57 cannot run a pruned {FAMILIES[family].label}."
    kept_units = f"`{PRUNING_FILE}` lists the kept units of every layer of the base model."
    return "\n\n".join(("## How to load it", code, explanation, kept_units))


def _licence(licence: dict[str, str], source: str) -> str:
    name = licence.get("license_name") or licence.get("license")
    statement = (
        f"The licence of {without_folders(source)} applies: {name}."
        if name
        else f"The licence of {without_folders(source) or 'the base model'} applies to this model too. It is "
        "not recorded here: look it up before you share the model."
    )
    return f"## Licence\n\n{statement}"
