"""Bad input, missing and lost ranks on the backend troupe: each a clear error, and no hang."""
import datetime
import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import traceback

import pytest
from torch_ranks import PATIENCE, Ranks, dist, init, run_ranks, threads, torch

import troupe.torch

SECOND = datetime.timedelta(seconds=1)


def raised(kind, text, call, *given, **named):
    """Calls, and returns the exception, which must be of this kind and have the text."""
    with pytest.raises(kind, match=text) as caught:
        call(*given, **named)
    return caught.value


def bad_tensors(rank, size):
    from torch._C._distributed_c10d import AllgatherOptions, AllreduceOptions

    ones = torch.ones(4)
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    options = AllreduceOptions()
    raised(ValueError, r"on meta: .* use \.cpu\(\)", backend.allreduce, [torch.ones(4, device="meta")], options)
    raised(ValueError, "sparse.*to_dense", backend.allreduce, [torch.ones(4).to_sparse()], options)
    raised(ValueError, r"shape \(2, 3\) with strides \(1, 2\).*contiguous\(\)", dist.all_reduce, torch.ones(3, 2).t())
    raised(ValueError, "int16: the backend troupe reduces bfloat16, float16, float32", dist.all_reduce,
           torch.ones(2, dtype=torch.int16))
    raised(ValueError, "resolve_conj", backend.send, [torch.ones(2, dtype=torch.complex64).conj()], 1)
    raised(ValueError, "avg was given a tensor of torch.bool", dist.all_reduce, torch.ones(2) > 0, dist.ReduceOp.AVG)
    raised(dist.DistBackendError, "factor of float8_e5m2", dist.all_reduce, torch.ones(2).to(torch.float8_e5m2),
           dist._make_nccl_premul_sum(0.5))
    raised(NotImplementedError, "ReduceOp.BXOR.*SUM, PRODUCT, MIN, MAX, AVG", dist.all_reduce,
           torch.ones(2, dtype=torch.int32), dist.ReduceOp.BXOR)
    raised(NotImplementedError, "recv from any source", dist.recv, ones)
    raised(NotImplementedError, "sparse", backend.allreduce_sparse, [torch.ones(2).to_sparse()], options)
    raised(ValueError, "2 tensors", dist.group.WORLD.allreduce, [ones, ones])
    raised(ValueError, "output of 5 elements for an input of 4: with 2 ranks it must have 8", dist.group.WORLD.all_gather_single,
           torch.empty(5), ones, AllgatherOptions())
    raised(ValueError, "float32 and torch.float64|float64 and torch.float32", dist.group.WORLD.all_gather_single,
           torch.empty(8, dtype=torch.float64), ones, AllgatherOptions())
    raised(ValueError, "list of 3 tensors", dist.group.WORLD.allgather, [[ones] * 3], [ones])
    raised(ValueError, "input split sizes .1, 2. for 4 rows", dist.all_to_all_single, torch.empty(4), ones,
           input_split_sizes=[1, 2], output_split_sizes=[2, 2])
    raised(ValueError, "input of 3 rows", dist.all_to_all_single, torch.empty(3), torch.ones(3))
    raised(ValueError, "peer 7 is not in this world: its ranks are 0 to 1", lambda: backend.send([ones], 7).wait())
    raised(ValueError, "overlap", dist.all_to_all_single, ones, ones)
    dist.all_reduce(ones)  # nothing of the above has taken a place in the order
    assert ones.tolist() == [size] * 4


def test_bad_tensors_are_refused_where_they_are_given(tmp_path):
    run_ranks(bad_tensors, 2, tmp_path)


