"""The native part of the backend troupe: its build, its cache, its results and errors, and the other tests with it."""
import datetime
import os
import pathlib
import shutil
import subprocess
import sys
import time
import warnings
import weakref

import numpy
import pytest
import test_torch_collectives
import test_torch_errors
import test_torch_groups
import test_torch_recovery
import test_torch_reports
from torch_ranks import dist, run_ranks, torch

import troupe
import troupe.torch
from troupe.torch import _native

pytestmark = pytest.mark.skipif(shutil.which(os.environ.get("CXX") or "g++") is None, reason="there is no C++ compiler: install g++")

MS = datetime.timedelta(milliseconds=1)
REDUCED = test_torch_collectives.REDUCED
everywhere = test_torch_collectives.everywhere


@pytest.fixture(autouse=True, scope="module")
def built():
    """Builds the native part, once for each machine."""
    return troupe.torch.build()


@pytest.fixture(autouse=True)
def natively(monkeypatch):
    monkeypatch.setenv("TROUPE_TORCH_NATIVE", "build")


# Tests of the other files that a native operation or Work can fail.
test_reductions_of_every_type = test_torch_collectives.test_reductions_of_every_type
test_sums_of_booleans_stay_booleans = test_torch_collectives.test_sums_of_booleans_stay_booleans
test_moves_of_every_type = test_torch_collectives.test_moves_of_every_type
test_all_to_all_with_equal_and_different_parts = test_torch_collectives.test_all_to_all_with_equal_and_different_parts
test_coalesced_operations = test_torch_collectives.test_coalesced_operations
test_transfers_wait_for_their_other_half_alone = test_torch_collectives.test_transfers_wait_for_their_other_half_alone
test_works_and_futures = test_torch_collectives.test_works_and_futures
test_shapes_and_sizes = test_torch_collectives.test_shapes_and_sizes
test_bad_tensors_are_refused_where_they_are_given = test_torch_errors.test_bad_tensors_are_refused_where_they_are_given
test_ranks_that_differ_get_an_error_and_go_on = test_torch_errors.test_ranks_that_differ_get_an_error_and_go_on
test_a_missing_rank_is_named = test_torch_errors.test_a_missing_rank_is_named_and_a_wait_that_ends_leaves_its_operation
test_a_failed_work_says_so_by_every_method = test_torch_errors.test_a_failed_work_says_so_by_every_method
test_an_interrupt_ends_a_wait_and_not_its_operation = test_torch_errors.test_an_interrupt_ends_a_wait_and_not_its_operation
test_the_loss_of_a_process_is_an_error_at_the_others = test_torch_errors.test_the_loss_of_a_process_is_an_error_at_the_others
test_an_ended_group_answers_what_waits = test_torch_errors.test_an_ended_group_answers_what_waits_and_refuses_the_rest
test_a_fork_of_a_rank_is_refused = test_torch_errors.test_a_fork_of_a_rank_is_refused_and_leaves_the_group_alone
test_a_fork_that_drops_its_parents_groups_ends_nothing = test_torch_errors.test_a_fork_that_drops_its_parents_groups_ends_nothing
test_a_group_that_has_ended_has_no_threads = test_torch_errors.test_a_group_that_has_ended_has_no_threads_while_it_is_held
test_a_program_ends_with_work_in_flight = test_torch_errors.test_a_program_ends_with_work_in_flight
test_a_group_names_its_backend_and_counts_collectives = test_torch_groups.test_a_group_names_its_backend_and_counts_collectives
test_ddp_has_the_weights_that_it_has_with_gloo = test_torch_groups.test_ddp_has_the_weights_that_it_has_with_gloo
test_functional_collectives = test_torch_groups.test_functional_collectives
test_pytorchs_analyser_finds_a_mismatch_in_the_records = test_torch_reports.test_pytorchs_analyser_finds_a_mismatch_in_the_records
test_pytorchs_analyser_finds_a_missing_rank = test_torch_reports.test_pytorchs_analyser_finds_a_missing_rank_in_the_records
test_a_group_goes_on_when_rank_0_is_lost = test_torch_recovery.test_a_group_goes_on_when_rank_0_is_lost
test_resume_waits_for_operands = test_torch_recovery.test_resume_waits_until_no_earlier_operation_uses_a_tensor
test_smaller_groups_stay_valid = test_torch_recovery.test_smaller_groups_stay_valid
test_a_process_is_lost_while_the_ranks_resume = test_torch_recovery.test_a_process_is_lost_while_the_ranks_resume
test_an_error_in_a_backward_pass = test_torch_recovery.test_an_error_in_a_backward_pass_waits_for_its_end
test_an_example_ends_with_the_weights = test_torch_recovery.test_an_example_ends_with_the_weights_of_an_undisturbed_run
test_detail_compares_shapes_and_types = test_torch_reports.test_detail_compares_shapes_and_types


