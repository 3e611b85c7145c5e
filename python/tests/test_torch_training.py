"""Training as users write it has the same weights, bit for bit, on process groups of troupe and of gloo."""
import pytest
from torch_ranks import dist, init, run_ranks, torch

import troupe.torch  # registers the backend

checkpoint = pytest.importorskip("torch.distributed.checkpoint")
state_dicts = pytest.importorskip("torch.distributed.checkpoint.state_dict")
pipelining = pytest.importorskip("torch.distributed.pipelining")
parallel = pytest.importorskip("torch.distributed.tensor.parallel")
fully_shard = pytest.importorskip("torch.distributed.fsdp").fully_shard

ON_GLOO = {"TROUPE_BACKEND": "gloo"}  # also on a machine with a GPU
RANKS, STEPS, WIDTH, BATCH = 4, 3, 24, 8


def layers(count=2):
    torch.manual_seed(7)
    return [torch.nn.Sequential(torch.nn.Linear(WIDTH, 2 * WIDTH), torch.nn.ReLU(), torch.nn.Linear(2 * WIDTH, WIDTH)) for _ in range(count)]


def batches(of):
    """The same batches in each run; others for each `of`, a rank or a group of ranks that see the same data."""
    generator = torch.Generator().manual_seed(100 + of)
    return [torch.randn(BATCH, WIDTH, generator=generator) for _ in range(STEPS)]


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def train(model, values, optimizer=None):
    optimizer = optimizer or sgd(model)
    for batch in values:
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()


def whole(model):
    """Copies of all parameters, gathered from their shards."""
    return [one.full_tensor().clone() if hasattr(one, "full_tensor") else one.detach().clone() for one in model.parameters()]


def ddp(rank, folder):
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*layers()), bucket_cap_mb=0.001)
    train(model, batches(rank))
    return whole(model)


def sharded(mesh=None):
    model = torch.nn.Sequential(*layers())
    for layer in model:
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def fsdp2(rank, folder):
    model = sharded()
    optimizer = sgd(model)
    for batch in batches(rank):
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
    return whole(model)


def hybrid_fsdp2(rank, folder):
    model = sharded(dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicas", "shards")))
    train(model, batches(rank))
    return whole(model)


def split_layers(mesh):
    model = torch.nn.Sequential(*layers())
    for layer in model:
        parallel.parallelize_module(layer, mesh, {"0": parallel.ColwiseParallel(), "2": parallel.RowwiseParallel()})
    return model


def tensor_parallel(rank, folder):
    model = split_layers(dist.init_device_mesh("cpu", (RANKS,)))
    train(model, batches(0))
    return whole(model)


def sequence_parallel(rank, folder):
    """Activations are split between the layers, so that reduce_scatter and all_gather take the place of all_reduce."""
    mesh = dist.init_device_mesh("cpu", (RANKS,))
    model = torch.nn.Sequential(*layers())
    split = torch.distributed.tensor.Shard(0)
    for layer in model:
        parallel.parallelize_module(layer, mesh, {
            "0": parallel.ColwiseParallel(input_layouts=split), "2": parallel.RowwiseParallel(output_layouts=split)})
    train(model, [batch.chunk(RANKS)[rank] for batch in batches(0)])
    return whole(model)


def tensor_parallel_and_fsdp2(rank, folder):
    mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))
    model = split_layers(mesh["tensor"])
    for layer in model:
        fully_shard(layer, mesh=mesh["data"])
    fully_shard(model, mesh=mesh["data"])
    train(model, batches(mesh["data"].get_local_rank()))
    return whole(model)


def pipelined(rank, schedule, stages):
    """Rank 0 has the first stage. Each rank has every RANKS-th one."""
    all_layers = layers(stages)
    own = {index: all_layers[index] for index in range(rank, stages, RANKS)}
    made = [pipelining.PipelineStage(layer, index, stages, torch.device("cpu")) for index, layer in own.items()]

    def loss(output, target):
        return (output - target).square().mean()

    runs = schedule(made if len(made) > 1 else made[0], n_microbatches=RANKS, loss_fn=loss)
    optimizer = torch.optim.SGD([one for layer in own.values() for one in layer.parameters()], lr=0.1, momentum=0.9)
    for batch in batches(0):
        optimizer.zero_grad()
        runs.step(*([batch] if rank == 0 else []), **({"target": torch.ones(BATCH, WIDTH)} if stages - 1 in own else {}))
        optimizer.step()
    return [one.detach().clone() for layer in own.values() for one in layer.parameters()]


