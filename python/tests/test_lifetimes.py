"""Ownership and lifetimes of objects; the interpreter's end with pending requests."""
import asyncio
import gc
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
import urllib.request
import weakref

import numpy as np
import pytest

import troupe
import troupe.testing


class Watched(np.ndarray):
    """An array that can be referred to weakly."""


def watched(value, count=4):
    return np.full(count, value, "float32").view(Watched)


def is_gone(reference, seconds=10):
    """Waits for the deletion: objects that threads of troupe release are deleted later by a thread of Python."""
    until = time.monotonic() + seconds
    while reference() is not None and time.monotonic() < until:
        gc.collect()
        time.sleep(0.001)
    return reference() is None


def test_operands_are_held_until_the_outcome_and_no_longer():
    with troupe.testing.MockWorld(2) as mock:
        mock.script.on(0).operation(0).delay(0.2)
        values = [watched(1), watched(2)]
        references = [weakref.ref(value) for value in values]
        reply = mock.world.all_reduce(values, out=[np.zeros(4, "float32") for _ in range(2)])
        del values
        gc.collect()
        assert all(reference() is not None for reference in references)
        completion = reply.result()
        np.testing.assert_array_equal(completion.out[0], np.full(4, 3))
        assert all(is_gone(reference) for reference in references)


def test_a_reply_that_nobody_waits_for_lets_go_of_its_operands(world):
    values = [watched(rank) for rank in range(3)]
    references = [weakref.ref(value) for value in values]
    world.all_reduce(values)
    del values
    assert all(is_gone(reference) for reference in references)


def test_a_refused_request_holds_nothing(world):
    values = [watched(rank) for rank in range(3)]
    references = [weakref.ref(value) for value in values]
    with pytest.raises(troupe.Error):
        world.all_gather(values, values[::-1]).result()
    del values
    assert all(is_gone(reference) for reference in references)


def test_a_prepared_request_holds_its_operands(world):
    values = [watched(1) for _ in range(3)]
    reference = weakref.ref(values[0])
    request = world.prepare("all_reduce", values)
    del values
    gc.collect()
    assert reference() is not None
    assert request.ask().result().out[0] is reference()
    del request
    assert is_gone(reference)


def test_references_are_counted_right(world):
    values = [np.ones(4, "float32") for _ in range(3)]
    before = [sys.getrefcount(value) for value in values]
    for _ in range(100):
        world.all_reduce(values).result()
    until = time.monotonic() + 10
    while [sys.getrefcount(value) for value in values] != before and time.monotonic() < until:
        time.sleep(0.001)
    assert [sys.getrefcount(value) for value in values] == before


def test_a_view_of_troupes_memory_outlives_buffer_and_world():
    with troupe.testing.MockWorld(2) as mock:
        made = troupe.empty(mock.world, 0, 4, "int64")
        view, lent = np.asarray(made), np.from_dlpack(made)
        view[:] = 9
        del made
    gc.collect()
    assert view.tolist() == lent.tolist() == [9, 9, 9, 9]


def test_a_capsule_that_nobody_takes_is_deleted(world):
    made = troupe.empty(world, 0, 4)
    for _ in range(10):
        made.__dlpack__()
    np.testing.assert_array_equal(np.from_dlpack(made).shape, (4,))


def test_memory_that_is_not_used_is_released_on_request():
    with troupe.Runtime(backend="mock", ranks=2, pool_keep_bytes="8M") as runtime:
        world = runtime.form_world()
        kept = troupe.empty(world, 0, 1 << 20, "uint8")
        del kept
        gc.collect()
        assert world.release_unused() == 1 << 20
        assert world.release_unused() == 0
        assert runtime.release_unused() == 0


def test_a_world_holds_its_runtime():
    world = troupe.Runtime(backend="mock", mock_devices=2, log_level="off").form_world()
    gc.collect()
    world.barrier().result(30)


