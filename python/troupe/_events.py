"""Delivers events of worlds and drivers on a thread of this module, because threads of troupe never wait for the GIL."""
from __future__ import annotations

import asyncio
import atexit
import collections
import sys
import threading
import weakref
from typing import Any, Callable, Deque, Dict, Generic, List, Tuple, TypeVar

from . import _troupe

_Event = TypeVar("_Event")

_queues: "Dict[Any, threading.Thread]" = {}


def listen(native: Any, heard: Callable[[Dict[str, Any]], Any], ended: Callable[[], Any] = lambda: None) -> Any:
    """Calls heard with the fields of each event, until the world has stopped or the interpreter ends, and then ended.

    Returns the queue of events, whose close() ends it, too.
    """
    queue = _troupe.EventQueue()

    def run() -> None:
        while (fields := queue.take()) is not None:
            try:
                heard(fields)
            except Exception:  # as threads do for uncaught exceptions
                sys.excepthook(*sys.exc_info())
            if fields.get("phase") == "stopped":
                break
        _queues.pop(queue, None)
        ended()

    native.listen(queue)
    _queues[queue] = threading.Thread(target=run, name="troupe.events", daemon=True)
    _queues[queue].start()
    return queue


class Events(Generic[_Event]):
    """The changes of a world or driver from now on, in their order: `for event in world.events()`, or `async for`.

    It ends with the event whose phase is "stopped", or by close(), also at the end of a with statement; changes that
    have been reported are still returned. Waiting for the next one does not delay the world. Threads: any.
    """

    def __init__(self, native: Any, event_of: Callable[[Dict[str, Any]], _Event]) -> None:
        self._events: Deque[_Event] = collections.deque()
        self._has_ended = False
        self._changed = threading.Condition()
        self._awaiting: List[Tuple[asyncio.AbstractEventLoop, "asyncio.Future[None]"]] = []
        # The thread must not keep this object: an iteration that is left in its middle ends with it.
        me = weakref.ref(self)

        def heard(fields: Dict[str, Any]) -> None:
            if (events := me()) is not None:
                events._add(event_of(fields))

        def ended() -> None:
            if (events := me()) is not None:
                events._end()

        queue = listen(native, heard, ended)
        self.close = weakref.finalize(self, queue.close)
        if native.status()["phase"] == "stopped":  # no event may follow
            queue.close()

    def _add(self, event: _Event) -> None:
        with self._changed:
            self._events.append(event)
            self._wake()

    def _end(self) -> None:
        with self._changed:
            self._has_ended = True
            self._wake()

    def _wake(self) -> None:
        self._changed.notify_all()
        awaiting, self._awaiting = self._awaiting, []
        for loop, future in awaiting:
            try:
                loop.call_soon_threadsafe(lambda done: done.done() or done.set_result(None), future)
            except RuntimeError:  # the loop has been closed
                pass

    def __iter__(self) -> "Events[_Event]":
        return self

    def __next__(self) -> _Event:
        with self._changed:
            while not self._events and not self._has_ended:
                self._changed.wait()
            if not self._events:
                raise StopIteration
            return self._events.popleft()

    def __aiter__(self) -> "Events[_Event]":
        return self

    async def __anext__(self) -> _Event:
        loop = asyncio.get_running_loop()
        while True:
            with self._changed:
                if self._events:
                    return self._events.popleft()
                if self._has_ended:
                    raise StopAsyncIteration
                future = loop.create_future()
                self._awaiting.append((loop, future))
            await future

    def __enter__(self) -> "Events[_Event]":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


@atexit.register
def _end() -> None:
    """Ends the threads while the interpreter still runs. A thread that wakes up later could not continue."""
    _troupe.stop_calling()
    for queue, thread in list(_queues.items()):
        queue.close()
        thread.join(1)
    _troupe.stop_releasing()
