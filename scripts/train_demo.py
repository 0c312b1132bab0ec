"""Train a demo model of GPrune Studio.

It is a small LLaMA with a byte-level BPE tokenizer, or a small mixture of experts with the tokenizer of that LLaMA. It
is trained from scratch on the texts of ``gprune.data.demo.texts`` within a number of minutes, and saved as a model
folder.

Usage: OMP_NUM_THREADS=1 python scripts/train_demo.py --minutes 58 --threads 1
       OMP_NUM_THREADS=1 python scripts/train_demo.py --experts --minutes 6 --threads 1
"""

import argparse
import json
import logging
import math
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)
from transformers.models.qwen3_moe.modeling_qwen3_moe import load_balancing_loss_func

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from gprune.data.demo import EXPERTS_FOLDER, MODEL_FOLDER, texts  # noqa: E402

LOG = logging.getLogger("train_demo")
BOS, EOS = "<s>", "</s>"
# not generated: a new training keeps it
PRESERVED_FILE = "README.md"


@dataclass(frozen=True)
class Recipe:
    """All settings of the training; texts and the speed of the machine also affect the weights."""

    seed: int = 20260
    vocabulary: int = 4096
    hidden_size: int = 256
    layers: int = 6
    intermediate_size: int = 704
    heads: int = 8
    key_value_heads: int = 4
    positions: int = 1024
    sequence_length: int = 256
    # rows per batch from each text, in the order of texts.TRAINED
    rows: tuple[int, ...] = (5, 8, 7)
    learning_rate: float = 2.5e-3
    warm_up: float = 0.03
    weight_decay: float = 0.1
    betas: tuple[float, float] = (0.9, 0.95)
    clip: float = 1.0
    # rows per forward pass: small parts of a batch stay in the processor's cache
    micro_rows: int = 4
    deviation: float = 0.02
    # experts per layer and per token, both 0 for a dense model; the intermediate size is that of an expert
    experts: int = 0
    experts_per_token: int = 0
    # weight of the loss that balances the load of the experts
    balance: float = 0.0


EXPERTS = Recipe(
    hidden_size=96,
    layers=4,
    intermediate_size=40,
    heads=4,
    key_value_heads=2,
    rows=(2, 4, 4),
    learning_rate=5e-3,
    # a forward pass has rows of every text, so that the load is balanced over the texts and not within each of them
    micro_rows=10,
    deviation=0.04,
    experts=16,
    experts_per_token=2,
    balance=0.01,
)


@dataclass
class Run:
    """The inputs and the progress of a training run."""

    recipe: Recipe
    options: argparse.Namespace
    tokenizer: Tokenizer
    model: PreTrainedModel
    # token stream of the test split of each text
    tests: dict[str, torch.Tensor]
    step: int = 0
    tokens: int = 0
    seconds: float = 0.0
    history: list[dict[str, float]] = field(default_factory=list)


def main() -> None:
    """Train, log, and save a checkpoint every few minutes and at the end."""
    options = _options()
    _start_log(options.log)
    torch.set_num_threads(options.threads)
    recipe = EXPERTS if options.experts else Recipe()
    train = {name: texts.documents(name, "train") for name in texts.TRAINED}
    held_out = {name: texts.documents(name, "test") for name in texts.TRAINED}
    tokenizer = (
        Tokenizer.from_file(str(MODEL_FOLDER / "tokenizer.json")) if options.experts else train_tokenizer(train, recipe)
    )
    encoded = {name: encode(tokenizer, documents) for name, documents in train.items()}
    tests = {name: torch.cat(encode(tokenizer, documents)) for name, documents in held_out.items()}
    for name in texts.TRAINED:
        LOG.info("%s: %d train, %d test tokens", name, sum(map(len, encoded[name])), len(tests[name]))
    run = Run(recipe, options, tokenizer, build_model(recipe), tests)
    LOG.info("%d parameters", run.model.num_parameters())
    train_model(run, encoded)
    # the model as saved: float32 arithmetic with weights rounded to float16
    final = perplexities(copy_model(run.model).half().float(), tests, recipe.sequence_length, windows=200)
    LOG.info("final %s", final)
    save(run, describe_training(run, final, finished=True))


