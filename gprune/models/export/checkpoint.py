"""Answers: how is a pruned model saved so that others load it, and does it read back as it was?

A checkpoint folder holds safetensors, a configuration, the tokenizer and the plan. Where layers differ in
width, it has the modelling file that builds such layers too, and loads with ``trust_remote_code=True`` where
this project is not installed, and with plain ``from_pretrained`` after ``register()``. A model whose layers
all have the same width is an ordinary one (`ordinary`), which loads by plain ``from_pretrained`` anywhere.
"""

import contextlib
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from torch import nn

from gprune.models import devices, low_rank
from gprune.models.export import (
    model_card,
    modeling_gprune,
    ordinary,
    plan_file,
    recovered_file,
    repaired_file,
    same_model,
)
from gprune.models.export.older_versions import add_older_rope_fields, save_tokenizer
from gprune.models.export.plan_file import CutPlan
from gprune.models.export.writing import as_checkpoint_error, new_folder, require_room
from gprune.models.families import FAMILIES, PRUNED_PREFIX, Layout, dense_type, shape_of
from gprune.models.identity import CONFIG_FILE, configuration, weight_files
from gprune.models.loading import (
    DTYPES,
    device_of,
    move,
    quiet,
    read_model,
    require_finite,
    require_readable,
)
from gprune.records import Array, PrunedModel, PruningMasks
from gprune.store import manifests
from gprune.system.errors import CheckpointError, ModelError


def register() -> None:
    """Lets ``AutoConfig`` and ``AutoModelForCausalLM`` load pruned checkpoints without remote code."""
    import transformers

    for family in FAMILIES:
        # an older transformers has fewer of them
        with contextlib.suppress(KeyError):
            model_class = modeling_gprune.classes_of(family)
            config = model_class.config_class
            transformers.AutoConfig.register(PRUNED_PREFIX + family, config, exist_ok=True)
            for name in FAMILIES[family].loaders:
                getattr(transformers, name).register(config, model_class, exist_ok=True)


def formed(model: Any, layout: Layout) -> Any:
    """What the saved folder of a narrowed model of its family's own class will give, with its weights.

    An ordinary model where there is one with these weights, else the model itself, of our class; one that
    runs code of its own is left as it is.
    """
    family = str(getattr(model.config, "model_type", ""))
    if type(model) is not modeling_gprune.classes_of(family).dense_class:
        return model
    made = ordinary.formed(model, layout)
    if made is not None:
        return made
    return modeling_gprune.as_saved(model, family, own_fields(model, layout))


def save(
    model: nn.Module,
    tokenizer: Any,
    folder: Path,
    pruned: PruningMasks | PrunedModel,
    *,
    source: str,
    fingerprint: str,
    study: dict[str, Any] | None = None,
    figures: Sequence[model_card.Figure] = (),
    trained: bool = False,
    ids: tuple[int, ...] = (),
    accept: Callable[[nn.Module], None] | None = None,
) -> Path:
    """Saves a cut model, reads it back in full and compares the two; only then the folder gets its name.

    `model` is what ``gprune.pruning.surgery.cut`` returned without recovery, which is merged into what is
    saved; `tokenizer` the dense model's, or None; `folder` must not exist, or be empty, and is given back.
    `source` is the dense model as the person named it, with its fingerprint; `study` the settings that led to
    the masks; `figures` stand in its card; `trained` says that its weights are no longer those that the
    record tells, so that the plan can tell the units alone; logits are compared at the tokens `ids`, by default
    at some of the whole vocabulary; `accept` raises CheckpointError where the model that was read back is not
    the one that was measured. Raises CheckpointError where the folder is taken,
    the disk is full, the masks are not those of the model, or the saved model does not read back as it
    was. Nothing is left behind.
    """
    folder = Path(folder).absolute()
    model_class = _pruned_class(model)
    pruned = PrunedModel.of(pruned)
    layout = _layout(model)
    fields = _fields(model, layout, pruned.masks)
    refitted = not trained and any(repair.weights for repair in pruned.repairs)
    size = sum(p.numel() * p.element_size() for p in model.parameters())
    added = 0 if pruned.recovered is None else pruned.recovered.numbers.nbytes
    require_room(folder, size + (repaired_file.size(model, layout) if refitted else 0) + added)
    biases = _biases(model, pruned) if pruned.biased and not trained else None
    dtype = str(same_model.number_type_of(model)).removeprefix("torch.")
    with new_folder(folder) as partial, ExitStack() as merged:
        weights = repaired_file.write(partial, model, layout) if refitted else None
        recovery = recovered_file.write(partial, pruned.recovered)
        merged.enter_context(low_rank.merged(model, layout, pruned.recovered))
        ids, logits = same_model.probe(model, ids)
        _write(model, tokenizer, partial, model_class, fields)
        made = pruned, source, fingerprint, study, ids, logits, dtype, weights, biases, recovery
        plan = CutPlan(*made, trained=trained)
        plan_file.write(partial, plan)
        model_card.write(partial, plan, figures, why=_why(model, model_class, layout))
        loaded = _verified(partial, model)
        same_model.require_same_tensors(model.state_dict(), loaded.state_dict())
        same_model.require_same_logits(model, loaded, ids)
        same_model.require_same_tokens(tokenizer, partial)
        if accept is not None:
            accept(loaded)
    return folder


