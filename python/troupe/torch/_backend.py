"""Defines the backend: calls of torch.distributed become requests to this process's rank."""
from __future__ import annotations

import array
import datetime
import functools
import os
import threading
import weakref
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Mapping, NoReturn, Optional, Sequence, Tuple, Union

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import Backend as _Backend

from .. import _errors, _troupe
from .._dtypes import element_bytes
from .._errors import DeadlineExceeded, Error
from . import _records
from ._comparison import compare
from ._cuda import Gpu, refuse_in_capture
from ._failures import failure_of, refuse
from ._native import native
from ._recovery import COLLECTIVES, SPLIT, Epochs
from ._tensors import (Memory, in_memory, in_order, joined, movable, one_layout, one_type, parts_of, reducible,
                       reduction_of, room_for, single, spread)
from ._work import Captured, Coalesced, GpuWork, Work
from ._worlds import GroupWorld

if TYPE_CHECKING:
    from ._graph import Capture, Graph

_ZERO, _MILLISECOND = datetime.timedelta(0), datetime.timedelta(milliseconds=1)
#: How much longer the other ranks wait in a monitored barrier than rank 0.
_LATER = datetime.timedelta(seconds=1)


class _OfThread(threading.local):
    """What each thread has of its own."""

    work: Any = None  #: the Work that the backend has made last
    batch: Optional[List[Union[Work, Captured]]] = None  #: those since start_coalescing()


class _LeftWorld:
    """Stands for the world of a group that has ended, for a call that began before that."""

    def __getattr__(self, name: str) -> Any:
        raise _errors.refuse("this process has left the process group", "stopping")


