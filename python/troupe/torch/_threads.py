"""Threads that run callbacks, each of which may wait for another."""
from __future__ import annotations

import queue
import sys
import threading
import time
from typing import Callable, List, Optional

#: Seconds after which a thread without work ends.
_REST = 10.0
#: Seconds that the end of the interpreter waits for calls.
_PATIENCE = 10.0


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
        self._threads: List[threading.Thread] = []

    def submit(self, call: Callable[[], None]) -> None:
        with self._lock:
            self._calls.put(call)
            if self._resting > 0:
                self._resting -= 1
                return
        self._threads = [one for one in self._threads if one.is_alive()]
        try:
            thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            thread.start()
            self._threads.append(thread)
        except RuntimeError as why:
            failure = RuntimeError(f"{why}: a callback of a future waits until another one has ended, which may wait for it; "
                                   f"raise the limit of threads (ulimit -u), or let callbacks not wait for futures")
            sys.excepthook(type(failure), failure, None)

    def end(self) -> None:
        """Ends the threads, each when its call has ended: one that went on after the interpreter's end would abort the process."""
        until = time.monotonic() + _PATIENCE
        for _ in self._threads:
            self._calls.put(None)
        for one in self._threads:
            one.join(max(until - time.monotonic(), 0))
        if any(one.is_alive() for one in self._threads):
            print(f"troupe: the interpreter ends, and a callback of a future ({self._name}) has not ended within {_PATIENCE:g} s: "
                  f"if it goes on now, the process is aborted", file=sys.stderr)

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