def test_events_are_heard_in_order():
    heard = []
    with troupe.testing.MockWorld(2, recovery_policy="keep_size") as mock:
        mock.world.events(heard.append)
        mock.script.on(0).operation(0).fail()
        assert isinstance(mock.world.barrier().exception(), troupe.Error)
        assert mock.world.wait_ready(60, after_epoch=1).phase == "ready"
    until = time.monotonic() + 10
    while (not heard or heard[-1].phase != "stopped") and time.monotonic() < until:
        time.sleep(0.001)
    phases = [event.phase for event in heard]
    assert phases[:3] == ["rebuilding", "forming", "ready"] and phases[-1] == "stopped"
    assert heard[2].epoch == 2 and isinstance(heard[0].reason, troupe.CommunicatorFailed)


# The state of a program when it ends without closing anything.
ENDINGS = {
    "a request that hangs": """
        mock.script.on(0).operation(0).delay(60)
        reply = mock.world.barrier()
    """,
    "requests in flight": """
        replies = [mock.world.all_reduce([np.ones(1000), np.ones(1000)]) for _ in range(500)]
    """,
    "requests that nobody holds": """
        for _ in range(500): mock.world.all_reduce([np.ones(1000), np.ones(1000)])
    """,
    "a thread that waits": """
        mock.script.on(0).operation(0).delay(60)
        reply = mock.world.barrier()
        threading.Thread(target=reply.exception, daemon=True).start()
        time.sleep(0.05)
    """,
    "a loop that waits": """
        mock.script.on(0).operation(0).delay(60)
        async def program():
            await asyncio.wait({asyncio.ensure_future(wait())}, timeout=0.05)
        async def wait():
            await mock.world.barrier()
        asyncio.run(program())
    """,
    "a listener": """
        mock.world.events(lambda event: None)
        mock.world.barrier().result()
    """,
    "a world in a global and no runtime": """
        world = troupe.Runtime(backend="mock", mock_devices=2, log_level="off").form_world()
        replies = [world.barrier() for _ in range(100)]
        del mock
    """,
    "functions that are still called": """
        mock.world.register_function("sleep", lambda *_: time.sleep(0.005))
        replies = [mock.world.call("sleep") for _ in range(50)]
    """,
    "functions that are still called when the world is closed": """
        mock.world.register_function("sleep", lambda *_: time.sleep(0.005))
        replies = [mock.world.call("sleep") for _ in range(50)]
        world = mock.world
        mock.close()
        assert all(reply.done() for reply in replies)
    """,
    "functions of a world that nothing refers to": """
        world = troupe.Runtime(backend="mock", mock_devices=2, log_level="off").form_world()
        world.register_function("sleep", lambda *_: time.sleep(0.005))
        replies = [world.call("sleep") for _ in range(20)]
        del world
        assert [reply.exception(20) for reply in replies].count(None) > 0
    """,
    "a driver that waits for its world": """
        driver = troupe.Driver(control_address="127.0.0.1:1", token="a" * 64, log_level="off")
        ready = driver.ready()
        driver.events(print)
    """,
    "an exception": """
        replies = [mock.world.barrier() for _ in range(100)]
        raise SystemExit(0)
    """,
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_the_interpreter_ends_with(ending):
    program = """
        import asyncio, threading, time
        import numpy as np
        import troupe, troupe.testing
        mock = troupe.testing.MockWorld(2, limits_hang="20s", deadlines_drain="300ms", deadlines_abort="300ms")
    """
    done = subprocess.run([sys.executable, "-X", "faulthandler", "-c",
                           textwrap.dedent(program) + textwrap.dedent(ENDINGS[ending])],
                          timeout=60, capture_output=True, text=True, env=dict(os.environ))
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


def returns_in_another_thread(call, seconds=20):
    """Returns whether call() returns within that time on a thread of its own."""
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(seconds)
    return not thread.is_alive()


def test_a_runtime_is_closed_by_another_thread():
    runtime = troupe.Runtime(backend="mock", mock_devices=2, log_level="off")
    world = runtime.form_world()
    world.barrier().result()
    assert returns_in_another_thread(runtime.close)
    assert world.status.phase == "stopped"


def test_a_runtime_is_closed_by_a_thread_of_an_event_loop():
    async def work():
        runtime = troupe.Runtime(backend="mock", mock_devices=2, log_level="off")
        await runtime.form_world().barrier()
        await asyncio.wait_for(asyncio.to_thread(runtime.close), 20)
    asyncio.run(work())


def test_a_runtime_is_collected_in_another_thread():
    class Holder:
        pass
    holder = Holder()
    holder.itself = holder
    holder.runtime = troupe.Runtime(backend="mock", mock_devices=2, log_level="off")
    holder.world = holder.runtime.form_world()
    reference = weakref.ref(holder)
    gc.disable()
    try:
        del holder
        assert returns_in_another_thread(gc.collect)
    finally:
        gc.enable()
    assert reference() is None


def test_a_virtual_world_is_closed_by_another_thread():
    world = troupe.testing.VirtualWorld(2)
    reply = world.rank(0).barrier()
    assert returns_in_another_thread(world.close)
    with pytest.raises(troupe.Stopping):
        world.advance(0)
    with troupe.testing.VirtualWorld(2) as other:  # the closed one has ended
        assert other.status.phase == "ready"
    del reply


def test_a_virtual_world_is_used_on_its_own_thread():
    refusals = []

    def use(world):
        try:
            world.advance(0)
        except troupe.InvalidArgument as refusal:
            refusals.append(refusal)
    with troupe.testing.VirtualWorld(2) as world:
        assert returns_in_another_thread(lambda: use(world))
    assert len(refusals) == 1


def interrupt(call):
    """Sends Ctrl-C once while call() is in progress. Returns the seconds from then to its exception."""
    main = threading.get_ident()
    sent = []

    def send():
        until = time.monotonic() + 20
        while sys._current_frames()[main].f_code.co_name != call.__name__ and time.monotonic() < until:
            time.sleep(0.001)
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)
    thread = threading.Thread(target=send)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        call()
    thread.join()
    return time.monotonic() - sent[0]