def load(folder: Path, device: str = "auto", dtype: str = "auto") -> nn.Module:
    """Loads a pruned checkpoint that ``save`` made, in evaluation mode.

    `device` is ``auto``, ``cpu`` or ``cuda``; `dtype` ``auto`` (float32 on a CPU, the checkpoint's type on a
    GPU), float32, bfloat16 or float16. Raises CheckpointError where the folder is no pruned checkpoint or is
    damaged, SettingsError where the device is not available.
    """
    place = device_of(device)
    automatic = torch.float32 if place.type == "cpu" else "auto"
    with as_checkpoint_error(f"the checkpoint {str(folder)!r} cannot be loaded"):
        return move(_read(Path(folder), DTYPES.get(dtype, automatic)), place)


def load_verified(folder: Path) -> nn.Module:
    """Loads a checkpoint on the CPU, in the number type of the file, and checks it on its own.

    Files, plan, widths, finite weights, and the answer that the model gave when it was saved. Raises
    CheckpointError where something is missing, damaged or changed.
    """
    folder = Path(folder)
    with as_checkpoint_error(f"the checkpoint {str(folder)!r} is damaged"):
        require_as_written(folder)
        return _verified(folder, None)


def require_as_written(place: Path) -> None:
    """Holds a model, or a file of it, against the checksums of the cache that it lies in.

    Raises CheckpointError where it is not what was written.
    """
    fault = manifests.spoilt(place)
    if fault:
        raise CheckpointError(f"{fault}: run the study again, it is made anew and finished stages are kept")


def _verified(folder: Path, live: nn.Module | None) -> nn.Module:
    """Loads a checkpoint and holds it against its own plan.

    The live model that it was made from tells device and number type; None reads it on the CPU in the type of
    the file.
    """
    plan = plan_file.read(folder)
    values = configuration(folder)
    if _kept(plan.pruned.masks) != widths_told(values):
        raise CheckpointError(f"{CONFIG_FILE} and {plan_file.PLAN_FILE} name different widths: save the model again")
    model = _read(folder, "auto" if live is None else same_model.number_type_of(live))
    if live is not None:
        model = _beside(model, live)
    require_finite(model, folder)
    same_model.require_plan_answer(model, plan)
    return model


def _beside(model: nn.Module, live: nn.Module) -> nn.Module:
    """Moves a model to the device of another if there is room; it is as good a proof on the CPU."""
    try:
        return move(model, same_model.place_of(live))
    except ModelError:
        model = model.to("cpu")
        devices.give_back()
        return model


def _read(folder: Path, dtype: torch.dtype | str) -> nn.Module:
    model_type = str(configuration(folder).get("model_type"))
    family = dense_type(model_type)
    own = family != model_type
    if family not in FAMILIES or not (own or (folder / plan_file.PLAN_FILE).is_file()):
        raise CheckpointError(f"the folder {str(folder)!r} holds a model of type {model_type!r}, not a pruned one")
    model_class = modeling_gprune.classes_of(family)
    model_class = model_class if own else model_class.dense_class
    require_readable(weight_files(folder))
    return read_model(model_class, folder, dtype=dtype).requires_grad_(False)


