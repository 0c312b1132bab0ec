"""Tell whether a model is the one that was saved or pruned: by its tensors, its answers and its tokens.

A saved model is compared with the live one, and later with the answer in its folder. Of which dense model a model in
memory was pruned is an attribute of it, so that it goes with it through copies and training. ``gprune.save`` writes
model card and ``pruning.json`` from it; ``save_pretrained`` does not need it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from gprune.models import identity
from gprune.models.export.model_card import PRUNING_FILE, Figure, PruningRecord, figures_of, read_record
from gprune.models.loading import load_tokenizer
from gprune.records import PrunedModel
from gprune.system.errors import CheckpointError, GpruneError, SettingsError

_PROBE_TOKENS = 16
_PROBE_LOGITS = 64
_PROBE_TEXT = "In 1987, Zoë's <unk> weren't (quite)  done\n\n\tyet: 3.50 % — n't @-@"
_TOLERANCE, _COARSE_TOLERANCE = 1e-4, 5e-2
"""largest difference of logits, relative to the largest logit, in float32 and in 16 bits: devices round differently"""
_ATTRIBUTE = "gprune_origin"
_ROUNDING, _COARSE_ROUNDING = 1e-5, 1e-2
"""largest relative difference of the logits of an unchanged model, in float32 and in fewer bits"""


def probe(model: Any, tokens: Sequence[int] = ()) -> tuple[list[int], list[float]]:
    """Return token ids and the logits after the last of them, at tokens spread over the vocabulary.

    Without `tokens` the ids are spread over the vocabulary as well.
    """
    vocabulary = model.get_input_embeddings().num_embeddings
    tokens = list(tokens) or torch.linspace(0, vocabulary - 1, _PROBE_TOKENS).long().tolist()
    probed = torch.linspace(0, vocabulary - 1, min(_PROBE_LOGITS, vocabulary)).long()
    return tokens, _logits(model, tokens)[-1][probed].tolist()


@torch.inference_mode()
def _logits(model: Any, tokens: Sequence[int]) -> torch.Tensor:
    """Return (tokens, vocabulary) float32 logits on the CPU."""
    batch = torch.tensor([tokens], device=model.device)
    return model(input_ids=batch, use_cache=False).logits[0].float().cpu()


def require_same_tensors(live: Any, loaded: Any) -> None:
    """Raise CheckpointError if a tensor of two models is missing, extra or differs in a bit."""
    expected, actual = live.state_dict(), loaded.state_dict()
    for name in sorted(expected.keys() | actual.keys()):
        if (
            name not in expected
            or name not in actual
            or not torch.equal(expected[name].to(actual[name].device), actual[name])
        ):
            raise CheckpointError(f"the saved model differs from the live one in {name}: check the disk and save again")


def require_same_logits(live: Any, loaded: Any, tokens: Sequence[int]) -> None:
    """Raise CheckpointError if two models of one number type answer some tokens differently beyond rounding."""
    _require_close(_logits(live, tokens), _logits(loaded, tokens), live)


def require_answer(model: Any, tokens: Sequence[int], logits: Sequence[float]) -> None:
    """Raise CheckpointError if a model does not answer a probe as it did when it was saved."""
    _require_close(torch.tensor(logits), torch.tensor(probe(model, tokens)[1]), model)


def require_same_tokens(tokenizer: Any, folder: Path) -> None:
    """Raise CheckpointError if the tokenizer in a folder splits a text with accents and spaces differently."""
    if tokenizer is None:
        return
    expected = tokenizer(_PROBE_TEXT).input_ids
    actual = load_tokenizer(str(folder))(_PROBE_TEXT).input_ids
    if actual != expected:
        raise CheckpointError(
            f"the saved tokenizer splits {_PROBE_TEXT!r} into {actual} instead of {expected}: copy the dense "
            "model's tokenizer files into a folder of their own and load the model from there"
        )


def _require_close(expected: torch.Tensor, actual: torch.Tensor, model: Any) -> None:
    tolerance = _TOLERANCE if model.dtype == torch.float32 else _COARSE_TOLERANCE
    difference = relative_difference(expected, actual)
    if not difference <= tolerance:
        raise CheckpointError(
            f"the saved model's logits differ from the live one's by {difference:.1e} of the largest (at "
            f"most {tolerance:.0e} is rounding): its weights or configuration have changed, save it again"
        )


def relative_difference(expected: torch.Tensor, actual: torch.Tensor) -> float:
    """Return the largest difference as a share of the largest expected value."""
    return float((expected - actual).abs().max() / expected.abs().max().clamp(min=1e-30))


@dataclass(frozen=True, slots=True)
class Origin:
    """Origin of a model in memory."""

    record: PruningRecord
    """kept units, repairs and dense model, with the answer of the model when it was made"""
    figures: tuple[Figure, ...] = ()
    """perplexities of the model"""


def remember_origin(
    model: Any, pruned: PrunedModel, figures: tuple[Figure, ...] = (), ids: Sequence[int] = (), **facts: Any
) -> Any:
    """Attach its origin to a model that was just made, and return the model.

    `ids` are tokens of a short input, and `facts` fields of `PruningRecord`, such as source and fingerprint.
    """
    ids, logits = probe(model, ids)
    pruned = PrunedModel(pruned.masks, pruned.repairs)
    record = PruningRecord.of(pruned, **facts, probe_tokens=ids, probe_logits=logits)
    setattr(model, _ATTRIBUTE, Origin(record, figures))
    return model


def source_of(model: Any) -> dict[str, Any]:
    """Return source and fingerprint of a dense model in memory, empty if it does not name its folder."""
    source = str(getattr(model, "name_or_path", "") or "")
    try:
        return {"source": source, "fingerprint": identity.fingerprint(source) if source else ""}
    except GpruneError:
        return {"source": source, "fingerprint": ""}


def origin_of(model: Any) -> Origin:
    """Return the origin of a pruned model; it is marked as trained if the model answers otherwise than at first.

    A model that answers otherwise has no figures. Raises SettingsError if neither the model nor the folder that
    it was loaded from knows its origin.
    """
    origin, folder = getattr(model, _ATTRIBUTE, None), Path(str(getattr(model, "name_or_path", "") or ""))
    if origin is None and (folder / PRUNING_FILE).is_file():
        origin = Origin(read_record(folder), figures_of(folder))
    if origin is None or origin.record.padded:
        raise SettingsError(
            "the model does not say what was pruned of it: save one that run.model or gprune.prune gave, or "
            "that was loaded from a pruned folder; others have save_pretrained"
        )
    record = origin.record
    _, logits = probe(model, record.probe_tokens)
    rounding = _ROUNDING if model.dtype == torch.float32 else _COARSE_ROUNDING
    difference = relative_difference(torch.tensor(record.probe_logits), torch.tensor(logits))
    is_changed = not difference <= rounding
    # the weights of a recovered model do not tell what was trained
    trained = is_changed or record.trained or bool(record.recovery)
    return Origin(record.model_copy(update={"trained": trained}), () if is_changed else origin.figures)
