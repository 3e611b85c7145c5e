"""Measures the backend troupe beside PyTorch's nccl on GPUs, in alternating blocks of one run:

    torchrun --nproc-per-node 2 python/benchmarks/torch_gpus.py
"""
import os
import statistics
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import troupe.torch

BLOCKS, WIDTH, LAYERS = 6, 2048, 16
rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("cpu:gloo,cuda:troupe", device_id=torch.device("cuda", rank))
groups = {"troupe": dist.group.WORLD, "nccl": dist.new_group(backend="nccl")}


def compare(title, calls, count, warm_ups=20):
    """Prints the times of each call, and of each block, in microseconds."""
    times = {name: [[] for _ in range(BLOCKS)] for name in calls}
    for call in calls.values():
        for _ in range(warm_ups):
            call()
        torch.cuda.synchronize()
        dist.barrier()
    for block in range(BLOCKS):
        for name in calls if block % 2 == 0 else reversed(list(calls)):
            for _ in range(count):
                began = time.perf_counter()
                calls[name]()
                times[name][block].append((time.perf_counter() - began) * 1e6)
            torch.cuda.synchronize()
            dist.barrier()
    for name, blocks in times.items() if rank == 0 else ():
        all_of = sorted(one for block in blocks for one in block)
        print(f"{title}, {name}: p50 {statistics.median(all_of):.1f}, p99 {all_of[int(len(all_of) * 0.99)]:.1f}; blocks "
              f"{[round(statistics.median(one), 1) for one in blocks]}", flush=True)


def reduce_until_idle(tensor, group):
    def call():
        dist.all_reduce(tensor, group=group, async_op=True).wait()
        torch.cuda.synchronize()
    return call


def train(group):
    torch.manual_seed(0)
    layers = [one for _ in range(8) for one in (torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU())]
    model = DistributedDataParallel(torch.nn.Sequential(*layers).cuda(), device_ids=[rank], process_group=group)
    values = torch.randn(256, WIDTH, device="cuda")

    def step():
        model.zero_grad()
        model(values).square().mean().backward()
        torch.cuda.synchronize()
    return step


for size in (8, 1 << 20):
    tensor = torch.zeros(size // 4, device="cuda")
    compare(f"all_reduce of {size} B until the device is idle", {name: reduce_until_idle(tensor, one) for name, one in groups.items()}, 300)
    compare(f"all_reduce of {size} B until Work.synchronize()", {
        "troupe": lambda: dist.all_reduce(tensor, async_op=True).synchronize()}, 300)
compare("DDP step", {name: train(one) for name, one in groups.items()}, 30)

columns = [torch.randn(2 * WIDTH, WIDTH, device="cuda", dtype=torch.bfloat16) * 0.02 for _ in range(LAYERS)]
rows = [torch.randn(WIDTH, 2 * WIDTH, device="cuda", dtype=torch.bfloat16) * 0.02 for _ in range(LAYERS)]


def forward(x, group):
    """Column and row parallel layers."""
    for column, row in zip(columns, rows):
        made = torch.nn.functional.gelu(x @ column.t()) @ row.t()
        dist.all_reduce(made, group=group)
        x = x + made
    return x


def until_idle(call):
    def wait():
        call()
        torch.cuda.synchronize()
    return wait


with torch.inference_mode():
    given = torch.randn(8, WIDTH, device="cuda", dtype=torch.bfloat16)
    ours = troupe.torch.graph(forward, given, groups["troupe"])
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        forward(given, groups["nccl"])
    torch.cuda.synchronize()
    theirs = torch.cuda.CUDAGraph()
    with torch.cuda.graph(theirs):
        forward(given, groups["nccl"])
    compare(f"{LAYERS} tensor-parallel layers", {
        "troupe.torch.graph": until_idle(ours), "nccl in torch.cuda.graph": until_idle(theirs.replay),
        **{f"{name} eager": until_idle(lambda group=one: forward(given, group)) for name, one in groups.items()}}, 20)
del ours, theirs  # nccl's communicator does not end while a graph of it lives
dist.destroy_process_group()
