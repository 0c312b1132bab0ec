"""Every result of a study, declared once: what it needs, its key, its words, how it is made.

    graph = Graph(study, inputs)
    results = Results(store, graph)
    for stage in course(graph, "masks", results.holds): ...     # what a run goes through, in order
    results.get(drift), results.get(scores, "auxiliary")        # records, by the keys that follow

A stage is declared by a function of this package; what follows from the declarations is in `graph` (keys
and order), `course` (what a study wants) and `results` (what a store has of it). Importing it loads no torch:
what computes is imported when it computes.
"""

from gprune.stages.adapting import adapted, agreement, agreements, modules, side
from gprune.stages.answering import accuracy, answers, questions
from gprune.stages.course import UNTIL, course, every, measured, named
from gprune.stages.exploring import clusters, drift, partition, scores
from gprune.stages.given import Given, given, standings, unequal
from gprune.stages.graph import KINDS, PAIR, Graph, Stage, StageId, needed, on_the_way, order, resolve, served
from gprune.stages.inputs import Inputs
from gprune.stages.mapping import BEHAVIOUR, PARAMETERS, components, mapped_texts, neuron_map
from gprune.stages.measuring import edited_perplexity, overlap, perplexity, speed
from gprune.stages.pruning import checkpoint, learning, masks, pruned
from gprune.stages.reading import (
    context_statistics,
    contexts,
    groups,
    norms,
    positions,
    sampled,
    shape,
    size,
    statistics,
    tokens,
)
from gprune.stages.results import Results
from gprune.stages.spaces import space
from gprune.stages.work import Work
