"""Save pruned models as folders that other tools load, read them back, and check that they are unchanged.

A folder holds safetensors, a configuration, the tokenizer, a model card and ``pruning.json``. If the layers differ in
width, it also holds the modelling file that builds such layers. The folder then loads with ``trust_remote_code=True``
on any machine, and with plain ``from_pretrained`` after ``register()``. A model whose layers all have the same width
is saved as a stock transformers model (`ordinary`), which plain ``from_pretrained`` loads anywhere.

A saved model is compared with the model in memory, and when it is loaded later with the logits in its folder.
"""

import contextlib
import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from gprune.models import devices, identity, low_rank, weight_headers
from gprune.models.export import model_card, modeling_gprune, ordinary
from gprune.models.export.model_card import PruningRecord, read_record, write_record
from gprune.models.export.writing import as_checkpoint_error, new_folder, require_free_space, save_model
from gprune.models.families import FAMILIES, PRUNED_PREFIX, Layout, dense_layout, dense_type
from gprune.models.loading import load_tokenizer, move, read_model, require_finite
from gprune.records import PrunedModel, PruningMasks
from gprune.store import checksums
from gprune.system.errors import CheckpointError, ModelError

_OUTPUT_MAPS = ("o_proj", "down_proj")
_PROBE_TOKENS = 16
_PROBE_LOGITS = 64
# text on which tokenizers differ
_PROBE_TEXT = "In 1987, Zoë's <unk> weren't (quite)  done\n\n\tyet: 3.50 % — n't @-@"
_TOLERANCE, _COARSE_TOLERANCE = 1e-4, 5e-2
"""largest difference of logits that counts as rounding, relative to the largest logit, in float32 and in 16 bits"""


def register_classes() -> None:
    """Let ``AutoConfig`` and ``AutoModelForCausalLM`` load pruned checkpoints without remote code."""
    import transformers

    for family, layout in FAMILIES.items():
        # older versions of transformers have fewer families
        with contextlib.suppress(KeyError):
            model_class = modeling_gprune.classes_of(family)
            config = model_class.config_class
            transformers.AutoConfig.register(PRUNED_PREFIX + family, config, exist_ok=True)
            for name in layout.loaders:
                getattr(transformers, name).register(config, model_class, exist_ok=True)


def as_loaded(model: Any, layout: Layout) -> Any:
    """Return a pruned model as an instance of the class with which its saved folder will load, with the same weights.

    The result is a stock transformers model if one can have these weights, else the model itself, whose class becomes
    one of ours. A model with custom code is returned unchanged.
    """
    model_class = modeling_gprune.classes_of(model.config.model_type)
    if type(model) is not model_class.dense_class:
        return model
    stock = ordinary.to_stock_model(model, layout)
    if stock is not None:
        return stock
    fields = own_fields(model, layout) | {"architectures": [model_class.__name__]}
    model.config.__class__, model.__class__ = model_class.config_class, model_class
    for name, value in fields.items():
        setattr(model.config, name, value)
    if layout.inner_types:
        # without conversions, weights are saved under their names in this model, not those in the dense model's files
        model._weight_conversions = []
    return model


def save(
    model: nn.Module,
    tokenizer: Any,
    folder: Path,
    pruned: PruningMasks | PrunedModel,
    *,
    figures: Sequence[model_card.Figure] = (),
    ids: Sequence[int] = (),
    accept: Callable[[nn.Module], None] | None = None,
    **facts: Any,
) -> Path:
    """Save a pruned model, read it back and compare both; if anything fails, no folder is left behind.

    Args:
        model: the model that ``gprune.pruning.surgery.cut`` returned. Recovery is merged here, not before.
        tokenizer: the tokenizer of the dense model, or None.
        folder: a folder that does not exist or is empty.
        pruned: masks, repairs and recovery of the model.
        figures: perplexities for the model card.
        ids: tokens of the input at which logits are compared; by default spread over the vocabulary.
        accept: further check; it is called with the model that was read back and raises CheckpointError if it fails.
        facts: fields of `PruningRecord`: source and fingerprint of the dense model; run, study and trained if known.

    Returns the absolute path of the folder. Raises CheckpointError if the folder is not empty, the disk is full, or
    the model that is read back differs from the saved one.
    """
    folder = Path(folder).absolute()
    pruned, layout = PrunedModel.of(pruned), dense_layout(model)
    require_free_space(folder, sum(p.numel() * p.element_size() for p in model.parameters()))
    with new_folder(folder) as partial, low_rank.merge_adapters(model, layout, pruned.recovered):
        tokens, logits = probe(model, ids)
        save_model(model, tokenizer, partial)
        _add_own_code(model, partial, layout)
        record = PruningRecord.of(pruned, **facts, probe_tokens=tokens, probe_logits=logits)
        write_record(partial, record)
        model_card.write(partial, record, figures)
        loaded = _read_like(partial, model)
        require_same_model(model, loaded, tokens, tokenizer, partial)
        if accept is not None:
            accept(loaded)
    return folder