def asked_natively(call):
    """Returns how many of the collectives that `call` makes were asked for natively."""
    native, backend = _native.native(), dist.group.WORLD.backend
    before = native.asked(backend)
    call()
    return native.asked(backend) - before


def beside_gloo(rank, size):
    gloo = dist.new_group(backend="gloo")
    assert dist.group.WORLD.backend.is_native

    def same(make, call):
        """Compares a call's results with gloo's, and says how many operations of it were native."""
        results, count = [], 0
        for group in (None, gloo):
            tensors = make()
            count += asked_natively(lambda: call(tensors, group))
            results.append(tensors)
        for ours, theirs in zip(*results):
            assert torch.equal(ours, theirs), (ours, theirs)
        return count

    for dtype in REDUCED:
        def values(count):
            return ((torch.arange(count) + 3 * rank) % 4).to(dtype)

        for op in (dist.ReduceOp.SUM, dist.ReduceOp.MAX):
            assert same(lambda: [values(5)], lambda given, group: dist.all_reduce(given[0], op, group=group)) == 1
        assert same(lambda: [values(5)], lambda given, group: dist.broadcast(given[0], 1, group=group)) == 1
        assert same(lambda: [torch.zeros(3 * size, dtype=dtype), values(3)],
                    lambda given, group: dist.all_gather_into_tensor(*given, group=group)) == 1
        assert same(lambda: [torch.zeros(3, dtype=dtype), values(3 * size)],
                    lambda given, group: dist.reduce_scatter_tensor(*given, group=group)) == 1
        assert same(lambda: [torch.zeros(2 * size, dtype=dtype), values(2 * size)],
                    lambda given, group: dist.all_to_all_single(*given, group=group)) == 1
    whole = torch.arange(2. * size) + 10 * rank  # in place, where rank 0's part begins where the whole begins
    assert asked_natively(lambda: dist.all_gather_into_tensor(whole, whole[2 * rank:2 * rank + 2])) == 1
    assert whole.tolist() == [2. * one + part + 10 * one for one in range(size) for part in range(2)]
    ones = torch.ones(2 * size)
    assert asked_natively(lambda: dist.reduce_scatter_tensor(ones[2 * rank:2 * rank + 2], ones)) == 1
    assert ones[2 * rank:2 * rank + 2].tolist() == [size] * 2
    assert asked_natively(dist.barrier) == 1
    before = dist.group.WORLD._get_sequence_number_for_group()
    dist.barrier()
    dist.all_gather([torch.zeros(1) for _ in range(size)], torch.zeros(1))
    assert dist.group.WORLD._get_sequence_number_for_group() == before + 2


def test_results_are_those_of_gloo(tmp_path):
    run_ranks(beside_gloo, 3, tmp_path)


def mixed(rank, size):
    """One rank asks natively, and the other by Python."""
    assert dist.group.WORLD.backend.is_native == (rank == 0)
    tensor = torch.full((4,), float(rank + 1))
    dist.all_reduce(tensor)
    assert tensor.tolist() == [3] * 4
    output = torch.zeros(3 if rank else 1)
    dist.all_to_all_single(output, torch.arange(2.) + 10 * rank, [1, 2] if rank else [1, 0], [1, 1] if rank == 0 else [0, 2])
    assert output.tolist() == ([1., 10., 11.] if rank else [0.])
    if rank == 0:
        dist.send(tensor, 1, tag=4)
    else:
        dist.recv(tensor.zero_(), 0, tag=4)
        assert tensor.tolist() == [3] * 4


