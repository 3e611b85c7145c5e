"""What PyTorch's users look at: its exceptions, its environment variables, its flight recorder and the analyser of that."""
import datetime
import os
import pickle
import subprocess
import sys

import pytest
from torch_ranks import PATIENCE, Ranks, dist, init, run_ranks, torch

import troupe
import troupe.torch
from troupe.torch import _failures, _variables

SECOND = datetime.timedelta(seconds=1)


def raised(kind, text, call, *given, **named):
    with pytest.raises(kind, match=text) as caught:
        call(*given, **named)
    return caught.value


def analysed(folder):
    """Returns what PyTorch's own analyser says of the records in a folder."""
    done = subprocess.run([sys.executable, "-m", "torch.distributed.flight_recorder.fr_trace", str(folder)],
                          capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def recorded(tmp_path, **more):
    """Returns the variables with which each rank writes its record, as rank_0 and so on, and the folder."""
    folder = tmp_path / "records"
    folder.mkdir()
    return folder, dict({"TORCH_FR_DUMP_TEMP_FILE": f"{folder}/rank_", "TORCH_FR_DUMP_ON_TIMEOUT": "1"}, **more)


def states(file):
    with open(file, "rb") as record:
        return [(entry["profiling_name"], entry["state"], entry.get("error", "")) for entry in pickle.load(record)["entries"]]


def different_sizes(rank, size):
    dist.barrier()
    dist.all_reduce(torch.ones(4))
    failure = raised(dist.DistBackendError, "mismatch", dist.all_reduce, torch.ones(4 + rank))
    assert isinstance(failure.__cause__, troupe.Mismatch)
    dist.all_reduce(torch.ones(4))  # not in the record, which was written at the failure


def test_pytorchs_analyser_finds_a_mismatch_in_the_records(tmp_path):
    folder, settings = recorded(tmp_path)
    run_ranks(different_sizes, 2, tmp_path, settings)
    assert sorted(os.listdir(folder)) == ["rank_0", "rank_1"]
    for rank in range(2):
        done = states(folder / f"rank_{rank}")
        assert [one[:2] for one in done] == [("troupe:barrier", "completed"), ("troupe:all_reduce", "completed"),
                                             ("troupe:all_reduce", "scheduled")]
        assert "rank 0 asks for all_reduce of 4 f32, sum, rank 1 for all_reduce of 5 f32, sum" in done[-1][2]
    said = analysed(folder)
    assert "sequence number: 3 has errors" in said, said
    assert "Culprit rank 1; Error type: SIZE_OR_SYNTAX_MISMATCH, Expected input sizes: '[[4]]'" in said, said


def all_reduce_with_timeout(tensor, timeout):
    options = torch._C._distributed_c10d.AllreduceOptions()
    options.timeout = timeout
    dist.group.WORLD.allreduce([tensor], options).wait()


def missing_in_time(rank, size):
    dist.all_reduce(torch.ones(4))
    if rank == 0:
        failure = raised(dist.DistBackendError, "Timed out waiting 1000ms", all_reduce_with_timeout, torch.ones(2), SECOND)
        assert failure.__cause__.missing_ranks == (1,)
        dist.send(torch.ones(1), 1)
    else:
        assert troupe.torch.write_flight_record().endswith("rank_1")
        dist.recv(torch.ones(1), 0)  # stays in the group until rank 0 has missed this rank


def test_pytorchs_analyser_finds_a_missing_rank_in_the_records(tmp_path):
    folder, settings = recorded(tmp_path)
    run_ranks(missing_in_time, 2, tmp_path, settings)
    assert [one[1] for one in states(folder / "rank_0")] == ["completed", "scheduled"]
    assert [one[1] for one in states(folder / "rank_1")] == ["completed"]
    said = analysed(folder)
    assert "Not all ranks joining collective, sequence number: 2" in said and "missing ranks: {1}" in said, said


def unasked(rank, size, file):
    init(rank, size, file)
    raised(dist.DistBackendError, "mismatch", dist.all_reduce, torch.ones(4 + rank))
    assert states(troupe.torch.write_flight_record(f"{file}.of_{rank}"))[-1][1] == "scheduled"
    raised(OSError, "Not a directory", troupe.torch.write_flight_record, f"{file}/no/folder")
    dist.destroy_process_group()


def test_a_failure_writes_a_record_only_where_the_environment_asks_for_it(tmp_path):
    folder, settings = recorded(tmp_path, TORCH_FR_DUMP_ON_TIMEOUT="0")
    run_ranks(unasked, 2, None, settings, (tmp_path / "store",))
    assert os.listdir(folder) == []


def shapes_differ(rank, size):
    tensor = torch.ones(2, 3) if rank else torch.ones(6)
    said = str(raised(dist.DistBackendError, "the ranks disagree", dist.all_reduce, tensor))
    assert "rank 0: all_reduce: all_reduce of (6,) float32; rank 1: all_reduce: all_reduce of (2, 3) float32" in said, said
    bits = torch.ones(4, dtype=(torch.int16, torch.uint16)[rank])  # both are moved as bytes
    raised(dist.DistBackendError, r"broadcast of \(4,\) int16.*broadcast of \(4,\) uint16", dist.broadcast, bits, 0)
    raised(dist.DistBackendError, "all_reduce.*barrier", (lambda: dist.barrier()) if rank else lambda: dist.all_reduce(tensor))
    parts = [torch.empty(one + 1) for one in range(size)]
    dist.all_gather(parts, torch.full((rank + 1,), float(rank)))  # may differ
    assert [one.tolist() for one in parts] == [[0.0], [1.0, 1.0]]
    for call in (lambda: dist.all_reduce(torch.ones(2)), dist.barrier, lambda: dist.broadcast(bits.view(torch.uint8), 1)):
        call()
    group = dist.new_group()
    group.set_timeout(SECOND)
    if rank == 0:
        raised(dist.DistBackendError, "Timed out waiting 1000ms", dist.barrier, group)
        dist.send(torch.ones(1), 1)
    else:
        dist.recv(torch.ones(1), 0)


def test_detail_compares_shapes_and_types(tmp_path):
    script = ("import pathlib, test_torch_reports as tests; "
              f"tests.run_ranks(tests.shapes_differ, 2, pathlib.Path({str(tmp_path)!r}))")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=PATIENCE,
                          cwd=os.path.dirname(__file__), env=dict(os.environ, TORCH_DISTRIBUTED_DEBUG="DETAIL"))
    assert done.returncode == 0, done.stderr


