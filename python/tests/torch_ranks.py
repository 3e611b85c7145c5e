"""Runs a function in several processes, each of which is a rank of a process group of torch.distributed. For test_torch_*.py.

The processes are forks, which takes a second less than starting them, so a test file that uses this makes no world of its own.
"""
import datetime
import multiprocessing
import os
import traceback

import pytest

torch = pytest.importorskip("torch", minversion="2.15", reason="PyTorch 2.15 is not installed: see docs/guide/torch.md")
dist = pytest.importorskip("torch.distributed", reason="this PyTorch has no torch.distributed")

PATIENCE = 170  # seconds until processes that do not end count as hung: a busy machine needs tens to import PyTorch
TIMEOUT = datetime.timedelta(seconds=120)  # of process groups: shorter than that, so that an error names what is missing
_context = multiprocessing.get_context("fork")


def init(rank, size, file, backend="troupe", timeout=TIMEOUT):
    """Makes this process a rank of the default group, whose ranks meet in a file."""
    torch.set_num_threads(1)
    dist.init_process_group(backend, init_method=f"file://{file}", rank=rank, world_size=size, timeout=timeout)


def _run(function, rank, size, file, settings, to_parent, arguments):
    os.environ.update(settings)
    try:
        if file is not None:
            init(rank, size, file)
        to_parent.send((True, function(rank, size, *arguments)))
        if dist.is_initialized():
            dist.destroy_process_group()
    except BaseException:
        to_parent.send((False, traceback.format_exc()))
        raise


def threads():
    """Returns the number of this process's threads, those of PyTorch included."""
    return len(os.listdir("/proc/self/task"))


class Ranks:
    """Processes that run `function(rank, size, *arguments)` in a process group."""

    def __init__(self, function, size, file, settings=None, arguments=()):
        self.pipes, self.processes = [], []
        for rank in range(size):
            mine, theirs = _context.Pipe(duplex=False)
            process = _context.Process(target=_run, args=(function, rank, size, file, settings or {}, theirs, arguments))
            process.start()
            theirs.close()
            self.pipes.append(mine)
            self.processes.append(process)

    def result(self, rank):
        """Waits for the function's result. Fails the test with its traceback if it raised."""
        if not self.pipes[rank].poll(PATIENCE):
            self.kill()
            pytest.fail(f"rank {rank} has not ended within {PATIENCE} s")
        try:
            succeeded, said = self.pipes[rank].recv()
        except EOFError:
            self.processes[rank].join(PATIENCE)
            pytest.fail(f"rank {rank} ended with status {self.processes[rank].exitcode}")
        assert succeeded, f"rank {rank} failed:\n{said}"
        return said

    def join(self):
        """Waits until all processes have ended. Returns their exit statuses."""
        for process in self.processes:
            process.join(PATIENCE)
        hung = [rank for rank, process in enumerate(self.processes) if process.is_alive()]
        self.kill()
        assert not hung, f"ranks {hung} have not ended within {PATIENCE} s"
        return [process.exitcode for process in self.processes]

    def kill(self):
        for process in self.processes:
            if process.is_alive():
                process.kill()
                process.join()


def run_ranks(function, size, folder, settings=None, arguments=()):
    """Runs the function at all ranks, without a process group if folder is None. Returns the results."""
    ranks = Ranks(function, size, folder and folder / "store", settings, arguments)
    try:
        results = [ranks.result(rank) for rank in range(size)]
        assert ranks.join() == [0] * size
        return results
    finally:
        ranks.kill()
