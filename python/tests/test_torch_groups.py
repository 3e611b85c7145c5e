"""Process groups of the backend troupe: smaller ones, splits, their end, and DDP on them."""
import copy
import json
import multiprocessing
import os
import pathlib
import subprocess
import sys

import pytest
from torch_ranks import PATIENCE, TIMEOUT, dist, init, run_ranks, torch

import troupe.torch

PYTHON = pathlib.Path(__file__).resolve().parent.parent


def sum_of(value, group=None):
    tensor = torch.tensor([float(value)])
    dist.all_reduce(tensor, group=group)
    return tensor.item()


def overlapping(rank, size):
    low, high = dist.new_group([0, 1]), dist.new_group([1, 2])
    groups = [(low, 1), (high, 3), (None, 3)]
    works = []
    for group, expected in reversed(groups) if rank == 1 else groups:  # ranks need no order among groups
        if group is not dist.GroupMember.NON_GROUP_MEMBER:
            tensor = torch.tensor([float(rank)])
            works.append((dist.all_reduce(tensor, group=group, async_op=True), tensor, expected))
    for work, tensor, expected in works:
        work.wait()
        assert tensor.item() == expected
    if rank > 0:
        tensor = torch.tensor([rank])
        dist.broadcast(tensor, 2, group=high)  # of the rank in the whole world
        assert tensor.item() == 2
        dist.destroy_process_group(high)
    assert sum_of(1) == size
    if rank < 2:
        assert sum_of(1, low) == 2


def test_groups_that_share_ranks_need_no_common_order(tmp_path):
    run_ranks(overlapping, 3, tmp_path)


def split(rank, size):
    halves = dist.split_group(split_ranks=[[0, 2], [3, 1]])
    assert isinstance(halves, troupe.torch.TroupeGroup) and halves.size() == 2
    assert sum_of(rank, halves) == (2 if rank in (0, 2) else 4)
    tensor = torch.tensor([rank])
    dist.broadcast(tensor, group_src=0, group=halves)
    assert tensor.item() == (0 if rank in (0, 2) else 3)
    part = dist.split_group(split_ranks=[[1, 2]])
    if rank in (1, 2):
        assert sum_of(rank, part) == 3
        dist.destroy_process_group(part)
    else:
        assert part is dist.GroupMember.NON_GROUP_MEMBER
    assert sum_of(1) == size


def test_a_group_is_split_and_ranks_may_be_in_no_part(tmp_path):
    run_ranks(split, 4, tmp_path)


def mesh(rank, size):
    from torch.distributed.device_mesh import init_device_mesh

    grid = init_device_mesh("cpu", (2, 2), mesh_dim_names=("rows", "columns"))
    assert sum_of(rank, grid.get_group("columns")) == (1 if rank < 2 else 5)
    assert sum_of(rank, grid.get_group("rows")) == (2 if rank % 2 == 0 else 4)


def test_a_device_mesh(tmp_path):
    run_ranks(mesh, 4, tmp_path)


def again(rank, size, file):
    store = dist.FileStore(str(file), size)
    for attempt in range(5):  # in the same store, which keeps what earlier groups wrote
        if rank == 0:
            store.wait([f"rank 1 is ahead {attempt}"], TIMEOUT)
        else:
            store.set(f"rank 1 is ahead {attempt}", "")
        dist.init_process_group("troupe", store=store, rank=rank, world_size=size, timeout=TIMEOUT)
        assert sum_of(attempt) == size * attempt
        dist.destroy_process_group()


def forgets(rank, size, file):
    store = dist.FileStore(str(file), size)
    world = troupe.torch._worlds.GroupWorld.form(store, rank, size, TIMEOUT, is_default=False)
    assert rank == 1 or not store.check(["troupe/controller/1"])  # which has the secret of the group
    world.close()


def test_the_store_does_not_keep_the_groups_secret(tmp_path):
    run_ranks(forgets, 2, None, arguments=(tmp_path / "store",))


def test_a_group_is_made_again_after_its_end(tmp_path):
    assert run_ranks(again, 2, None, arguments=(tmp_path / "store",)) == [None, None]


def leaves_first(rank, size, has_left):
    dist.barrier()
    if rank == 0:
        dist.destroy_process_group()
        has_left.set()
        return
    assert has_left.wait(PATIENCE)
    tensor = torch.tensor([rank])
    for _ in range(20):  # while the process of rank 0 ends
        (dist.send if rank == 1 else dist.recv)(tensor, 3 - rank)
    assert tensor.item() == 1
    with pytest.raises(dist.DistBackendError, match="rank 0 has left"):
        dist.barrier()


def test_other_ranks_go_on_after_rank_0_has_left(tmp_path):
    run_ranks(leaves_first, 3, tmp_path, arguments=(multiprocessing.get_context("fork").Event(),))


def names(rank, size):
    assert dist.get_backend() == "troupe" == dist.group.WORLD._get_backend(torch.device("cpu")).name()
    assert {one.type for one in dist.group.WORLD._device_types} == {"cpu", "cuda"}
    assert dist.get_rank() == rank == dist.group.WORLD.rank() and dist.get_world_size() == size
    before = dist.group.WORLD._get_backend(torch.device("cpu"))._get_sequence_number_for_group()
    dist.barrier()
    assert dist.group.WORLD._get_backend(torch.device("cpu"))._get_sequence_number_for_group() == before + 1


def test_a_group_names_its_backend_and_counts_collectives(tmp_path):
    run_ranks(names, 2, tmp_path)


