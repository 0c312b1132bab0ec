"""Answers: how is the demo model that comes with GPrune Studio made?

Trains a byte-level BPE tokenizer and a small LLaMA from scratch on the texts of
``gprune.data.demo.texts``, within a budget of minutes, and saves both as a model folder.

Usage: OMP_NUM_THREADS=1 python scripts/train_demo.py --minutes 58 --threads 1
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
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from gprune.data.demo import MODEL_FOLDER, texts  # noqa: E402

LOG = logging.getLogger("train_demo")
BOS, EOS = "<s>", "</s>"
# Written by hand: a new training keeps it.
KEPT_BESIDE = "README.md"
# Rows that go through the model at once.
MICRO_ROWS = 4


@dataclass(frozen=True)
class Recipe:
    """Everything that decides the weights, besides the texts and the speed of the machine."""

    seed: int = 20260
    vocabulary: int = 4096
    hidden_size: int = 256
    layers: int = 6
    intermediate_size: int = 704
    heads: int = 8
    key_value_heads: int = 4
    positions: int = 1024
    sequence_length: int = 256
    # Rows of a batch that come from each text, in the order of texts.TRAINED.
    rows: tuple[int, ...] = (5, 8, 7)
    learning_rate: float = 2.5e-3
    warm_up: float = 0.03
    weight_decay: float = 0.1
    betas: tuple[float, float] = (0.9, 0.95)
    clip: float = 1.0


@dataclass
class Run:
    """What one training run works with, and where it stands."""

    recipe: Recipe
    options: argparse.Namespace
    tokenizer: Tokenizer
    model: LlamaForCausalLM
    # Token stream of each text's test split.
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
    recipe = Recipe()
    train = {name: texts.documents(name, "train") for name in texts.TRAINED}
    held_out = {name: texts.documents(name, "test") for name in texts.TRAINED}
    tokenizer = train_tokenizer(train, recipe)
    encoded = {name: encode(tokenizer, documents) for name, documents in train.items()}
    tests = {name: torch.cat(encode(tokenizer, documents)) for name, documents in held_out.items()}
    for name in texts.TRAINED:
        LOG.info("%s: %d train, %d test tokens", name, sum(map(len, encoded[name])), len(tests[name]))
    run = Run(recipe, options, tokenizer, build_model(recipe), tests)
    LOG.info("%d parameters", run.model.num_parameters())
    train_model(run, encoded)
    # Measured as it is saved: in float32 arithmetic, with the weights that float16 keeps.
    final = perplexities(copied(run.model).half().float(), tests, recipe.sequence_length, windows=200)
    LOG.info("final %s", final)
    save(run, account(run, final, finished=True))


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


def build_model(recipe: Recipe) -> LlamaForCausalLM:
    """Return the untrained model, its weights drawn from the recipe's seed."""
    config = LlamaConfig(
        vocab_size=recipe.vocabulary,
        hidden_size=recipe.hidden_size,
        num_hidden_layers=recipe.layers,
        intermediate_size=recipe.intermediate_size,
        num_attention_heads=recipe.heads,
        num_key_value_heads=recipe.key_value_heads,
        head_dim=recipe.hidden_size // recipe.heads,
        max_position_embeddings=recipe.positions,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        rms_norm_eps=1e-5,
        tie_word_embeddings=True,
        bos_token_id=0,
        eos_token_id=1,
        pad_token_id=None,
    )
    # Measured: eager attention trains faster than sdpa in bfloat16 on a CPU.
    config._attn_implementation = "eager"
    model = LlamaForCausalLM(config)
    generator = torch.Generator().manual_seed(recipe.seed)
    # Layers that write to the residual stream start smaller, so that its size stays even.
    residual = config.initializer_range / math.sqrt(2 * recipe.layers)
    for name, weight in model.named_parameters():
        if weight.dim() == 2:
            writes = name.endswith(("o_proj.weight", "down_proj.weight"))
            spread = residual if writes else config.initializer_range
            torch.nn.init.normal_(weight, 0.0, spread, generator=generator)
    return model


def train_model(run: Run, encoded: dict[str, list[torch.Tensor]]) -> None:
    """Train until the budget of minutes is spent; the learning rate ends at zero."""
    optimizer = _optimizer(run.model, run.recipe)
    batches = _batches(encoded, run.recipe)
    budget = run.options.minutes * 60
    measured = saved = begun = time.monotonic()
    while run.seconds < budget:
        batch = next(batches)
        rate = learning_rate(run.seconds / budget, run.recipe)
        loss = _step(run.model, optimizer, batch, rate, run.recipe.clip)
        run.step += 1
        run.tokens += batch.numel()
        if run.step % 50 == 0:
            LOG.info("step %d loss %.3f tokens/s %.0f", run.step, loss, run.tokens / run.seconds)
        if time.monotonic() - measured > 60 * run.options.measure_minutes:
            _measure(run, loss)
            measured = time.monotonic()
        if time.monotonic() - saved > 60 * run.options.save_minutes:
            latest = run.history[-1] if run.history else {}
            found = {name: latest[name] for name in run.tests if name in latest}
            save(run, account(run, found, finished=False))
            saved = time.monotonic()
        run.seconds = time.monotonic() - begun


