"""The contract of plug-ins finds every planted mistake, and says what is wrong; ours hold it."""

from dataclasses import replace

import numpy as np
import pytest

from gprune.plugins import Facts, Kept, Method, Metric, testing
from gprune.plugins.calls import MetricScorer
from gprune.plugins.registry import describe
from gprune.plugins.testing import ContractError, check_method, check_metric
from gprune.pruning import scoring
from gprune.pruning.allocation import uniform
from gprune.pruning.scoring import neuron_scorer
from gprune.study import CalibrationSettings


def flap_score(measured):
    return measured.variance * measured.column_square


def wanda_score(measured):
    return measured.column_absolute * np.sqrt(measured.energy / measured.samples)


FLAP = Metric(
    label="FLAP", neurons=flap_score, groups=lambda measured: measured.grouped(flap_score(measured) ** 2).mean(axis=1)
)
WANDA = Metric(
    label="Wanda-sp",
    neurons=wanda_score,
    groups=lambda measured: measured.grouped(wanda_score(measured)).sum(axis=1),
    allocation="uniform",
)


@pytest.mark.parametrize(("name", "metric"), [("flap", FLAP), ("wanda_sp", WANDA)])
def test_built_in_metrics_declared_as_a_plug_in_score_as_they_do(name, metric):
    check_metric(metric)
    shape = testing.SHAPES["grouped-query attention and odd widths"]
    statistics, norms = testing.sample_text(shape).statistics(testing.SHARDS), testing.sample_weights(shape).norms()
    scorer = MetricScorer(describe(metric, "own", "ours", "0"), metric, statistics, norms, shape)
    for shards in (None, [0, 2]):
        actual = scoring.score(name, statistics, norms, shape, CalibrationSettings(shards=4), shards)
        result = scorer.units(shards)
        np.testing.assert_allclose(result.ffn, actual.ffn, rtol=1e-12)
        np.testing.assert_allclose(result.heads, actual.heads, rtol=1e-12)
        # groups of whole scores, where ours has channels: the decision at one ratio is the same
        masks = [uniform.allocate(item, shape, 0.6) for item in (result, actual)]
        assert masks[0].ffn.tobytes() == masks[1].ffn.tobytes()
        assert masks[0].heads.tobytes() == masks[1].heads.tobytes()
    built_in_scores = neuron_scorer(name, statistics, norms)([1, 3])
    np.testing.assert_allclose(scorer.neurons([1, 3]), built_in_scores, rtol=1e-12)


# ---- planted mistakes: each is found, and the sentence says what is wrong ----------------------------------

calls = []


def counting(measured):
    calls.append(measured.layer)
    return flap_score(measured) + len(calls)


def infinite(measured):
    result = flap_score(measured)
    result[3] = np.nan
    return result


def narrow(measured):
    with np.errstate(over="ignore"):
        return (measured.energy / measured.tokens).astype(np.float16)


def strided(measured):
    """Takes every so many channels as a group, which is right for one channel a head alone."""
    return flap_score(measured).reshape(-1, measured.shape.kv_heads).sum(axis=0)


def by_heads(measured):
    """A score for each query head, right without grouped-query attention."""
    return flap_score(measured).reshape(measured.shape.heads, -1).sum(axis=1)


def square_in_float16(weights):
    return Facts(neurons={"a": (weights.gate.astype(np.float16) ** 2).sum(axis=1, dtype=np.float16)})


METRICS = {
    "too short": ("neurons", lambda m: flap_score(m)[1:], r"must have shape \(96,\) \(got \(95,\)\)"),
    "negative": ("neurons", lambda m: -flap_score(m), "must be 0 or more, higher is more important"),
    "not finite": ("neurons", infinite, "must be finite: 1 of 96 are not, the first at 3 is nan"),
    "float16 overflow": (
        "neurons",
        narrow,
        "largest and smallest activations and weights of float16.*must be finite.*is inf",
    ),
    "a memory": ("neurons", counting, "returns different scores for the same input"),
    "random": (
        "neurons",
        lambda m: flap_score(m) * np.random.random(96),
        "different scores for the same input.*no random numbers",
    ),
    "by position": ("neurons", lambda m: flap_score(m) * np.arange(1, 97), "not depend on the position of a neuron"),
    "all equal": ("neurons", lambda m: np.ones(len(m.mean)), "all neurons of layer 0 have the same score"),
    "an exception": ("neurons", lambda m: m.no_such_field, "failed in neurons .AttributeError"),
    "interleaved groups": ("groups", strided, r"side by side, make a group \(Measured.grouped\)"),
    "query heads": ("groups", by_heads, r"grouped-query.*groups in layer 0 must have shape \(3,\) \(got \(6,\)\)"),
    "no facts": ("weigh", lambda weights: None, "failed in weigh .AttributeError"),
    "a matrix": ("weigh", lambda w: Facts(neurons={"a": w.gate}), r"neurons\['a'\] must have shape \(96,\)"),
    "float16 facts": ("weigh", square_in_float16, "of float16.*must be finite"),
    "some layers": ("weigh", lambda w: Facts(neurons={f"a{w.layer}": w.gate[:, 0]}), "failed in weigh .KeyError"),
}