def train_tokenizer(train: dict[str, list[str]], recipe: Recipe) -> Tokenizer:
    """Return a byte-level BPE tokenizer learned on equal shares of the texts."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=recipe.vocabulary,
        special_tokens=[BOS, EOS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    share = min(sum(map(len, documents)) for documents in train.values())
    samples = (line for documents in train.values() for line in _first(documents, share))
    tokenizer.train_from_iterator(samples, trainer)
    return tokenizer


def encode(tokenizer: Tokenizer, documents: list[str]) -> list[torch.Tensor]:
    """Return each document's tokens between its start and end tokens."""
    start, end = tokenizer.token_to_id(BOS), tokenizer.token_to_id(EOS)
    encodings = tokenizer.encode_batch(documents, add_special_tokens=False)
    return [torch.tensor([start, *encoding.ids, end]) for encoding in encodings]


def build_model(recipe: Recipe) -> PreTrainedModel:
    """Return the untrained model, its weights drawn from the recipe's seed."""
    model = _empty_model(recipe)
    generator = torch.Generator().manual_seed(recipe.seed)
    # layers that add to the residual stream start smaller, so that its norm does not grow with depth
    residual = recipe.deviation / math.sqrt(2 * recipe.layers)
    for name, weight in model.named_parameters():
        if weight.dim() > 1:
            adds_to_residual = name.endswith(("o_proj.weight", "down_proj.weight", "down_proj"))
            deviation = residual if adds_to_residual else recipe.deviation
            torch.nn.init.normal_(weight, 0.0, deviation, generator=generator)
    return model


def _empty_model(recipe: Recipe) -> PreTrainedModel:
    settings: dict[str, Any] = {
        "vocab_size": recipe.vocabulary,
        "hidden_size": recipe.hidden_size,
        "num_hidden_layers": recipe.layers,
        "num_attention_heads": recipe.heads,
        "num_key_value_heads": recipe.key_value_heads,
        "head_dim": recipe.hidden_size // recipe.heads,
        "max_position_embeddings": recipe.positions,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
        "rms_norm_eps": 1e-5,
        "initializer_range": recipe.deviation,
        "tie_word_embeddings": True,
        "bos_token_id": 0,
        "eos_token_id": 1,
        "pad_token_id": None,
    }
    if recipe.experts:
        experts = {"num_experts": recipe.experts, "num_experts_per_tok": recipe.experts_per_token}
        experts |= {"moe_intermediate_size": recipe.intermediate_size, "norm_topk_prob": True}
        return Qwen3MoeForCausalLM(_eager(Qwen3MoeConfig(**settings, **experts, router_aux_loss_coef=recipe.balance)))
    return LlamaForCausalLM(_eager(LlamaConfig(**settings, intermediate_size=recipe.intermediate_size)))


def _eager(config: PretrainedConfig) -> PretrainedConfig:
    # faster than sdpa for training in bfloat16 on a CPU, by measurement
    config._attn_implementation = "eager"
    return config


def train_model(run: Run, encoded: dict[str, list[torch.Tensor]]) -> None:
    """Train until the budget of minutes is spent; the learning rate ends at zero."""
    optimizer = _optimizer(run.model, run.recipe)
    batches = _batches(encoded, run.recipe)
    budget = run.options.minutes * 60
    last_measured = last_saved = started = time.monotonic()
    while run.seconds < budget:
        batch = next(batches)
        rate = learning_rate(run.seconds / budget, run.recipe)
        loss = _step(run.model, optimizer, batch, rate, run.recipe)
        run.step += 1
        run.tokens += batch.numel()
        if run.step % 50 == 0:
            LOG.info("step %d loss %.3f tokens/s %.0f", run.step, loss, run.tokens / run.seconds)
        if time.monotonic() - last_measured > 60 * run.options.measure_minutes:
            _measure(run, loss)
            last_measured = time.monotonic()
        if time.monotonic() - last_saved > 60 * run.options.save_minutes:
            latest = run.history[-1] if run.history else {}
            latest_perplexities = {name: latest[name] for name in run.tests if name in latest}
            save(run, describe_training(run, latest_perplexities, finished=False))
            last_saved = time.monotonic()
        run.seconds = time.monotonic() - started


