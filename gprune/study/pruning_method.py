"""A pruning method: how its masks are made, from whose scores, and how kept weights are repaired.

gprune.study.methods has the table of all of them, by name.
"""

from dataclasses import dataclass

from gprune.plugins.registry import PluginInfo
from gprune.records.repairs import COMPENSATION
from gprune.study.settings import OwnRepair


@dataclass(frozen=True, slots=True)
class Method:
    """One pruning method."""

    name: str
    """as studies and results name it"""
    label: str
    """as pages and tables name it"""
    masks: str
    """the masks it uses; methods that differ in repairs only share them"""
    decision: str
    """how the masks are made: none, learned (a threshold a module), gated (a gate a unit), flap, uniform,
    sequential, fang, llm_pruner, osscar, slimllm, plugin, or chosen by measurement among those of others"""
    metric: str = ""
    """base metric of its scores; that of the study where empty"""
    scoring: str = "single"
    """from which text it scores, one of gprune.study.methods.SCORINGS"""
    repairs: tuple[str, ...] = ()
    """what it does to the weights that stay, whatever the study's settings say: names of records.REPAIRS"""
    fit: OwnRepair | None = None
    """how weights are fitted to its masks, where its repair does that"""
    control: bool = False
    """whether it is there to say what a part of another method brings, and is no rival of it"""
    modules: str = ""
    """modules of learned masks: the study's own where empty, or layers, random or shuffled"""
    adapts: bool = True
    """whether RASA takes part in learned masks"""
    same_as: str = ""
    """masks that are the same by definition, and share their key"""
    form_of: str = ""
    """the method that it is another form of: with two texts, without its repair, in one pass"""
    plugin: PluginInfo | None = None
    """what brings it, where that is another package: its decision, or its metric"""
    epochs: int = 1
    """how many times as many epochs it learns as the study's sparsity section says"""
    scaled: bool = False
    """whether its gates are learned together with scales and biases, as the study's scales section says"""

    @property
    def learns(self) -> bool:
        """Return True if its masks are learned by running the model on both texts, one budget at a time."""
        return self.decision in ("learned", "gated")

    @property
    def baseline(self) -> bool:
        """Return True if people would otherwise use it: no control, no other form of a method, and none of ours."""
        return not (self.control or self.form_of or self.learns or self.decision in ("none", "chosen"))

    @property
    def layered(self) -> bool:
        """Return True if each layer is decided above pruned ones, which takes the model for any other masks."""
        return self.decision in ("sequential", "osscar", "slimllm")

    @property
    def foreign(self) -> bool:
        """Return True if code of another package runs the model."""
        return self.decision == "plugin" and self.plugin is not None and self.plugin.needs != "scores"

    @property
    def levels(self) -> bool:
        """Return True if it can keep as many units in every layer (sparsity.widths equal)."""
        return self.decision not in ("llm_pruner", "slimllm", "plugin")

    @property
    def brings(self) -> str:
        """The metric of another package that this method prunes by alone; empty of all other methods."""
        return self.name if self.plugin is not None and self.plugin.kind == "metric" else ""

    @property
    def plugin_id(self) -> str:
        """Id of the plug-in; empty of a built-in method."""
        return "" if self.plugin is None else self.plugin.id

    @property
    def changes(self) -> dict[str, str]:
        """Settings under which GPrune itself is this control; modules that no setting names are left out."""
        settings = {"modularization.kind": self.modules} if self.modules == "random" else {}
        return settings | ({} if self.adapts else {"reliability.selection": "none"})


def method_of(plugin: PluginInfo) -> Method:
    """Return the method of a plug-in; of a metric, the one that prunes by its scores."""
    name, label = plugin.name, plugin.label
    if plugin.kind == "metric":
        return Method(name, label, name, plugin.allocation, name, plugin=plugin)
    repairs = (COMPENSATION,) if plugin.compensated else ()
    return Method(name, label, name, "plugin", plugin.metric, repairs=repairs, plugin=plugin)