def load_verified(folder: Path) -> nn.Module:
    """Load a checkpoint on the CPU in its stored number type, and compare its logits with its ``pruning.json``.

    Raises CheckpointError if a file is missing, damaged or changed.
    """
    folder = Path(folder)
    with as_checkpoint_error(f"the checkpoint {str(folder)!r} is damaged"):
        fault = checksums.find_damage(folder)
        if fault:
            raise CheckpointError(f"{fault}: run the study again to recompute it, finished stages are kept")
    record = read_record(folder)
    with as_checkpoint_error(f"the checkpoint {str(folder)!r} is damaged"):
        model = _read(folder, "auto")
        require_finite(model, folder)
        require_answer(model, record.probe_tokens, record.probe_logits)
        return model


def _read_like(folder: Path, live: Any) -> nn.Module:
    return move_like(_read(folder, live.dtype), live)


def move_like(model: nn.Module, live: Any) -> nn.Module:
    """Move a model that was read back to the device of the live model if both fit there, else to the CPU."""
    try:
        return move(model, live.device)
    except ModelError:
        # a failed move can leave some of the weights on the device
        model = model.to("cpu")
        devices.empty_cache()
        return model


def _read(folder: Path, dtype: torch.dtype | str) -> nn.Module:
    model_type = str(identity.configuration(folder).get("model_type"))
    model_class = modeling_gprune.classes_of(dense_type(model_type))
    # truncated and damaged files are detected by reading their headers
    weight_headers.tensors(identity.weight_files(folder))
    loader = model_class if model_type.startswith(PRUNED_PREFIX) else model_class.dense_class
    return read_model(loader, folder, dtype=dtype).requires_grad_(False)


def _add_own_code(model: Any, folder: Path, layout: Layout) -> None:
    """Add the modelling file and its configuration fields to the folder of a model that is not a stock model."""
    model_class = modeling_gprune.classes_of(dense_type(model.config.model_type))
    if type(model) is model_class.dense_class:
        return
    shutil.copyfile(modeling_gprune.__file__, folder / "modeling_gprune.py")
    replaced_fields = (*modeling_gprune.FIELDS, "auto_map")
    values = {name: value for name, value in identity.configuration(folder).items() if name not in replaced_fields}
    values |= own_fields(model, layout)
    values["model_type"] = model_class.config_class.model_type
    values["architectures"] = [model_class.__name__]
    values["auto_map"] = {
        "AutoConfig": f"modeling_gprune.{model_class.config_class.__name__}",
        **{name: f"modeling_gprune.{model_class.__name__}" for name in layout.loaders},
    }
    (folder / identity.CONFIG_FILE).write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")


def own_fields(model: Any, layout: Layout) -> dict[str, Any]:
    """Return the fields that the configuration of a pruned model adds to the dense one, read from the model."""
    layers = list(model.get_submodule(layout.layers).children())
    bias_flags = {
        f"{name}_bias": any(layer.get_submodule(getattr(layout, name)).bias is not None for layer in layers)
        for name in _OUTPUT_MAPS
    }
    neurons, groups = ordinary.widths(model, layout)
    return {
        "ffn_widths": neurons,
        "key_value_groups": groups,
        **bias_flags,
        "unit_slices": layout.unit_slices(),
        "unit_counts": layout.unit_counts(),
    }


