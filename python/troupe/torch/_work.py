"""Defines the handle of an operation in flight, and the thread that settles futures."""
from __future__ import annotations

import datetime
import multiprocessing.util
import os
import select
import threading
import time
from typing import Any, Callable, Dict, List, Optional, Sequence, Union

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import WorkResult

from .. import _troupe
from .._errors import DeadlineExceeded, Error
from ._cuda import Gpu, refuse_in_capture
from ._failures import failure_of, not_yet
from ._recovery import Backward, Epochs
from ._threads import CallingThreads

_NO_TIMEOUT = datetime.timedelta(0)


class Work(dist.Work):  # type: ignore[misc]
    """One operation of this rank. Threads: any.

    The outputs are defined once it is seen to have ended: by wait(), is_completed() or its future.
    """

    def __init__(self, reply: Any, what: str, deadline: datetime.timedelta, outputs: Sequence[torch.Tensor],
                 finish: Optional[Callable[[], None]] = None, epochs: Optional[Epochs] = None) -> None:
        super().__init__()
        self._reply, self._what, self._deadline = reply, what, deadline
        self._outputs, self._finish, self._epochs = outputs, finish, epochs
        self._backward = Backward.current()
        self._lock = threading.Lock()
        self._future: Optional[torch.futures.Future[Any]] = None

    def wait(self, timeout: Union[datetime.timedelta, None] = None) -> bool:
        """Waits for the outcome, without the GIL. Raises the operation's error, or DistBackendError after `timeout`.

        In a backward pass the operation's error is raised at the end of the pass.
        """
        try:
            self._reply.result(timeout if timeout else None)
        except TimeoutError:
            raise not_yet(self._what, timeout or _NO_TIMEOUT) from None
        except Error as why:
            self._raise(why)
            return True
        self._take_results()
        return True

    def _raise(self, why: Error) -> None:
        """Raises the operation's error, unless a backward pass raises it at its end."""
        failure, backward = self._fail(why), Backward.current()
        if backward is None or not backward.hold(failure):
            raise failure from why

    def _take_results(self) -> None:
        """Copies the results to their places, once."""
        if self._finish is not None:
            with self._lock:
                if self._finish is not None:
                    self._finish()
                    self._finish = None

    def _fail(self, why: Error) -> Exception:
        """Returns a new exception each time: one that is raised again would keep the frames of all earlier times."""
        return failure_of(self._what, why, self._deadline, self._epochs.advice() if self._epochs else "")

    def is_completed(self) -> bool:
        if not self._reply.done():
            return False
        if self.exception() is None:
            self._take_results()
        return True

    def is_success(self) -> bool:
        return self._reply.done() and self.exception() is None

    def exception(self) -> Optional[Exception]:
        """Returns the error of an operation that has failed; None if it has not, or has not ended."""
        if not self._reply.done():
            return None
        why = self._reply.exception()
        return None if why is None else self._fail(why)

    def result(self) -> List[torch.Tensor]:
        self.wait()
        return list(self._outputs)

    def synchronize(self) -> None:
        self.wait()

    def get_future(self) -> "torch.futures.Future[Any]":
        """Returns a future of the outputs. A thread of this module settles it, and runs its callbacks."""
        with self._lock:
            is_new = self._future is None
            if is_new:
                self._future = self._new_future()
        if is_new and not _settling.tell(self._reply._tell, self._settle):
            self._settle()
        return self._future

    def _new_future(self) -> "torch.futures.Future[Any]":
        return torch.futures.Future()

    def get_future_result(self) -> "torch.futures.Future[int]":
        """Returns a future of the number of a WorkResult, which does not fail."""

        def result_of(future: "torch.futures.Future[Any]") -> int:
            try:
                future.value()
            except Exception:
                was_late = isinstance(getattr(self.exception(), "__cause__", None), DeadlineExceeded)
                return int(WorkResult.TIMEOUT if was_late else WorkResult.COMM_ERROR)
            return int(WorkResult.SUCCESS)

        return self.get_future().then(result_of)

    def _settle(self) -> None:
        """Settles the future of an operation that has ended."""
        assert self._future is not None
        try:
            self.wait()
        except Exception as failure:
            if self._backward is None or not self._backward.hold(failure):
                self._future.set_exception(failure)
                return
        self._future.set_result(list(self._outputs))