def mixed(rank, size, file):
    dist.init_process_group("cpu:troupe,cuda:gloo", init_method=f"file://{file}", rank=rank, world_size=size,
                            timeout=TIMEOUT)
    assert type(dist.group.WORLD) is dist.ProcessGroup
    assert sum_of(rank + 1) == 3
    outputs = [torch.empty(1) for _ in range(size)]
    work = dist.all_gather(outputs, torch.tensor([float(rank)]), async_op=True)
    assert work.get_future().wait() is not None and [one.item() for one in outputs] == [0, 1]


def test_a_group_may_have_other_backends_for_other_devices(tmp_path):
    run_ranks(mixed, 2, None, arguments=(tmp_path / "store",))


def train(rank, size, file):
    torch.manual_seed(7)
    model = torch.nn.Sequential(torch.nn.Linear(20, 30), torch.nn.ReLU(), torch.nn.Linear(30, 5))
    inputs = [torch.randn(8, 20, generator=torch.Generator().manual_seed(100 * rank + step)) for step in range(4)]
    weights = {}
    for backend in ("troupe", "gloo"):
        init(rank, size, f"{file}.{backend}", backend)
        copied = torch.nn.parallel.DistributedDataParallel(copy.deepcopy(model), bucket_cap_mb=0.001)
        optimizer = torch.optim.SGD(copied.parameters(), lr=0.1, momentum=0.9)
        for values in inputs:
            optimizer.zero_grad()
            copied(values).square().mean().backward()
            optimizer.step()
        weights[backend] = [one.detach().clone() for one in copied.module.parameters()]
        del copied
        dist.destroy_process_group()
    for one, other in zip(weights["troupe"], weights["gloo"]):
        assert torch.equal(one, other)


def test_ddp_has_the_weights_that_it_has_with_gloo(tmp_path):
    run_ranks(train, 2, None, arguments=(tmp_path / "store",))


def functional(rank, size):
    import torch.distributed._functional_collectives as functions

    group = dist.group.WORLD
    assert functions.all_reduce(torch.ones(2), "sum", group).tolist() == [size] * 2
    assert functions.all_gather_tensor(torch.tensor([rank]), 0, group).tolist() == list(range(size))
    assert functions.reduce_scatter_tensor(torch.arange(2 * size), "sum", 0, group).tolist() == [
        size * 2 * rank, size * (2 * rank + 1)]


def test_functional_collectives(tmp_path):
    run_ranks(functional, 2, tmp_path)


SCRIPT = """
import os, torch, torch.distributed as dist
dist.init_process_group("troupe", init_method=f"file://{os.environ['STORE']}", rank=int(os.environ["RANK"]), world_size=2)
tensor = torch.ones(1)
dist.all_reduce(tensor)
print(f"rank {dist.get_rank()} of {dist.get_world_size()}: {tensor.item():.0f}", flush=True)
dist.destroy_process_group()
"""


def installed(folder):
    """Makes the metadata that an installed package has, of python/pyproject.toml. Returns an environment with them."""
    tomllib = pytest.importorskip("tomllib", reason="Python 3.10 and older have no tomllib")
    project = tomllib.loads((PYTHON / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    info = folder / "troupe_runtime-0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: 0\n", encoding="utf-8")
    points = "".join(f"[{group}]\n" + "".join(f"{name} = {where}\n" for name, where in points.items())
                     for group, points in project["entry-points"].items())
    (info / "entry_points.txt").write_text(points, encoding="utf-8")
    return dict(os.environ, PYTHONPATH=f"{folder}:{os.environ.get('PYTHONPATH', '')}", STORE=str(folder / "store"))


def test_an_installed_package_needs_no_import(tmp_path):
    environment = installed(tmp_path)
    workers = [subprocess.Popen([sys.executable, "-c", SCRIPT], stdout=subprocess.PIPE, text=True,
                                env=dict(environment, RANK=str(rank), WORLD_SIZE="2")) for rank in range(2)]
    assert sorted(one.communicate(timeout=PATIENCE)[0] for one in workers) == ["rank 0 of 2: 2\n", "rank 1 of 2: 2\n"]


LAUNCHED = SCRIPT.replace("dist.destroy_process_group()", """
if dist.get_rank() == 0:
    import troupe
    with troupe.Driver() as driver:  # of the launcher's world
        print("a driver sees a world of", driver.wait_ready(30).world_size, flush=True)
dist.barrier()
dist.destroy_process_group()
""")


def test_under_troupe_launch_the_group_is_the_launchers_world(tmp_path):
    try:
        troupe.program_path()
    except troupe.Missing as why:
        pytest.skip(str(why))
    done = subprocess.run([sys.executable, "-m", "troupe", "launch", "-n", "2", "--no-prefix", "--", sys.executable, "-c",
                           LAUNCHED], capture_output=True, text=True, timeout=PATIENCE,
                          env=installed(tmp_path))
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split("\n"))[-3:] == ["a driver sees a world of 2", "rank 0 of 2: 2", "rank 1 of 2: 2"]


def other_size(rank, size, file):
    with troupe.Controller(1) as controller:
        os.environ.update(controller.environment(0))
        with pytest.raises(ValueError, match="world of 1 ranks, in which .* the group needs rank 0 of 2: start as many"):
            init(0, 2, file)


def test_a_controller_of_another_size_is_refused(tmp_path):
    run_ranks(other_size, 1, None, arguments=(tmp_path / "store",))


def test_the_list_of_exceptions_of_pytorchs_own_tests_has_reasons():
    known = json.loads((PYTHON / "tests" / "torch_exceptions.json").read_text(encoding="utf-8"))
    assert all(name.startswith("test_") and reason for name, reason in known.items())
