"""Answers: what does a folder of a pruned model say of itself to whoever finds it?

A model card, ``README.md``, in the form of the hub: base model, licence, what was pruned and how,
perplexities with the protocol that they were measured by, and how to load it. Needs no torch.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gprune.models import identity, weight_headers
from gprune.models.export.older_versions import NEWER_THAN_4
from gprune.models.export.plan_file import PLAN_FILE, CutPlan
from gprune.models.families import FAMILIES, PRUNED_PREFIX, dense_type, language_values
from gprune.system import safe_parsing
from gprune.system.errors import GpruneError
from gprune.system.version import __version__

if TYPE_CHECKING:
    from huggingface_hub import ModelCardData

CARD_FILE = "README.md"
_FENCE = "---"
_LICENCE_FILES = ("LICENSE*", "LICENCE*", "NOTICE*", "COPYING*", "USE_POLICY*")
_PROCESSOR_FILES = ("preprocessor_config.json", "processor_config.json", "video_preprocessor_config.json")
_LICENCE_FIELDS = ("license", "license_name", "license_link")
_PLACES = ("primary", "auxiliary", "substitute")
_SETTINGS = ("metric", "retention", "seed")
_PADDED = "An ordinary model: every layer is padded with zeros to the widest, and needs no code of its own."
_ORDINARY = "An ordinary model: every layer has the same width, and none needs code of its own."
_EXACTLY = "Every layer has the same width, but no ordinary model has exactly these weights"
_OF_ITS_OWN = (
    "{}, which `modeling_gprune.py` in this folder builds; it needs torch and "
    "transformers. After `import gprune` the model loads without `trust_remote_code`."
)


@dataclass(frozen=True, slots=True)
class Figure:
    """A perplexity that was measured on the model of a card."""

    text: str
    """the text, as the study names it"""
    perplexity: float
    standard_error: float
    dense: float | None
    """of the dense model on the same windows; None where it was not measured"""
    protocol: str
    """the stamp of the figure; see gprune.evaluation.protocol"""


def write(folder: Path, plan: CutPlan, figures: Sequence[Figure] = (), *, padded: bool = False, why: str = "") -> None:
    """Writes the card of a model's folder, and copies the licence files of its base beside it.

    What prepares images for a model that takes them is copied likewise.

    The folder holds configuration and weights already; `padded` where it is an ordinary, padded model; `why`
    tells why one whose layers all have the same width is no ordinary one.
    """
    from huggingface_hub import ModelCard

    base = _base(plan.source)
    for file in _files_of(base, (*_LICENCE_FILES, *_PROCESSOR_FILES)):
        shutil.copyfile(file, folder / file.name)
    licence = _licence(base)
    data = _data(plan, licence, figures)
    parts = (_head(plan), _pruned(folder, plan), _measured(figures), _loading(folder, plan, padded, why))
    text = "\n\n".join((*parts, _licensed(licence, plan.source))) + "\n"
    card = ModelCard(f"{_FENCE}\n{data.to_yaml()}\n{_FENCE}\n\n{text}")
    (folder / CARD_FILE).write_text(str(card), encoding="utf-8")


def figures_of(folder: Path) -> tuple[Figure, ...]:
    """The perplexities that a folder's card tells, without those of the base model."""
    try:
        results = header(folder)["model-index"][0]["results"]
        return tuple(_figure(one["dataset"], one["metrics"][0]) for one in results)
    except (KeyError, IndexError, TypeError, ValueError):
        return ()


def _figure(dataset: dict[str, Any], metric: dict[str, Any]) -> Figure:
    args = metric["args"]
    value, error = float(metric["value"]), float(args["standard_error"])
    return Figure(str(dataset["name"]), value, error, None, str(args["protocol"]))


def shown(place: str) -> str:
    """A model or a text as a stranger may read it: without the folders of this machine."""
    return Path(place).name if place.startswith(("/", "~", ".")) or place.count("/") > 1 else place


def header(folder: Path) -> dict[str, Any]:
    """The fields at the head of a folder's card; nothing where it has none that can be read."""
    try:
        text = safe_parsing.contents(folder / CARD_FILE, "the card").decode("utf-8")
        opening, fields, *_ = text.split(f"{_FENCE}\n", 2)
        return {} if opening else safe_parsing.yaml_object(fields, "the head of the card")
    except (OSError, ValueError, GpruneError):
        return {}


def _base(source: str) -> Path | None:
    """The dense model's folder, where it is on this machine."""
    try:
        return identity.locate(source) if source else None
    except GpruneError:
        return None


def _files_of(base: Path | None, patterns: Sequence[str]) -> list[Path]:
    found = [file for pattern in patterns for file in (base.glob(pattern) if base else ())]
    return sorted({file for file in found if file.is_file()})


def _licence(base: Path | None) -> dict[str, str]:
    """What the dense model's own card says of its licence."""
    known = header(base) if base is not None else {}
    return {name: known[name] for name in _LICENCE_FIELDS if isinstance(known.get(name), str)}


def _data(plan: CutPlan, licence: dict[str, str], figures: Sequence[Figure]) -> ModelCardData:
    from huggingface_hub import ModelCardData

    masks = plan.pruned.masks
    hub = identity.is_hub_name(plan.source) and not Path(plan.source).exists()
    return ModelCardData(
        base_model=plan.source if hub else None,
        library_name="transformers",
        pipeline_tag="text-generation",
        tags=["pruned", "structured-pruning", "gprune", masks.method],
        model_name=f"{shown(plan.source) or 'model'}-{masks.method}-{masks.retention:.2f}",
        eval_results=[_result(one) for one in figures] or None,
        **licence,  # type: ignore[arg-type]
    )


