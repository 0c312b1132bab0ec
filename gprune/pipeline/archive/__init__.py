"""A run in one file: computed on one machine, looked at on another that has neither its model nor its texts.

    write(store, "my-run-1a2b3c4d5e", Path("my-run.zip"))   # contents: what goes in; privacy: what not
    unpack(Path("my-run.zip"), Store(cache))                # all is checked before any of it is kept

A pack is an ordinary zip archive of an index, the run's record, and its results as .npy and .json files. It
holds no code and nothing that has to be trusted to be read: what an archive may be is said in `archive`,
what a record may hold in `record`.
"""

from gprune.pipeline.archive.contents import Contents, contents
from gprune.pipeline.archive.reading import Unpacked, unpack
from gprune.pipeline.archive.writing import Packed, write
