"""The dense model with a plan's removed units silent: what a cut model is held against."""

from contextlib import AbstractContextManager

from gprune.models.decoder import Decoder
from gprune.pruning import masking
from gprune.records import PruningMasks


def masked(decoder: Decoder, masks: PruningMasks) -> AbstractContextManager[None]:
    return masking.mask_units(decoder, dict(enumerate(zip(masks.ffn, masks.heads, strict=True))))