def mixed_at(rank, size, file):
    os.environ["TROUPE_TORCH_NATIVE"] = "build" if rank == 0 else "off"
    dist.init_process_group("troupe", init_method=f"file://{file}", rank=rank, world_size=size, timeout=datetime.timedelta(seconds=120))
    mixed(rank, size)
    dist.destroy_process_group()


def test_a_rank_with_the_native_part_works_with_one_without(tmp_path):
    run_ranks(mixed_at, 2, None, arguments=(tmp_path / "store",))


def timeouts(rank, size):
    """A wait with a timeout, the group's timeout, and what the errors are."""
    group, gloo = dist.group.WORLD, dist.new_group(backend="gloo")
    group.set_timeout(300 * MS)
    if rank == 0:
        work = dist.all_reduce(torch.ones(2), async_op=True)
        assert not work.is_completed() and not work.is_success() and work.exception() is None
        with pytest.raises(dist.DistBackendError, match="Timed out waiting 1ms in wait"):
            work.wait(MS)
        with pytest.raises(dist.DistBackendError, match="all_reduce: Timed out waiting 300ms: .*rank 1") as caught:
            work.wait()
        assert isinstance(caught.value.__cause__, troupe.DeadlineExceeded)
        assert work.is_completed() and not work.is_success()
        assert isinstance(work.exception(), dist.DistBackendError)
        with pytest.raises(RuntimeError, match="Timed out"):
            work.get_future().wait()
    dist.barrier(gloo)
    if rank == 1:
        with pytest.raises(dist.DistBackendError, match="rank 0 gave up"):
            dist.all_reduce(torch.ones(2))
    group.set_timeout(datetime.timedelta(seconds=120))
    work = dist.all_reduce(torch.ones(2), async_op=True)
    with pytest.raises(ValueError):
        work.wait(datetime.timedelta(seconds=-2))
    work.wait()
    dist.barrier()


def test_timeouts_are_errors_of_pythons_classes(tmp_path):
    run_ranks(timeouts, 2, tmp_path)


def compressed(rank, size):
    """DDP with a hook in C++, which takes futures of C++ alone, and an error in its backward pass."""
    torch.manual_seed(1)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2))
    model._register_builtin_comm_hook(dist.BuiltinCommHookType.FP16_COMPRESS)
    for _ in range(3):
        model.zero_grad()
        model(torch.full((1, 4), float(rank))).sum().backward()
    expected = sum(range(size)) / size
    assert asked_natively(lambda: model(torch.full((1, 4), float(rank))).sum().backward()) > 0
    assert torch.allclose(model.module.weight.grad, torch.full((2, 4), 2 * expected))


def test_ddps_hooks_in_cpp_take_its_futures(tmp_path):
    run_ranks(compressed, 2, tmp_path)


def epochs(rank, size, attempt):
    """In each epoch the first operation is Python's, which waits for what resume() has made, and the later ones are native."""
    dist.init_process_group("troupe", timeout=datetime.timedelta(seconds=120))
    backend = dist.group.WORLD.backend
    troupe.torch.resume()
    assert [asked_natively(lambda: test_torch_recovery.sum_of(rank)) for _ in range(3)] == [0, 1, 1]
    if attempt == 0:
        if rank == 1:
            test_torch_recovery.die()
        given = torch.ones(2)
        work = dist.all_reduce(given, async_op=True)  # waits for rank 1
        assert backend._epochs.native_in_use == 1
        with pytest.raises(dist.DistBackendError, match=r"rank 1.*troupe\.torch\.resume\(\)"):
            work.wait()
        with pytest.raises(dist.DistBackendError, match=r"troupe\.torch\.resume\(\)"):
            dist.all_reduce(torch.ones(1))
        del work
        troupe.torch.resume()
        assert backend._epochs.native_in_use == 0
        assert [asked_natively(lambda: test_torch_recovery.sum_of(rank)) for _ in range(3)] == [0, 1, 1]
    tensor = torch.full((2,), float(rank))
    transfer = dist.isend(tensor, 0) if rank else dist.irecv(tensor, 1)
    transfer.wait()
    assert tensor.tolist() == [1] * 2
    dist.destroy_process_group()