def different_shapes(rank, size):
    for call in (lambda: dist.all_reduce(torch.ones(4 + rank)),
                 lambda: dist.all_reduce(torch.ones(4, dtype=(torch.float32, torch.float64)[rank])),
                 lambda: dist.all_reduce(torch.ones(4), (dist.ReduceOp.SUM, dist.ReduceOp.MAX)[rank]),
                 lambda: dist.broadcast(torch.ones(4), rank),
                 lambda: dist.all_gather_into_tensor(torch.empty(2 * (4 + rank)), torch.ones(4 + rank)),
                 (lambda: dist.barrier()) if rank else (lambda: dist.all_reduce(torch.ones(4)))):
        failure = raised(dist.DistBackendError, "mismatch", call)
        assert isinstance(failure.__cause__, troupe.Mismatch) and failure.__cause__.was_rejected
    tensor = torch.ones(1)
    dist.all_reduce(tensor)
    assert tensor.item() == size
    if rank == 0:
        raised(dist.DistBackendError, "mismatch", dist.send, torch.ones(3), 1)
    else:
        raised(dist.DistBackendError, "mismatch", dist.recv, torch.ones(4), 0)


def test_ranks_that_differ_get_an_error_and_go_on(tmp_path):
    run_ranks(different_shapes, 2, tmp_path)


def missing(rank, size):
    group = dist.new_group()
    group.set_timeout(SECOND)
    if rank == 0:
        failure = raised(dist.DistBackendError, "Timed out waiting 1000ms.*ranks? 1, 2 ha", dist.all_reduce, torch.ones(1),
                         group=group)
        assert failure.__cause__.missing_ranks == (1, 2)
        raised(dist.DistBackendError, "Timed out waiting 250ms", dist.barrier, group, timeout=SECOND / 4)
        group.set_timeout(SECOND / 2)
        raised(dist.DistBackendError, "Timed out waiting 500ms", dist.barrier, group)
        raised(dist.DistBackendError, "Ranks 1, 2 failed to pass monitoredBarrier in 500 ms", dist.monitored_barrier,
               group, SECOND / 2, wait_all_ranks=True)
        raised(dist.DistBackendError, "Rank 1 failed to pass monitoredBarrier in 500 ms", dist.monitored_barrier, group,
               SECOND / 2)
        raised(dist.DistBackendError, "Rank 0 timed out in monitoredBarrier", dist.monitored_barrier, group, 0 * SECOND)
        work = dist.all_reduce(torch.ones(1), async_op=True)
        raised(dist.DistBackendError, "Timed out waiting 100ms in wait.*continues", work.wait, SECOND / 10)
        assert not work.is_completed() and work.exception() is None
        future = work.get_future()
    dist.barrier(dist.new_group())  # now the others come
    tensor = torch.ones(1)
    if rank:
        dist.all_reduce(tensor)
    else:
        work.wait()
        assert future.wait()[0].item() == size


def test_a_missing_rank_is_named_and_a_wait_that_ends_leaves_its_operation(tmp_path):
    run_ranks(missing, 3, tmp_path)


def failed_works(rank, size):
    work = dist.all_reduce(torch.ones(4 + rank), async_op=True)
    future = work.get_future()
    raised(RuntimeError, "mismatch", future.wait)
    assert work.is_completed() and not work.is_success()
    assert isinstance(work.exception(), dist.DistBackendError)
    raised(dist.DistBackendError, "mismatch", work.wait)
    assert work.get_future_result().wait() == 2  # COMM_ERROR


def test_a_failed_work_says_so_by_every_method(tmp_path):
    run_ranks(failed_works, 2, tmp_path)


def interrupted(rank, size):
    tensor = torch.ones(1)
    if rank == 1:
        dist.recv(tensor, 0)
        dist.all_reduce(tensor)
        return
    work = dist.all_reduce(tensor, async_op=True)

    def wait():
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        work.wait()

    raised(KeyboardInterrupt, "", wait)
    dist.send(torch.ones(1), 1)
    work.wait()
    assert tensor.item() == size


def test_an_interrupt_ends_a_wait_and_not_its_operation(tmp_path):
    run_ranks(interrupted, 2, tmp_path)


def killed(rank, size, victim, served):
    tensor = torch.ones(1)
    dist.all_reduce(tensor)
    served.wait(PATIENCE)  # at all ranks
    if rank == victim:
        os.kill(os.getpid(), signal.SIGKILL)
    said = []
    for _ in range(2):  # what waits when the process is lost, and what is asked for afterwards
        try:
            dist.all_reduce(tensor)
        except dist.DistBackendError as failure:
            said.append(str(failure))
    dist.destroy_process_group()
    return said


