"""Answers: which of the models that others have published figures for is this one?

By the last part of its name or by what the person says, and checked against the sizes in its configuration.
"""

from dataclasses import dataclass
from pathlib import Path

from gprune.experiments.reproduction.scale import paper_model, stem
from gprune.models import identity
from gprune.system import safe_parsing
from gprune.system.errors import SettingsError


@dataclass(frozen=True, slots=True)
class Preset:
    """A model that figures are published for."""

    name: str
    """as papers call it"""
    hub: str
    """where people get it"""
    stems: tuple[str, ...]
    """what the last part of a folder's or hub name is, in small letters and digits; the paper's own models
    are known without"""
    layers: int
    hidden: int
    neurons: int
    heads: int
    kv_heads: int

    @property
    def weights(self) -> int:
        """Linear weights of the decoder layers."""
        attention = 2 * self.hidden * self.hidden * (self.heads + self.kv_heads) // self.heads
        return self.layers * (attention + 3 * self.hidden * self.neurons)


PRESETS = {
    preset.name: preset
    for preset in (
        Preset(
            "LLaMA1-7B",
            "huggyllama/llama-7b",
            ("llama7b", "llama7bhf", "llama17b", "llama17bhf"),
            32,
            4096,
            11008,
            32,
            32,
        ),
        Preset("LLaMA2-7B", "meta-llama/Llama-2-7b-hf", (), 32, 4096, 11008, 32, 32),
        Preset("Llama3.1-8B", "meta-llama/Llama-3.1-8B", ("llama318b", "metallama318b"), 32, 4096, 14336, 32, 8),
    )
}
_SIZES = {
    "num_hidden_layers": "layers",
    "hidden_size": "hidden",
    "intermediate_size": "neurons",
    "num_key_value_heads": "kv_heads",
}


def named(model: str, name: str = "", known: tuple[str, ...] = tuple(PRESETS)) -> str:
    """The name under which a model's figures are published: what the person says, else by its own name.

    Raises SettingsError where it is not `known`, or the model's own name tells none.
    """
    if name:
        if name not in known:
            names = safe_parsing.sentence(", ".join(known), 160)
            raise SettingsError(f"--as must be one of {names} (got {safe_parsing.quoted(name)})")
        return name
    own = stem(model)
    found = [n for n in known if n == paper_model(model) or (n in PRESETS and own in PRESETS[n].stems)]
    if not found:
        names = safe_parsing.sentence(", ".join(known), 160)
        raise SettingsError(
            f"by its name {safe_parsing.quoted(model)} is no model that figures are published for: say which "
            f"it is with --as, one of {names}"
        )
    return found[0]


def require_sizes(name: str, folder: Path) -> None:
    """Checks that the model in a folder has the sizes of the published one whose figures it is held against.

    One without a preset is not checked. Raises SettingsError with what differs, ModelError where the
    configuration cannot be read.
    """
    if name not in PRESETS:
        return
    values, preset = identity.configuration(folder), PRESETS[name]
    heads = values.get("num_attention_heads")
    here = {"num_key_value_heads": heads} | {field: values[field] for field in _SIZES if values.get(field)}
    wrong = [
        f"{field} {safe_parsing.quoted(here.get(field), 20)} and not {getattr(preset, own)}"
        for field, own in _SIZES.items()
        if here.get(field) != getattr(preset, own)
    ]
    if wrong:
        raise SettingsError(
            f"the model in {safe_parsing.quoted(str(folder), 80)} is not {name}: it has {', '.join(wrong)}. "
            f"Get {preset.hub}, or say with --as which model it is"
        )