def test_variables_of_pytorchs_watchdog_set_limits_of_troupe_or_are_named(monkeypatch):
    assert _variables.settings_of({}) == {}
    assert _variables.settings_of({"TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC": "90", "TORCH_NCCL_NONBLOCKING_TIMEOUT": "5",
                                   "TORCH_NCCL_BLOCKING_WAIT": "1"}) == {"limits.hang": 90.0, "deadlines.form": 5.0}
    for wrong in ("soon", "-1", "0", "inf", "nan"):
        raised(troupe.InvalidArgument, f"TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC is '{wrong}'.*TROUPE_LIMITS_HANG", _variables.settings_of,
               {"TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC": wrong})
    monkeypatch.setattr(_variables, "_told", False)
    monkeypatch.setenv("TORCH_NCCL_BLOCKING_WAIT", "1")
    with pytest.warns(UserWarning, match="without effect on the backend troupe: TORCH_NCCL_BLOCKING_WAIT .wait.. always"):
        _variables.warn_of_the_rest()
    _variables.warn_of_the_rest()  # once


def limits(rank, size, file):
    init(rank, size, file)
    runtime = dist.group.WORLD._backend._world._runtime
    assert float(runtime.settings["limits.hang"].rstrip("s")) == 7
    dist.destroy_process_group()


def test_a_limit_of_pytorchs_watchdog_arrives(tmp_path):
    run_ranks(limits, 1, None, {"TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC": "7"}, (tmp_path / "store",))


def without_rank_0(rank, size, file):
    raised(dist.DistStoreError, "rank 0 of this group has not started its controller within 1 s", init, 1, 2, file, "troupe",
           SECOND)


def without_controller(rank, size, file):
    os.environ.update(TROUPE_CONTROL="127.0.0.1:9", TROUPE_JOIN_TOKEN="a secret of this test", TROUPE_CONTROL_PATIENCE="1s")
    failure = raised(dist.DistNetworkError, "127.0.0.1:9", init, 0, 1, file, "troupe", 60 * SECOND)
    assert isinstance(failure.__cause__, troupe.Error)


@pytest.mark.parametrize("alone", [without_rank_0, without_controller])
def test_a_group_that_cannot_form_fails_as_pytorchs_rendezvous_does(tmp_path, alone):
    ranks = Ranks(alone, 1, None, arguments=(tmp_path / "store",))
    try:
        ranks.result(0)
    finally:
        ranks.kill()


@pytest.mark.parametrize("code, while_forming, kind", [
    ("invalid_argument", False, ValueError), ("mismatch", False, dist.DistBackendError),
    ("deadline_exceeded", False, dist.DistBackendError), ("rank_lost", False, dist.DistBackendError),
    ("out_of_memory", False, dist.DistBackendError), ("invalid_argument", True, ValueError),
    ("deadline_exceeded", True, dist.DistStoreError), ("missing", True, dist.DistNetworkError),
    ("world_failed", True, dist.DistBackendError)])
def test_each_error_has_its_class(code, while_forming, kind):
    from troupe._errors import refuse

    why = refuse("the text", code)
    made = _failures.failure_of("all_reduce", why, forms=while_forming)
    assert type(made) is kind and made.__cause__ is why and "all_reduce" in str(made) and "the text" in str(made)
    assert isinstance(made, ValueError) or isinstance(made, dist.DistError)
