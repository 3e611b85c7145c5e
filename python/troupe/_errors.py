"""troupe's errors: one class for each code, with what a program can act on as attributes. Text is for people."""
from __future__ import annotations

from typing import Any, Dict, Optional, Tuple, Type


class Error(Exception):
    """What a request or a call of troupe failed with.

    Attributes:
        code: the kind of failure, as C++'s errc: "deadline_exceeded".
        effect: "rejected" (it certainly did not run) or "unknown_outcome" (it may have run: what it writes is undefined).
        text: the value, the limit, the remedy.
        call, native_code, native_text: the foreign call that failed, such as ncclAllReduce; empty and 0 if none.
        rank, epoch, ticket, part: whom, when and which request it befell; None where that is not known.
        missing_ranks: of an operation that not all ranks have come to: who has not.
        undefined: with an unknown outcome, the memory that may have been written, in words.
    """

    code: str = "internal"
    effect: str = "rejected"
    text: str = ""
    call: str = ""
    native_code: int = 0
    native_text: str = ""
    rank: Optional[int] = None
    epoch: Optional[int] = None
    ticket: Optional[int] = None
    part: Optional[int] = None
    missing_ranks: Tuple[int, ...] = ()
    undefined: str = ""

    @property
    def was_rejected(self) -> bool:
        """Whether it certainly did not run, and all memory is as it was."""
        return self.effect == "rejected"


class InvalidArgument(Error, ValueError):
    """Fix the call: the text names the value and the limit."""


class Unsupported(Error):
    """Ask for something else: this device or library cannot do it."""


class Mismatch(Error):
    """Fix the callers: ranks disagree about one operation."""


class WrongDevice(Error):
    """Pass memory that lives on the rank's own device."""


class StaleBuffer(Error):
    """Allocate again: the device has lost its memory since."""


class StaleEpoch(Error):
    """The world has another epoch now: bring the ranks to one state, acknowledge it and ask again."""


class OutOfMemory(Error, MemoryError):
    """Free something, or ask for less."""


class Missing(Error):
    """Install what the text names."""


class TooOld(Error):
    """Upgrade what the text names."""


class DeviceOccupied(Error):
    """Free the device or choose another: someone else holds it exclusively."""


class Busy(Error):
    """Ask again when earlier requests have been answered: too many wait."""


class Cancelled(Error):
    """Nothing, or ask again: it was taken back, by its asker or by a peer of the operation."""


class Stopping(Error):
    """Nothing: the world is shutting down."""


class Rebuilding(Error):
    """Ask again when the world is ready: it forms anew after a fault."""


class RankLost(Error):
    """Ask a rank that remains: this one has left its world, which goes on without it."""


class WorldFailed(Error):
    """Form a new world: this one has failed and says why."""


class DeadlineExceeded(Error):
    """Retry later or give more time. (A timeout of Reply.result() is Python's TimeoutError: the request goes on.)"""


class CommunicatorFailed(Error):
    """Form a new world: the communicator reported an error or was aborted."""


class DeviceFailed(Error):
    """Form a new world: the device reported an error."""


class ProcessPoisoned(Error):
    """Replace the process: a sticky device error cannot be undone in it."""


class Abandoned(Error):
    """Ask again: the actor that held the request is gone."""


class Internal(Error):
    """Report a bug in troupe."""


def _code_of(name: str) -> str:
    return "".join("_" + letter.lower() if letter.isupper() else letter for letter in name).lstrip("_")


classes: Dict[str, Type[Error]] = {_code_of(one.__name__): one for one in Error.__subclasses__()}


def make_error(message: str, fields: Dict[str, Any]) -> Error:
    """Called by the extension module: an instance of the class of fields["code"]."""
    made = classes.get(fields["code"], Internal)(message)
    made.__dict__.update(fields)
    return made