def learning_rate(fraction: float, recipe: Recipe) -> float:
    """Return the learning rate at a fraction of the budget: linear warm-up, then a cosine."""
    if fraction < recipe.warm_up:
        return recipe.learning_rate * max(fraction, 1e-3) / recipe.warm_up
    progress = min(1.0, (fraction - recipe.warm_up) / (1 - recipe.warm_up))
    return recipe.learning_rate * 0.5 * (1 + math.cos(math.pi * progress))


@torch.no_grad()
def perplexities(model: PreTrainedModel, tests: dict[str, torch.Tensor], length: int, windows: int) -> dict[str, float]:
    """Return each text's held-out perplexity over at most ``windows`` evenly spaced windows."""
    model.eval()
    values = {}
    for name, stream in tests.items():
        count = len(stream) // length
        sample = stream[: count * length].view(count, length)[:: max(1, count // windows)]
        losses = [model(input_ids=rows, labels=rows).loss for rows in sample[:windows].split(1)]
        values[name] = round(math.exp(torch.stack(losses).double().mean().item()), 3)
    model.train()
    return values


def copy_model(model: PreTrainedModel) -> PreTrainedModel:
    """Return a copy with its own weights."""
    copy = type(model)(model.config)
    copy.load_state_dict(model.state_dict())
    return copy


def save(run: Run, notes: dict[str, Any]) -> None:
    """Write the model folder to a temporary place and rename it, so that it is never incomplete."""
    out = run.options.out
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=".train_demo-") as temporary:
        fresh = Path(temporary, "fresh")
        copy_model(run.model).half().save_pretrained(fresh)
        settings = {"bos_token": BOS, "eos_token": EOS, "model_max_length": run.recipe.positions}
        PreTrainedTokenizerFast(tokenizer_object=run.tokenizer, **settings).save_pretrained(fresh)
        if run.recipe.experts:
            # the same bytes, so that the bundled tokens are found by the fingerprint of the tokenizer
            for file in ("tokenizer.json", "tokenizer_config.json"):
                shutil.copy2(MODEL_FOLDER / file, fresh / file)
        (fresh / "training.json").write_text(json.dumps(notes, indent=2) + "\n", encoding="utf-8")
        if (out / PRESERVED_FILE).exists():
            shutil.copy2(out / PRESERVED_FILE, fresh / PRESERVED_FILE)
        fresh.chmod(0o755)
        (fresh / "model.safetensors").chmod(0o644)
        if out.exists():
            out.rename(Path(temporary, "former"))
        fresh.rename(out)
    LOG.info("saved %s", out)


def describe_training(run: Run, perplexity: dict[str, float], finished: bool) -> dict[str, Any]:
    """Return the content of training.json."""
    return {
        "script": "scripts/train_demo.py",
        "finished": finished,
        "recipe": asdict(run.recipe),
        "minutes": run.options.minutes,
        "threads": run.options.threads,
        "text_versions": {name: texts.VERSIONS[name] for name in texts.TRAINED},
        "text_descriptions": {name: texts.DESCRIPTIONS[name] for name in texts.TRAINED},
        "test_tokens": {name: len(stream) for name, stream in run.tests.items()},
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "steps": run.step,
        "tokens_seen": run.tokens,
        "train_seconds": round(run.seconds, 1),
        "perplexity_window": run.recipe.sequence_length,
        "perplexity": perplexity,
        "history": run.history,
    }


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train the demo model.")
    parser.add_argument("--minutes", type=float, default=58.0, help="wall-clock budget")
    parser.add_argument("--experts", action="store_true", help="train the mixture of experts")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads")
    parser.add_argument("--out", type=Path, default=None, help="model folder to write")
    parser.add_argument("--log", type=Path, default=None, help="log file; also printed")
    parser.add_argument("--measure-minutes", type=float, default=4.0, help="minutes between measurements of perplexity")
    parser.add_argument("--save-minutes", type=float, default=10.0, help="minutes between checkpoints")
    options = parser.parse_args()
    options.out = options.out or (EXPERTS_FOLDER if options.experts else MODEL_FOLDER)
    return options


def _start_log(file: Path | None) -> None:
    handlers: list[logging.Handler] = [logging.StreamHandler()]
    if file is not None:
        handlers.append(logging.FileHandler(file))
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", handlers=handlers, force=True)
    transformers.utils.logging.disable_progress_bar()


def _first(documents: list[str], characters: int) -> Iterator[str]:
    for document in documents:
        if characters <= 0:
            return
        characters -= len(document)
        yield document


def _optimizer(model: PreTrainedModel, recipe: Recipe) -> torch.optim.AdamW:
    weights = list(model.parameters())
    groups = [
        {"params": [w for w in weights if w.dim() > 1], "weight_decay": recipe.weight_decay},
        {"params": [w for w in weights if w.dim() == 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=0.0, betas=recipe.betas, fused=True)


def _batches(encoded: dict[str, list[torch.Tensor]], recipe: Recipe) -> Iterator[torch.Tensor]:
    # one shuffled stream per text, shared by its rows, so that an epoch has every document once
    generator = torch.Generator().manual_seed(recipe.seed + 1)
    streams = [_windows(encoded[name], recipe.sequence_length, generator) for name in texts.TRAINED]
    while True:
        pairs = zip(streams, recipe.rows, strict=True)
        yield torch.stack([next(stream) for stream, count in pairs for _ in range(count)])


def _windows(encoded: list[torch.Tensor], length: int, generator: torch.Generator) -> Iterator[torch.Tensor]:
    # endless windows of shape (length,), with the documents in a new order every epoch
    remaining = torch.empty(0, dtype=torch.long)
    while True:
        while len(remaining) < length:
            order = torch.randperm(len(encoded), generator=generator).tolist()
            remaining = torch.cat([remaining, *(encoded[index] for index in order)])
        yield remaining[:length]
        remaining = remaining[length:]


def _step(
    model: PreTrainedModel, optimizer: torch.optim.Optimizer, batch: torch.Tensor, rate: float, recipe: Recipe
) -> float:
    for group in optimizer.param_groups:
        group["lr"] = rate
    total = 0.0
    # the gradients of the parts of a batch add up
    for rows in batch.split(recipe.micro_rows):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            routed = {"output_router_logits": True} if recipe.experts else {}
            output = model.model(input_ids=rows, **routed)
            logits = model.lm_head(output.last_hidden_state[:, :-1])
        targets = rows[:, 1:].flatten()
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), targets)
        if recipe.experts:
            loss = loss + recipe.balance * _imbalance(output.router_logits, recipe)
        loss = loss * (len(rows) / len(batch))
        loss.backward()
        total += loss.item()
    torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.clip)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return total


def _imbalance(logits: tuple[torch.Tensor, ...], recipe: Recipe) -> torch.Tensor:
    # layer by layer: on all layers at once the function would balance an expert's number over the layers
    losses = [load_balancing_loss_func((layer,), recipe.experts, recipe.experts_per_token) for layer in logits]
    return torch.stack([loss for loss in losses if isinstance(loss, torch.Tensor)]).mean()


def _measure(run: Run, loss: float) -> None:
    values = perplexities(run.model, run.tests, run.recipe.sequence_length, windows=40)
    minutes = round(run.seconds / 60, 1)
    run.history.append({"minutes": minutes, "step": run.step, "loss": loss, **values})
    LOG.info("minute %.1f held-out perplexity %s", minutes, values)


if __name__ == "__main__":
    main()
