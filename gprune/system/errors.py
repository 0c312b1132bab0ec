"""Exceptions with a remedy for the user.

Every message says what is wrong, with the offending value, and what to do about it.

    GpruneError
    ├── SettingsError       a setting out of range, an unknown field, a contradiction
    ├── ModelError          a folder without a model, an unsupported family, NaN weights
    ├── MethodError         a method that cannot run on this model or at this retention
    │   └── PluginError     a plug-in that cannot be found, read, imported or used
    ├── TaskError           a zero-shot task that cannot be measured on a model
    ├── CorpusError         a text that is missing, empty, too small or in another encoding
    ├── UnreadableError     a file or value that is damaged, hostile or of an unexpected kind
    ├── StoreError          the cache cannot be read or written
    │   └── DamagedError    a result is not what was written
    ├── NumericsError       scores or statistics that are not finite
    ├── CheckpointError     a saved model that does not read back as it was
    ├── JobError            a job that cannot be started, found or stopped
    └── Cancelled           the user stopped the run

Interrupted is no GpruneError but a KeyboardInterrupt, because it is raised by a signal.
"""


class GpruneError(Exception):
    """Base of every error this project raises on purpose."""

    faults: tuple[str, ...] = ()
    """one sentence per fault, if there are several"""


class SettingsError(GpruneError, ValueError):
    """A setting is out of range, unknown or contradicts another."""


class ModelError(GpruneError):
    """A model cannot be loaded or is of a kind that cannot be pruned."""


class MethodError(GpruneError):
    """One method cannot run on this model or at this retention; others can."""


class PluginError(MethodError):
    """A metric or method of another package cannot be found, read, imported or used; others can."""


class TaskError(GpruneError):
    """A zero-shot task cannot be measured on a model; everything else can."""


class CorpusError(GpruneError):
    """A calibration or evaluation text cannot be used."""


class UnreadableError(GpruneError, ValueError):
    """A file or value from outside is damaged, hostile or not of the expected kind."""


class StoreError(GpruneError):
    """The cache cannot be read or written."""


class DamagedError(StoreError):
    """A result in the cache differs from what was written."""

    def __init__(self, stage: str, key: str, fault: str) -> None:
        """Name the damaged result, its fault, and the remedy."""
        super().__init__(
            f"no complete result: {stage}/{key} is damaged ({fault}): run the study again "
            "to recompute it, finished stages are kept"
        )
        self.fault = fault


class NumericsError(GpruneError):
    """Statistics or scores contain NaN or infinity."""

    @classmethod
    def of(cls, subject: str) -> "NumericsError":
        """Return the error for numbers of a model that are not finite."""
        return cls(f"{subject} is not finite: check the model's weights for NaN, or use float32 or bfloat16")


class CheckpointError(GpruneError):
    """A saved model does not read back as it was written."""


class JobError(GpruneError):
    """A job cannot be started, found or stopped."""


class Cancelled(GpruneError):  # noqa: N818  (an outcome, not an error)
    """The run was cancelled."""


class Interrupted(KeyboardInterrupt):  # noqa: N818  (an outcome, not an error)
    """The process was asked to stop by a signal; the run can be resumed.

    It is a KeyboardInterrupt, so that handlers of ordinary errors do not catch it.
    """
