"""The settings of recovery: low-rank training of every pruned model (LoRA), after masks and repair.

It is no part of the paper, and changes weights by gradients: what is measured after it stands apart from
every figure of methods that changed none.
"""

from dataclasses import dataclass
from importlib.util import find_spec
from typing import Annotated, ClassVar, Literal

from gprune.study.settings import Several, Text, TextsUsed, Whole, require, roles_of
from gprune.system import forms, limits
from gprune.system.errors import SettingsError
from gprune.system.forms import NOT_NEGATIVE, POSITIVE, Form, Rule, at_least, between, checked

LINEAR_MAPS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
"""the linear maps of a layer"""
_TARGETS = Rule(
    f"at least one of {', '.join(LINEAR_MAPS)}, each once",
    lambda names: bool(names) and len(set(names)) == len(names) and set(names) <= set(LINEAR_MAPS),
)


@checked
@dataclass(frozen=True, slots=True)
class RecoverySettings(Form):
    """Training of every pruned model after its repair; the same for every method."""

    WHERE: ClassVar = "recovery."
    kind: Literal["none", "lora"] = "none"
    """lora trains a change of low rank of the linear maps of every pruned model and merges it into the
    weights; what is measured then stands apart from what is measured without (needs the extra `recovery`)"""
    texts: TextsUsed = "both_and_sampled"
    """calibration texts that it is trained on; sampled is what the dense model writes, repair.sampled"""
    steps: Annotated[Whole, NOT_NEGATIVE, forms.at_most(limits.MOST_STEPS, "steps")] = 100
    """steps of training"""
    batch: Annotated[Whole, between(1, limits.MOST_BATCH)] = 16
    """sequences of one step"""
    learning_rate: Annotated[float, POSITIVE] = 0.003
    """Adam step size of the factors, with cosine decay"""
    rank: Annotated[Whole, at_least(1), forms.at_most(limits.MOST_RANK)] = 8
    """rank of the change of each map"""
    alpha: Annotated[float, POSITIVE] = 16.0
    """the product of both factors is multiplied by alpha / rank"""
    targets: Annotated[Several[Text], _TARGETS] = LINEAR_MAPS
    """linear maps of each layer that are trained"""
    distillation_weight: Annotated[float, NOT_NEGATIVE] = 1.0
    """weight of the distillation from the dense model"""
    distillation_temperature: Annotated[float, POSITIVE] = 1.0
    """temperature of the distillation"""
    cross_entropy_weight: Annotated[float, NOT_NEGATIVE] = 0.0
    """weight of the cross-entropy of the next token; 0 trains on distillation alone"""

    def __post_init__(self) -> None:
        """Checks the fields against each other."""
        both = self.distillation_weight + self.cross_entropy_weight
        rule = "positive where recovery.cross_entropy_weight is 0, or nothing is trained"
        require(both > 0, "recovery.distillation_weight", self.distillation_weight, rule)

    def require_installed(self) -> None:
        """Raises SettingsError where what it is trained with is not installed."""
        if self.kind != "none" and find_spec("peft") is None:
            raise SettingsError(
                f"recovery.kind {self.kind} needs the package peft, which is not installed: run pip install "
                "-r requirements-recovery.txt, or pip install 'gprune-studio[recovery]', or set "
                "recovery.kind none"
            )

    @property
    def roles(self) -> tuple[str, ...]:
        """The roles of its texts; none where nothing is recovered."""
        return roles_of(self.texts) if self.kind != "none" else ()
