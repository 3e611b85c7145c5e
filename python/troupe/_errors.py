"""Defines troupe's exceptions: one class for each error code. Programs use the attributes; the text is for users."""
from __future__ import annotations

from typing import Any, Dict, Optional, Tuple, Type


class Error(Exception):
    """The error of a request or a call of troupe.

    Attributes:
        code: the kind of failure, as C++'s errc: "deadline_exceeded".
        effect: "rejected" (it certainly did not run) or "unknown_outcome" (it may have run: its outputs are undefined).
        text: the value, the limit, the remedy.
        call, native_code, native_text: the foreign call that failed, e.g. ncclAllReduce; empty and 0 if none.
        rank, epoch, ticket, part: identify the failed request; None if unknown.
        missing_ranks: the ranks that have not requested the operation, if the others have waited for them.
        undefined: for an unknown outcome, a description of the memory that may have been written.
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
        """Whether the request certainly did not run, and all memory is unchanged."""
        return self.effect == "rejected"


class InvalidArgument(Error, ValueError):
    """Fix the call: the text names the value and the limit."""


class Unsupported(Error):
    """Request something else: this device or library does not support it."""


class Mismatch(Error):
    """Fix the callers: ranks disagree about one operation."""


class WrongDevice(Error):
    """Pass memory that lives on the rank's own device."""


class StaleBuffer(Error):
    """Allocate again: the device has lost its memory since the allocation."""


class StaleEpoch(Error):
    """Bring the ranks to one state, acknowledge the new epoch and retry: the world has been rebuilt."""


class OutOfMemory(Error, MemoryError):
    """Free memory, or request less."""


class Missing(Error):
    """Install what the text names."""


class TooOld(Error):
    """Upgrade what the text names."""


class DeviceOccupied(Error):
    """Free the device or choose another: another process uses it exclusively."""


class Busy(Error):
    """Retry when earlier requests have been answered: too many are pending."""


class Cancelled(Error):
    """Retry if needed: the request was withdrawn by its client or by a peer of the operation."""


class Stopping(Error):
    """No action is needed: the world is shutting down."""


class Rebuilding(Error):
    """Retry when the world is ready (wait_ready()): it is rebuilding after a fault."""


class RankLost(Error):
    """Send requests to the remaining ranks: this one has left its world, which continues without it."""


class WorldFailed(Error):
    """Form a new world: this one has failed; the text states the reason."""


class DeadlineExceeded(Error):
    """Retry later or give more time. (A timeout of Reply.result() is Python's TimeoutError: the request continues.)"""


class CommunicatorFailed(Error):
    """Continue when the world is ready again (wait_ready()): its communicator has failed."""


class DeviceFailed(Error):
    """Continue when the world is ready again (wait_ready()): the device reported an error."""


class ProcessPoisoned(Error):
    """Replace the process: it cannot recover from a sticky device error."""


class Abandoned(Error):
    """Retry: the actor that held the request has ended."""


class Internal(Error):
    """Report a bug in troupe."""


def _code_of(name: str) -> str:
    return "".join("_" + letter.lower() if letter.isupper() else letter for letter in name).lstrip("_")


classes: Dict[str, Type[Error]] = {_code_of(one.__name__): one for one in Error.__subclasses__()}


def make_error(message: str, fields: Dict[str, Any]) -> Error:
    """Returns an instance of the class of fields["code"]. The extension module calls it."""
    made = classes.get(fields["code"], Internal)(message)
    made.__dict__.update(fields)
    return made


def refuse(text: str, code: str = "invalid_argument") -> Error:
    """Returns the error of a call that certainly did nothing."""
    return make_error(text, {"code": code, "effect": "rejected", "text": text})
