"""Declarations of every result of a study: its needs, its key, its title, and the function that computes it.

    graph = Graph(study, inputs)
    results = Results(store, graph)
    for stage in results.plan("masks"): ...                   # the stages of a run, in order
    results.get(drift), results.get(scores, "auxiliary")        # records, read by their keys

A function of this package declares each stage. `graph` derives keys and order from the declarations, and `results`
selects the results that a study needs or a store has. The package imports torch only when a stage is computed.
"""

from gprune.pipeline.stages.calibration import (
    components,
    contexts,
    groups,
    held_out,
    mapped_texts,
    neuron_map,
    norms,
    positions,
    sampled_text,
    shape,
    size,
    statistics,
    tokens,
)
from gprune.pipeline.stages.evaluation import accuracy, answers, perplexity, questions, recovered_perplexity, speed
from gprune.pipeline.stages.experts import (
    adapted_experts,
    criteria_of,
    drifts_of_experts,
    expert_masks,
    expert_rank_drift,
    expert_scores,
    expert_shape,
    expert_statistics,
    router_weights,
)
from gprune.pipeline.stages.graph import KINDS, PAIR, Graph, Stage, StageId, every_need, order, required_stages, resolve
from gprune.pipeline.stages.inputs import Inputs
from gprune.pipeline.stages.pruned_models import (
    candidate,
    checkpoint,
    choice,
    describe_candidate,
    masks,
    model_inputs,
    recovered_weights,
    scales,
    with_repair,
)
from gprune.pipeline.stages.pruning import gates, learning, repaired_weights, repairs
from gprune.pipeline.stages.rasa import adapted_scores, agreements, compared_partition, modules, space
from gprune.pipeline.stages.results import (
    UNTIL,
    MethodInputs,
    Results,
    all_stages,
    applied_repairs,
    essential_stages,
    execution_plan,
    exported_methods,
    find_choice,
    holdout_statuses,
    main_drift,
    method_inputs,
    recovers,
    recovery_label,
    stages_by_name,
)
from gprune.pipeline.stages.run_context import RunContext
from gprune.pipeline.stages.scoring import drift, is_plugin_score, partition, scores