def learning_rate(fraction: float, recipe: Recipe) -> float:
    """Return the learning rate at a fraction of the budget: linear warm-up, then a cosine."""
    if fraction < recipe.warm_up:
        return recipe.learning_rate * max(fraction, 1e-3) / recipe.warm_up
    along = min(1.0, (fraction - recipe.warm_up) / (1 - recipe.warm_up))
    return recipe.learning_rate * 0.5 * (1 + math.cos(math.pi * along))


@torch.no_grad()
def perplexities(
    model: LlamaForCausalLM, tests: dict[str, torch.Tensor], length: int, windows: int
) -> dict[str, float]:
    """Return each text's held-out perplexity over at most ``windows`` evenly spaced windows."""
    model.eval()
    found = {}
    for name, stream in tests.items():
        whole = len(stream) // length
        chosen = stream[: whole * length].view(whole, length)[:: max(1, whole // windows)]
        losses = [model(input_ids=rows, labels=rows).loss for rows in chosen[:windows].split(1)]
        found[name] = round(math.exp(torch.stack(losses).double().mean().item()), 3)
    model.train()
    return found


def copied(model: LlamaForCausalLM) -> LlamaForCausalLM:
    """Return a copy whose weights may be changed or cast without touching the model."""
    copy = LlamaForCausalLM(model.config)
    copy.load_state_dict(model.state_dict())
    return copy


def save(run: Run, notes: dict[str, Any]) -> None:
    """Replace the model folder in one move, so that a reader never sees half of it."""
    out = run.options.out
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=".train_demo-") as place:
        fresh = Path(place, "fresh")
        copied(run.model).half().save_pretrained(fresh)
        named = {"bos_token": BOS, "eos_token": EOS, "model_max_length": run.recipe.positions}
        PreTrainedTokenizerFast(tokenizer_object=run.tokenizer, **named).save_pretrained(fresh)
        (fresh / "training.json").write_text(json.dumps(notes, indent=2) + "\n", encoding="utf-8")
        if (out / KEPT_BESIDE).exists():
            shutil.copy2(out / KEPT_BESIDE, fresh / KEPT_BESIDE)
        fresh.chmod(0o755)
        (fresh / "model.safetensors").chmod(0o644)
        if out.exists():
            out.rename(Path(place, "former"))
        fresh.rename(out)
    LOG.info("saved %s", out)


def account(run: Run, found: dict[str, float], finished: bool) -> dict[str, Any]:
    """Return what training.json says about the run."""
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
        "perplexity": found,
        "history": run.history,
    }


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train the demo model.")
    parser.add_argument("--minutes", type=float, default=58.0, help="wall-clock budget")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads")
    parser.add_argument("--out", type=Path, default=MODEL_FOLDER, help="model folder to write")
    parser.add_argument("--log", type=Path, default=None, help="log file; also printed")
    parser.add_argument("--measure-minutes", type=float, default=4.0, help="between readings")
    parser.add_argument("--save-minutes", type=float, default=10.0, help="between checkpoints")
    return parser.parse_args()


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


def _optimizer(model: LlamaForCausalLM, recipe: Recipe) -> torch.optim.AdamW:
    weights = list(model.parameters())
    groups = [
        {"params": [w for w in weights if w.dim() == 2], "weight_decay": recipe.weight_decay},
        {"params": [w for w in weights if w.dim() != 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=0.0, betas=recipe.betas, fused=True)


def _batches(encoded: dict[str, list[torch.Tensor]], recipe: Recipe) -> Iterator[torch.Tensor]:
    # One shuffled stream a text, shared by its rows: an epoch ends before a document returns.
    generator = torch.Generator().manual_seed(recipe.seed + 1)
    streams = [_windows(encoded[name], recipe.sequence_length, generator) for name in texts.TRAINED]
    while True:
        counted = zip(streams, recipe.rows, strict=True)
        yield torch.stack([next(stream) for stream, count in counted for _ in range(count)])


def _windows(encoded: list[torch.Tensor], length: int, generator: torch.Generator) -> Iterator[torch.Tensor]:
    # Endless windows of shape (length,): documents in a new order every epoch.
    waiting = torch.empty(0, dtype=torch.long)
    while True:
        while len(waiting) < length:
            order = torch.randperm(len(encoded), generator=generator).tolist()
            waiting = torch.cat([waiting, *(encoded[index] for index in order)])
        yield waiting[:length]
        waiting = waiting[length:]


def _step(
    model: LlamaForCausalLM,
    optimizer: torch.optim.Optimizer,
    batch: torch.Tensor,
    rate: float,
    clip: float,
) -> float:
    for group in optimizer.param_groups:
        group["lr"] = rate
    total = 0.0
    # Small pieces stay in the processor's cache; their gradients add up to the batch's.
    for rows in batch.split(MICRO_ROWS):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            hidden = model.model(input_ids=rows).last_hidden_state
            logits = model.lm_head(hidden[:, :-1])
        targets = rows[:, 1:].flatten()
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), targets)
        loss = loss * (len(rows) / len(batch))
        loss.backward()
        total += loss.item()
    torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return total


def _measure(run: Run, loss: float) -> None:
    found = perplexities(run.model, run.tests, run.recipe.sequence_length, windows=40)
    minutes = round(run.seconds / 60, 1)
    run.history.append({"minutes": minutes, "step": run.step, "loss": loss, **found})
    LOG.info("minute %.1f held-out perplexity %s", minutes, found)


if __name__ == "__main__":
    main()