@pytest.mark.parametrize("mistake", METRICS)
@pytest.mark.filterwarnings("ignore:overflow")
def test_a_mistake_in_a_metric_is_found(mistake):
    calls.clear()
    field, function, words = METRICS[mistake]
    with pytest.raises(ContractError, match=words):
        check_metric(replace(FLAP, **{field: function}))


# ---- methods -----------------------------------------------------------------------------------------------


def even(problem):
    masks = uniform.allocate(problem.scores[0], problem.shape, problem.retention)
    return Kept(masks.ffn, masks.heads)


def first(problem):
    """The first neurons, whatever their scores."""
    ranked = replace(problem.scores[0], ffn=-np.tile(np.arange(problem.shape.neurons), (problem.shape.layers, 1)))
    return even(replace(problem, scores=(ranked,)))


def random_scores(problem, generator=None):
    generator = generator or np.random.default_rng(problem.seed)
    values = generator.random(problem.scores[0].ffn.shape)
    return even(replace(problem, scores=(replace(problem.scores[0], ffn=values),)))


def emptied(problem):
    masks = even(problem)
    neurons = masks.neurons.copy()
    neurons[0] = False
    return Kept(neurons, masks.groups)


EVEN = Method(label="even", decide=even)
DECISIONS = {
    "a pair": (lambda p: (even(p).neurons, even(p).groups), "failed in decide .AttributeError"),
    "numbers": (lambda p: Kept(even(p).neurons * 1.0, even(p).groups), "must be bool of shape .*got float64"),
    "one layer": (lambda p: Kept(even(p).neurons[0], even(p).groups), r"must be bool of shape \(4, 96\)"),
    "a layer without": (emptied, "Kept.neurons keeps nothing in layer 0"),
    "everything": (lambda p: Kept(even(p).neurons | True, even(p).groups), "instead of.*compared at the same size"),
    "by place": (first, "must not depend on the position of a neuron, unless the method draws"),
    "unseeded": (lambda p: random_scores(p, np.random.default_rng()), "decides differently.*problem.seed"),
    "raises": (lambda p: p.model.config, "failed in decide .AttributeError"),
}


@pytest.mark.parametrize("mistake", DECISIONS)
def test_a_mistake_in_a_decision_is_found(mistake):
    function, sentence = DECISIONS[mistake]
    with pytest.raises(ContractError, match=sentence):
        check_method(replace(EVEN, decide=function))


def by_weights(problem):
    """Decides from the model: neurons by their rows, at one ratio in every layer."""
    layers = problem.model.model.layers
    rows = [layer.mlp.gate_proj.weight.float().norm(dim=1).numpy().astype(float) for layer in layers]
    shape = problem.shape
    scored = replace(testing.sample_scores(shape), ffn=np.stack(rows), heads=np.ones((shape.layers, shape.kv_heads)))
    return even(replace(problem, scores=(scored,)))


def test_what_would_be_left_out_when_it_is_installed_does_not_hold_the_contract():
    for changed, words in (({"label": "<b>"}, "label must be"), ({"allocation": "best"}, "allocation must be")):
        with pytest.raises(ContractError, match=f"the declaration of the metric: .*{words}"):
            check_metric(replace(FLAP, **changed))
    with pytest.raises(ContractError, match="the declaration of the method: .*needs must be"):
        check_method(Method(label="even", decide=even, needs="all"))


def test_methods_that_rank_or_draw_hold_the_contract_and_a_method_with_the_model_holds_the_contract():
    check_method(EVEN)
    check_method(replace(EVEN, texts="both"))
    check_method(replace(EVEN, decide=random_scores), draws=True)
    check_method(Method(label="by weights", decide=by_weights, needs="model"))
