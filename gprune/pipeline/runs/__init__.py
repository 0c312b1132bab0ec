"""The records that runs leave, `<cache>/runs/<run>/run.json`: written, read and checked in one place.

A record is a file like any other: it may be damaged, from another version or made by hand. Whoever reads one
gets it through here, with every field of the form that the program relies on, or a sentence about what is
wrong with it.
"""

from gprune.pipeline.runs.notes import RunNotes
from gprune.pipeline.runs.reading import RECORD, REMEDY, failures, load, parse_record, read, read_all, require_record
from gprune.pipeline.runs.writing import INTERRUPTED, current_state, lock_path, other_host, save
