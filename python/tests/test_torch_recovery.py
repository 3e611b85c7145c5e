"""Process groups of the backend troupe go on after a process is lost: troupe.torch.resume(), commit(), Copies, and reconfigure()."""
import importlib
import multiprocessing
import multiprocessing.connection
import os
import pathlib
import random
import re
import signal
import tempfile
import threading
import time
import traceback
import types

import pytest
from torch_ranks import PATIENCE, TIMEOUT, dist, run_ranks, torch

import troupe.torch

PYTHON = pathlib.Path(__file__).resolve().parent.parent
_context = multiprocessing.get_context("fork")


def _control(size, policy, to_parent):
    with troupe.Controller(size, policy=policy, rebuilds=100) as controller:
        to_parent.send(controller.joining())
        controller.wait()


def _run(function, place, size, attempt, settings, to_parent, arguments):
    os.environ.update(settings, RANK=str(place), WORLD_SIZE=str(size), TROUPE_PLACE=str(place), TROUPE_PROCESS=str(place),
                      TROUPE_ATTEMPT=str(attempt), TROUPE_BACKEND="mock")
    try:
        torch.set_num_threads(1)
        to_parent.send((True, function(place, size, attempt, *arguments)))
        if dist.is_initialized():
            dist.destroy_process_group()
    except BaseException:
        to_parent.send((False, traceback.format_exc()))
        raise


class Job:
    """Processes of a controller's world, as `troupe launch` starts them: forks, which spares the import of PyTorch."""

    def __init__(self, function, size, arguments=(), policy="keep_size"):
        self.function, self.size, self.arguments = function, size, arguments
        mine, theirs = _context.Pipe(duplex=False)
        self.controller = _context.Process(target=_control, args=(size, policy, theirs))
        self.controller.start()
        assert mine.poll(PATIENCE)
        self.settings = mine.recv()
        self.running = {}

    def start(self, place, attempt=0):
        mine, theirs = _context.Pipe(duplex=False)
        process = _context.Process(target=_run, args=(self.function, place, self.size, attempt, self.settings, theirs, self.arguments))
        process.start()
        theirs.close()
        self.running[place] = (process, mine)

    def result(self, place):
        process, pipe = self.running[place]
        assert pipe.poll(PATIENCE), f"process {place} has not ended within {PATIENCE} s"
        succeeded, said = pipe.recv()
        assert succeeded, f"process {place} failed:\n{said}"
        process.join(PATIENCE)
        return said

    def await_death(self, place):
        self.running[place][0].join(PATIENCE)
        assert self.running[place][0].exitcode == -signal.SIGKILL

    def end(self):
        for process, _ in [*self.running.values(), (self.controller, None)]:
            process.kill()
            process.join()


def run_with_losses(function, size, lost, arguments=()):
    """Runs the function at all places. Those in `lost` kill themselves, and are started again. Returns all results."""
    job = Job(function, size, arguments)
    try:
        for place in range(size):
            job.start(place)
        for place in lost:
            job.await_death(place)
        for place in lost:
            job.start(place, attempt=1)
        return [job.result(place) for place in range(size)]
    finally:
        job.end()


def run_restarting(function, size, arguments=()):
    """Runs the function at all places. A process that is killed is started again at once. Returns all results, and how many were."""
    job, restarts = Job(function, size, arguments), [0] * size
    try:
        for place in range(size):
            job.start(place)
        running, until = set(range(size)), time.monotonic() + PATIENCE
        while running:
            sentinels = [job.running[place][0].sentinel for place in running]
            assert multiprocessing.connection.wait(sentinels, until - time.monotonic()), f"processes {running} have not ended within {PATIENCE} s"
            for place in [one for one in running if not job.running[one][0].is_alive()]:
                if job.running[place][0].exitcode == -signal.SIGKILL:
                    restarts[place] += 1
                    job.start(place, restarts[place])
                else:
                    running.remove(place)
        return [job.result(place) for place in range(size)], sum(restarts)
    finally:
        job.end()


def raised(kind, text, call, *given, **named):
    with pytest.raises(kind, match=text) as caught:
        call(*given, **named)
    return caught.value


