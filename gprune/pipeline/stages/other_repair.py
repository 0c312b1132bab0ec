"""The stages of a study whose kept weights are repaired in another way, from what it has read already."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gprune.pipeline.stages.graph import Graph
from gprune.pipeline.stages.inputs import CHECK, FRESH, SAMPLED, content_of, roles


def with_repair(graph: Graph, settings: Mapping[str, Any]) -> Graph:
    """The same stages under other fields of `repair`, by name; only what is repaired gets other keys.

    It replaces what learned methods add to biases by themselves. Raises SettingsError where there is no such
    repair.
    """
    changes = {f"repair.{name}": value for name, value in settings.items()}
    study = graph.study.with_settings(changes | {"sparsity.bias_compensation": False})
    inputs, read = graph.inputs, roles(study)
    digests = {
        role: content_of(study, inputs.model, inputs.precision, read[role], role)
        for role in (SAMPLED, FRESH, CHECK)
        # a check text is what it was
        if role in read and not (role == CHECK and role in inputs.calibration)
    }
    inputs = replace(inputs, calibration=inputs.calibration | digests)
    return Graph(study, inputs, graph.letters)
