"""Write the model card of a pruned model's folder, ``README.md``, in the form of the hub.

It states base model, licence, what was pruned and how, perplexities with the protocol that they were measured by,
and how to load the model. Needs no torch.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gprune.models import identity
from gprune.models.export.older_versions import NEWER_THAN_4
from gprune.models.export.pruning_file import PRUNING_FILE, PruningRecord
from gprune.models.families import FAMILIES, PRUNED_PREFIX, dense_type
from gprune.system.errors import GpruneError
from gprune.system.version import __version__

if TYPE_CHECKING:
    from huggingface_hub import ModelCardData

CARD_FILE = "README.md"
_LICENCE_FILES = ("LICENSE*", "LICENCE*", "NOTICE*", "COPYING*", "USE_POLICY*")
_PROCESSOR_FILES = ("preprocessor_config.json", "processor_config.json", "video_preprocessor_config.json")
_LICENCE_FIELDS = ("license", "license_name", "license_link")
_TEXTS = ("primary", "auxiliary", "substitute")
_SETTINGS = ("metric", "retention", "seed")
_PADDED = "An ordinary model: every layer is padded with zeros to the widest, and needs no code of its own."
_ORDINARY = "An ordinary model: every layer has the same width, and none needs code of its own."
_UNEQUAL = "Layers differ in width"
_EXACTLY = "Every layer has the same width, but no ordinary model has exactly these weights"
_OF_ITS_OWN = (
    "{}, which `modeling_gprune.py` in this folder builds; it needs torch and "
    "transformers. After `import gprune` the model loads without `trust_remote_code`."
)


@dataclass(frozen=True, slots=True)
class Figure:
    """A perplexity of the model of a card."""

    text: str
    """the text, as the study names it"""
    perplexity: float
    standard_error: float
    dense: float | None
    """of the dense model on the same windows, or None if it was not measured"""
    protocol: str
    """the stamp of the figure; see gprune.evaluation.protocol"""


def write(folder: Path, record: PruningRecord, figures: Sequence[Figure] = ()) -> None:
    """Write the model card of a folder that holds configuration and weights.

    Licence files of the base model and what prepares images for it are copied beside it.
    """
    from huggingface_hub import ModelCard

    base = _base_folder(record.source)
    header = {} if base is None else card_header(base)
    for pattern in (*_LICENCE_FILES, *_PROCESSOR_FILES):
        for file in filter(Path.is_file, [] if base is None else base.glob(pattern)):
            shutil.copyfile(file, folder / file.name)
    licence = {name: header[name] for name in _LICENCE_FIELDS if isinstance(header.get(name), str)}
    data = _hub_fields(record, licence, figures)
    sections = (_title(record), _pruning(folder, record), _perplexities(figures), _loading(folder, record))
    text = "\n\n".join((*sections, _licence(licence, record.source))) + "\n"
    card = ModelCard(f"---\n{data.to_yaml()}\n---\n\n{text}")
    (folder / CARD_FILE).write_text(str(card), encoding="utf-8")


def figures_of(folder: Path) -> tuple[Figure, ...]:
    """Return the perplexities in a folder's card, without those of the base model."""
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
    """Return the name of a model or text without the folders of this machine."""
    return Path(name).name if name.startswith(("/", "~", ".")) or name.count("/") > 1 else name


def card_header(folder: Path) -> dict[str, Any]:
    """Return the fields at the head of a folder's card; nothing if they cannot be read."""
    from huggingface_hub import metadata_load

    try:
        return metadata_load(folder / CARD_FILE) or {}
    except Exception:  # the file is missing, or the library cannot read it
        return {}


def _base_folder(source: str) -> Path | None:
    try:
        return identity.locate(source) if source else None
    except GpruneError:
        return None


def _hub_fields(record: PruningRecord, licence: dict[str, str], figures: Sequence[Figure]) -> ModelCardData:
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
    source = without_folders(record.source) or "a model"
    return (
        f"# {source}, pruned by {record.method} to {100 * record.retention:.3g}%\n\n"
        f"{source} without the FFN neurons and key/value groups that the method `{record.method}` of GPrune "
        f"Studio {__version__} leaves out: {record.retention:.2%} of the linear weights of its decoder layers "
        f"are kept ({100 * record.target:.4g}% were asked for). Embeddings, norms and head are those of "
        f"{source}."
    )