# Which end a process notices first differs: that of the controller, of its order service, or of a peer's connection.
@pytest.mark.parametrize("victim, text", [(2, "process .* has ended|rank 2 .*has ended"),
                                          (0, "controller at .* (ended|broke off)|connection to the controller has ended|order service .* has ended|process .* has ended")])
def test_the_loss_of_a_process_is_an_error_at_the_others(tmp_path, victim, text):
    import re

    served = multiprocessing.get_context("fork").Barrier(3)
    ranks = Ranks(killed, 3, tmp_path / "store", arguments=(victim, served))
    try:
        for rank in {0, 1, 2} - {victim}:
            said = ranks.result(rank)
            assert len(said) == 2 and all(re.search(text, one) for one in said), said
        assert ranks.join() == [-signal.SIGKILL if rank == victim else 0 for rank in range(3)]
    finally:
        ranks.kill()


def ended(rank, size, how):
    group = dist.new_group()
    backend = group._get_backend(torch.device("cpu"))
    pending = group.recv([torch.empty(1)], 1 - rank, 5)
    getattr(group, how)()
    failure = raised(dist.DistBackendError, "recv", pending.wait)
    assert isinstance(failure.__cause__, troupe.Stopping)
    raised(dist.DistBackendError, f"barrier after {how}.*has left the process group", group.barrier)
    getattr(backend, how)()  # again: no effect
    tensor = torch.ones(1)
    dist.all_reduce(tensor)
    assert tensor.item() == size


@pytest.mark.parametrize("how", ["shutdown", "abort"])
def test_an_ended_group_answers_what_waits_and_refuses_the_rest(tmp_path, how):
    run_ranks(ended, 2, tmp_path, arguments=(how,))