class TroupeBackend(_Backend):  # type: ignore[misc]
    """One rank of a process group's world. c10d calls its methods, whose signatures are those of c10d's Backend.

    An operation of all ranks is launched when all of them have asked for it with equal counts and types; a send, when its
    recv is there. So a rank that is missing or differs is an error that names it, not a hang. A timeout is the request's
    deadline.
    Errors: ValueError for a call that is wrong at this rank; DistBackendError for an operation that failed, with the
    troupe.Error as its cause; NotImplementedError for what troupe does not have.
    Threads: any; collectives must be made in one order at all ranks.
    """

    _compares: Optional[bool] = None  #: whether shapes and types of all ranks are compared; None: not known yet

    def __init__(self, world: GroupWorld, timeout: datetime.timedelta, epochs: Optional[Epochs] = None) -> None:
        """epochs: those of the group that this one is a part of. A group of its own recovers if its controller does."""
        self._begin(world.rank, world.size, timeout, native())
        self._is_part = epochs is not None
        self._use(world, Epochs(world, epochs) if world.recovers else None)

    def _begin(self, rank: int, size: int, timeout: datetime.timedelta, direct: Any = None) -> None:
        """Sets what does not depend on a world. direct: the module of the native part, which makes requests without Python."""
        self._connected = False  # whether the native part makes requests
        self._direct = direct
        (_Backend.__init__ if direct is None else direct.init)(self, rank, size)
        self._options = _Backend.Options("troupe", timeout=timeout)
        self._timeout = timeout
        self._process = os.getpid()
        self.of_thread = _OfThread()
        self.graphs: "weakref.WeakSet[Graph[Any]]" = weakref.WeakSet()
        self._is_part = False
        self._gpu: Optional[Gpu] = None
        self._ended = ""

    def _use(self, world: GroupWorld, epochs: Optional[Epochs]) -> None:
        """Makes later calls those of this rank of a world."""
        self._world, self._native, self._epochs = world, world.world._native, epochs
        self._rank, self._size = world.rank, world.size
        self._gpu = world.gpu
        self._sequence = 0  # the number of collectives that this rank has asked for
        self._splits = self._groups = 0  # those made
        self._captures = (0, 0)  # an epoch, and the number of graphs that were captured in it
        self._ended = ""
        if epochs is None:
            self._connect()

    def _connect(self) -> None:
        """Lets the native part make requests. In a group that recovers: in the epoch for which the lane has made one."""
        if self._direct is not None:
            gpu, epochs = self._gpu, self._epochs
            make_work: Any = functools.partial(Work, epochs=epochs) if gpu is None else functools.partial(GpuWork, gpu, epochs=epochs)
            try:
                uses = None if epochs is None else epochs.native_uses(self._direct)
                self._direct.connect(self, self._native, self._rank, self._size, COLLECTIVES, self._timeout, uses, make_work,
                                     -1 if gpu is None else gpu.index, gpu is not None and gpu.blocks)
                self._connected = True
                if epochs is not None:
                    epochs.add_native(self)
            except ValueError:  # host memory is staged in this world
                pass

    def _disconnect(self) -> None:
        """Makes every later call one of this class."""
        if self._direct is not None and self._connected:
            self._sequence += self._direct.asked(self)
            self._direct.disconnect(self)
            self._connected = False

    def leave_epoch(self) -> None:
        """Makes later calls wait for the next epoch. Called by resume()."""
        self._disconnect()

    # The rank and the group -------------------------------------------------------------------------------------------

    def getBackendName(self) -> str:
        return "troupe"

    @property
    def options(self) -> Any:
        return self._options

    @property
    def current_rank(self) -> int:
        return self._rank

    @property
    def current_size(self) -> int:
        return self._size

    @property
    def is_native(self) -> bool:
        """Whether its C++ object is that of the native part, whose works are whole."""
        return self._direct is not None

    @property
    def gpu(self) -> Optional[Gpu]:
        """The GPU of this rank; None in a world of the CPU."""
        return self._gpu

    @property
    def recovers(self) -> bool:
        """Whether the group goes on after the loss of a process: see troupe.torch.resume()."""
        return self._epochs is not None

    @property
    def is_part(self) -> bool:
        """Whether it is a part of another group's world."""
        return self._is_part

    @property
    def supports_splitting(self) -> bool:
        return True

    @property
    def supports_coalescing(self) -> bool:
        return True

    def set_timeout(self, timeout: datetime.timedelta) -> None:
        self._timeout = self._options._timeout = timeout
        if self._connected:
            self._disconnect()
            self._connect()

    def _set_sequence_number_for_group(self) -> None:
        """Does nothing: every rank counts from 0."""

    def _get_sequence_number_for_group(self) -> int:
        return self._sequence if self._direct is None else self._sequence + int(self._direct.asked(self))

    def eager_connect_single_device(self, device: torch.device) -> None:
        """Does nothing: the world has been formed."""

    # Requests ---------------------------------------------------------------------------------------------------------

    def _require_alive(self, what: str) -> None:
        if self._ended:
            raise dist.DistBackendError(f"{what} after {self._ended}: this process has left the process group; make another "
                                        f"by init_process_group() or new_group()")
        if os.getpid() != self._process:
            raise dist.DistBackendError(f"{what} in process {os.getpid()}, a fork of process {self._process}, which has the "
                                        f"rank of this process group: fork before init_process_group(), or start processes "
                                        f"by 'spawn'")

    def _operand(self, memory: Optional[Memory]) -> Any:
        if memory is None:
            return None
        tensor = memory.tensor
        held = tensor if self._epochs is None else self._epochs.hold(tensor)
        operand_at = self._native.device_operand_at if tensor.is_cuda else self._native.operand_at
        return operand_at(self._rank, tensor.data_ptr(), memory.elements, memory.dtype, held)

    def _gpu_of(self, what: str, operations: Sequence[Tuple[Any, ...]]) -> Optional[Gpu]:
        """Returns the GPU of the operations' tensors, if they are on one. Errors: ValueError if it is not this rank's."""
        on: Optional[Gpu] = None
        for operation in operations:
            for memory in operation[1:3]:
                if memory is None or not memory.tensor.is_cuda:
                    continue
                on = self._gpu
                if on is None or memory.tensor.device.index != on.index:
                    self._refuse_device(what, memory.tensor.device)
        return on

    def _refuse_device(self, what: str, device: torch.device) -> NoReturn:
        if self._gpu is None:
            raise ValueError(f"{what} was given a tensor on {device}, and the world of this process group moves memory of the CPU: use "
                             f".cpu(), or make the group for GPUs: init_process_group('troupe', device_id=torch.device('cuda', "
                             f"local_rank)) with TROUPE_BACKEND not set or 'nccl'")
        raise ValueError(f"{what} was given a tensor on {device}, and this rank's GPU is {self._gpu.device}: call "
                         f"torch.cuda.set_device(local_rank) first, and give init_process_group() the device_id")

    def _operation(self, kind: str, source: Optional[Memory], result: Optional[Memory], given: Dict[str, Any]) -> Any:
        """Returns an operation of this rank. Without `source` or `result` the rank has none."""
        first = self._operand(source)
        return _troupe.operation(kind, first, first if result is source else self._operand(result), self._size, given)

    def _ask(self, what: str, operations: Sequence[Any], timeout: datetime.timedelta, outputs: Sequence[Tensor],
             finish: Optional[Callable[[], None]] = None, lane: str = COLLECTIVES, gpu: Optional[Gpu] = None) -> Work:
        """Sends one request for all operations. A timeout that is not positive stands for the group's.

        gpu: that of the operands. The request waits for what is in its current stream now.
        """
        operation = operations[0] if len(operations) == 1 else _troupe.group(operations)
        deadline = timeout if timeout > _ZERO else self._timeout
        if self._epochs is not None:
            self._epochs.enter(lane, deadline)
            if lane == COLLECTIVES and not self._connected and not self._ended:
                self._connect()
                if self._ended:  # meanwhile, by another thread
                    self._disconnect()
        request = self._native.prepare([operation], self._rank, lane, deadline, None)
        return self._send(request, what, deadline, outputs, finish, gpu)

    def _send(self, request: Any, what: str, deadline: datetime.timedelta, outputs: Sequence[Tensor],
              finish: Optional[Callable[[], None]], gpu: Optional[Gpu]) -> Work:
        reply = request.ask() if gpu is None else request.ask_overlapped(gpu.current_stream())
        _records.add(reply)
        given = reply, what, deadline, outputs, finish, self._epochs
        work = Work(*given) if gpu is None else GpuWork(gpu, *given)
        self._made(work)
        return work

    def _made(self, work: Union[Work, Captured]) -> None:
        self.of_thread.work = work
        if self.of_thread.batch is not None:
            self.of_thread.batch.append(work)

    def _capture(self, into: "Capture", operations: Sequence[Any], outputs: Sequence[Tensor],
                 finish: Optional[Callable[[], None]]) -> Any:
        """Makes the operations a part of a graph."""
        if into.backend is not self:
            raise RuntimeError("a graph holds collectives of one process group: pass the group to troupe.torch.graph(), and make a "
                               "graph for each group")
        behind = into.launch(operations[0] if len(operations) == 1 else _troupe.group(operations))
        work = Captured(outputs, finish, behind)
        self._made(work)
        return work

    def replay(self, graph: "Graph[Any]", timeout: datetime.timedelta) -> Work:
        """Asks for a replay. See Graph.replay()."""
        what = "the replay of a graph"
        self._require_alive(what)
        deadline = timeout if timeout > _ZERO else self._timeout
        assert self._gpu is not None
        if self._gpu.capture_for(what) is not None:
            refuse_in_capture(what)
        try:
            if self._epochs is not None:
                self._epochs.enter(COLLECTIVES, deadline)
            plan = graph.plan
            # A replay has no operand that waits for the caller's stream. A copy does, in front of it in the rank's stream.
            source, result = self._gpu.scratch()
            copy = self._operation("copy", source, result, {})
            self._native.prepare([copy], self._rank, COLLECTIVES, deadline, None).ask_overlapped(self._gpu.current_stream())
            request = self._native.prepare_replay(plan, deadline, self._rank, COLLECTIVES)
            return self._send(request, what, deadline, (), None, self._gpu)
        except Error as why:
            raise failure_of(what, why, deadline, self._advice()) from why

    def begin_capture(self, stream: int, timeout: datetime.timedelta) -> Any:
        """Begins to capture a stream at all ranks, for troupe.torch.graph(). Errors: DistBackendError."""
        self._require_alive("troupe.torch.graph()")
        self._require_current("troupe.torch.graph()")
        epoch = self._native.epoch()
        self._captures = (epoch, self._captures[1] + 1 if self._captures[0] == epoch else 1)
        try:  # by number in the epoch, which a process that joins later has, too
            return self._native.begin_capture(stream, "torch {}.{}".format(*self._captures), timeout)
        except Error as why:
            raise failure_of("troupe.torch.graph()", why, timeout, self._advice()) from why

    def _call(self, what: str, timeout: datetime.timedelta, outputs: Sequence[Tensor],
              finish: Optional[Callable[[], None]], *operations: Tuple[Any, ...]) -> Work:
        """Sends one collective of the operations, each given as the arguments of _operation()."""
        self._require_alive(what)
        if not operations:
            raise ValueError(f"{what} was given no tensors")
        gpu = self._gpu_of(what, operations)
        into = None if gpu is None else gpu.capture_for(what)
        try:
            if into is not None:
                captured: Work = self._capture(into, [self._operation(*one) for one in operations], outputs, finish)
                return captured
            self._compare(what, timeout, operations)
            work = self._ask(what, [self._operation(*one) for one in operations], timeout, outputs, finish, gpu=gpu)
        except Error as why:
            raise failure_of(what, why, timeout if timeout > _ZERO else self._timeout, self._advice()) from why
        self._sequence += 1
        return work

    def _compare(self, what: str, timeout: datetime.timedelta, operations: Sequence[Tuple[Any, ...]] = ()) -> None:
        """With TORCH_DISTRIBUTED_DEBUG=DETAIL, waits until all ranks have given equal shapes and types."""
        if self._compares is None:  # asking costs as much as a part of a small operation
            self._compares = dist.get_debug_level() == dist.DebugLevel.DETAIL
        if self._compares:
            deadline = timeout if timeout > _ZERO else self._timeout
            if self._epochs is not None:
                self._epochs.enter(COLLECTIVES, deadline)
            compare(self._world.world.rank(self._rank), self._size, what, operations, deadline, COLLECTIVES)

    def _advice(self) -> str:
        return "" if self._epochs is None else self._epochs.advice()

    def _reduction(self, what: str, kind: str, source: Tensor, result: Optional[Tensor], by: Any,
                   **given: Any) -> Tuple[Any, ...]:
        """Returns the arguments of _operation() for an operation that reduces. `by` is a ReduceOp of c10d."""
        memory, name = reducible(what, source, reduction_of(by))
        written = memory if result is source else None if result is None else reducible(what, result, name)[0]
        given["op"] = name
        if name == "pre_mul_sum":
            try:
                given["factor"] = element_bytes(memory.dtype, float(by.factor))
            except Error as why:
                raise failure_of(what, why) from why
        return kind, memory, written, given

    # Collectives ------------------------------------------------------------------------------------------------------

    def broadcast(self, tensors: List[Tensor], opts: Any) -> Work:
        memory = movable("broadcast", single("broadcast", tensors))
        is_root = opts.rootRank == self._rank
        return self._call("broadcast", opts.timeout, tensors, None,
                          ("broadcast", memory if is_root else None, memory, {"root": opts.rootRank}))

    def allreduce(self, tensors: List[Tensor], opts: Any) -> Work:
        tensor = single("all_reduce", tensors)
        return self._call("all_reduce", opts.timeout, tensors, None,
                          self._reduction("all_reduce", "all_reduce", tensor, tensor, opts.reduceOp))

    def allreduce_coalesced(self, tensors: List[Tensor], opts: Any) -> Work:
        what = "all_reduce_coalesced"
        return self._call(what, opts.timeout, tensors, None,
                          *(self._reduction(what, "all_reduce", one, one, opts.reduceOp) for one in tensors))

    def allreduce_sparse(self, tensors: List[Tensor], opts: Any) -> Work:
        refuse("all_reduce of sparse tensors", "its operations move dense memory; use to_dense()")

    def reduce(self, tensors: List[Tensor], opts: Any) -> Work:
        tensor = single("reduce", tensors)
        result = tensor if opts.rootRank == self._rank else None
        return self._call("reduce", opts.timeout, tensors, None,
                          self._reduction("reduce", "reduce", tensor, result, opts.reduceOp, root=opts.rootRank))

    def allgather(self, output_lists: List[List[Tensor]], inputs: List[Tensor], opts: Any) -> Work:
        tensor, outputs = single("all_gather", inputs), single("all_gather", output_lists)
        operation, flat_out = self._gathering("all_gather", tensor, outputs)
        return self._call("all_gather", opts.timeout, outputs, lambda: spread(flat_out, outputs), operation)

    def allgather_coalesced(self, output_lists: List[List[Tensor]], inputs: List[Tensor], opts: Any) -> Work:
        what = "all_gather_coalesced"
        if len(output_lists) != self._size or any(len(one) != len(inputs) for one in output_lists):
            raise ValueError(f"{what} was given {[len(one) for one in output_lists]} outputs for {len(inputs)} inputs: give a "
                             f"list for each of the {self._size} ranks, with an output for each input")
        by_input = [list(one) for one in zip(*output_lists)]
        made = [self._gathering(what, tensor, outputs) for tensor, outputs in zip(inputs, by_input)]

        def finish() -> None:
            for (_, flat_out), outputs in zip(made, by_input):
                spread(flat_out, outputs)

        return self._call(what, opts.timeout, [one for each in output_lists for one in each], finish,
                          *(operation for operation, _ in made))

    def _gathering(self, what: str, tensor: Tensor, outputs: List[Tensor]) -> Tuple[Tuple[Any, ...], Tensor]:
        """Returns the operation that gathers into one memory, and the memory, which is to be spread to the outputs."""
        parts_of(what, outputs, self._size, tensor)
        if outputs[self._rank].numel() != tensor.numel():
            raise ValueError(f"{what} was given an input of {tensor.numel()} elements at rank {self._rank}, and its output for "
                             f"that rank has {outputs[self._rank].numel()}: give equal sizes")
        flat_out = room_for(outputs)
        counts = [one.numel() for one in outputs]
        if len(set(counts)) == 1:
            return ("all_gather", movable(what, in_order(what, tensor)), movable(what, flat_out), {}), flat_out
        return ("all_gather_v", movable(what, in_order(what, tensor)), movable(what, flat_out),
                {"recv_parts": (in_memory(tensor, counts), None)}), flat_out

    def all_gather_single(self, output: Tensor, input: Tensor, opts: Any) -> Work:
        return self._call("all_gather_into_tensor", opts.timeout, [output], None,
                          self._into_tensor("all_gather_into_tensor", output, input))

    def all_gather_single_coalesced(self, outputs: List[Tensor], inputs: List[Tensor], opts: Any) -> Work:
        what = "all_gather_into_tensor_coalesced"
        return self._call(what, opts.timeout, outputs, None,
                          *(self._into_tensor(what, output, input) for output, input in zip(outputs, inputs)))

    def _into_tensor(self, what: str, output: Tensor, input: Tensor) -> Tuple[Any, ...]:
        one_type(what, [output], input)
        one_layout(what, output, input)
        if output.numel() != input.numel() * self._size:
            raise ValueError(f"{what} was given an output of {output.numel()} elements for an input of {input.numel()}: with "
                             f"{self._size} ranks it must have {input.numel() * self._size}")
        return "all_gather", movable(what, input), movable(what, output), {}

    def gather(self, output_lists: List[List[Tensor]], inputs: List[Tensor], opts: Any) -> Work:
        tensor, given = in_order("gather", single("gather", inputs)), {"root": opts.rootRank}
        if opts.rootRank != self._rank:
            return self._call("gather", opts.timeout, [], None, ("gather", movable("gather", tensor), None, given))
        outputs = single("gather", output_lists)
        parts_of("gather", outputs, self._size, tensor, equal=True)
        flat_out = room_for(outputs)
        return self._call("gather", opts.timeout, outputs, lambda: spread(flat_out, outputs),
                          ("gather", movable("gather", tensor), movable("gather", flat_out), given))

    def gather_single(self, output: Tensor, input: Tensor, opts: Any) -> Work:
        what, given = "gather_into_tensor", {"root": opts.rootRank}
        if opts.rootRank != self._rank:
            return self._call(what, opts.timeout, [], None, ("gather", movable(what, input), None, given))
        _, source, result, _ = self._into_tensor(what, output, input)
        return self._call(what, opts.timeout, [output], None, ("gather", source, result, given))

    def scatter(self, outputs: List[Tensor], input_lists: List[List[Tensor]], opts: Any) -> Work:
        tensor, given = single("scatter", outputs), {"root": opts.rootRank}
        target, finish = self._in_order_for(what="scatter", output=tensor)
        memory = movable("scatter", target)
        if opts.rootRank != self._rank:
            return self._call("scatter", opts.timeout, outputs, finish, ("scatter", None, memory, given))
        inputs = single("scatter", input_lists)
        parts_of("scatter", inputs, self._size, tensor, equal=True)
        return self._call("scatter", opts.timeout, outputs, finish,
                          ("scatter", movable("scatter", joined(inputs)), memory, given))

    def reduce_scatter(self, outputs: List[Tensor], input_lists: List[List[Tensor]], opts: Any) -> Work:
        what = "reduce_scatter"
        tensor, inputs = single(what, outputs), single(what, input_lists)
        parts_of(what, inputs, self._size, tensor)
        counts = [one.numel() for one in inputs]
        if counts[self._rank] != tensor.numel():
            raise ValueError(f"{what} was given an output of {tensor.numel()} elements at rank {self._rank}, and the input for "
                             f"that rank has {counts[self._rank]}: give equal sizes")
        target, finish = self._in_order_for(what, tensor)
        if self._gpu is not None and len(set(counts)) == 1:  # else sums have the bits of PyTorch's gloo
            operation = self._reduction(what, "reduce_scatter", joined(inputs), target, opts.reduceOp)
        else:
            operation = self._reduction(what, "reduce_scatter_v", joined(inputs), target, opts.reduceOp,
                                        send_parts=(counts, None))
        return self._call(what, opts.timeout, outputs, finish, operation)

    @staticmethod
    def _in_order_for(what: str, output: Tensor) -> Tuple[Tensor, Optional[Callable[[], None]]]:
        """Returns memory for the elements of an output in their order, and what copies them to it, if it is not the output."""
        target = in_order(what, output)
        return target, None if target is output else lambda: spread(target, [output])

    def reduce_scatter_single(self, output: Tensor, input: Tensor, opts: Any) -> Work:
        what = "reduce_scatter_tensor"
        return self._call(what, opts.timeout, [output], None, self._scattering(what, output, input, opts))

    def reduce_scatter_single_coalesced(self, outputs: List[Tensor], inputs: List[Tensor], opts: Any) -> Work:
        what = "reduce_scatter_tensor_coalesced"
        return self._call(what, opts.timeout, outputs, None,
                          *(self._scattering(what, output, input, opts) for output, input in zip(outputs, inputs)))

    def _scattering(self, what: str, output: Tensor, input: Tensor, opts: Any) -> Tuple[Any, ...]:
        one_type(what, [output], input)
        one_layout(what, output, input)
        if input.numel() != output.numel() * self._size:
            raise ValueError(f"{what} was given an input of {input.numel()} elements for an output of {output.numel()}: with "
                             f"{self._size} ranks it must have {output.numel() * self._size}")
        return self._reduction(what, "reduce_scatter", input, output, opts.reduceOp)

    def all_to_all_single(self, output: Tensor, input: Tensor, output_sizes: List[int], input_sizes: List[int],
                          opts: Any) -> Work:
        what = "all_to_all_single"
        one_type(what, [output], input)
        one_layout(what, output, input)
        sent, received = self._parts(what, "input", input, input_sizes), self._parts(what, "output", output, output_sizes)
        return self._call(what, opts.timeout, [output], None,
                          ("all_to_all_v", movable(what, input), movable(what, output),
                           {"send_parts": (in_memory(input, sent), None),
                            "recv_parts": (in_memory(output, received), None)}))

    def _parts(self, what: str, name: str, tensor: Tensor, sizes: Sequence[int]) -> List[int]:
        """Returns the elements of each rank's part. `sizes` are of the first dimension; none: equal parts."""
        rows = tensor.size(0) if tensor.dim() else 1
        if not sizes:
            if rows % self._size:
                raise ValueError(f"{what} was given an {name} of {rows} rows: without split sizes they must be a multiple of "
                                 f"the {self._size} ranks")
            return [tensor.numel() // self._size] * self._size
        if len(sizes) != self._size or sum(sizes) != rows or min(sizes) < 0:
            raise ValueError(f"{what} was given {name} split sizes {list(sizes)} for {rows} rows: give one for each of the "
                             f"{self._size} ranks, {rows} in all")
        of_row = tensor.numel() // rows if rows else 0
        return [size * of_row for size in sizes]

    def alltoall(self, outputs: List[Tensor], inputs: List[Tensor], opts: Any) -> Work:
        what = "all_to_all"
        if not inputs:
            raise ValueError(f"{what} was given no tensors")
        parts_of(what, inputs, self._size, inputs[0])
        parts_of(what, outputs, self._size, inputs[0])
        flat_out = room_for(outputs)
        return self._call(what, opts.timeout, outputs, lambda: spread(flat_out, outputs),
                          ("all_to_all_v", movable(what, joined(inputs)), movable(what, flat_out),
                           {"send_parts": (in_memory(flat_out, [one.numel() for one in inputs]), None),
                            "recv_parts": (in_memory(flat_out, [one.numel() for one in outputs]), None)}))

    def barrier(self, opts: Any) -> Work:
        """On a GPU it is behind what is in the current stream at each rank, and wait() waits for the GPU."""
        barrier: Tuple[Any, ...] = ("barrier", None, None, {})
        if self._gpu is None:
            return self._call("barrier", opts.timeout, [], None, barrier)
        if self._gpu.is_captured():
            refuse_in_capture("barrier()")
        source, result = self._gpu.scratch()
        work = self._call("barrier", opts.timeout, [], None, barrier, ("copy", source, result, {}))
        assert isinstance(work, GpuWork)
        work.blocks = True
        return work

    def monitored_barrier(self, opts: Any, wait_all_ranks: bool = False) -> None:
        """Waits for all ranks. An error at rank 0 names the first rank that is missing, or all of them."""
        timeout = self._timeout if opts.timeout < _ZERO else opts.timeout
        if timeout == _ZERO:
            raise dist.DistBackendError(f"Rank {self._rank} timed out in monitoredBarrier: its timeout is 0")
        opts.timeout = timeout if self._rank == 0 else timeout + _LATER  # so that rank 0 reports who is missing
        try:
            self.barrier(opts).wait()
        except dist.DistBackendError as failure:
            missing = getattr(failure.__cause__, "missing_ranks", ())
            named = missing if wait_all_ranks else missing[:1]
            if isinstance(failure.__cause__, DeadlineExceeded) and named:
                said = (f"Rank{'s' * (len(named) > 1)} {', '.join(map(str, named))} failed to pass monitoredBarrier in "
                        f"{timeout / _MILLISECOND:.0f} ms")
            else:
                said = (f"Rank {self._rank} successfully reached monitoredBarrier, but received errors while waiting for "
                        f"send/recv from rank 0")
            raise dist.DistBackendError(f"[Rank {self._rank}]: {said}: {failure}") from failure.__cause__

    # Transfers --------------------------------------------------------------------------------------------------------

    def send(self, tensors: List[Tensor], peer: int, tag: int = 0) -> Work:
        return self._transfer("send", single("send", tensors), self._rank, peer, peer, tag)

    def recv(self, tensors: List[Tensor], peer: int, tag: int = 0) -> Work:
        return self._transfer("recv", single("recv", tensors), peer, self._rank, peer, tag)

    def recv_anysource(self, tensors: List[Tensor], tag: int = 0) -> Work:
        refuse("recv from any source", "a request is validated with the one that it is matched with before anything is "
                                       "sent, so each recv names its source")

    def _transfer(self, kind: str, tensor: Tensor, source: int, destination: int, peer: int, tag: int) -> Work:
        """Each route and tag has a lane of its own, so that transfers wait for their other half alone."""
        self._require_alive(kind)
        lane = f"{source}>{destination} tag {tag}"
        memory = movable(kind, tensor)
        given = {"peer": peer, "tag": tag}
        gpu = self._gpu_of(kind, [(kind, memory, None)])
        into = None if gpu is None else gpu.capture_for(kind)
        try:
            operation = self._operation(kind, memory, None if kind == "send" else memory, given)
            if into is not None:
                captured: Work = self._capture(into, [operation], [tensor], None)
                return captured
            return self._ask(f"{kind} ({lane})", [operation], _ZERO, [tensor], None, lane, gpu)
        except Error as why:
            raise failure_of(kind, why) from why

    # Coalescing, smaller groups, the end ------------------------------------------------------------------------------

    def start_coalescing(self) -> None:
        self.of_thread.batch = []

    def end_coalescing(self) -> Coalesced:
        batch, self.of_thread.batch = self.of_thread.batch, None
        work = self.of_thread.work = Coalesced(batch or ())
        return work

    def split(self, store: Any, ranks: List[int], opts: Any) -> "TroupeBackend":
        """Splits the group for PyTorch, which ends the process if a backend in Python returns None."""
        made = self.part(ranks, self._timeout if opts is None else opts._timeout)
        if made is None:
            refuse("split_group at a rank without a part", "PyTorch cannot take a split without result from a group with "
                                                           "several backends; name a part for each rank")
        return made

    def part(self, ranks: Sequence[int], timeout: datetime.timedelta) -> Optional["TroupeBackend"]:
        """Splits the group. All its ranks call it, each with the ranks of one part; returns that with this rank, if any."""
        self._require_alive("split_group")
        self._require_current("split_group")
        try:
            parts = self._agree_on_parts(ranks, timeout)
            self._splits += 1
            return self._split({f"split {self._splits}.{number}": part for number, part in enumerate(parts)}, timeout)
        except Error as why:
            raise failure_of("split_group", why, timeout, self._advice()) from why

    def _require_current(self, call: str) -> None:
        if self._epochs is not None:
            self._epochs.require_current(call)

    def _agree_on_parts(self, ranks: Sequence[int], timeout: datetime.timedelta) -> Sequence[Tuple[int, ...]]:
        """Returns the parts that all ranks have given; in a new process of a world that has made this split, those."""
        epochs, mine = self._epochs, array.array("I", ranks).tobytes()
        if epochs is None or self._splits == len(epochs.parts):
            self._compare("split_group", timeout)
        if epochs is None:
            said = self._world.world.rank(self._rank).agree("gather_all", mine, deadline=timeout, lane=COLLECTIVES)
            agreed = said.result().agreed
            assert agreed is not None
            return sorted({tuple(array.array("I", one)) for one in agreed.parts})
        if self._splits == len(epochs.parts):
            epochs.parts.append(tuple(sorted({tuple(array.array("I", one)) for one in epochs.gather(SPLIT, mine, timeout)})))
        epochs.mine.append(list(ranks))
        return epochs.parts[self._splits]

    def _split(self, groups: Mapping[str, Sequence[int]], timeout: datetime.timedelta) -> Optional["TroupeBackend"]:
        """Splits the world into these groups, of its ranks. Returns the backend of that with this rank, if any."""
        own = next((name for name, part in groups.items() if self._rank in part), None)
        made = self._world.split(groups, own)
        return None if made is None else TroupeBackend(made, timeout, self._epochs)

    def group_of(self, ranks: Sequence[int], timeout: datetime.timedelta) -> Optional["TroupeBackend"]:
        """Makes the group of new_group(), which all ranks call with the same ranks, as a part of a world that recovers."""
        self._require_alive("new_group")
        self._require_current("new_group")
        try:  # not by PyTorch's name of the group, which counts calls that have failed: a new process has made fewer
            made = self._split({f"group {self._groups}": ranks}, timeout)
        except Error as why:
            raise failure_of("new_group", why, timeout, self._advice()) from why
        self._groups += 1
        return made

    # Memory -----------------------------------------------------------------------------------------------------------

    def supports_tensor_alloc(self, device: torch.device) -> bool:
        return self._gpu is not None and torch.device(device).type == "cuda"

    def allocate_tensor(self, size: int, *, dtype: Optional[torch.dtype] = None,
                        device: Optional[torch.device] = None) -> Tensor:
        """Allocates from the world's registered memory if there is room, else from its pool. Contents: undefined."""
        wanted = torch.device("cuda" if device is None else device)
        if self._gpu is None or wanted.type != "cuda" or wanted.index not in (None, self._gpu.index):
            raise ValueError(f"allocate_tensor() was asked for memory of {wanted}: this process group allocates on "
                             f"{'no GPU' if self._gpu is None else self._gpu.device}")
        self._require_alive("allocate_tensor()")
        element = torch.get_default_dtype() if dtype is None else dtype
        try:
            buffer, = self._native.empty_all([size * element.itemsize], "uint8")
        except Error as why:
            raise torch.cuda.OutOfMemoryError(str(why)) from why
        made: Tensor = torch.from_dlpack(buffer).view(element)
        return made

    # Recovery ---------------------------------------------------------------------------------------------------------

    def recovery_of(self, call: str) -> Epochs:
        """Returns the group's epochs. Errors: ValueError if the group cannot go on after a loss, or has ended."""
        self._require_alive(call)
        if self._epochs is None:
            raise ValueError(f"{call}: the controller of this process group is in rank 0, so it ends with the first loss: start the "
                             f"processes by `troupe launch` (docs/guide/torch.md#recovery)")
        return self._epochs

    def shutdown(self) -> None:
        """Leaves the group. Operations that wait for other ranks are answered with an error; those that run are finished."""
        self._end("shutdown()")

    def abort(self) -> None:
        """Does the same as shutdown(), without waiting for operations that run."""
        self._end("abort()")

    def _end(self, how: str) -> None:
        if self._ended or os.getpid() != self._process:
            return
        self._ended = how
        self._disconnect()
        if how == "abort()":
            threading.Thread(target=self._leave_world, name="troupe.abort", daemon=True).start()
        else:
            self._leave_world()

    def _leave_world(self) -> None:
        """Leaves the world. Programs may hold the group for long: it must not hold the world's device and its thread."""
        for one in list(self.graphs):
            one.drop()
        self._native = _LeftWorld()
        self._world.close()
