#!/usr/bin/env python3
"""Compares troupe's Python module with torch.distributed on the same GPUs: results, and the time of a small all_reduce.

1. Results: troupe, in this process with all GPUs, reduces torch's CUDA tensors through DLPack. The results must equal
   those of torch.distributed (NCCL) on the same inputs, for several sizes, dtypes and reductions.
2. Times: p50 and p99 from request to reply, in blocks that alternate with those of torch.distributed. The latter runs
   in one process per GPU, as in bench/torch_latency.py, and is timed on rank 0 from the call until its completion is
   seen. troupe receives one message for all ranks, through a prepared request that waits for torch's current streams,
   as torch.distributed does. Its reply is awaited by result() and by await.

Exits with 1 on wrong results. If torch, its NCCL or two GPUs are missing, prints the reason and exits with 0.
"""
import argparse
import asyncio
import ctypes
import hashlib
import os
import statistics
import sys
import time

CASES = [("float32", "sum"), ("float32", "max"), ("float16", "sum"), ("bfloat16", "sum"), ("float64", "prod"),
         ("int32", "sum"), ("int64", "min"), ("uint8", "max")]
COUNTS = [1, 2, 1000, 1 << 20]


def percentile(values, fraction):
    """Returns the nearest-rank percentile, as program/statistics.hpp does."""
    ordered = sorted(values)
    return ordered[round(fraction * (len(ordered) - 1))]


def given(torch, dtype, count, rank, device):
    """Returns a tensor of small whole numbers, so that every order of addition gives the same result."""
    made = (torch.arange(count, device=device) * 7 + rank * 3) % 4 + 1
    return made.to(getattr(torch, dtype))


def digest(tensor):
    """Returns the SHA-256 of the tensor's bytes, which is short enough to be sent between processes."""
    on_host = tensor.cpu()
    return hashlib.sha256(ctypes.string_at(on_host.data_ptr(), on_host.nelement() * on_host.element_size())).hexdigest()