def test_the_native_part_follows_the_epochs_of_a_group():
    test_torch_recovery.run_with_losses(epochs, 2, [1])


IN_A_FORK = """
import os, sys, time
import torch, torch.distributed as dist
import troupe.torch
from troupe.torch import _native
assert _native.native() is not None  # the parent has it, and no group
child = os.fork()
if child == 0:
    dist.init_process_group("troupe", store=dist.HashStore(), rank=0, world_size=1)
    future = dist.all_reduce(torch.ones(2), async_op=True).get_future()
    future.then(lambda of: (time.sleep(0.5), print("called", of.value()[0].tolist(), flush=True)))
    sys.exit(3)  # while the callback runs
_, status = os.waitpid(child, 0)
print("status", os.waitstatus_to_exitcode(status))
"""


def test_a_fork_ends_when_its_callbacks_have_ended():
    done = subprocess.run([sys.executable, "-c", IN_A_FORK], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=170,
                          env={**os.environ, "TROUPE_BACKEND": "mock"})
    assert done.stdout.splitlines()[-2:] == ["called [1.0, 1.0]", "status 3"], done.stdout


def memory(rank, size):
    """Tensors live until the operation has ended, and no longer."""
    array = numpy.ones(1000, numpy.float32)
    gone = weakref.ref(array)
    tensor = torch.from_numpy(array)
    del array
    work = dist.all_reduce(tensor, async_op=True)
    del tensor
    assert work.result()[0].sum() == 1000 * size
    del work
    until = time.monotonic() + 60
    while gone() is not None and time.monotonic() < until:
        dist.barrier()
    assert gone() is None


def test_tensors_are_held_until_the_outcome(tmp_path):
    run_ranks(memory, 2, tmp_path)


def fake_compiler(folder, line):
    made = folder / "compiler"
    made.write_text(f"#!/bin/sh\necho called >> {folder}/calls\n{line}\n")
    made.chmod(0o755)
    return str(made)


def test_processes_that_build_at_once_call_the_compiler_once(tmp_path):
    compiler = fake_compiler(tmp_path, 'while [ "$1" != -o ]; do shift; done; sleep 1; echo built > "$2"')
    code = "import troupe.torch; print(troupe.torch.build())"
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "CXX": compiler}
    processes = [subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    files = {one.communicate(timeout=170)[0].strip() for one in processes}
    assert [one.returncode for one in processes] == [0] * 3
    assert len(files) == 1 and pathlib.Path(files.pop()).read_text() == "built\n"
    assert (tmp_path / "calls").read_text() == "called\n"
    assert not list((tmp_path / "troupe" / "torch-native").glob("*.so.*"))


def test_a_failing_compiler_is_a_warning_and_python_goes_on(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(_native, "_loaded", None)
    for compiler, text in ((fake_compiler(tmp_path, "echo no such header; exit 3"), "ended with status 3 and no library:\nno such header"),
                           (str(tmp_path / "absent"), "cannot be run .*: install g\\+\\+"), ('"', "is no command"),
                           (str(tmp_path), "cannot be run"), ("true", "ended with status 0 and no library")):
        monkeypatch.setenv("CXX", compiler)
        monkeypatch.setattr(_native, "_told", False)
        with pytest.raises(RuntimeError, match=text):
            troupe.torch.build()
        with pytest.warns(UserWarning, match=text):
            assert _native.native() is None
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert _native.native() is None  # it is said once
    monkeypatch.setattr(_native, "_told", False)
    monkeypatch.setenv("TROUPE_TORCH_NATIVE", "use")
    assert _native.native() is None  # it has not been built
    monkeypatch.setenv("TROUPE_TORCH_NATIVE", "yes")
    with pytest.raises(troupe.InvalidArgument, match="'yes': give use, build, off"):
        _native.native()


def test_a_file_of_something_else_is_a_warning(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(_native, "_loaded", None)
    monkeypatch.setattr(_native, "_told", False)
    file = _native.library()
    file.parent.mkdir(parents=True)
    file.write_text("nothing")
    with pytest.warns(UserWarning, match="uses Python alone"):
        assert _native.native() is None