def _pruning(folder: Path, record: PruningRecord) -> str:
    values = identity.configuration(folder)
    family = dense_type(values.get("model_type"))
    neurons, groups = record.widths
    rows = [
        ("family", FAMILIES[family].label if family in FAMILIES else family),
        ("parameters", f"{sum(tensor.numbers for tensor in identity.parameter_tensors(folder)):,}"),
        ("number type", _number_types(folder, _base_folder(record.source))),
        ("FFN neurons a layer", f"{', '.join(map(str, neurons))} of {record.neurons}"),
        ("key/value groups a layer", f"{', '.join(map(str, groups))} of {record.key_value_groups}"),
        ("repair of the kept weights", record.pruned.repaired_by or "none"),
        ("trained after the cut", _training(record)),
        ("base model, SHA-256 of configuration and weights", f"`{record.fingerprint}`" if record.fingerprint else ""),
    ]
    study = record.study or {}
    rows += [(f"{name} calibration text", without_folders(str(study[name]))) for name in _TEXTS if study.get(name)]
    rows += [(name, str(study[name])) for name in _SETTINGS if name in study]
    table = "\n".join(f"| {name} | {value} |" for name, value in rows if value)
    return f"## What was pruned\n\n| | |\n| --- | --- |\n{table}"


def _number_types(folder: Path, base: Path | None) -> str:
    dtype, base_dtype = (identity.number_type(path) if path else "" for path in (folder, base))
    differs = base_dtype and base_dtype != dtype
    return f"{dtype} (the base model has {base_dtype}: the run computed in {dtype})" if differs else dtype


def _training(record: PruningRecord) -> str:
    if record.recovery:
        return f"{record.recovery}, merged into the weights"
    return "yes" if record.trained else "no"


def _perplexities(figures: Sequence[Figure]) -> str:
    if not figures:
        return "## Perplexity\n\nNot measured, or not known where this card was written."
    rows = [
        f"| {without_folders(figure.text)} | {figure.perplexity:.2f} ± {figure.standard_error:.2f} | "
        f"{'–' if figure.dense is None else f'{figure.dense:.2f}'} |"
        for figure in figures
    ]
    protocols = "\n".join(f"- {line}" for line in dict.fromkeys(figure.protocol for figure in figures))
    table = "\n".join(("| text | this model | base model |", "| --- | --- | --- |", *rows))
    return f"## Perplexity\n\n{table}\n\nMeasured by this protocol, ± one standard error:\n\n{protocols}"


def _loading(folder: Path, record: PruningRecord) -> str:
    model_type = str(identity.configuration(folder).get("model_type"))
    needs_code = model_type.startswith(PRUNED_PREFIX)
    option = ", trust_remote_code=True" if needs_code else ""
    if needs_code:
        has_equal_widths = all(len(set(layers)) == 1 for layers in record.widths)
        explanation = _OF_ITS_OWN.format(_EXACTLY if has_equal_widths else _UNEQUAL)
    else:
        explanation = _PADDED if record.padded else _ORDINARY
    code = (
        "```python\nfrom transformers import AutoModelForCausalLM, AutoTokenizer\n\n"
        f'model = AutoModelForCausalLM.from_pretrained("FOLDER"{option})\n'
        f'tokenizer = AutoTokenizer.from_pretrained("FOLDER"{option})\n```'
    )
    family = dense_type(model_type)
    if family in NEWER_THAN_4:
        explanation += f" It needs transformers 5: version 4.57 cannot run a pruned {FAMILIES[family].label}."
    units = f"`{PRUNING_FILE}` lists the kept units of every layer of the base model."
    return "\n\n".join(("## How to load it", code, explanation, units))


def _licence(licence: dict[str, str], source: str) -> str:
    name = licence.get("license_name") or licence.get("license")
    sentence = (
        f"That of {without_folders(source)}: {name}."
        if name
        else f"The licence of {without_folders(source) or 'the base model'} holds for this model too. It was not "
        "named where this card was written: look it up before you pass the model on."
    )
    return f"## Licence\n\n{sentence}"