def serve(rank, options, orders, answers, meeting):
    """Runs one process of torch.distributed, which executes the orders in its queue in step with the others."""
    import torch
    import torch.distributed as dist

    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ["MASTER_PORT"] = str(options.port)
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=options.ranks, device_id=torch.device("cuda", rank))
    reductions = {"sum": dist.ReduceOp.SUM, "max": dist.ReduceOp.MAX, "min": dist.ReduceOp.MIN,
                  "prod": dist.ReduceOp.PRODUCT}
    small = torch.zeros(max(1, options.size // 4), dtype=torch.float32, device="cuda")

    def spin():
        event = torch.cuda.Event()
        event.record()
        while not event.query():
            pass

    while True:
        order = orders[rank].get()
        if order is None:
            break
        if order[0] == "result":
            _, dtype, count, op = order
            mine = given(torch, dtype, count, rank, "cuda")
            dist.all_reduce(mine, op=reductions[op])
            torch.cuda.synchronize()
            if rank == 0:
                answers.put(digest(mine))
            continue
        finish = torch.cuda.synchronize if order[1] == "synchronize" else spin
        times = []
        meeting.wait()
        for i in range(options.iters + 3):
            began = time.perf_counter()
            dist.all_reduce(small)
            finish()
            if i >= 3:  # the first operations include the barrier's wake-up times
                times.append((time.perf_counter() - began) * 1e6)
        if rank == 0:
            answers.put((percentile(times, 0.5), percentile(times, 0.99)))
    dist.destroy_process_group()


def check_results(torch, world, options, orders, answers):
    """Returns how many cases differ from torch.distributed."""
    wrong = 0
    for dtype, op in CASES:
        for count in COUNTS:
            tensors = [given(torch, dtype, count, rank, f"cuda:{rank}") for rank in range(options.ranks)]
            world.all_reduce(tensors, op=op).result(60)
            for queue in orders:
                queue.put(("result", dtype, count, op))
            expected = answers.get()
            differ = [rank for rank, one in enumerate(tensors) if digest(one) != expected]
            wrong += bool(differ)
            if differ:
                print(f"WRONG: all_reduce of {count} {dtype}, {op}: ranks {differ} differ from torch.distributed")
    print(f"results: {len(CASES) * len(COUNTS)} cases of all_reduce through DLPack, {wrong} differ from torch.distributed")
    return wrong


def check_order(torch, world, options):
    """Checks that the GPU, not the CPU, waits for kernels of torch's current streams, whether default streams or not.

    Returns the number of wrong results.
    """
    wrong, waited = 0, 0
    for turn in range(20):
        tensors, streams = [], []
        for rank in range(options.ranks):
            stream = torch.cuda.Stream(rank) if turn % 2 else torch.cuda.default_stream(rank)
            with torch.cuda.stream(stream):  # also makes the stream's device the current device
                one = torch.zeros(1 << 20, dtype=torch.float32, device=f"cuda:{rank}")
                torch.cuda._sleep(20_000_000)  # about 10 ms
                one.fill_(rank + 1)
            tensors.append(one)
            streams.append(stream)
        # One request per rank, each under its own stream: one call for all ranks would use a single current stream.
        replies = []
        for rank, stream in enumerate(streams):
            with torch.cuda.stream(stream):
                replies.append(world.rank(rank).all_reduce(tensors[rank]))
        waited += not any(stream.query() for stream in streams)
        for reply in replies:
            reply.result(60)
        expected = sum(range(1, options.ranks + 1))
        wrong += any(not bool((one == expected).all()) for one in tensors)
    print(f"order: 20 all_reduces behind kernels, which were still running {waited} times after the last request; "
          f"{wrong} with wrong values")
    return wrong


def measure_result(request, iters):
    times = []
    for i in range(iters + 3):
        began = time.perf_counter()
        request.ask().result()
        if i >= 3:
            times.append((time.perf_counter() - began) * 1e6)
    return percentile(times, 0.5), percentile(times, 0.99)


async def measure_await(request, iters):
    times = []
    for i in range(iters + 3):
        began = time.perf_counter()
        await request.ask()
        if i >= 3:
            times.append((time.perf_counter() - began) * 1e6)
    return percentile(times, 0.5), percentile(times, 0.99)


def measure_unprepared(world, tensors, iters):
    times = []
    for i in range(iters + 3):
        began = time.perf_counter()
        world.all_reduce(tensors).result()
        if i >= 3:
            times.append((time.perf_counter() - began) * 1e6)
    return percentile(times, 0.5), percentile(times, 0.99)


def measure(torch, troupe, world, options, orders, answers):
    count = max(1, options.size // 4)
    tensors = [torch.zeros(count, dtype=torch.float32, device=f"cuda:{rank}") for rank in range(options.ranks)]
    world.register_memory(1 << 20)
    troupe_memory = troupe.empty_all(world, count, "float32")
    by_torch = world.prepare("all_reduce", tensors)  # each request waits for torch's current streams
    ready = world.prepare("all_reduce", tensors, stream=None)
    registered = world.prepare("all_reduce", troupe_memory)

    def distributed(how):
        for queue in orders:
            queue.put(("time", how))
        return answers.get()

    def awaiting(request, spin):
        troupe.set_await_spin(spin)
        return asyncio.run(measure_await(request, options.iters))

    cases = {
        "torch.distributed, synchronize": lambda: distributed("synchronize"),
        "torch.distributed, event in a loop": lambda: distributed("spin"),
        "troupe prepared, result()": lambda: measure_result(by_torch, options.iters),
        "troupe prepared, await": lambda: awaiting(by_torch, 50e-6),
        "troupe prepared, await, no spin": lambda: awaiting(by_torch, 0),
        "troupe prepared, ready, result()": lambda: measure_result(ready, options.iters),
        "troupe registered memory, result()": lambda: measure_result(registered, options.iters),
        "troupe all_reduce(tensors), result()": lambda: measure_unprepared(world, tensors, options.iters),
    }
    found = {name: [] for name in cases}
    for block in range(options.blocks + 1):  # the first is a warm-up
        for name, case in cases.items():
            figures = case()
            if block > 0:
                found[name].append(figures)
    print(f"# {options.size} B all_reduce, us, medians of {options.blocks} blocks of {options.iters}; ratios to the same "
          f"block of torch.distributed, synchronize")
    print(f"#{'':>38} {'p50':>8} {'p99':>8} {'p50 ratio':>10} {'blocks':>18}")
    reference = found["torch.distributed, synchronize"]
    for name, blocks in found.items():
        ratios = [mine[0] / theirs[0] for mine, theirs in zip(blocks, reference)]
        print(f" {name:>38} {statistics.median(b[0] for b in blocks):8.2f} {statistics.median(b[1] for b in blocks):8.2f} "
              f"{statistics.median(ratios):10.3f} {min(ratios):8.3f} to {max(ratios):.3f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=0, help="GPUs (default: all)")
    parser.add_argument("--size", type=int, default=8, help="bytes of the all_reduce (default %(default)s)")
    parser.add_argument("--iters", type=int, default=2000, help="samples in a block (default %(default)s)")
    parser.add_argument("--blocks", type=int, default=5, help="number of blocks (default %(default)s)")
    parser.add_argument("--port", type=int, default=29511,
                        help="rendezvous port of the processes on this host (default %(default)s)")
    parser.add_argument("--profile", default="latency", help="troupe's latency profile (default %(default)s)")
    options = parser.parse_args()
    try:
        import torch
        import torch.distributed
        import torch.multiprocessing as processes
    except ImportError as why:
        print(f"torch_python: not available: {why}")
        return 0
    if not torch.distributed.is_available() or not torch.distributed.is_nccl_available():
        print("torch_python: not available: this torch has no NCCL")
        return 0
    options.ranks = options.ranks or torch.cuda.device_count()
    if options.ranks < 2 or torch.cuda.device_count() < options.ranks:
        print(f"torch_python: not available: {torch.cuda.device_count()} GPUs found, {max(2, options.ranks)} needed")
        return 0
    import troupe

    context = processes.get_context("spawn")
    orders = [context.Queue() for _ in range(options.ranks)]
    answers, meeting = context.Queue(), context.Barrier(options.ranks)
    started = processes.spawn(serve, args=(options, orders, answers, meeting), nprocs=options.ranks, join=False)
    wrong = 0
    try:
        with troupe.Runtime(backend="nccl", ranks=options.ranks, profile=options.profile) as runtime:
            print(f"# torch {torch.__version__}, {options.ranks} x {torch.cuda.get_device_name(0)}; {runtime.describe()}")
            world = runtime.form_world()
            wrong += check_results(torch, world, options, orders, answers)
            wrong += check_order(torch, world, options)
            sys.stdout.flush()
            measure(torch, troupe, world, options, orders, answers)
            world.stop()
    finally:
        for queue in orders:
            queue.put(None)
        while not started.join():
            pass
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