def sum_of(value, group=None):
    tensor = torch.tensor([float(value)])
    dist.all_reduce(tensor, group=group)
    return tensor.item()


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def goes_on(rank, size, attempt, all_have_asked):
    dist.init_process_group("troupe", timeout=TIMEOUT)
    world = dist.group.WORLD
    now = troupe.torch.resume(0)
    if attempt == 0:
        assert now == (1, None, (0, 1, 2), 0, 0)
        raised(ValueError, "epoch 1, in which this rank has made calls already, and which has had no fault", troupe.torch.resume)
        troupe.torch.commit(7)
        troupe.torch.commit(8)  # of which it may not be known that rank 0 has completed it
        if rank == 0:
            all_have_asked.wait(PATIENCE)  # who asks after the loss is refused with the code rebuilding
            die()
        work = dist.all_reduce(torch.ones(1), async_op=True)
        all_have_asked.wait(PATIENCE)
        failure = raised(dist.DistBackendError, r"rank 0.*troupe\.torch\.resume\(\)", work.wait)
        assert failure.__cause__.code == "communicator_failed"
        raised(dist.DistBackendError, r"troupe\.torch\.resume\(\)", dist.barrier)  # while it forms again, or later
        dist.group.WORLD._get_backend(torch.device("cpu"))._world.world.wait_ready(PATIENCE, after_epoch=1)
        stale = raised(dist.DistBackendError, r"stale_epoch.*troupe\.torch\.resume\(\)", dist.all_reduce, torch.ones(1))
        assert stale.__cause__.was_rejected and "acknowledge" not in str(stale)
        now = troupe.torch.resume(10 + rank)
    assert now in [(2, commit, (0,), 12, 2) for commit in (7, 8)]
    assert dist.group.WORLD is world and sum_of(rank) == 3
    raised(ValueError, "epoch 2.*no fault", troupe.torch.resume)
    raised(ValueError, "step is -1", troupe.torch.resume, -1)
    dist.destroy_process_group()
    raised(ValueError, "no default process group, or it has been destroyed", troupe.torch.resume)
    return now


def test_a_group_goes_on_when_rank_0_is_lost():
    assert len(set(run_with_losses(goes_on, 3, [0], (_context.Barrier(3),)))) == 1


def waits_for_operands(rank, size, attempt):
    dist.init_process_group("troupe", timeout=TIMEOUT)
    if attempt == 0:
        if rank == 1:
            die()
        raised(dist.DistBackendError, "resume", dist.barrier)
        epochs = dist.group.WORLD._get_backend(torch.device("cpu"))._epochs
        held, naps = [epochs.hold(torch.ones(1))], []  # as by an operation of epoch 1 that has not been aborted

        def nap(seconds):
            naps.append(seconds)
            held.clear()

        troupe.torch._recovery.time = types.SimpleNamespace(monotonic=time.monotonic, sleep=nap)
        troupe.torch.resume()
        assert naps and not held
    else:
        troupe.torch.resume()
    dist.barrier()


def test_resume_waits_until_no_earlier_operation_uses_a_tensor():
    run_with_losses(waits_for_operands, 2, [1])


