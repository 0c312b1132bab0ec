"""Speed: the arithmetic under a fake clock, turns, memory, errors, and the tokens that decoding writes."""

import itertools
import weakref

import numpy as np
import pytest
import torch

from gprune.evaluation.decoding import EagerDecoding, StaticDecoding
from gprune.evaluation.speed import PRESETS, SpeedSettings, measure, preset, with_changes
from gprune.models.tiny import tiny_decoder
from gprune.pruning.surgery import cut
from gprune.records import PruningMasks
from gprune.system.errors import ModelError, SettingsError

SETTINGS = SpeedSettings(2, 5, 4, 3, "float32", "cpu", ("eager",))


def pruned(family="llama", kv_heads=4, seed=1, **arguments):
    """A model whose layers keep different numbers of neurons and groups."""
    decoder = tiny_decoder(family, layers=3, kv_heads=kv_heads, neurons=13, seed=seed, **arguments)
    ffn, heads = np.ones((3, 13), bool), np.ones((3, kv_heads), bool)
    ffn[0, 5:], ffn[2, 1:] = False, False
    heads[1, 1:] = False
    return cut(decoder, PruningMasks("hand", ffn, heads, 0.5, 0.5))


def dense(family="llama", **arguments):
    return tiny_decoder(family, layers=3, **arguments).model


def loaders(**models):
    """Functions that return these models, by name."""
    return {name: lambda model=model: model for name, model in models.items()}


WARM_UP = [9.0, 9.0, 9.0, 9.0]
"""seconds that no figure contains"""


class Clock:
    """Return start and end of each of some pieces of work with these durations."""

    def __init__(self, durations):
        ends = np.cumsum(durations)
        self.times = iter(np.stack([ends - durations, ends], axis=1).ravel())

    def __call__(self):
        return float(next(self.times))


def test_medians_ratios_and_spreads_are_those_of_the_clock():
    """Ratios are relative to the first model in the same repetitions, and the first reports those of all its turns."""
    # prefill and decode of A, then of the other; the machine is slower when C's turn comes
    rounds = np.array([WARM_UP, [1.0, 2.0, 0.5, 1.0], [2.0, 4.0, 0.5, 1.0], [4.0, 8.0, 4.0, 2.0]])
    rounds = np.concatenate([rounds, [WARM_UP, *[[3.0, 12.0, 1.0, 3.0]] * 3]])
    models = loaders(A=dense(), B=pruned(), C=pruned(seed=2))
    rows = measure(models, SETTINGS, clock=Clock(rounds.ravel()))
    phases = ("prefill", "decode", "whole")
    assert [(row.model, row.phase, row.mode) for row in rows] == [
        (x, phase, "eager") for x in "ABC" for phase in phases
    ]
    by_row = {(row.model, row.phase): row for row in rows}
    first = by_row["A", "prefill"]
    # 2 sequences of 5 tokens: 10, 5, 2.5 and three times 10 / 3 tokens/s
    assert first.seconds == (1.0, 2.0, 4.0, 3.0, 3.0, 3.0) and first.tokens_per_second == pytest.approx(10 / 3)
    assert first.spread == pytest.approx(1.25) and (first.ratio, first.ratio_spread) == (1.0, 0.0)
    decode, both_phases = by_row["B", "decode"], by_row["B", "whole"]
    # 2 sequences of 3 tokens after the first; ratios 2/1, 4/1 and 8/2
    assert decode.tokens_per_second == pytest.approx(6.0)
    assert (decode.ratio, decode.ratio_spread) == (pytest.approx(4.0), pytest.approx(1.0))
    # 8 tokens in 1.5, 1.5 and 6 s; ratios 3/1.5, 6/1.5 and 12/6
    assert both_phases.seconds == (1.5, 1.5, 6.0) and both_phases.tokens_per_second == pytest.approx(8 / 1.5)
    assert (both_phases.ratio, both_phases.ratio_spread) == (pytest.approx(2.0), pytest.approx(1.0))
    assert by_row["C", "decode"].seconds == (3.0, 3.0, 3.0) and by_row["C", "decode"].ratio == pytest.approx(4)
    assert by_row["C", "prefill"].ratio == pytest.approx(3) and by_row["C", "prefill"].ratio_spread == 0


def generated(model, prompt, new_tokens):
    """The library's own greedy continuation."""
    model.generation_config.eos_token_id = None
    arguments = {"do_sample": False, "min_new_tokens": new_tokens, "max_new_tokens": new_tokens}
    answer = model.generate(prompt, attention_mask=torch.ones_like(prompt), **arguments)
    return answer[:, prompt.shape[1] :]


def a_prompt(batch=3, length=11):
    return torch.randint(64, (batch, length), generator=torch.Generator().manual_seed(3))


