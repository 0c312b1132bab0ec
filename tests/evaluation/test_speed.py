"""Speed: the arithmetic under a clock that is made up, the turns, and that the loop writes what it should."""

import itertools

import numpy as np
import pytest
import torch

from gprune.evaluation.decoding import EagerDecoding, StaticDecoding
from gprune.evaluation.speed import PRESETS, SpeedSettings, measure, preset, with_changes
from gprune.models.tiny import tiny_decoder
from gprune.pruning.surgery import cut
from gprune.records import PruningMasks
from gprune.system.errors import SettingsError

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


def given(**models):
    """Models that are there already, as the measurement asks for them."""
    return {name: lambda model=model: model for name, model in models.items()}


class Clock:
    """Gives out the seconds of each timed piece of work: two calls a piece."""

    def __init__(self, durations):
        ends = np.cumsum(durations)
        self.times = iter(np.stack([ends - durations, ends], axis=1).ravel())

    def __call__(self):
        return float(next(self.times))


def test_medians_ratios_and_spreads_are_those_of_the_clock():
    # prefill and decode of A, then of B, in each of three repetitions
    rounds = np.array([[1.0, 2.0, 0.5, 1.0], [2.0, 4.0, 0.5, 1.0], [4.0, 8.0, 4.0, 2.0]])
    rows = measure(given(A=dense(), B=pruned()), SETTINGS, clock=Clock(rounds.ravel()))
    assert [(row.model, row.phase, row.mode) for row in rows] == [
        (model, phase, "eager") for model in "AB" for phase in ("prefill", "decode", "whole")
    ]
    by_row = {(row.model, row.phase): row for row in rows}
    first = by_row["A", "prefill"]
    # 2 sequences of 5 tokens in 1, 2 and 4 s: 10, 5 and 2.5 tokens/s
    assert first.seconds == (1.0, 2.0, 4.0)
    assert first.tokens_per_second == pytest.approx(5.0)
    assert first.spread == pytest.approx(7.5 - 3.75)
    assert (first.ratio, first.ratio_spread) == (1.0, 0.0)
    decode = by_row["B", "decode"]
    # 2 sequences of 3 tokens after the first; ratios 2/1, 4/1 and 8/2
    assert decode.tokens_per_second == pytest.approx(6.0)
    assert decode.ratio == pytest.approx(4.0)
    assert decode.ratio_spread == pytest.approx(1.0)
    whole_model = by_row["B", "whole"]
    # 8 tokens in 1.5, 1.5 and 6 s; ratios 3/1.5, 6/1.5 and 12/6
    assert whole_model.seconds == (1.5, 1.5, 6.0)
    assert whole_model.tokens_per_second == pytest.approx(8 / 1.5)
    assert whole_model.ratio == pytest.approx(2.0)
    assert whole_model.ratio_spread == pytest.approx(1.0)


def generated(model, prompt, new_tokens):
    """The library's own greedy continuation."""
    model.generation_config.eos_token_id = None
    arguments = {"do_sample": False, "min_new_tokens": new_tokens, "max_new_tokens": new_tokens}
    answer = model.generate(prompt, attention_mask=torch.ones_like(prompt), **arguments)
    return answer[:, prompt.shape[1] :]


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
    prompt = torch.randint(64, (3, 11), generator=torch.Generator().manual_seed(3))
    expected = generated(model, prompt, 9)
    assert len({*expected.flatten().tolist()}) > 3
    with torch.inference_mode():
        for decoding in (EagerDecoding(model, prompt, 9), StaticDecoding(model, prompt, 9, capture=False)):
            # twice: the second continuation must not see the first
            for _ in range(2):
                decoding.prefill()
                decoding.decode()
                assert torch.equal(decoding.tokens(), expected)
                decoding.release()


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("prompt_length", [1, 8])
def test_static_buffers_with_every_attention_and_the_shortest_prompt(attention, prompt_length):
    model = pruned(kv_heads=2)
    model.set_attn_implementation(attention)
    prompt = torch.randint(64, (2, prompt_length), generator=torch.Generator().manual_seed(4))
    with torch.inference_mode():
        eager, static = EagerDecoding(model, prompt, 6), StaticDecoding(model, prompt, 6, capture=False)
        for decoding in (eager, static):
            decoding.prefill()
            decoding.decode()
    assert torch.equal(eager.tokens(), static.tokens())
    # 2, 1 and 2 groups; head width 2; room for the next multiple of 8 tokens
    room = -(-(prompt_length + 6) // 8) * 8
    assert static.cache_bytes() == static.static_bytes() == 2 * 2 * 5 * room * 2 * 4
    assert eager.static_bytes() == 0


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
        ({"repeats": 0}, "repeats must be at least 1"),
        ({"dtype": "int8"}, "dtype must be one of float32, bfloat16, float16"),
        ({"modes": ("graph",)}, "graph needs a CUDA device"),
        ({"modes": ()}, "modes must be one or more of eager, graph, compiled"),
    ],
)
def test_settings_out_of_range_are_named(changes, message):
    with pytest.raises(SettingsError, match=message):
        with_changes(SETTINGS, **changes)