def smaller_groups(rank, size, attempt, level):
    dist.set_debug_level(level)
    dist.init_process_group("troupe", timeout=TIMEOUT)
    pair, other = dist.new_group([0, 2]), dist.new_group([1])
    now = troupe.torch.resume(1 if attempt == 0 else 0)
    halves = dist.split_group(split_ranks=[[0, 1], [2]])

    def use():
        if rank == 1:
            assert pair is dist.GroupMember.NON_GROUP_MEMBER and sum_of(5, other) == 5
        else:
            assert sum_of(rank, pair) == 2 and other is dist.GroupMember.NON_GROUP_MEMBER
        assert sum_of(rank, halves) == (1 if rank < 2 else 2)
        tensor = torch.tensor([rank])
        dist.batch_isend_irecv([dist.P2POp(dist.isend, tensor.clone(), (rank + 1) % size),
                                dist.P2POp(dist.irecv, tensor, (rank - 1) % size)])[-1].wait()
        assert tensor.item() == (rank - 1) % size and sum_of(1) == size

    if now.epoch == 1:
        use()
        if rank == 1:
            die()
        group = halves if rank == 0 else dist.group.WORLD
        raised(dist.DistBackendError, r"troupe\.torch\.resume\(\)", sum_of, 1, group)
        raised(dist.DistBackendError, r"new_group: .*troupe\.torch\.resume\(\)", dist.new_group, [0, 2])
        raised(dist.DistBackendError, r"split_group: .*troupe\.torch\.resume\(\)", dist.split_group, split_ranks=[[0], [1, 2]])
        now = troupe.torch.resume(1)
    assert now.epoch == 2 and now.new == (1,)
    use()
    later = dist.split_group(split_ranks=[[0], [1, 2]])  # one that is new in this epoch
    assert sum_of(rank, later) == (0 if rank == 0 else 3)
    named = dist.new_group([0, 1])  # of which the calls that have failed are no part
    assert rank == 2 or sum_of(rank, named) == 1


@pytest.mark.parametrize("level", [dist.DebugLevel.OFF, dist.DebugLevel.DETAIL], ids=["off", "detail"])
def test_smaller_groups_stay_valid(level):
    run_with_losses(smaller_groups, 3, [1], (level,))


def splits_first(rank, size, attempt):
    dist.init_process_group("troupe", timeout=TIMEOUT)
    if attempt == 0:
        if rank == 1:
            die()
        raised(dist.DistBackendError, "resume", dist.barrier)
        raised(dist.DistBackendError, r"rank 1 is in split_group\(\): in each epoch all ranks call troupe\.torch\.resume\(\) first",
               troupe.torch.resume)
    else:
        raised(dist.DistBackendError, r"in split_group\(\), and rank 0 is in resume\(\)", dist.split_group, split_ranks=[[0, 1]])


def test_a_new_process_that_does_not_resume_first_is_named():
    run_with_losses(splits_first, 2, [1])


class Counter:
    """An object with a state."""

    def __init__(self, value):
        self.value = torch.tensor([value])

    def state_dict(self):
        return {"value": self.value}

    def load_state_dict(self, state):
        self.value = state["value"]


STEPS = 12


def counts(rank, size, attempt, is_to_die, before=lambda: None):
    """Adds up a sum in each step, and goes on after losses. is_to_die(rank, attempt, step) is asked before each step."""
    before()
    dist.init_process_group("troupe", timeout=TIMEOUT)
    counter, step = Counter(0), 0
    while step < STEPS:
        try:
            step = troupe.torch.share(troupe.torch.resume(step), counter)
            while step < STEPS:
                if is_to_die(rank, attempt, step):
                    die()
                counter.value = counter.value + int(sum_of((rank + 1) * step))
                step += 1
        except dist.DistBackendError:
            pass
    return counter.value.item()


def all_counted(size):
    return [sum(range(STEPS)) * sum(range(1, size + 1))] * size


def dies_in_resume(rank, size, attempt, victim, where):
    """Rank 1 is lost, and then another process, or the one in its place, while it is in resume()."""
    epochs = troupe.torch._recovery.Epochs
    calls = []

    def dying(method, when):
        def call(*given):
            calls.append(when)
            # A survivor's first resume() is that of the first epoch.
            is_due = where == when and (rank, attempt) == victim and calls.count(when) == (1 if attempt else 2)
            if is_due and when != "has agreed":
                die()
            result = method(*given)
            if is_due:
                die()
            return result
        return call

    epochs._next_epoch = dying(epochs._next_epoch, "waits")
    epochs.gather = dying(dying(epochs.gather, "agrees"), "has agreed")
    return counts(rank, size, attempt, lambda *of: of == (1, 0, 5))


@pytest.mark.parametrize("where", ["waits", "agrees", "has agreed"])
@pytest.mark.parametrize("victim", [(0, 0), (2, 0), (1, 1)], ids=["rank 0", "a survivor", "the new process"])
def test_a_process_is_lost_while_the_ranks_resume(victim, where):
    assert run_restarting(dies_in_resume, 3, (victim, where)) == (all_counted(3), 2)


