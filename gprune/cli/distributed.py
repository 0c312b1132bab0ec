"""`run --model-gpus`: one model over several GPUs, by a process for each of them."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from gprune.cli import say, signals
from gprune.study import Study
from gprune.study.settings import require
from gprune.system import machine, safe_parsing
from gprune.system.errors import GpruneError, RanksError, SettingsError

if TYPE_CHECKING:
    from gprune.models.decoder import Decoder
    from gprune.models.distributed.process_group import Ranks
    from gprune.models.distributed.rpc import Order

EXIT_FAILED, EXIT_UNEXPECTED = 2, 1


def run(options: argparse.Namespace, study: Study, first: Callable[[Ranks], int]) -> int:
    """Runs a command by several processes: starts them, or is one of them; the exit code.

    `first` is what rank 0 does, given the processes; there GpruneError says why the run has failed, and that
    they cannot be started.
    """
    # torch's launcher has started this process as one of several
    started = "TORCHELASTIC_RUN_ID" in os.environ and "RANK" in os.environ
    return _joined(options, study, first) if started else _launched(options, study)


def _launched(options: argparse.Namespace, study: Study) -> int:
    """Starts the processes, each with this command, and waits for their end."""
    from gprune.models.distributed.launch import launch

    if study.device == "cpu" or not machine.has_gpu():
        told = f"--model-gpus {options.model_gpus}: no GPU is used, so that many processes share the CPU"
        say(told, file=sys.stderr)
    try:
        made = tempfile.TemporaryDirectory(prefix="gprune-ranks-", ignore_cleanup_errors=True)
        # a study that came through a pipe can be read once
        file = Path(made.name, "study.json")
        file.write_text(study.to_json(), encoding="utf-8")
    except OSError as error:
        raise SettingsError(
            "--model-gpus keeps the study in a temporary file, which cannot be written "
            f"({error.strerror or error}): make room, or set TMPDIR to another folder"
        ) from error
    with made as folder:
        words = ["run", str(file), "--model-gpus", str(options.model_gpus), "--until", options.until]
        words += ["--json"] if options.json else []
        words += ["--anyway"] if options.anyway else []
        for name, value in (("--job", options.job), ("--cache", options.cache)):
            words += [name, str(value)] if value is not None else []
        return launch(options.model_gpus, words, Path(folder))


def _joined(options: argparse.Namespace, study: Study, first: Callable[[Ranks], int]) -> int:
    """What one of the processes does."""
    first_one, count = os.environ["RANK"] == "0", os.environ["WORLD_SIZE"]
    _keep_output(first_one)
    if not first_one:
        # what a signal means is for rank 0 to say, and so is every other word
        signals.ignore()
    from gprune.models.distributed.process_group import Ranks

    if not first_one:
        _end_with(_followed(study))
    rule = f"{count}, the processes that were started"
    require(count == str(options.model_gpus), "--model-gpus", options.model_gpus, rule)
    ranks = Ranks.join(study.device)
    signals.listen(options.job, ranks.missing)
    try:
        code = first(ranks)
    except BaseException:
        # how it ended is known: whoever started the processes may end them now
        signals.ignore()
        ranks.leave()
        raise
    signals.ignore()
    if not ranks.end():
        _end_with(code)
    return code


def _keep_output(first_one: bool) -> None:
    """Leaves standard output to results: what libraries print there, as NCCL does, goes with the messages."""
    sys.stdout.flush()
    # without a standard error there is nowhere else
    with contextlib.suppress(OSError):
        own = os.dup(1)
        os.dup2(2, 1)
        if first_one:
            buffering = 1 if os.isatty(own) else -1
            sys.stdout = open(own, "w", buffering, encoding=sys.stdout.encoding, errors=sys.stdout.errors)  # noqa: SIM115


def _end_with(code: int) -> NoReturn:
    """Ends this process at once: what a GPU still waits for must not hold it back."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):
            stream.flush()
    os._exit(code)


def _followed(study: Study) -> int:
    """The exit code of a process that follows."""
    from gprune.models.distributed.process_group import Ranks

    try:
        return _follow(Ranks.join(study.device))
    except GpruneError:
        # rank 0 finds the same
        return EXIT_FAILED
    except Exception:
        traceback.print_exc()
        return EXIT_UNEXPECTED


