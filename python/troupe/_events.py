"""Delivers events of worlds and drivers on a thread of this module, because threads of troupe never wait for the GIL."""
from __future__ import annotations

import atexit
import sys
import threading
from typing import Any, Callable, Dict

from . import _troupe

_queues: "Dict[Any, threading.Thread]" = {}


def listen(native: Any, heard: Callable[[Dict[str, Any]], Any]) -> None:
    """Calls heard with the fields of each event, until the world has stopped or the interpreter ends."""
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

    thread = threading.Thread(target=run, name="troupe.events", daemon=True)
    _queues[queue] = thread
    native.listen(queue)
    thread.start()


@atexit.register
def _end() -> None:
    """Ends the threads while the interpreter still runs. A thread that wakes up later could not continue."""
    _troupe.stop_calling()
    for queue, thread in list(_queues.items()):
        queue.close()
        thread.join(1)
    _troupe.stop_releasing()