def test_what_does_not_fit_is_named_and_other_failures_stay_what_they_are():
    with pytest.raises(SettingsError, match=r"510 \+ 4 = 514, but A reads at most 512"):
        measure(given(A=dense()), with_changes(SETTINGS, prompt=510))
    model = dense()
    model.lm_head.register_forward_pre_hook(lambda *_: (_ for _ in ()).throw(RuntimeError("a broken kernel")))
    with pytest.raises(RuntimeError, match="a broken kernel"):
        measure(given(A=model), SETTINGS)


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory"),
        MemoryError(),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"),
    ],
)
def test_too_little_memory_names_batch_and_prompt(error):
    model = dense()

    def fail(*_):
        raise error

    model.lm_head.register_forward_pre_hook(fail)
    with pytest.raises(SettingsError, match="A does not fit.* batch 2 and a prompt of 5 tokens"):
        measure(given(A=model), SETTINGS)


def test_presets():
    paper = preset("gpu")
    assert (paper.dtype, paper.batch, paper.prompt, paper.new_tokens, paper.repeats) == (
        "float16",
        8,
        2048,
        512,
        10,
    )
    assert paper.modes == ("eager", "graph")
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
    prompt = torch.randint(64, (3, 11), generator=torch.Generator().manual_seed(3)).cuda()
    expected = generated(model, prompt, 9)
    with torch.inference_mode():
        decoding = StaticDecoding(model, prompt, 9, capture=True)
        for _ in range(3):
            decoding.prefill()
            decoding.decode()
            assert torch.equal(decoding.tokens(), expected)
    settings = SpeedSettings(2, 5, 4, 2, "float32", "cuda")
    rows = measure(given(A=model), settings)
    assert [(row.phase, row.mode) for row in rows] == [
        ("prefill", "eager"),
        ("decode", "eager"),
        ("whole", "eager"),
        ("decode", "graph"),
        ("whole", "graph"),
    ]
    assert all(row.peak_bytes > 4 * row.parameters and row.memory == "allocated" for row in rows)


@pytest.mark.parametrize(("build", "kv_heads"), [(dense, 4), (pruned, 2)])
def test_a_compiled_step_writes_the_greedy_tokens(build, kv_heads, monkeypatch):
    """Traced as the compiler does; what its own backend makes of the trace takes a minute."""
    calls, compile_ = [], torch.compile

    def traced(model, **options):
        calls.append(options)
        return compile_(model, backend="eager", **options)

    monkeypatch.setattr(torch, "compile", traced)
    model = build(kv_heads=kv_heads)
    prompt = torch.randint(64, (3, 11), generator=torch.Generator().manual_seed(3))
    expected = generated(model, prompt, 9)
    with torch.inference_mode():
        decoding = StaticDecoding(model, prompt, 9, capture=False, compiled=True)
        for _ in range(2):
            decoding.prefill()
            decoding.decode()
            assert torch.equal(decoding.tokens(), expected)
    rows = measure(given(A=model), SpeedSettings(2, 5, 4, 1, "float32", "cpu", ("compiled",)))
    assert [(row.phase, row.mode) for row in rows][1:] == [("decode", "compiled"), ("whole", "compiled")]
    assert calls == [{"dynamic": False}] * 2


def test_where_nothing_can_be_compiled_the_mode_is_named(monkeypatch):
    def broken(*_, **__):
        raise RuntimeError("no compiler\nfound")

    monkeypatch.setattr(torch, "compile", lambda *_, **__: broken)
    settings = SpeedSettings(2, 5, 4, 1, "float32", "cpu", ("compiled",))
    with pytest.raises(SettingsError, match=r"compiled here \(no compiler\): leave out the mode compiled"):
        measure(given(A=dense()), settings)


def test_memory_on_a_cpu_is_weights_and_cache():
    model = pruned()
    rows = measure(given(small=model), SETTINGS)
    # 3 layers of 4, 1 and 4 groups; head width 2; keys and values of 5 + 3 tokens, 2 sequences, 4 bytes
    cache = 2 * 2 * (4 + 1 + 4) * 8 * 2 * 4
    numbers = sum(p.numel() for p in model.parameters()) + sum(b.numel() for b in model.buffers())
    assert {row.peak_bytes for row in rows} == {4 * numbers + cache}
    assert {row.memory for row in rows} == {"weights and cache"}
    assert {row.parameters for row in rows} == {sum(p.numel() for p in model.parameters())}
