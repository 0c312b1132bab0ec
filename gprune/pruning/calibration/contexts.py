"""Contexts of tokens: clusters of the FFN inputs of a layer (section 4, base metrics).

Token-weighted FLAP and FANG weight a token by its context. A context is a size-balanced k-means cluster of a
layer's FFN inputs, taken after the norm and projected onto their principal components. The clusters are fitted to a
part of one text and used for all texts: a token belongs to the context with the nearest centroid.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from gprune.models.decoder import Decoder
from gprune.pruning.calibration.clusters import balanced_clusters, bounded_clusters
from gprune.pruning.calibration.collection import batch_runner, hook_inputs
from gprune.pruning.calibration.principal import principal_components
from gprune.records import Array, Contexts, Tokens
from gprune.study.settings import ContextSettings
from gprune.system.errors import NumericsError, SettingsError
from gprune.system.progress import Progress, silent

# FANG's released code: relative deviation of a cluster's size from an even share, and number of k-means starts
_SLACK, _STARTS = 0.4, 10
_MOST_THREADS = 8
"""maximum number of layers clustered in parallel; more threads wait for the interpreter lock (docs/performance.md)"""


@dataclass(frozen=True, slots=True, eq=False)
class Projection:
    """FFN inputs of a text, projected onto their principal components; contexts are fitted to them."""

    text: str
    mean: Array
    """(layers, hidden) float32"""
    components: Array
    """(layers, dimensions, hidden) float32, orthonormal rows"""
    points: Array
    """(layers, tokens, dimensions) float32"""


@torch.no_grad()
def project_inputs(
    decoder: Decoder,
    tokens: Tokens,
    settings: ContextSettings,
    batch: int,
    on_progress: Progress = silent,
) -> Projection:
    """Collect and project the FFN inputs of every layer in one forward pass over the first sequences of a text.

    Uses enough sequences for `settings.tokens` tokens. `batch` affects speed only and is halved when memory runs
    out. Raises SettingsError if there are fewer than two tokens per context or not even one sequence fits in memory,
    NumericsError if an FFN input is NaN or infinite.
    """
    samples, length = tokens.ids.shape
    counts = np.full(samples, length) if tokens.counted is None else tokens.counted.sum(axis=1)
    sequences = min(samples, int(np.searchsorted(np.cumsum(counts), settings.tokens)) + 1)
    total = int(counts[:sequences].sum())
    if total < 2 * settings.count:
        raise SettingsError(
            f"{tokens.text!r} gives {total} tokens for {settings.count} contexts, fewer than "
            "two for each: choose fewer contexts (contexts.count), or more tokens (contexts.tokens, "
            "calibration.samples)"
        )
    inputs = _ffn_inputs(decoder, tokens.ids[:sequences], batch, on_progress)
    counted = tokens.counted_in(slice(sequences))
    inputs = inputs.flatten(1, 2) if counted is None else inputs[:, torch.tensor(counted)]
    layers = []
    for layer, points in enumerate(inputs):
        on_progress(layer, len(inputs), "principal components")
        layers.append(_project_layer(layer, points.to(decoder.device), settings.dimensions))
    on_progress(len(inputs), len(inputs), "principal components")
    mean, components, projected = (np.stack(part) for part in zip(*layers, strict=True))
    return Projection(tokens.text, mean, components, projected)


def fit_contexts(inputs: Projection, settings: ContextSettings, seed: int, on_progress: Progress = silent) -> Contexts:
    """Cluster the FFN inputs of every layer, up to eight layers in parallel; each layer has its own generator."""
    layers, fitted = len(inputs.points), []

    def fit(layer: int) -> Array:
        return _centroids(inputs.points[layer], settings, np.random.default_rng([seed, layer]))

    # BLAS uses one thread, because its threads would wait for those of other layers
    with threadpool_limits(1, user_api="blas"):
        pool = ThreadPoolExecutor(min(layers, torch.get_num_threads(), _MOST_THREADS), "contexts")
        try:
            futures = [pool.submit(fit, layer) for layer in range(layers)]
            for layer, future in enumerate(futures):
                on_progress(layer, layers, "context clusters")
                centroids = future.result()
                fitted.append((centroids.astype(np.float32), _distances(centroids)))
        finally:
            # if a layer or the progress callback raised, queued layers are cancelled
            pool.shutdown(cancel_futures=True)
    on_progress(layers, layers, "context clusters")
    centres, distances = (np.stack(part) for part in zip(*fitted, strict=True))
    return Contexts(inputs.text, inputs.mean, inputs.components, centres, distances, inputs.points.shape[1])


class ContextLookup:
    """Find the contexts of tokens: the nearest centroids in the projected space.

    |P(x - m) - c|^2 = |P(x - m)|^2 - 2 (x - m) . P'c + |c|^2, and its first term is the same for all contexts, so
    one product with (contexts, hidden) directions is enough to find the nearest centroid.
    """

    def __init__(self, decoder: Decoder, contexts: Contexts) -> None:
        """Compute the (layers, contexts, hidden) directions P'c and the (layers, contexts) offsets."""
        centroids = contexts.centroids.astype(np.float64)
        directions = centroids @ contexts.components.astype(np.float64)
        offsets = (centroids**2).sum(axis=-1) / 2 + np.einsum("lch,lh->lc", directions, contexts.mean)
        self.directions = torch.from_numpy(directions).to(decoder.device, torch.float32)
        self.offsets = torch.from_numpy(offsets).to(decoder.device, torch.float32)

    def labels(self, layer: int, inputs: torch.Tensor) -> torch.Tensor:
        """Return (tokens,) int64 context of each of (tokens, hidden) FFN inputs of a layer."""
        # half the negative squared distance, up to a term that all contexts share
        closeness = inputs.float() @ self.directions[layer].T - self.offsets[layer]
        return closeness.argmax(dim=1)


