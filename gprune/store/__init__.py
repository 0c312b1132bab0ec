"""Where results are kept: one folder a result, written whole or not at all.

    <cache>/<stage>/<key>/{FIELD.npy ..., manifest.json}
    <cache>/damaged/<stage>-<key>-<digits>/

The key says everything a result depends on (gprune.pipeline.stages), so a result never goes stale; it is
written to
a temporary folder, its manifest last, and moved into place in one step when the disk has all of it, so that
it is either whole or absent. Arrays are read back read-only, large ones as memory maps. Nothing is pickled.

What is read is what was written: the manifest has the SHA-256 of every file and of itself. `has` looks at
the manifest and at the headers of arrays, `get` compares the checksum of each file that it reads for the
first time in a process, `check` those of all files. Reading never writes: only whoever computes moves a
damaged result aside (`set_aside`), so that a whole cache can be read-only. All of it is its owner's alone.
"""

from gprune.store.folder import default_cache, explain, explained, is_full, require_folder
from gprune.store.results import DAMAGED, Store
