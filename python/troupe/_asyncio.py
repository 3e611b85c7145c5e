"""Makes replies awaitable: the poller writes to a descriptor that the loop watches, without the GIL, once per burst."""
from __future__ import annotations

import asyncio
import itertools
import weakref
from typing import Any, Dict, Generator, Optional, Tuple

from . import _troupe

#: How long an await polls for the reply before it suspends the task, in seconds.
_spin_seconds = 50e-6


def set_await_spin(seconds: float) -> None:
    """Sets how long an await of a reply polls, without the GIL, before the task is suspended. The default is 50 us.

    It polls only while the loop has nothing else to run; 0 disables polling. A suspended task is resumed some tens of
    microseconds after its reply, because asyncio takes that long.
    """
    global _spin_seconds
    if not 0 <= seconds <= 1:
        raise ValueError(f"the await spin is {seconds} s and must be from 0 to 1 s")
    _spin_seconds = seconds


class _Mailbox:
    """The replies that one loop waits for."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._box = _troupe.LoopMailbox()
        self._numbers = itertools.count(1)
        self._waiting: Dict[int, "asyncio.Future[None]"] = {}
        loop.add_reader(self._box.fileno(), self._drain)

    def wait(self, reply: Any, loop: asyncio.AbstractEventLoop) -> "asyncio.Future[None]":
        future = loop.create_future()
        number = next(self._numbers)
        self._waiting[number] = future
        if not reply._tell(self._box, number):
            del self._waiting[number]
            future.set_result(None)
        return future

    def _drain(self) -> None:
        for number in self._box.take():
            future = self._waiting.pop(number)
            if not future.done():  # otherwise its task was cancelled; the request continued
                future.set_result(None)


_mailboxes: "weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Mailbox]" = weakref.WeakKeyDictionary()
#: The loop used last, and its mailbox. Most programs have only one loop.
_latest: "Optional[Tuple[weakref.ref[asyncio.AbstractEventLoop], _Mailbox]]" = None


def _mailbox_of(loop: asyncio.AbstractEventLoop) -> _Mailbox:
    global _latest
    if _latest is not None and _latest[0]() is loop:
        return _latest[1]
    box = _mailboxes.get(loop)
    if box is None:
        box = _mailboxes[loop] = _Mailbox(loop)
    _latest = (weakref.ref(loop), box)
    return box


def _await_reply(self: Any) -> Generator[Any, None, Any]:
    if not self.done():
        loop = asyncio.get_running_loop()
        others = getattr(loop, "_ready", True)  # the callbacks that are ready to run; only asyncio's own loops have it
        if others or not self._spin(_spin_seconds):
            yield from _mailbox_of(loop).wait(self, loop)
    return self.result()


def _await_virtual(self: Any) -> Generator[Any, None, Any]:
    """Lets virtual time pass. Other tasks do not run meanwhile."""
    return self.result()
    yield


# By setattr(), since versions of mypy name the error of an assignment differently.
setattr(_troupe.Reply, "__await__", _await_reply)
setattr(_troupe.ValueReply, "__await__", _await_reply)
setattr(_troupe.VirtualReply, "__await__", _await_virtual)