def phases_in(runtime):
    """The present phases of the runtime's worlds, by its metrics."""
    address = re.search(r"http://\S+/metrics", runtime.describe())[0]
    with urllib.request.urlopen(address, timeout=20) as page:
        return set(re.findall(r'^troupe_world_phase\{[^}]*phase="(\w+)"[^}]*\} 1$', page.read().decode(), re.M))


def test_ctrl_c_ends_the_wait_for_a_world():
    script = troupe.testing.FaultScript()
    script.on(1).forming(0).hang()
    runtime = troupe.Runtime(backend="mock", mock_devices=2, faults=script, log_level="off", deadlines_form=60,
                             metrics_address="127.0.0.1:0")
    assert interrupt(runtime.form_world) < 20
    until = time.monotonic() + 30
    while phases_in(runtime) - {"stopped"} and time.monotonic() < until:
        time.sleep(0.01)
    assert not phases_in(runtime) - {"stopped"}  # though what hangs was not released
    world = runtime.form_world()
    assert phases_in(runtime) - {"stopped"} == {"ready"}
    world.barrier().result(60)
    runtime.close()


def test_ctrl_c_ends_the_wait_for_other_processes(monkeypatch):
    other = """
        import troupe
        with troupe.Runtime(backend="mock", mock_devices=1, log_level="off") as runtime:
            print(runtime.form_world().barrier().result(60).epoch)
        """
    with troupe.Controller(2) as controller:
        for name, value in controller.environment(0).items():
            monkeypatch.setenv(name, value)
        with troupe.Runtime(backend="mock", mock_devices=1, log_level="off", deadlines_form=60) as runtime:
            assert interrupt(runtime.form_world) < 20
            # This process has left the controller's world, and may join it again.
            process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(other)], env=controller.environment(1),
                                       stdout=subprocess.PIPE, text=True)
            world = runtime.form_world()
            assert world.barrier().result(60).epoch == world.epoch
            assert process.communicate(timeout=60)[0].strip() == str(world.epoch)


def test_ctrl_c_ends_the_wait_for_an_end():
    with troupe.testing.MockWorld(2, limits_launch=90, limits_hang=90, deadlines_drain=60) as mock:
        mock.script.on(0).operation(0).delay(60)
        reply = mock.world.barrier()
        assert interrupt(mock.world.stop) < 20
        mock.script.release()
        reply.exception()


def test_ctrl_c_ends_the_wait_for_sub_worlds():
    with troupe.testing.MockWorld(2, limits_launch=90, limits_hang=90) as mock:
        mock.script.on(0).operation(0).delay(60)
        reply = mock.world.barrier()

        def split():
            mock.world.split({"a": [0], "b": [1]})
        assert interrupt(split) < 20
        mock.script.release()
        reply.exception()