def dies_after(rank, size, attempt, victims, delay):
    def begin():
        if attempt == 0 and rank in victims:
            threading.Timer(delay, die).start()

    def sleeps(*_):
        time.sleep(0.02)  # so that the last step is after the longest delay
        return False

    return counts(rank, size, attempt, sleeps, begin)


@pytest.mark.parametrize("victims", [(0,), (2,), (0, 1)], ids=["rank 0", "rank 2", "two"])
def test_a_process_is_lost_while_the_group_forms(victims):
    for delay in (0.0, 0.02, 0.06, 0.2):
        assert run_restarting(dies_after, 3, (victims, delay)) == (all_counted(3), len(victims)), f"killed after {delay} s"


def ends_before_it_is_asked_again(rank, size, attempt, file):
    dist.init_process_group("troupe", timeout=TIMEOUT)
    assert attempt == 0, "a process has joined a world whose work is done"
    troupe.torch.resume()
    dist.barrier()
    if rank == 1:
        await_file(file)


def await_file(file):
    until = time.monotonic() + PATIENCE
    while not file.exists():
        assert time.monotonic() < until, f"{file} is not there after {PATIENCE} s"
        time.sleep(0.01)


def test_a_process_that_comes_when_the_others_finish_ends_well(tmp_path):
    file = tmp_path / "late"
    job = Job(ends_before_it_is_asked_again, 2, (file,))
    try:
        job.start(0)
        job.start(1)
        job.result(0)
        job.start(0, attempt=1)
        late, pipe = job.running[0]
        late.join(PATIENCE)
        assert late.exitcode == 0
        file.touch()
        job.result(1)
    finally:
        job.end()