def decoded(decoding):
    with torch.inference_mode():
        decoding.prefill()
        decoding.decode()
        tokens = decoding.tokens()
        decoding.release()
    return tokens


MODELS = [
    *itertools.product([dense, pruned], ["llama", "mistral", "qwen2", "qwen3"], [4]),
    (dense, "llama", 2),
    (pruned, "llama", 2),
    (dense, "qwen3", 1),
    (pruned, "qwen2", 2),
]


@pytest.mark.parametrize(("build", "family", "kv_heads"), MODELS)
def test_both_ways_write_the_greedy_tokens(build, family, kv_heads):
    model = build(family, kv_heads=kv_heads)
    expected = generated(model, a_prompt(), 9)
    assert len({*expected.flatten().tolist()}) > 3
    # twice: the second continuation must not see the first
    for decoding in (EagerDecoding(model, a_prompt(), 9), StaticDecoding(model, a_prompt(), 9, capture=False)) * 2:
        assert torch.equal(decoded(decoding), expected)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("prompt_length", [1, 8])
def test_static_buffers_with_every_attention_and_the_shortest_prompt(attention, prompt_length):
    model = pruned(kv_heads=2)
    model.set_attn_implementation(attention)
    prompt = a_prompt(2, prompt_length)
    eager, static = EagerDecoding(model, prompt, 6), StaticDecoding(model, prompt, 6, capture=False)
    assert torch.equal(decoded(eager), decoded(static))
    # 2, 1 and 2 groups; head width 2; room for the next multiple of 8 tokens
    room = -(-(prompt_length + 6) // 8) * 8
    assert static.cache_bytes() == 2 * 2 * 5 * room * 2 * 4 and eager.cache_bytes() == 0


def test_static_buffers_refuse_a_sliding_window():
    model = dense("mistral")
    model.config.sliding_window = 10
    with pytest.raises(SettingsError, match="last 10 tokens only, and prompt and new tokens are 12"):
        StaticDecoding(model, torch.zeros((1, 8), dtype=torch.long), 4, capture=False)
    StaticDecoding(model, torch.zeros((1, 8), dtype=torch.long), 2, capture=False)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"batch": 0}, "batch must be at least 1"),
        ({"new_tokens": 1}, "new_tokens must be at least 2"),
        ({"dtype": "int8"}, "dtype must be one of float32, bfloat16, float16"),
        ({"modes": ("graph",)}, "graph needs a CUDA device"),
        ({"modes": ()}, "modes must be one or more of eager, graph, compiled"),
    ],
)
def test_settings_out_of_range_are_named(changes, message):
    with pytest.raises(SettingsError, match=message):
        with_changes(SETTINGS, **changes)


def test_text_longer_than_the_model_reads_is_refused():
    with pytest.raises(SettingsError, match=r"510 \+ 4 = 514, but A reads at most 512"):
        measure(loaders(A=dense()), with_changes(SETTINGS, prompt=510))


OUT_OF_MEMORY = [
    torch.OutOfMemoryError("CUDA out of memory"),
    MemoryError(),
    RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"),
]


def raise_error(error):
    raise error


@pytest.mark.parametrize("error", OUT_OF_MEMORY)
def test_too_little_memory_names_batch_and_prompt(error):
    message = "^A does not fit in the memory of cpu with batch 2 and a prompt of 5 tokens"
    with pytest.raises(SettingsError, match=message):
        measure({"A": lambda: raise_error(error)}, SETTINGS)
    model = dense()
    model.lm_head.register_forward_pre_hook(lambda *_: raise_error(error))
    with pytest.raises(SettingsError, match=message):
        measure(loaders(A=model), SETTINGS)
    with pytest.raises(SettingsError, match="A does not fit .* in addition to the reference model .* batch 2"):
        measure(loaders(B=pruned(), A=model), SETTINGS)


def test_other_errors_are_raised_as_they_are():
    with pytest.raises(ModelError, match="no model C: name another"):
        measure(loaders(A=dense()) | {"C": lambda: raise_error(ModelError("no model C: name another"))}, SETTINGS)
    model = dense()
    model.lm_head.register_forward_pre_hook(lambda *_: raise_error(RuntimeError("a broken kernel")))
    with pytest.raises(RuntimeError, match="a broken kernel"):
        measure(loaders(A=model), SETTINGS)


def test_presets():
    paper = preset("gpu")
    assert paper == SpeedSettings(8, 2048, 512, 10, "float16", "cuda", ("eager", "graph"))
    assert preset("auto") == PRESETS["gpu" if torch.cuda.is_available() else "cpu"]
    assert with_changes(paper, device="cpu", batch=None).modes == ("eager",)
    assert "float16 on cuda, batch 8, prompt 2048, 512 new tokens" in paper.describe()
    with pytest.raises(SettingsError, match="preset must be one of auto, gpu, cpu"):
        preset("tpu")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize(("build", "kv_heads"), [(dense, 4), (pruned, 4), (pruned, 2)])
