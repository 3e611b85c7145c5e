"""Threads that run callbacks, each of which may wait for another."""
from __future__ import annotations

import queue
import sys
import threading
from typing import Callable, Optional

#: Seconds after which a thread without work ends.
_REST = 10.0


class CallingThreads:
    """Runs calls, each at once: a call that waits for a later one does not keep it from running.

    There are as many threads as there are unfinished calls. If the system starts no more, that is reported as an
    uncaught exception is, and the call runs when another has finished. Threads: submit() and end() by one thread.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: "queue.SimpleQueue[Optional[Callable[[], None]]]" = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._resting = 0  # threads without work that no call in the queue is meant for

    def submit(self, call: Callable[[], None]) -> None:
        with self._lock:
            self._calls.put(call)
            if self._resting > 0:
                self._resting -= 1
                return
        try:
            threading.Thread(target=self._run, name=self._name, daemon=True).start()
        except RuntimeError as why:
            failure = RuntimeError(f"{why}: a callback of a future waits until another one has ended, which may wait for it; "
                                   f"raise the limit of threads (ulimit -u), or let callbacks not wait for futures")
            sys.excepthook(type(failure), failure, None)

    def end(self) -> None:
        """Ends the threads that have no work. Those that wait in a callback end with the process."""
        with self._lock:
            for _ in range(self._resting):
                self._calls.put(None)
            self._resting = 0

    def _run(self) -> None:
        while True:
            try:
                call = self._calls.get(timeout=_REST)
            except queue.Empty:
                with self._lock:
                    if self._resting > 0:
                        self._resting -= 1
                        return
                continue  # a call for this thread comes just now
            if call is None:
                return
            try:
                call()
            except Exception:  # of a callback, as threads do for uncaught exceptions
                sys.excepthook(*sys.exc_info())
            with self._lock:
                self._resting += 1
