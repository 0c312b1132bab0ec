"""Every result of a study, declared once: what it needs, its key, its words, how it is made.

    graph = Graph(study, inputs)
    results = Results(store, graph)
    for stage in results.course("masks"): ...                   # what a run goes through, in order
    results.get(drift), results.get(scores, "auxiliary")        # records, by the keys that follow

A stage is declared by a function of this package; what follows from the declarations is in `graph` (keys
and order), `course` (what a study wants) and `results` (what a store has of it). Importing it loads no torch:
what computes is imported when it computes.
"""

from gprune.pipeline.stages.calibration import (
    context_statistics,
    contexts,
    groups,
    held_out,
    norms,
    positions,
    sampled,
    shape,
    size,
    statistics,
    tokens,
)
from gprune.pipeline.stages.choices_made import carried_out, made, require_texts
from gprune.pipeline.stages.choosing import candidate, choice, chosen, described
from gprune.pipeline.stages.embedding import BEHAVIOUR, PARAMETERS, components, mapped_texts, neuron_map
from gprune.pipeline.stages.evaluation import (
    overlap,
    perplexity,
    recovered_perplexity,
    speed,
)
from gprune.pipeline.stages.graph import (
    KINDS,
    PAIR,
    Graph,
    Stage,
    StageId,
    every_need,
    needed,
)
from gprune.pipeline.stages.inputs import Inputs
from gprune.pipeline.stages.method_inputs import MethodInputs, given, recovery_label, standings, unequal
from gprune.pipeline.stages.other_repair import with_repair
from gprune.pipeline.stages.plan import UNTIL, course, every, measured, named, recovers
from gprune.pipeline.stages.pruned_models import (
    checkpoint,
    masks,
    pruned,
    pruned_model,
    recovered,
    recovered_from,
    scales,
)
from gprune.pipeline.stages.pruning import gates, learning, repaired, repairs
from gprune.pipeline.stages.rasa import adapted, agreement, agreements, modules, side, space
from gprune.pipeline.stages.results import Results
from gprune.pipeline.stages.run_context import RunContext
from gprune.pipeline.stages.scoring import clusters, drift, partition, scores
from gprune.pipeline.stages.stage_order import on_the_way, order, resolve, served
from gprune.pipeline.stages.zero_shot import accuracy, answers, questions
