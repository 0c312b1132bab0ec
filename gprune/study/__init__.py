"""Studies: their settings, methods and metrics, and recommended profiles."""

from gprune.study.settings import (
    PRESET_LENGTHS,
    BaselineSettings,
    CalibrationSettings,
    ChoiceSettings,
    ContextSettings,
    EvaluationSettings,
    GateSettings,
    ModularizationSettings,
    RecoverySettings,
    ReliabilitySettings,
    RepairSettings,
    ScaleSettings,
    SparsitySettings,
)
from gprune.study.study import Study, field_names, from_dict, from_file, run_name, short