def _ffn_inputs(decoder: Decoder, ids: Array, batch: int, on_progress: Progress) -> torch.Tensor:
    """Return the (layers, sequences, length, hidden) FFN inputs for `ids`, in the model's dtype on the CPU."""
    sequences, length = ids.shape
    shape = decoder.shape
    inputs = torch.empty(shape.layers, sequences, length, shape.hidden, dtype=decoder.dtype)

    # index of the first sequence of the current batch
    first = 0

    def store_inputs(layer: int) -> Callable[..., None]:
        def hook(_: torch.nn.Module, arguments: tuple[torch.Tensor, ...]) -> None:
            inputs[layer, first : first + len(arguments[0])] = arguments[0]

        return hook

    def run(rows: slice) -> None:
        nonlocal first
        first = rows.start
        on_progress(first, sequences, "FFN inputs")
        decoder.hidden_states(torch.from_numpy(ids[rows].astype(np.int64)))

    with hook_inputs({decoder.entrance(layer): store_inputs(layer) for layer in range(shape.layers)}):
        batch_runner(batch, length, decoder, on_progress).run_batches(sequences, run)
    on_progress(sequences, sequences, "FFN inputs")
    return inputs


def _project_layer(layer: int, points: torch.Tensor, dimensions: int) -> tuple[Array, Array, Array]:
    """Return mean and principal components of one layer's (tokens, hidden) FFN inputs, and the projected inputs."""
    mean = points.mean(dim=0, dtype=torch.float64).float()
    mean_array: Array = mean.cpu().numpy()
    # sums in float64 do not overflow, so the mean is finite if all inputs are
    if not np.isfinite(mean_array).all():
        raise NumericsError.of(f"the FFN input of layer {layer}")
    limit = min(dimensions, points.shape[1], len(points) - 1)
    components, projected = principal_components(points.float() - mean, limit)
    return mean_array, components.cpu().numpy(), projected.cpu().numpy()


def _centroids(points: Array, settings: ContextSettings, generator: np.random.Generator) -> Array:
    """Return (contexts, dimensions) float64 means of the clusters of one layer's (tokens, dimensions) inputs."""
    points = points.astype(np.float64)
    if settings.clustering == "released":
        return bounded_clusters(points, settings.count, generator, _SLACK, _STARTS)[1]
    return balanced_clusters(points, settings.count, generator)[1]


def _distances(centroids: Array) -> Array:
    """Return (contexts, contexts) Euclidean distances divided by their off-diagonal mean; 0 if all coincide."""
    distances: Array = np.linalg.norm(centroids[:, None] - centroids[None], axis=-1)
    scale = distances.sum() / (len(centroids) * (len(centroids) - 1))
    return distances / scale if scale > 0 else distances