class GpuWork(Work):
    """An operation of this rank on its GPU, in the order of streams. Threads: any.

    wait() makes the current stream wait; the GPU need not be done. An error that the GPU's work has after the launch is
    raised by synchronize(), by exception(), and by the calls that follow, because the world has failed.
    """

    def __init__(self, gpu: Gpu, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._gpu = gpu
        self._copied: Optional[torch.cuda.Event] = None
        self.blocks = gpu.blocks  #: whether wait() waits for the outcome

    def wait(self, timeout: Union[datetime.timedelta, None] = None) -> bool:
        """Makes this thread's current stream wait, on the GPU, for the operation.

        Blocks the thread, without the GIL, until the operation is in the GPU's queue: a stream that waited for an event
        which is not recorded yet would not wait. Errors: as Work.wait(); RuntimeError while the stream is captured.
        """
        if self.blocks:
            return super().wait(timeout)
        if not self._reply.done() and self._gpu.is_captured():
            refuse_in_capture("wait() for an operation outside of the capture")
        try:
            self._reply.order(self._gpu.current_stream(), timeout if timeout else None)
        except TimeoutError:
            raise not_yet(self._what, timeout or _NO_TIMEOUT) from None
        except Error as why:
            self._raise(why)
            return True
        self._take_results()
        return True

    def block_current_stream(self) -> None:
        self.wait()

    def synchronize(self) -> None:
        """Waits until the GPU is done, and raises the operation's error."""
        super().wait()
        if self._copied is not None:
            self._copied.synchronize()

    def result(self) -> List[torch.Tensor]:
        super().wait()
        return list(self._outputs)

    def _take_results(self) -> None:
        if self._finish is None and self._copied is None:
            return
        with self._lock:
            stream = torch.cuda.current_stream(self._gpu.index)
            if self._finish is not None:
                with torch.cuda.device(self._gpu.index):
                    self._finish()
                self._finish = None
                self._copied = stream.record_event()
            elif self._copied is not None:  # another stream has them
                stream.wait_event(self._copied)

    def get_future(self) -> "torch.futures.Future[Any]":
        """Returns a future of the outputs, settled when the operation is in the GPU's queue: its wait() is of streams, too."""
        with self._lock:
            is_new = self._future is None
            if is_new:
                self._future = self._new_future()
        assert self._future is not None
        if is_new and not _settling.tell(self._reply._tell_launch, self._settle):
            self._settle()
        return self._future

    def _new_future(self) -> "torch.futures.Future[Any]":
        return torch.futures.Future(devices=[self._gpu.device])

    def _settle(self) -> None:
        with torch.cuda.device(self._gpu.index), torch.cuda.stream(self._gpu.side_stream()):
            super()._settle()  # which records where this stream is


class Captured(dist.Work):  # type: ignore[misc]
    """An operation that has become a part of a graph. It has no outcome: the replays have."""

    def __init__(self, outputs: Sequence[torch.Tensor], finish: Optional[Callable[[], None]], behind: Callable[[], None]) -> None:
        super().__init__()
        self._outputs, self._finish, self._behind = outputs, finish, behind

    def wait(self, timeout: Optional[datetime.timedelta] = None) -> bool:
        """Orders what this thread's current stream captures next behind the operation."""
        self._behind()
        if self._finish is not None:
            self._finish()
            self._finish = None
        return True

    def block_current_stream(self) -> None:
        self.wait()

    def is_completed(self) -> bool:
        return True

    def is_success(self) -> bool:
        return True

    def exception(self) -> Optional[Exception]:
        return None

    def result(self) -> List[torch.Tensor]:
        self.wait()
        return list(self._outputs)

    def synchronize(self) -> None:
        self.wait()

    def get_future(self) -> "torch.futures.Future[Any]":
        refuse_in_capture("get_future() of a collective")


class Coalesced(dist.Work):  # type: ignore[misc]
    """Several operations as one: it has ended when all of them have. Threads: any."""

    def __init__(self, works: "Sequence[Union[Work, Captured]]") -> None:
        super().__init__()
        self._works = list(works)

    def wait(self, timeout: Optional[datetime.timedelta] = None) -> bool:
        until = time.monotonic() + timeout.total_seconds() if timeout else None
        for one in self._works:
            left = None if until is None else datetime.timedelta(seconds=max(until - time.monotonic(), 1e-6))
            one.wait(left)
        return True

    def is_completed(self) -> bool:
        return all([one.is_completed() for one in self._works])

    def is_success(self) -> bool:
        return all(one.is_success() for one in self._works)

    def exception(self) -> Optional[Exception]:
        return next((one.exception() for one in self._works if one.exception() is not None), None)

    def result(self) -> List[torch.Tensor]:
        return [tensor for one in self._works for tensor in one.result()]

    def synchronize(self) -> None:
        for one in self._works:
            one.synchronize()

    def get_future(self) -> "torch.futures.Future[Any]":
        devices = {one._gpu.device for one in self._works if isinstance(one, GpuWork)}
        made: "torch.futures.Future[Any]" = torch.futures.Future(devices=list(devices))
        all_of = torch.futures.collect_all([one.get_future() for one in self._works])

        def settle(of: "torch.futures.Future[Any]") -> None:
            try:
                made.set_result([tensor for one in of.value() for tensor in one.value()])
            except Exception as failure:
                made.set_exception(failure)

        all_of.add_done_callback(settle)
        return made


class _Settling:
    """Settles futures on threads of this module: threads of troupe never wait for the GIL (design record 0044).

    One thread hears of replies, others settle: a callback may wait for another future, as PowerSGD's does in DDP.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process = 0
        self._due: Dict[int, Callable[[], None]] = {}
        self._last = 0

    def tell(self, tell: Callable[[Any, int], bool], settle: Callable[[], None]) -> bool:
        """Calls settle when the step of a reply is there that `tell` reports. Returns False, and does nothing, if it is there."""
        with self._lock:
            if self._process != os.getpid():  # the first call, or the first one of a fork
                self._process, self._due = os.getpid(), {}
                self._box = _troupe.LoopMailbox()
                self._ends, self._end = os.pipe()
                self._settlers = CallingThreads("troupe.callbacks")
                self._thread = threading.Thread(target=self._run, name="troupe.futures", daemon=True)
                self._thread.start()
                multiprocessing.util.Finalize(None, self.end, exitpriority=0)
            self._last += 1
            number = self._last
            self._due[number] = settle
        if tell(self._box, number):
            return True
        del self._due[number]
        return False

    def _run(self) -> None:
        poll = select.poll()
        poll.register(self._box.fileno(), select.POLLIN)
        poll.register(self._ends, select.POLLIN)
        while all(descriptor != self._ends for descriptor, _ in poll.poll()):
            for number in self._box.take():
                self._settlers.submit(self._due.pop(number))

    def end(self) -> None:
        """Ends the thread while the interpreter still runs. A thread that wakes up later could not continue."""
        os.write(self._end, b".")
        self._thread.join(10)
        self._settlers.end()


_settling = _Settling()