def forked(rank, size):
    child = os.fork()
    if child == 0:
        signal.alarm(PATIENCE // 2)  # ends it if it hangs
        try:
            raised(dist.DistBackendError, f"a fork of process {os.getppid()}.*spawn", dist.all_reduce, torch.ones(1))
            dist.destroy_process_group()
            os._exit(0)
        except BaseException as failure:
            os.write(2, f"{failure!r}\n".encode())
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    tensor = torch.ones(1)
    dist.all_reduce(tensor)
    assert tensor.item() == size


def test_a_fork_of_a_rank_is_refused_and_leaves_the_group_alone(tmp_path):
    run_ranks(forked, 2, tmp_path)


def dropped(rank, size):
    group, pending = dist.new_group(), dist.irecv(torch.empty(1), 1 - rank, tag=7)
    dist.all_reduce(torch.ones(1), group=group)
    if rank == 1:
        child = os.fork()
        if child == 0:
            signal.alarm(PATIENCE // 2)
            try:
                group.abort()
                dist.destroy_process_group()  # of the parent: all that it has of the groups is dropped
                del group, pending
                gc.collect()
                os._exit(0)
            except BaseException as failure:
                os.write(2, f"{failure!r}\n".encode())
                os._exit(1)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
    tensor = torch.ones(1)
    for _ in range(20):
        tensor.fill_(1)
        dist.all_reduce(tensor)
        dist.all_reduce(tensor, group=group)
        assert tensor.item() == size * size
    dist.send(torch.ones(1), 1 - rank, tag=7)
    pending.wait()


def test_a_fork_that_drops_its_parents_groups_ends_nothing(tmp_path):
    run_ranks(dropped, 2, tmp_path)


def repeated(rank, size):
    work = dist.all_reduce(torch.ones(4 + rank), async_op=True)
    depths = set()
    for _ in range(3):
        failure = raised(dist.DistBackendError, "mismatch", work.wait)
        depths.add(len(traceback.extract_tb(failure.__traceback__)))
        depths.add(len(traceback.extract_tb(failure.__cause__.__traceback__)) + 100)
    assert len(depths) == 2, depths


def test_an_error_that_is_raised_again_has_no_longer_a_traceback(tmp_path):
    run_ranks(repeated, 2, tmp_path)


def held(rank, size, file):
    counts, groups = [], []
    for _ in range(3):
        init(rank, size, file)
        dist.all_reduce(torch.ones(1))
        groups.append(dist.group.WORLD)
        dist.destroy_process_group()
        gc.collect()
        counts.append(threads())
    assert counts[0] == counts[1] == counts[2], counts
    raised(dist.DistBackendError, "has left the process group", groups[0].barrier)


def test_a_group_that_has_ended_has_no_threads_while_it_is_held(tmp_path):
    run_ranks(held, 1, None, arguments=(tmp_path / "store",))


EXIT = """
import sys, threading, time, torch, torch.distributed as dist, troupe.torch
rank, file, how = int(sys.argv[1]), sys.argv[2], sys.argv[3]
dist.init_process_group("troupe", init_method=f"file://{file}", rank=rank, world_size=2)
dist.barrier()
works = [dist.irecv(torch.empty(4), 1 - rank, tag=tag) for tag in range(3)]
works[0].get_future().then(lambda of: print("settled"))
if rank == 1:
    works.append(dist.all_reduce(torch.ones(1 << 20), async_op=True))
if how == "daemon":
    begun = threading.Event()
    threading.Thread(target=lambda: (begun.set(), works[1].wait()), daemon=True).start()
    begun.wait()
if how == "callback":
    began = threading.Event()
    works.append(dist.isend(torch.ones(4), 1 - rank, tag=9) if rank else dist.irecv(torch.empty(4), 1, tag=9))
    works[-1].get_future().then(lambda of: (began.set(), time.sleep(0.5), print("called")))
    began.wait()
if how == "destroy":
    dist.destroy_process_group()
if how == "raise":
    raise RuntimeError("the program's own error")
print("the end", flush=True)
"""


@pytest.mark.parametrize("how", ["exit", "daemon", "callback", "destroy", "raise"])
def test_a_program_ends_with_work_in_flight(tmp_path, how):
    workers = [subprocess.Popen([sys.executable, "-c", EXIT, str(rank), str(tmp_path / "store"), how],
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for rank in range(2)]
    try:
        for worker in workers:
            said, failure = worker.communicate(timeout=PATIENCE)
            assert worker.returncode == (1 if how == "raise" else 0), failure
            assert ("the program's own error" in failure) if how == "raise" else ("the end" in said)
            assert how != "callback" or "called" in said
            assert "Fatal" not in failure and "terminate called" not in failure
    finally:
        for worker in workers:
            worker.kill()


def test_an_older_torch_is_refused(tmp_path):
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("__version__ = '2.14.1+cpu'\n", encoding="utf-8")
    done = subprocess.run([sys.executable, "-c", "import troupe.torch"], capture_output=True, text=True, timeout=PATIENCE,
                          env=dict(os.environ, PYTHONPATH=f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"))
    assert "ImportError: the backend troupe needs PyTorch 2.15 or newer, and this is 2.14.1+cpu: upgrade torch" in done.stderr


def without_a_rank(rank, size, file):
    raised(dist.DistStoreError, "needs 2 processes, and that of place 1 has not joined|did not form within", init, 0, 2, file, "troupe", SECOND)


def test_a_rank_that_never_joins_is_named(tmp_path):
    ranks = Ranks(without_a_rank, 1, None, arguments=(tmp_path / "store",))
    try:
        ranks.result(0)
    finally:
        ranks.kill()


def unusable(rank, size, file):
    os.environ["TROUPE_BACKEND"] = "opencl"
    raised(dist.DistBackendError if rank else ValueError, "process group '0' of 2 ranks.*TROUPE_BACKEND.*opencl.*auto, mock",
           init, rank, size, file)


def test_a_wrong_setting_is_reported_at_every_rank(tmp_path):
    ranks = Ranks(unusable, 2, None, arguments=(tmp_path / "store",))
    try:
        ranks.result(0), ranks.result(1)
    finally:
        ranks.kill()