def gpipe(rank, folder):
    return pipelined(rank, pipelining.ScheduleGPipe, RANKS)


def one_forward_one_backward(rank, folder):
    return pipelined(rank, pipelining.Schedule1F1B, RANKS)


def interleaved(rank, folder):
    return pipelined(rank, pipelining.ScheduleInterleaved1F1B, 2 * RANKS)


def checkpointed(rank, folder, save):
    """Training goes on from a checkpoint, of which each rank writes and reads its shards."""
    model, values = sharded(), batches(rank)
    optimizer = sgd(model)
    train(model, values[:1], optimizer)
    done = save({"model": model.state_dict(), "optimizer": state_dicts.get_optimizer_state_dict(model, optimizer)}, checkpoint_id=folder)
    if done is not None and hasattr(done, "result"):
        done.result()
    later = sharded()
    optimizer = sgd(later)
    train(later, values[2:], optimizer)  # which the checkpoint replaces
    loaded = {"model": later.state_dict(), "optimizer": state_dicts.get_optimizer_state_dict(later, optimizer)}
    checkpoint.load(loaded, checkpoint_id=folder)
    later.load_state_dict(loaded["model"])
    state_dicts.set_optimizer_state_dict(later, optimizer, loaded["optimizer"])
    for one, other in zip(whole(model), whole(later)):
        assert torch.equal(one, other)
    train(later, values[1:], optimizer)
    return whole(later)


def checkpoint_of_shards(rank, folder):
    return checkpointed(rank, folder, checkpoint.save)


def with_both_backends(rank, size, way, folder):
    weights = {}
    for backend in ("troupe", "gloo"):
        init(rank, size, folder / f"store.{backend}", backend)
        weights[backend] = way(rank, folder / f"checkpoint.{backend}")
        dist.barrier()
        dist.destroy_process_group()
    assert weights["troupe"] and len(weights["troupe"]) == len(weights["gloo"])
    for one, other in zip(weights["troupe"], weights["gloo"]):
        assert torch.equal(one, other) and one.isfinite().all()


def sums(rank, size, folder):
    """All operations with sums, with a number of ranks by which a division is not exact. Returns the results of each backend."""
    results = {}
    for backend in ("troupe", "gloo"):
        init(rank, size, folder / f"store.{backend}", backend)
        found = results.setdefault(backend, {})
        for kind in (torch.float32, torch.float64):
            for count in (1, 7, 1000, 700_003):  # elements of each rank; the last has three segments in a chunk of gloo's ring
                values = 100 * torch.randn(size * count, generator=torch.Generator().manual_seed(rank), dtype=kind)
                values += (1 - rank) * 1e8  # what is left of the rest depends on the order
                for op in (dist.ReduceOp.SUM, dist.ReduceOp.AVG):
                    total, part, listed, rooted = values.clone(), values.new_empty(count), values.new_empty(count), values.clone()
                    dist.all_reduce(total, op)
                    dist.reduce_scatter_tensor(part, values, op)
                    dist.reduce_scatter(listed, list(values.chunk(size)), op)
                    dist.reduce(rooted, 1, op)
                    found.update({(kind, count, str(op), name): result for name, result in (
                        ("all_reduce", total), ("tensor", part), ("list", listed), ("reduce", rooted if rank == 1 else part))})
        dist.barrier()
        dist.destroy_process_group()
    return [what for what, result in results["gloo"].items() if not torch.equal(result, results["troupe"][what])]


def test_sums_and_means_have_the_bits_that_they_have_with_gloo(tmp_path):
    assert run_ranks(sums, 3, None, ON_GLOO, (tmp_path,)) == [[]] * 3


@pytest.mark.parametrize("way", [
    ddp, fsdp2, hybrid_fsdp2, tensor_parallel, sequence_parallel, tensor_parallel_and_fsdp2, gpipe, one_forward_one_backward,
    interleaved, checkpoint_of_shards], ids=lambda way: way.__name__)
def test_has_the_weights_that_it_has_with_gloo(tmp_path, way):
    run_ranks(with_both_backends, RANKS, None, ON_GLOO, (way, tmp_path))