class _Held:
    """The model of a process that follows, in the form that was last asked for."""

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks
        self._form = ""
        self._decoder: Any = None

    def whole(self, values: Any) -> Decoder:
        """As it goes through a pass: whole, or with its layers left in their files."""
        from gprune.models.loading import load

        precision, trusted = values["precision"], values["trust_remote_code"]
        place = self._ranks.device
        return self._as("whole", lambda: load(values["model"], place, precision, trusted, values["offload"]))

    def sharded(self, values: Any) -> Decoder:
        """As it is learned on: a part of every layer."""
        from gprune.models.sharding import sharded

        precision, trusted = values["precision"], values["trust_remote_code"]
        return self._as("sharded", lambda: sharded(values["model"], self._ranks.device, precision, trusted))

    def let_go(self) -> None:
        """Keeps none."""
        from gprune.models import oom_backoff

        self._form, self._decoder = "", None
        oom_backoff.release()

    def there(self) -> Decoder:
        """The one that was made last."""
        found: Decoder = self._decoder
        return found

    def _as(self, form: str, make: Callable[[], Decoder]) -> Decoder:
        if self._form != form:
            self.let_go()
            self._form, self._decoder = form, make()
        return self.there()


def _follow(ranks: Ranks) -> int:
    """Does what rank 0 asks for, until it ends."""
    # while rank 0 reads what it needs
    import gprune.models.sharding
    import gprune.pruning.calibration
    import gprune.pruning.sparsity.shared_passes  # noqa: F401
    from gprune.models import oom_backoff
    from gprune.models.distributed.process_group import Withdrawn

    held = _Held(ranks)
    try:
        while (order := ranks.awaited()) is not None:
            # what went wrong is rank 0's to tell, and all go on together
            with contextlib.suppress(Withdrawn):
                _take_part(ranks, held, order)
    except GpruneError as error:
        ranks.withdraw(error)
        return EXIT_FAILED
    except Exception as error:
        ranks.withdraw(_told(ranks, error))
        if oom_backoff.out_of_memory(error):
            return EXIT_FAILED
        raise
    ranks.end()
    return 0


def _told(ranks: Ranks, error: Exception) -> GpruneError:
    """What rank 0 is to say of an error that is none of ours."""
    from gprune.models import oom_backoff

    who = f"process {ranks.rank + 1} of the {ranks.count} that compute this model together"
    if oom_backoff.out_of_memory(error):
        return SettingsError(
            f"memory ran out on {who} ({oom_backoff.sizes(error, ranks.place)}): use more GPUs "
            "(--model-gpus), dtype bfloat16, or close what else uses the memory"
        )
    words = safe_parsing.sentence(f"{type(error).__name__}: {error}")
    return RanksError(f"{who} has failed ({words}): finished stages are kept, report what is printed above")


def _take_part(ranks: Ranks, held: _Held, order: Order) -> None:
    from gprune.pipeline.stages import distributed
    from gprune.pruning.calibration import collect, collect_strongest, strongest_of
    from gprune.pruning.sparsity import shared_passes
    from gprune.records import Tokens
    from gprune.study.settings import CalibrationSettings
    from gprune.system.progress import silent

    values = order.values
    if order.name == shared_passes.ORDER:
        shared_passes.follow(ranks, held.there(), order)
    elif order.name == distributed.SHARD:
        held.let_go()
        with ranks.working():
            held.sharded(values)
    elif order.name == distributed.LET_GO:
        held.let_go()
    elif order.name == distributed.REPAIR:
        _repair(ranks, held, order)
    else:
        tokens = Tokens(values["text"], values["fingerprint"], order.arrays["ids"], values["available"])
        decoder, settings = held.whole(values), CalibrationSettings(**values["settings"])
        count = int(values["count"])
        if order.name == distributed.POSITIONS:
            collect_strongest(decoder, tokens, settings, count, silent, ranks)
        else:
            strongest = strongest_of(decoder, tokens, count) if count else None
            collect(decoder, tokens, settings, silent, strongest, ranks)


def _repair(ranks: Ranks, held: _Held, order: Order) -> None:
    """This process's share of fitting weights to masks."""
    from gprune.pruning.repair.fitting import fit
    from gprune.records import PruningMasks, Tokens
    from gprune.study.settings import OwnRepair
    from gprune.system.progress import silent

    values, arrays = order.values, order.arrays
    ids = [arrays[f"ids{number}"] for number in range(values["texts"])]
    texts = [Tokens("", "", one, one.size) for one in ids]
    masks = PruningMasks("", arrays["ffn"], arrays["heads"], 0.0, 0.0)
    settings = OwnRepair(**values["repair"])
    fit(held.whole(values), masks, texts, settings, int(values["batch"]), silent, ranks)
