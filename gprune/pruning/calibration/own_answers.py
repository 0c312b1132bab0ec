"""Sample the dense model's answers to prompts, as calibration and evaluation texts.

Calibration on the model's own answers preserves reasoning models better than web text (RAC, 2025). Prompts of different
lengths are padded on the left, and an answer ends with an end token or at the limit of its recipe. Each answer has its
own random numbers, and the batches depend on the prompts only, so a resumed stage gives the same answers.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence

from gprune.data.texts import AnswerRecipe, RenderedChat, pack
from gprune.models.language_model import LanguageModel
from gprune.pruning.calibration import sampling
from gprune.records import Array, SampledText
from gprune.store.resumption import Resumption, Spent, State
from gprune.system.errors import CorpusError
from gprune.system.progress import Progress, silent


@torch.no_grad()
def write_answers(
    decoder: LanguageModel,
    recipe: AnswerRecipe,
    prompts: Iterable[RenderedChat],
    text: str,
    on_progress: Progress = silent,
    resumption: Resumption | None = None,
) -> SampledText:
    """Answer prompts in order until there are as many sequences as the recipe asks for, or no prompts are left.

    Prompts that leave no room for an answer in a sequence are left out. `resumption` reads and writes a checkpoint
    after each batch.

    Raises SettingsError if a sequence has more tokens than the model has positions, CorpusError if no prompt is short
    enough, NumericsError if the model's scores are not finite.
    """
    sampling.require_positions(decoder, recipe, text)
    all_prompts = list(prompts)
    fitting = [prompt for prompt in all_prompts if 0 < len(prompt.ids) < recipe.length]
    if not fitting:
        raise CorpusError(
            f"none of the {len(all_prompts):,} prompts of {text!r} has from 1 to {recipe.length - 1:,} tokens: give "
            "shorter prompts, or longer sequences"
        )
    size = max(1, min(sampling.MOST_DOCUMENTS, sampling.MOST_TOKENS // recipe.length))
    state = _load_state(resumption, len(fitting), on_progress)
    ids, losses = list(state.arrays["ids"]), list(state.arrays["losses"])
    while len(ids) < len(fitting) and not _is_enough(ids, recipe):
        batch = fitting[len(ids) : len(ids) + size]
        drawn, loss = _answer_batch(decoder, recipe, [prompt.ids for prompt in batch], len(ids), on_progress)
        sampling.require_finite_scores(loss, text)
        ids += list(drawn)
        losses += list(loss)
        if resumption is not None:
            arrays = {"ids": np.stack(ids), "losses": np.array(losses)}
            resumption.save(State(len(ids), len(fitting), arrays, {"spent": resumption.spent.plain}))
        on_progress(len(ids), len(fitting), "answers written by the model")
    documents, is_answer = np.stack(ids), np.zeros((len(ids), recipe.length), bool)
    is_content = documents >= 0
    for row, prompt in enumerate(fitting[: len(ids)]):
        is_answer[row, len(prompt.ids) :] = is_content[row, len(prompt.ids) :]
        is_content[row, : len(prompt.ids)] = prompt.is_content
    return SampledText(text, documents, np.exp(losses), np.ones(len(ids), bool), is_content, is_answer)


def _load_state(resumption: Resumption | None, steps: int, on_progress: Progress) -> State:
    """Return the answers of an earlier process, or no answers."""
    state = resumption.load() if resumption is not None else None
    if resumption is None or state is None:
        return State(0, steps, {"ids": np.empty(0), "losses": np.empty(0)}, {})
    on_progress(state.step, steps, resumption.resume(state, Spent.of(state.values["spent"])))
    return state


def _is_enough(ids: Sequence[Array], recipe: AnswerRecipe) -> bool:
    """Return True if documents fill the sequences or windows of a recipe."""
    if not recipe.documents or not ids:
        return False
    widths = (np.stack(ids) >= 0).sum(axis=1).tolist()
    if recipe.role == "evaluation":
        return sum(widths) >= recipe.documents * recipe.length
    return len(pack(widths, recipe.length, recipe.single)) >= recipe.documents


def _answer_batch(
    decoder: LanguageModel, recipe: AnswerRecipe, prompts: Sequence[Array], first: int, on_progress: Progress
) -> tuple[Array, Array]:
    """Return (prompts, length) int32 ids of prompts and answers, -1 after their ends, and (prompts,) mean losses.

    `first` is the number of the first prompt; losses are in nats per token of an answer.
    """
    model: Any = decoder.model
    lengths, seeds = np.array([len(prompt) for prompt in prompts]), range(first, first + len(prompts))
    limits = np.minimum(recipe.answer or recipe.length, recipe.length - lengths)
    role, steps = sampling.ROLES[recipe.role], int(limits.max())
    draws = np.stack([np.random.default_rng([recipe.seed, role, number]).random(recipe.length) for number in seeds])
    uniforms, device_limits = (torch.from_numpy(array).to(decoder.device) for array in (draws, limits))
    backward = [torch.from_numpy(prompt[::-1].astype(np.int64)) for prompt in prompts]
    # padded on the left
    last, mask = (
        pad_sequence(rows, batch_first=True).flip(1).to(decoder.device)
        for rows in (backward, [torch.ones_like(row) for row in backward])
    )
    positions = (mask.cumsum(dim=1) - 1).clamp(min=0)
    ends = torch.tensor(sampling.named_tokens(decoder, "eos_token_id"), dtype=torch.int64, device=decoder.device)
    forbidden = sampling.forbidden_tokens(decoder)
    forbidden[ends] = False
    is_done, loss = torch.zeros(len(prompts), dtype=torch.bool, device=decoder.device), uniforms.new_zeros(len(prompts))
    cache, answers = None, []
    for step in range(steps):
        inputs = {"input_ids": last, "attention_mask": mask, "position_ids": positions}
        result = model(**inputs, past_key_values=cache, use_cache=True, logits_to_keep=1)
        cache, scores = result.past_key_values, result.logits[:, -1].double()
        last = sampling.draw_tokens(scores, forbidden, uniforms[:, step : step + 1], recipe.temperature)
        loss -= scores.log_softmax(dim=-1).gather(1, last)[:, 0].masked_fill(is_done, 0.0)
        answers.append(last[:, 0].masked_fill(is_done, -1))
        is_done = is_done | torch.isin(last[:, 0], ends) | (device_limits <= step + 1)
        mask, positions = torch.cat([mask, torch.ones_like(last)], dim=1), positions[:, -1:] + 1
        if step % sampling.PROGRESS_INTERVAL == 0:
            on_progress(first, first + len(prompts), f"token {step + 1} of the model's answers")
            if is_done.all():
                break
    decoder.count_forward(int(lengths.sum()) + len(answers) * len(prompts))
    answer_ids = torch.stack(answers, dim=1).to(torch.int32).cpu().numpy()
    ids = np.full((len(prompts), recipe.length), -1, np.int32)
    for row, prompt, answer in zip(ids, prompts, answer_ids, strict=True):
        row[: len(prompt)] = prompt
        row[len(prompt) : len(prompt) + len(answer)] = answer[: len(row) - len(prompt)]
    return ids, loss.cpu().numpy() / (answer_ids >= 0).sum(axis=1)