def test_a_captured_graph_writes_the_greedy_tokens(build, kv_heads):
    model = build(kv_heads=kv_heads).cuda()
    prompt = a_prompt().cuda()
    expected, decoding = generated(model, prompt, 9), StaticDecoding(model, prompt, 9, capture=True)
    for _ in range(3):
        assert torch.equal(decoded(decoding), expected)
    rows = measure(loaders(A=model), SpeedSettings(2, 5, 4, 2, "float32", "cuda"))
    modes = [(phase, mode) for mode in ("eager", "graph") for phase in ("decode", "whole")]
    assert [(row.phase, row.mode) for row in rows] == [("prefill", "eager"), *modes]
    assert all(row.peak_bytes > 4 * row.parameters and row.memory == "allocated" for row in rows)


@pytest.mark.long
@pytest.mark.parametrize(("build", "kv_heads"), [(dense, 4), (pruned, 2)])
def test_a_compiled_step_writes_the_greedy_tokens(build, kv_heads, monkeypatch):
    """Traced as the compiler does; what its own backend makes of the trace takes a minute."""
    calls, compile_ = [], torch.compile

    def traced(model, **options):
        calls.append(options)
        return compile_(model, backend="eager", **options)

    monkeypatch.setattr(torch, "compile", traced)
    model = build(kv_heads=kv_heads)
    expected = generated(model, a_prompt(), 9)
    decoding = StaticDecoding(model, a_prompt(), 9, capture=False, compiled=True)
    for _ in range(2):
        assert torch.equal(decoded(decoding), expected)
    rows = measure(loaders(A=model), SpeedSettings(2, 5, 4, 1, "float32", "cpu", ("compiled",)))
    assert [(row.phase, row.mode) for row in rows][1:] == [("decode", "compiled"), ("whole", "compiled")]
    assert calls == [{"dynamic": False}] * 2


def test_where_nothing_can_be_compiled_the_mode_is_named(monkeypatch):
    def broken(*_, **__):
        raise RuntimeError("no compiler\nfound")

    monkeypatch.setattr(torch, "compile", lambda *_, **__: broken)
    settings = SpeedSettings(2, 5, 4, 1, "float32", "cpu", ("compiled",))
    with pytest.raises(SettingsError, match=r"compiled here \(no compiler\): leave out the mode compiled"):
        measure(loaders(A=dense()), settings)


def test_memory_on_a_cpu_is_weights_and_cache():
    model = pruned()
    rows = measure(loaders(small=model), SETTINGS)
    # 3 layers of 4, 1 and 4 groups; head width 2; keys and values of 5 + 3 tokens, 2 sequences, 4 bytes
    cache = 2 * 2 * (4 + 1 + 4) * 8 * 2 * 4
    numbers = sum(p.numel() for p in model.parameters()) + sum(b.numel() for b in model.buffers())
    assert {row.peak_bytes for row in rows} == {4 * numbers + cache}
    assert {row.memory for row in rows} == {"weights and cache"}
    assert {row.parameters for row in rows} == {sum(p.numel() for p in model.parameters())}


def test_each_model_takes_turns_with_the_first_after_one_warm_up_each():
    turns = []
    measure(
        loaders(A=dense(), B=dense(), C=dense()), with_changes(SETTINGS, repeats=2), lambda *event: turns.append(event)
    )
    loading = [event for event in turns if event[2].startswith("loading")]
    assert loading == [(0, 12, "loading: A"), (0, 12, "loading: B"), (6, 12, "loading: C")]
    turns = [event for event in turns if event not in loading]
    assert [message.split(": ")[1][0] for _, _, message in turns] == list("ABABABACACAC")
    assert [message.split(":")[0] for _, _, message in turns] == (
        (["warm-up"] * 2 + ["repetition 1"] * 2 + ["repetition 2"] * 2) * 2
    )
    assert [(done, total) for done, total, _ in turns] == [(number, 12) for number in range(1, 13)]


def test_never_more_than_two_models_are_alive():
    alive, before_loading, while_running = weakref.WeakSet(), [], []

    def load():
        before_loading.append(len(alive))
        model = pruned()
        alive.add(model)
        return model

    rows = measure(dict.fromkeys("ABCD", load), SETTINGS, lambda *_: while_running.append(len(alive)))
    assert before_loading == [0, 1, 1, 1] and max(while_running) == 2 and len(alive) == 0
    assert [row.model for row in rows[::3]] == list("ABCD")