def test_nothing_is_left_of_jobs_with_losses(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder = tmp_path / f"troupe-{os.getuid()}"
    assert run_restarting(counts, 2, (lambda *of: of == (1, 0, 5),)) == (all_counted(2), 1)
    assert list(folder.iterdir()) == []

    job = Job(counts, 2, (lambda *_: False,))
    try:
        job.start(0)  # which waits for the other one
        until = time.monotonic() + PATIENCE
        while len(list(folder.glob("store-*"))) < 2 and time.monotonic() < until:
            time.sleep(0.01)
    finally:
        job.end()
    assert {one.suffix for one in folder.iterdir()} == {"", ".lock"}  # no process has lived to remove them
    assert run_restarting(counts, 2, (lambda *_: False,)) == (all_counted(2), 0)
    assert list(folder.iterdir()) == []


def copies_of(rank, size, attempt, is_lost):
    dist.init_process_group("troupe", timeout=TIMEOUT)
    copies, counter, step = troupe.torch.Copies(), Counter(100 * rank), 0
    while step < 6:
        try:
            now = troupe.torch.resume(step)
            if is_lost and now.epoch > 1:
                raised(RuntimeError, r"state of ranks \[1\] at step [23] have ended", copies.restore, now, counter)
                return
            step = copies.restore(now, counter)
            assert step in ((0,) if now.epoch == 1 else (2, 3)) and counter.value.item() == 100 * rank + step
            while step < 6:
                counter.value += 1
                step += 1
                if attempt == 0 and step == 4 and rank in ((1, 2) if is_lost else (1,)):
                    die()
                copies.commit(step, counter)
        except dist.DistBackendError:
            pass
    assert counter.value.item() == 100 * rank + 6


def test_a_rank_has_its_copy_from_the_next_one():
    run_with_losses(copies_of, 3, [1], (False,))


def test_copies_of_two_neighbours_that_are_lost_are_missed_at_all_ranks():
    run_with_losses(copies_of, 4, [1, 2], (True,))


def copies_of_failed_commits(rank, size, attempt):
    dist.init_process_group("troupe", timeout=TIMEOUT)
    copies, counter = troupe.torch.Copies(), Counter(0)

    def commit(step):
        counter.value.fill_(100 * rank + step)
        copies.commit(step, counter)

    if attempt == 0:
        troupe.torch.resume()
        commit(1)
        commit(2)

        def tell_then_commit(step):  # all ranks have made their copies
            if rank == 1:
                for source in (0, 2):
                    dist.recv(torch.empty(1), source)
                die()
            dist.send(torch.ones(1), 1)
            troupe.torch.commit(step)

        troupe.torch._copies.commit = tell_then_commit
        raised(dist.DistBackendError, r"troupe\.torch\.resume\(\)", commit, 9)
        troupe.torch._copies.commit = troupe.torch.commit
    now = troupe.torch.resume(2 if attempt == 0 else 0)
    assert copies.restore(now, counter) == now.commit < 9
    commit(3)
    commit(4)  # at some ranks only, if a fault ends it there
    assert copies.restore(now._replace(commit=3), counter) == 3 and counter.value.item() == 100 * rank + 3


def test_copies_of_a_commit_that_failed_take_the_place_of_no_other():
    run_with_losses(copies_of_failed_commits, 3, [1])


def ends(rank, size, attempt):
    dist.init_process_group("troupe", timeout=TIMEOUT)
    dist.barrier()
    if rank == 1:
        die()
    raised(dist.DistBackendError, "rank 1|process 1", dist.barrier)
    failure = raised(dist.DistError, "troupe launch --policy keep_size", troupe.torch.resume)
    assert not isinstance(failure, dist.DistBackendError)  # a script's loop would catch it, for ever


def test_under_fail_fast_the_error_says_what_to_set():
    job = Job(ends, 2, policy="fail_fast")
    try:
        job.start(0)
        job.start(1)
        job.result(0)
    finally:
        job.end()


def cannot_go_on(rank, size):
    raised(ValueError, "controller of this process group is in rank 0.*troupe launch", troupe.torch.resume)


def test_a_group_with_its_controller_in_rank_0_cannot_go_on(tmp_path):
    run_ranks(cannot_go_on, 2, tmp_path)


def late(rank, size):
    """A mismatch in a backward pass is raised at its end, and the model can be used again."""
    seen = []

    class Reduce(torch.autograd.Function):
        @staticmethod
        def forward(ctx, tensor, count):
            ctx.count = count
            return tensor.clone()

        @staticmethod
        def backward(ctx, gradient):
            dist.all_reduce(torch.ones(ctx.count))
            seen.append(ctx.count)
            return gradient, None

    weight = torch.ones(1, requires_grad=True)
    failure = raised(dist.DistBackendError, "mismatch", Reduce.apply(Reduce.apply(weight, 1), 2 + rank).sum().backward)
    assert isinstance(failure.__cause__, troupe.Mismatch) and seen == [2 + rank, 1] and weight.grad.item() == 1

    net = torch.nn.Linear(3 + rank, 2)  # of different sizes, which nothing has compared
    model = torch.nn.parallel.DistributedDataParallel(net, init_sync=False)
    for _ in range(2):
        raised(dist.DistBackendError, "all_reduce: mismatch", model(torch.ones(1, 3 + rank)).sum().backward)
    assert sum_of(1) == size


def test_an_error_in_a_backward_pass_waits_for_its_end(tmp_path):
    run_ranks(late, 2, tmp_path)


def reconfigured(number, pipe):
    torch.set_num_threads(1)
    dist.init_process_group("troupe", store=dist.HashStore(), rank=0, world_size=1, enable_reconfigure=True, timeout=TIMEOUT)
    assert dist._supports_reconfigure()
    handle = dist._get_reconfigure_handle()
    raised(dist.DistBackendError, r"call reconfigure\(\) first", dist.barrier)
    raised(ValueError, "1 handles, 0 of them this process's", dist._reconfigure, 1, ["of another"])
    raised(ValueError, "has none", dist._reconfigure, 1, [handle], hints={"a": "b"})
    pipe.send(handle)
    while asked := pipe.recv():
        uuid, handles = asked
        dist._reconfigure(uuid, handles).wait()
        raised(ValueError, f"uuid {uuid} again", dist._reconfigure, uuid, handles)
        pipe.send((dist.get_rank(), dist.get_world_size(), sum_of(number)))
    dist.destroy_process_group()


def test_the_members_of_a_group_change_by_reconfigure():
    members = []
    for number in range(3):
        mine, theirs = _context.Pipe()
        members.append((_context.Process(target=reconfigured, args=(number, theirs)), mine))
        members[-1][0].start()

    def ask(who, uuid, given):
        for one in who:
            members[one][1].send((uuid, given))
        return [members[one][1].recv() if members[one][1].poll(PATIENCE) else None for one in who]

    try:
        handles = [pipe.recv() if pipe.poll(PATIENCE) else None for _, pipe in members]
        assert ask([0, 1, 2], 1, handles) == [(0, 3, 3), (1, 3, 3), (2, 3, 3)]
        members[0][0].kill()  # which had the controller
        assert ask([1, 2], 2, [handles[2], handles[1]]) == [(1, 2, 3), (0, 2, 3)]
        first = sorted(handles[1:]).index(handles[1])
        assert ask([1, 2], 3, set(handles[1:])) == [(first, 2, 3), (1 - first, 2, 3)]
        for process, pipe in members[1:]:
            pipe.send(None)
        for process, _ in members[1:]:
            process.join(PATIENCE)
            assert process.exitcode == 0
    finally:
        for process, _ in members:
            process.kill()
            process.join()


def example_of(script):
    """Returns the example as a module. It imports PyTorch's parts now, and not in each fork."""
    example = types.ModuleType(script)
    exec((PYTHON / "examples" / "training" / f"{script}.py").read_text(encoding="utf-8"), example.__dict__)
    return example


def trains(rank, size, attempt, example, is_disturbed, backend="mock"):
    """Runs the main() of an example. Returns the weights that it prints."""
    os.environ["TROUPE_BACKEND"] = backend
    printed, batch = [], example.batch

    def dying_batch(step, rank):
        if is_disturbed and attempt == 0 and rank == 1 and step == 25:
            die()
        return batch(step, rank)

    example.batch, example.print = dying_batch, lambda text, flush: printed.append(text)
    example.main(types.SimpleNamespace(steps=40, pause=0))
    assert any("in epoch 2" in text for text in printed) == is_disturbed, printed
    return re.search(r"ends with weights (\w+)", printed[-1])[1]


@pytest.mark.parametrize("script", ["ddp", "fsdp"])
def test_an_example_ends_with_the_weights_of_an_undisturbed_run(script):
    example = example_of(script)
    right = set(run_with_losses(trains, 3, [], (example, False)))
    assert len(right) == 1 and set(run_with_losses(trains, 3, [1], (example, True))) == right


def test_a_launched_example_ends_with_the_weights_of_an_undisturbed_run(monkeypatch):
    try:
        troupe.program_path()
    except troupe.Missing as why:
        pytest.skip(str(why))
    monkeypatch.syspath_prepend(PYTHON / "benchmarks")
    torch_recovery = importlib.import_module("torch_recovery")
    job = torch_recovery.Job(types.SimpleNamespace(ranks=2), "ddp", 0.05, 40, 1)
    job.await_epoch_after(0)
    job.await_spares()
    job.kill(random.Random(1))
    job.await_epoch_after(1)
    weights = job.finish()
    assert set(run_with_losses(trains, 2, [], (example_of("ddp"), False, "gloo"))) == {weights}


@pytest.mark.parametrize("script", ["ddp", "fsdp"])
def test_the_pages_difference_is_the_example_in_ten_lines(script):
    page = (PYTHON.parent / "docs" / "guide" / "torch.md").read_text(encoding="utf-8")
    found = re.search(rf"<!-- difference: python/examples/training/{script}\.py -->\n```diff\n(.*?)```", page, re.DOTALL)
    lines = found[1].splitlines()
    assert sum(line.startswith("+") for line in lines) <= 10
    example = iter((PYTHON / "examples" / "training" / f"{script}.py").read_text(encoding="utf-8").splitlines())
    for line in lines:
        if not line.startswith("-") and line.strip(" +") not in ("", "..."):
            assert any(line[1:].strip() == one.strip() for one in example), line