def _result(figure: Figure) -> Any:
    from huggingface_hub import EvalResult

    text = shown(figure.text)
    return EvalResult(
        task_type="text-generation",
        dataset_type=text,
        dataset_name=text,
        metric_type="perplexity",
        metric_value=round(figure.perplexity, 4),
        metric_args={"protocol": figure.protocol, "standard_error": round(figure.standard_error, 4)},
    )


def _head(plan: CutPlan) -> str:
    masks, source = plan.pruned.masks, shown(plan.source) or "a model"
    return (
        f"# {source}, pruned by {masks.method} to {100 * masks.retention:.3g}%\n\n"
        f"{source} without the FFN neurons and key/value groups that the method `{masks.method}` of GPrune "
        f"Studio {__version__} leaves out: {masks.retention:.2%} of the linear weights of its decoder layers "
        f"are kept ({100 * masks.target:.4g}% were asked for). Embeddings, norms and head are those of "
        f"{source}."
    )


def _pruned(folder: Path, plan: CutPlan) -> str:
    masks, values = plan.pruned.masks, identity.configuration(folder)
    found = weight_headers.tensors(identity.weight_files(folder))
    counted = weight_headers.counted(found, bool(language_values(values).get("tie_word_embeddings")))
    family = dense_type(values.get("model_type"))
    rows = [
        ("family", FAMILIES[family].label if family in FAMILIES else family),
        ("parameters", f"{sum(one.numbers for one in counted):,}"),
        ("number type", _number_types(folder, _base(plan.source))),
        ("FFN neurons a layer", _widths(masks.ffn)),
        ("key/value groups a layer", _widths(masks.heads)),
        ("repair of the kept weights", plan.pruned.repaired_by or "none"),
        ("trained after the cut", _trained(plan)),
        (
            "base model, SHA-256 of configuration and weights",
            f"`{plan.fingerprint}`" if plan.fingerprint else "",
        ),
    ]
    study = plan.study or {}
    rows += [(f"{name} calibration text", shown(str(study[name]))) for name in _PLACES if study.get(name)]
    rows += [(name, str(study[name])) for name in _SETTINGS if name in study]
    table = "\n".join(f"| {name} | {value} |" for name, value in rows if value)
    return f"## What was pruned\n\n| | |\n| --- | --- |\n{table}"


def _number_types(folder: Path, base: Path | None) -> str:
    """Return the number type of the saved weights, and that of the base model where it differs."""
    saved, source = (identity.number_type(path) if path else "" for path in (folder, base))
    differs = source and source != saved
    return f"{saved} (the base model has {source}: the run computed in {saved})" if differs else saved


def _widths(kept: Any) -> str:
    counts = kept.sum(axis=1).tolist()
    return f"{', '.join(map(str, counts))} of {kept.shape[1]}"


def _trained(plan: CutPlan) -> str:
    if plan.recovery is not None:
        return f"{plan.recovery.kind} of rank {plan.recovery.rank}, merged into the weights"
    return "yes, outside of the plan" if plan.trained else "no"


def _measured(figures: Sequence[Figure]) -> str:
    if not figures:
        return "## Perplexity\n\nNot measured, or not known where this card was written."
    rows = [
        f"| {shown(one.text)} | {one.perplexity:.2f} ± {one.standard_error:.2f} | "
        f"{'–' if one.dense is None else f'{one.dense:.2f}'} |"
        for one in figures
    ]
    protocols = "\n".join(f"- {line}" for line in dict.fromkeys(one.protocol for one in figures))
    table = "\n".join(("| text | this model | base model |", "| --- | --- | --- |", *rows))
    return f"## Perplexity\n\n{table}\n\nMeasured by this protocol, ± one standard error:\n\n{protocols}"


def _loading(folder: Path, plan: CutPlan, padded: bool, why: str) -> str:
    own = str(identity.configuration(folder).get("model_type")).startswith(PRUNED_PREFIX)
    trusting = ", trust_remote_code=True" if own else ""
    differ = f"{_EXACTLY} ({why})" if why else "Layers differ in width"
    how = _OF_ITS_OWN.format(differ) if own else _PADDED if padded else _ORDINARY
    code = (
        "```python\nfrom transformers import AutoModelForCausalLM, AutoTokenizer\n\n"
        f'model = AutoModelForCausalLM.from_pretrained("FOLDER"{trusting})\n'
        f'tokenizer = AutoTokenizer.from_pretrained("FOLDER"{trusting})\n```'
    )
    again = (
        f"`{PLAN_FILE}` lists the kept units of every layer: `python -m gprune apply {PLAN_FILE} BASE OUT` "
        "makes the same cut of the base model again."
    )
    family = dense_type(identity.configuration(folder).get("model_type"))
    if family in NEWER_THAN_4:
        how += f" It needs transformers 5: version 4.57 has no {FAMILIES[family].label}."
    told = not padded and not plan.trained
    return "\n\n".join(("## How to load it", code, how, *((again,) if told else ())))


def _licensed(licence: dict[str, str], source: str) -> str:
    name = licence.get("license_name") or licence.get("license")
    words = (
        f"That of {shown(source)}: {name}."
        if name
        else f"The licence of {shown(source) or 'the base model'} holds for this model too. It was not named "
        "where this card was written: look it up before you pass the model on."
    )
    return f"## Licence\n\n{words}"