def _write(model: Any, tokenizer: Any, folder: Path, model_class: Any, fields: dict[str, Any]) -> None:
    with quiet():
        model.save_pretrained(folder)
    if tokenizer is not None:
        save_tokenizer(tokenizer, folder)
    add_older_rope_fields(folder)
    if type(model) is model_class.dense_class:
        return
    shutil.copyfile(modeling_gprune.__file__, folder / "modeling_gprune.py")
    own = (*modeling_gprune.FIELDS, "auto_map")
    values = {name: value for name, value in configuration(folder).items() if name not in own} | fields
    values["model_type"] = model_class.config_class.model_type
    values["architectures"] = [model_class.__name__]
    values["auto_map"] = {
        "AutoConfig": f"modeling_gprune.{model_class.config_class.__name__}",
        **{name: f"modeling_gprune.{model_class.__name__}" for name in _layout(model).loaders},
    }
    (folder / CONFIG_FILE).write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")


def _why(model: Any, model_class: Any, layout: Layout) -> str:
    """Why a model whose layers all have the same width is none of its family's own."""
    known = type(model) is not model_class.dense_class and ordinary.equal(*ordinary.widths(model, layout))
    return ordinary.fit(model, layout).why if known else ""


def _pruned_class(model: nn.Module) -> Any:
    model_type = getattr(getattr(model, "config", None), "model_type", None)
    family = dense_type(model_type)
    if family not in FAMILIES:
        raise CheckpointError(
            f"a model of type {model_type!r} cannot be saved: cut one of a family that `python -m gprune models` lists"
        )
    return modeling_gprune.classes_of(family)


def _layout(model: Any) -> Layout:
    return FAMILIES[dense_type(model.config.model_type)]


def _fields(model: Any, layout: Layout, masks: PruningMasks) -> dict[str, Any]:
    """The configuration's own fields, from the model itself, checked against the masks."""
    found = own_fields(model, layout)
    ffn, groups = found["ffn_widths"], found["key_value_groups"]
    if (ffn, groups) != _kept(masks):
        raise CheckpointError(
            f"the model has layers of {ffn} neurons and {groups} key/value groups, which the {masks.method} "
            "masks do not keep: save the model that was cut with these masks"
        )
    return found


def _kept(masks: PruningMasks) -> tuple[list[int], list[int]]:
    return masks.ffn.sum(axis=1).tolist(), masks.heads.sum(axis=1).tolist()


def widths_told(values: Mapping[str, Any]) -> tuple[Any, Any]:
    """FFN neurons and key/value groups of every layer, as the values of a pruned configuration tell them.

    What an ordinary one does not tell is None.
    """
    if str(values.get("model_type")).startswith(PRUNED_PREFIX):
        return values.get("ffn_widths"), values.get("key_value_groups")
    try:
        shape = shape_of(values)
    except (KeyError, TypeError, ValueError):
        return None, None
    return [shape.neurons] * shape.layers, [shape.kv_heads] * shape.layers


def own_fields(model: Any, layout: Layout) -> dict[str, Any]:
    """What the configuration of a cut model has beside the dense one's fields, from the model itself.

    The table of its units is left out where it is that of the modelling file.
    """
    layers = list(model.get_submodule(layout.layers).children())
    bias = {
        name: [layer.get_submodule(getattr(layout, name)).bias is not None for layer in layers]
        for name in plan_file.OUTPUT_MAPS
    }
    table = {"unit_slices": layout.table(), "unit_counts": layout.numbers()}
    usual = {"unit_slices": modeling_gprune.PLAIN, "unit_counts": modeling_gprune.COUNTS}
    neurons, groups = ordinary.widths(model, layout)
    return {
        "ffn_widths": neurons,
        "key_value_groups": groups,
        **{f"{name}_bias": any(present) for name, present in bias.items()},
        **{name: value for name, value in table.items() if value != usual[name]},
    }


def _biases(model: Any, pruned: PrunedModel) -> dict[str, Array]:
    """(layers, hidden) float32 biases of the projections that a repair gives one."""
    layout = _layout(model)
    layers = list(model.get_submodule(layout.layers).children())
    biases = {}
    for name in plan_file.OUTPUT_MAPS:
        rows = [layer.get_submodule(getattr(layout, name)).bias for layer in layers]
        if any(row is None for row in rows):
            raise CheckpointError(
                f"the model has no bias in {name}: cut it with the statistics of the calibration text, or "
                f"save it without {pruned.repaired_by}"
            )
        biases[name] = torch.stack(rows).float().cpu().numpy()
    return biases


# whoever imports this can load what it saves; a modelling file that is itself being imported is not ready yet
if "__getattr__" in vars(modeling_gprune):
    register()