def test_ctrl_c_ends_the_wait_for_a_runtime():
    script = troupe.testing.FaultScript()
    runtime = troupe.Runtime(backend="mock", mock_devices=2, faults=script, log_level="off", limits_launch=90,
                             limits_hang=90, deadlines_drain=60)
    world = runtime.form_world()
    script.on(0).operation(0).delay(60)
    reply = world.barrier()
    assert interrupt(runtime.close) < 20
    script.release()
    reply.exception()


FORK = """
import os, sys, numpy as np, troupe
from troupe.testing import MockWorld
with MockWorld(2, log_level="off") as mock:
    world, values = mock.world, troupe.empty(mock.world, 0, 4)
    changes, heard = world.events(), []
    world.events(heard.append)
    lanes = [world.rank(r).lane("steps") for r in range(2)]
    for reply in [lane.barrier() for lane in lanes]:
        reply.result(30)
    waits = lanes[0].barrier()
    child = os.fork()
    if child == 0:
        for call in (lambda: world.barrier().result(30), lambda: lanes[1].barrier().result(30),
                     lambda: world.split({"a": [0]}), lambda: world.register_memory(4096), lambda: waits.result(30),
                     lambda: waits.exception(30), lambda: world.epoch, lambda: world.ready(),
                     lambda: world.events()):
            try:
                call()
                raise AssertionError("it is not refused")
            except troupe.Unsupported as refusal:
                assert "is a fork of" in refusal.text, refusal.text
        changes.close()
        world.stop()
        mock.close()
        del world, values, lanes, waits, changes
        sys.exit(7)  # as a worker of multiprocessing ends: what it has inherited is dropped
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 7, status
    lanes[1].barrier().result(30)
    waits.result(30)
    world.all_reduce([np.ones(4), np.ones(4)]).result(30)
print("goes on")
"""


def test_a_fork_drops_and_ends_what_it_has_inherited():
    done = subprocess.run([sys.executable, "-c", FORK], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "goes on", "")


LEFT_BEHIND = """
import gc, os, signal, troupe
gc.disable()
for kind in ("world", "lane", "memory", "plan"):
    with troupe.Runtime(backend="mock", mock_devices=2, profile="frugal", log_level="off") as runtime:
        world = runtime.form_world()
        values = [troupe.empty(world, r, 4) for r in range(2)]
        plan = world.capture([world.prepare("all_reduce", values)])
        left = {"world": world, "lane": world.rank(0).lane("steps"), "memory": values[0], "plan": plan}[kind]
    del world, values, plan, runtime
    child = os.fork()
    if child == 0:
        signal.alarm(60)  # ends it if it hangs
        del left
        gc.collect()
        os._exit(7)
    del left
    gc.collect()
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 7, (kind, status)
print("goes on")
"""


def test_a_fork_drops_what_the_parents_ended_runtime_has_left():
    done = subprocess.run([sys.executable, "-c", LEFT_BEHIND], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "goes on", "")


FORKS_UNDER_LOAD = """
import gc, os, signal, sys, threading, numpy as np, troupe
from troupe.testing import MockWorld
with MockWorld(2, log_level="off") as mock:
    world, go_on = mock.world, True
    lanes = [world.rank(r).lane("steps") for r in range(2)]

    def ask():
        while go_on:
            for reply in [world.all_reduce([np.ones(4), np.ones(4)]) for _ in range(8)]:
                reply.result(60)

    asking = threading.Thread(target=ask)
    asking.start()
    for i in range(int(sys.argv[1])):
        waits = lanes[0].barrier()
        world.all_reduce([np.ones(4), np.ones(4)])
        child = os.fork()
        if child == 0:
            signal.alarm(60)  # ends it if it hangs
            mock.close()
            del waits, world, lanes
            gc.collect()
            os._exit(7)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 7, (i, status)
        lanes[1].barrier().result(60)
        waits.result(60)
    go_on = False
    asking.join()
print("goes on")
"""


def test_a_fork_does_not_wait_for_what_threads_of_its_parent_held():
    done = subprocess.run([sys.executable, "-c", FORKS_UNDER_LOAD, "40"], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout.strip()) == (0, "goes on"), done.stderr
