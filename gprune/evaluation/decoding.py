"""Decode greedily with little overhead, for measurements of speed.

Decoding uses a key/value cache, as in the appendix (practical inference speedup). The loop calls the model directly,
because the bookkeeping of the library's ``generate`` takes the same time for a large and a small model and would hide
the speedup. Decoding continues after end-of-text tokens.

``EagerDecoding`` extends the library's own cache by one token per step. ``StaticDecoding`` writes into buffers of fixed
size, so that one step can be captured as a CUDA graph and replayed. Without a graph, the step of a small model is
limited by the time to launch its kernels. The step can also be compiled, which fuses the small operations around the
matrix products. The small operations take a sixth to a third of a step, and pruning does not shorten them.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from transformers.cache_utils import Cache

from gprune.models import devices
from gprune.models.parts import language_config
from gprune.system.errors import SettingsError

_ROW_MULTIPLE = 8
"""attention kernels require that rows of masks start at multiples of this number of elements"""


class EagerDecoding:
    """Greedy decoding without a graph, with the library's growing cache."""

    def __init__(self, model: nn.Module, prompt: Tensor, new_tokens: int) -> None:
        """Store a causal language model, its prompt as (batch, tokens) ids, and the number of tokens to generate."""
        self._model: Any = model
        self._prompt, self._new_tokens = prompt, new_tokens
        self._cache: Any = None
        self._generated: list[Tensor] = []

    def prefill(self) -> None:
        """Read the prompt and generate the first token."""
        self._cache, self._generated = None, []
        self._step(self._prompt)

    def decode(self) -> None:
        """Generate the remaining tokens."""
        for _ in range(self._new_tokens - 1):
            self._step(self._generated[-1])

    def _step(self, ids: Tensor) -> None:
        result = self._model(input_ids=ids, past_key_values=self._cache, use_cache=True, logits_to_keep=1)
        self._cache = result.past_key_values
        self._generated.append(_greedy(result.logits))

    def tokens(self) -> Tensor:
        """Return the generated tokens, (batch, new tokens) int64."""
        return torch.cat(self._generated, dim=1)

    def cache_bytes(self) -> int:
        """Return the bytes of the keys and values; 0 after `release`."""
        layers = () if self._cache is None else self._cache.layers
        return sum(layer.keys.nbytes + layer.values.nbytes for layer in layers)

    def release(self) -> None:
        """Drop the cache."""
        self._cache = None


class StaticKeyValues(Cache):
    """Key/value cache with buffers of fixed size; each layer has buffers of its own width.

    The library's static cache counts tokens internally, differently in each version. Here the position is a tensor of
    the decoding, so that a replayed graph writes at the current position.
    """

    def __init__(self, prompt: int, capacity: int, position: Tensor) -> None:
        """Store the lengths of the prompt and of the buffers, and the index of the next token, (1,) int64."""
        super().__init__(layers=[])
        self.reading = True
        """whether the prompt is being read"""
        self.buffers: list[tuple[Tensor, Tensor]] = []
        self._prompt, self._capacity, self._position = prompt, capacity, position

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        """Store (batch, groups, tokens, head width) states and return the keys and values for the attention."""
        if layer_idx == len(self.buffers):
            self.buffers.append((self._buffer(key_states), self._buffer(value_states)))
        pairs = zip(self.buffers[layer_idx], (key_states, value_states), strict=True)
        if self.reading:
            for buffer, states in pairs:
                buffer[:, :, : self._prompt].copy_(states)
            return key_states, value_states
        for buffer, states in pairs:
            buffer.index_copy_(2, self._position, states)
        return self.buffers[layer_idx]

    def get_seq_length(self, *_: Any, **__: Any) -> int:
        """Return 0, the number of tokens before the prompt; decoding passes mask and positions explicitly."""
        return 0

    # the library asks for the position of the first query under this name
    get_query_offset = get_seq_length

    def get_mask_sizes(self, *_: Any, **__: Any) -> tuple[int, int]:
        """Return the number of keys that the prompt attends to, and the index of the first key."""
        return self._prompt, 0

    def _buffer(self, states: Tensor) -> Tensor:
        batch, groups, _, width = states.shape
        return states.new_zeros((batch, groups, self._capacity, width))


