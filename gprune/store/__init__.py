"""Results on disk: one folder per result, which is complete or absent.

    <cache>/<stage>/<key>/{FIELD.npy ..., meta.json}
    <cache>/damaged/<stage>-<key>-<digits>/

The key is a hash of everything that a result depends on (gprune.pipeline.stages), so a result never becomes
outdated. It is written under a temporary name, flushed and then renamed. `meta.json` has the SHA-256 of its
content, which is compared at the first read in a process. Reading never writes: only a process that computes
moves a damaged result to the folder `damaged` (`set_aside`), so a finished cache can be read-only.
"""

from gprune.store.results import DAMAGED, Store, default_cache, explain_errors, is_full, require_folder, store_error
