"""Every word that the pages use, in one or two plain sentences."""

from gprune.records.repairs import AUTO, REPAIRS

TERMS: dict[str, str] = {
    "A, B, C": "The calibration texts of a run: A is the primary one, B the auxiliary one that GPrune reads "
    "as well, and C, if there is one, replaces A or B to see whether the modules are stable.",
    "Accuracy": "Share of multiple-choice questions that a model answers right without having been trained "
    "on them (zero-shot). Some tasks also divide by the length of the answers: acc_norm.",
    "ARI": "Adjusted Rand index of two groupings: 1 where they are identical, 0 where they agree no more "
    "than by chance.",
    "Baseline": "The method that every other one of a table is compared with; any row can be it. Also a "
    "method that others have published, which GPrune is compared with.",
    "AUC": "Area under the ROC curve: how well a quantity tells kept neurons from removed ones; 1 is without "
    "a fault, 0.5 is chance.",
    "BCM": "Behavior-consistent modularization: neurons with similar weights and similar drift become a "
    "module.",
    **{repair.label.capitalize(): repair.about for repair in (*REPAIRS.values(), AUTO)},
    "Recommended recipe": "Masks and repair that do best together on held-out text, among those of a few "
    "methods; what was tried stands on the page Compare.",
    "Budget": "The share of the decoder layers’ linear weights that a method may keep; embeddings, norms, "
    "biases and the output layer do not count.",
    "Calibration": "Running text through the model to measure how active its neurons are. Nothing is "
    "trained.",
    "Changed answers": "Questions that the dense model answers right and a pruned one wrong, or the other "
    "way round.",
    "Control": "A way of pruning that lacks a part of GPrune, or all of its learning, and is otherwise the "
    "same. Where one does as well, that part brings nothing here.",
    "Context": "One of seven clusters of the tokens that a layer sees; token-weighted FLAP and FANG use "
    "them.",
    "Context length": "How many tokens a model can read at once. A longer text is read so far.",
    "Dense": "The model before pruning.",
    "Drift d": "How far the rank of a neuron within its layer moves when the text changes: 0 not at all, 1 "
    "from the first place to the last.",
    "Epoch": "One pass of sparsity learning over its windows of both texts; more of them move the thresholds "
    "further.",
    "FANG": "A method that groups neurons by the contexts they serve, measured on one text.",
    "FLAP": "A metric, and the method that prunes by it: how much a neuron’s activation fluctuates, times "
    "the size of its outgoing weights.",
    "Gates": "A value for each neuron and key/value group, learned on both texts: the highest are kept until "
    "the budget is spent. GPrune’s learning without modules.",
    "Head, key/value group": "Parts of the attention that are removed as a whole. They are not sorted into "
    "modules.",
    "Held-out": "Text that took no part in calibrating or learning.",
    "Jaccard": "Of the neurons that either of two methods keeps, the share that both keep. It is to be read "
    "against the value that two independent choices of the same size would have.",
    "Live evaluation": "Perplexity that a worker measures while you change thresholds or masks; it is "
    "refined window by window, and nothing of it is learned anew.",
    "Layer": "One block of the decoder: attention and a feed-forward part. Layers are counted from 0.",
    "LLM-Pruner": "A method that scores by gradients, here without the fine-tuning that may follow it.",
    "Matched overlap": "Share of neurons that stay together when the modules of two groupings are paired as "
    "well as possible.",
    "Mask": "Which neurons and heads a method keeps.",
    "Mask set": "Units that are to be kept or removed whatever a method says, saved under a name in the mask "
    "editor: the budget stays that of the method.",
    "Metric": "The formula that gives each unit its score, as FLAP or Wanda-sp.",
    "Module": "A group of neurons of one layer that are ranked only against each other.",
    "MSL": "Modular sparsity learning: learns how much each module keeps, under one budget for the whole "
    "model.",
    "Nats/token": "The unit of a loss: the mean of −ln p over the tokens of a text, p being what the model "
    "gave the token that came. Perplexity is e to that power; +0.01 is a perplexity that is 1 % higher.",
    "Neuron": "One unit of a feed-forward layer: a row of the gate and up matrices and a column of the down "
    "matrix.",
    "OSSCAR": "A method that removes, layer after layer, the units whose part the others can take over best, "
    "and refits the others by least squares; measured on one text.",
    "Overlap": "Share of an evaluated text’s runs of a dozen or more tokens that stand word for word in the "
    "calibration set of A, or of B.",
    "Pack": "A run as one file, which another cache takes in; models and texts stay behind unless they are "
    "asked for.",
    "Paired": "A difference that is taken window by window between two models, which removes what the "
    "windows have in common. Its error is smaller than that of either model.",
    "PCA": "Principal component analysis: the plane in which points spread most. Its axes are directions, "
    "and distances in it mean something.",
    "Perplexity": "How much a model is surprised by a text: at 40 it is as unsure of the next token as if it "
    "had to choose among 40 equally likely ones. Lower is better.",
    "Rank": "Place of a neuron when the neurons of its layer are ordered by importance; here from 0 (least) "
    "to 1 (most important).",
    "Rank correlation": "Spearman’s ρ of the ranks on two texts: 1 where the order is the same, 0 where the "
    "two have nothing to do with each other.",
    "RASA": "Reliability-aware score adaptation: modules that drift much and score low take their scores "
    "from the text on which their own ranking repeats better.",
    "Recovery": "Training that follows pruning and repair: a small change of every linear map learns to say "
    "what the dense model says, and is merged into the weights. Its figures stand apart.",
    "Repeatability u": "How much the ranking within a module changes between halves of one text; smaller is "
    "more repeatable.",
    "Re-sampling floor": "The drift between two halves of one text. It is what noise alone does, so only "
    "drift above it says something about the text.",
    "Re-scored": "A module that RASA adapts and for which B is the more repeatable text takes its scores "
    "from B. All others are unchanged.",
    "Retention": "Share that is kept: of the weights, or of the neurons of a module.",
    "Score": "How important a unit is by a metric, measured on a text. Ranks are made of scores.",
    "Seed": "The number that all chance of a run follows from: which windows are drawn, how modules begin. "
    "The same seed gives the same run; several say how far chance moves a figure.",
    "Sequence": "A stretch of a calibration text that the model reads at once.",
    "SlimLLM": "A method that keeps the neurons that act on the principal directions of a layer’s output, "
    "prunes most the layers that change their input least, and rescales what is left; measured on one text.",
    "Standard error": "How far a figure would typically be off if other windows of the same text had been "
    "read. The 95 % interval is about two of them to each side, more with "
    "few windows; a difference whose interval holds 0 is too close to call.",
    "Threshold": "The score at which a module is cut: MSL learns one for each. Those of RASA are γ_drift and "
    "γ_score.",
    "Token": "A word or a part of one, as the model reads it.",
    "Top-activating examples": "The places of a calibration text where the input of down_proj of a neuron is "
    "largest, with the words around them.",
    "twFLAP": "Token-weighted FLAP, FANG’s metric, reconstructed from its description.",
    "UMAP": "A plane in which neurons that are alike in many measurements lie together. Its axes, and wide "
    "distances in it, mean nothing.",
    "Unseen": "An evaluation text of another corpus than A and B, with next to no overlap with their "
    "calibration sets. Another split of their corpora is not unseen, nor is a copy under another name.",
    "Wanda-sp": "A metric, and the method that prunes by it: the size of the weights times that of the "
    "activation.",
    "Window": "A stretch of tokens that perplexity is measured on; windows of different length are not "
    "comparable.",
    "γ_drift, γ_score": "The two thresholds of RASA, as quantiles over all modules: at or above the one a "
    "module drifts much, at or below the other it scores low.",
}
_ALIASES = {
    "A, B, C": ("calibration text",),
    "Drift d": ("drift",),
    "Nats/token": ("nats/token", "nats"),
    "Repeatability u": ("repeatability",),
    "AUC": ("AUC", "ROC"),
}


def aliases(term: str) -> tuple[str, ...]:
    """What a word of the glossary is called in a sentence, the shortest way to find it first."""
    return _ALIASES.get(term) or tuple(term.split(", "))


def search(wanted: str) -> list[str]:
    """The words of the glossary that a search finds.

    One word, or a part of it, finds what it stands in, what is called by it first; several, with commas
    between them, find what is called so, in their order.
    """
    asked = [one.strip().lower() for one in wanted.split(",") if one.strip()]
    if len(asked) > 1:
        named = {alias.lower(): term for term in TERMS for alias in (term, *aliases(term))}
        return list(dict.fromkeys(named[one] for one in asked if one in named))
    part = asked[0] if asked else ""
    hits = [term for term, meaning in TERMS.items() if part in f"{term} {meaning}".lower()]
    return sorted(hits, key=lambda term: part not in term.lower())