class StaticDecoding:
    """Greedy decoding in steps of fixed shape over static buffers; a GPU can replay a step as a CUDA graph."""

    def __init__(
        self, model: nn.Module, prompt: Tensor, new_tokens: int, capture: bool, compiled: bool = False
    ) -> None:
        """Store the inputs, see ``EagerDecoding``; ``capture`` requests a CUDA graph and needs a CUDA device.

        If ``compiled``, the first call of ``decode`` compiles the step, which takes a minute for 7B parameters.
        Raises SettingsError if the model attends to a sliding window shorter than the text.
        """
        length = prompt.shape[1] + new_tokens
        _require_full_attention(model, length)
        self._model: Any = model
        # each model is compiled for one shape, because a second shape would trigger dynamic shapes
        self._forward: Any = torch.compile(model, dynamic=False) if compiled else model
        self._is_compile_pending = compiled
        # the prefill generates the first token
        self._prompt, self._steps, self._capture = prompt, new_tokens - 1, capture
        # the length, rounded up to a multiple
        batch, capacity = len(prompt), -(-length // _ROW_MULTIPLE) * _ROW_MULTIPLE
        self._position = prompt.new_zeros(1)
        """index of the next token in the text"""
        self._key_positions = torch.arange(capacity, device=prompt.device)
        self._cache = StaticKeyValues(prompt.shape[1], capacity, self._position)
        self._token = prompt.new_zeros((batch, 1))
        self._generated = prompt.new_zeros((batch, new_tokens))
        self._graph: Any = None

    def prefill(self) -> None:
        """Read the prompt and generate the first token."""
        self._cache.reading = True
        result = self._model(input_ids=self._prompt, past_key_values=self._cache, use_cache=True, logits_to_keep=1)
        self._cache.reading = False
        self._token.copy_(_greedy(result.logits))
        self._generated[:, :1].copy_(self._token)
        self._position.fill_(self._prompt.shape[1])

    def decode(self) -> None:
        """Generate the remaining tokens; the first call compiles the step and captures the graph."""
        if self._is_compile_pending:
            with self._first_step("compiled here", "leave out the mode compiled"):
                self._step()
            self._is_compile_pending = False
        if self._capture and self._graph is None:
            with self._first_step("captured as a CUDA graph", "use the mode eager"):
                devices.run_on_side_stream(self._step)
                self._graph = devices.capture_graph(self._step)
        step = self._graph.replay if self._capture else self._step
        for _ in range(self._steps):
            step()

    def tokens(self) -> Tensor:
        """Return the generated tokens, (batch, new tokens) int64."""
        return self._generated.clone()

    def cache_bytes(self) -> int:
        """Return the bytes of the keys and values, which stay in memory after `release`."""
        return sum(keys.nbytes + values.nbytes for keys, values in self._cache.buffers)

    def release(self) -> None:
        """Do nothing, because the buffers are reused."""

    def _step(self) -> None:
        """Read the last token and generate the next; only tensors of fixed address change."""
        dtype = self._cache.buffers[0][0].dtype
        # added to the logits of the attention: later positions of the buffers are not read
        mask = torch.zeros_like(self._key_positions, dtype=dtype)
        mask.masked_fill_(self._key_positions > self._position, torch.finfo(dtype).min)
        result = self._forward(
            input_ids=self._token,
            attention_mask=mask[None, None, None],
            position_ids=self._position[None],
            past_key_values=self._cache,
            use_cache=True,
            logits_to_keep=1,
        )
        self._token.copy_(_greedy(result.logits))
        self._position.add_(1)
        self._generated.index_copy_(1, self._position - self._prompt.shape[1], self._token)

    @contextmanager
    def _first_step(self, action: str, remedy: str) -> Iterator[None]:
        """Restore token and position after a trial step in the block. Raises SettingsError if the step fails."""
        token, position = self._token.clone(), self._position.clone()
        try:
            yield
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # a missing compiler can raise various errors
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise SettingsError(f"this model's decoding cannot be {action} ({reason}): {remedy}") from error
        self._token.copy_(token)
        self._position.copy_(position)


Decoding = EagerDecoding | StaticDecoding
"""A model and a prompt whose continuation is generated repeatedly."""


def _greedy(logits: Tensor) -> Tensor:
    """Return the (batch, 1) most likely next tokens of (batch, 1, vocabulary) logits."""
    return logits[:, -1].argmax(dim=-1, keepdim=True)


def _require_full_attention(model: nn.Module, length: int) -> None:
    config = language_config(model)
    window = getattr(config, "sliding_window", None)
    kinds = getattr(config, "layer_types", None) or ["sliding_attention"]
    if window is not None and window < length and "sliding_attention" in kinds:
        raise SettingsError(
            f"the model attends to the last {window} tokens only, and prompt and new tokens are {length}: "
            "the mode graph needs a shorter prompt; or use the mode eager only"
        )