def probe(model: Any, tokens: Sequence[int] = ()) -> tuple[list[int], list[float]]:
    """Return the token ids of an input, and the next-token logits after it for ids spread over the vocabulary.

    `tokens` are the ids of the input; if empty, they are spread over the vocabulary as well.
    """
    vocabulary = model.get_input_embeddings().num_embeddings
    tokens = list(tokens) or torch.linspace(0, vocabulary - 1, _PROBE_TOKENS).long().tolist()
    compared_ids = torch.linspace(0, vocabulary - 1, min(_PROBE_LOGITS, vocabulary)).long()
    return tokens, _logits(model, tokens)[-1][compared_ids].tolist()


@torch.inference_mode()
def _logits(model: Any, tokens: Sequence[int]) -> torch.Tensor:
    """Return (tokens, vocabulary) float32 logits on the CPU."""
    batch = torch.tensor([tokens], device=model.device)
    return model(input_ids=batch, use_cache=False).logits[0].float().cpu()


def require_same_model(live: Any, loaded: Any, tokens: Sequence[int], tokenizer: Any, folder: Path) -> None:
    """Raise CheckpointError if a model that was read back, or the tokenizer in its folder, differs from what was saved.

    `live` and `tokenizer` were saved, and `tokens` are the ids of the input at which logits are compared.
    """
    require_same_tensors(live, loaded)
    require_same_logits(live, loaded, tokens)
    require_same_tokens(tokenizer, folder)


def require_same_tensors(live: Any, loaded: Any) -> None:
    """Raise CheckpointError if the tensors of two models are not identical in names and bits."""
    expected, actual = live.state_dict(), loaded.state_dict()
    for name in sorted(expected.keys() | actual.keys()):
        if (
            name not in expected
            or name not in actual
            or not torch.equal(expected[name].to(actual[name].device), actual[name])
        ):
            raise CheckpointError(f"the saved model differs from the live one in {name}: check the disk and save again")


def require_same_logits(live: Any, loaded: Any, tokens: Sequence[int]) -> None:
    """Raise CheckpointError if the logits of two models of the same number type differ by more than rounding."""
    _require_close(_logits(live, tokens), _logits(loaded, tokens), live)


def require_answer(model: Any, tokens: Sequence[int], logits: Sequence[float]) -> None:
    """Raise CheckpointError if the logits of a model differ from the `logits` that were stored when it was saved."""
    _require_close(torch.tensor(logits), torch.tensor(probe(model, tokens)[1]), model)


def require_same_tokens(tokenizer: Any, folder: Path) -> None:
    """Raise CheckpointError if the tokenizer in a folder splits a sample text differently than `tokenizer`."""
    if tokenizer is None:
        return
    expected = tokenizer(_PROBE_TEXT).input_ids
    actual = load_tokenizer(str(folder))(_PROBE_TEXT).input_ids
    if actual != expected:
        raise CheckpointError(
            f"the saved tokenizer splits {_PROBE_TEXT!r} into the token ids {actual} instead of {expected}: save the "
            "dense model's tokenizer again with this version of transformers, or use the version that saved it"
        )


def _require_close(expected: torch.Tensor, actual: torch.Tensor, model: Any) -> None:
    tolerance = _TOLERANCE if model.dtype == torch.float32 else _COARSE_TOLERANCE
    difference = relative_difference(expected, actual)
    # the negation also refuses NaN
    if not difference <= tolerance:
        raise CheckpointError(
            f"the saved model's logits differ from the live model's by {difference:.1e} of the largest (at "
            f"most {tolerance:.0e} is rounding): its weights or configuration have changed, save it again"
        )


def relative_difference(expected: torch.Tensor, actual: torch.Tensor) -> float:
    """Return the largest difference as a share of the largest expected value."""
    return float((expected - actual).abs().max() / expected.abs().max().clamp(min=1e-30))


# a process that can save a folder can also load it
register_classes()
