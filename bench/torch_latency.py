#!/usr/bin/env python3
"""Measures all_reduce through torch.distributed (NCCL), with one process per GPU, to compare with `troupe bench
latency` and `troupe bench clients` on the same machine.

Each operation is timed on rank 0, from before the call until its completion is seen, by synchronizing the stream or by
polling an event (--wait). Each rank continues as soon as it has seen its own completion, so only the operations keep
the ranks in step: a barrier of the processes before each operation would add their wake-up times. If torch, its NCCL
or two GPUs are missing, prints the reason and exits with 0.
"""
import argparse
import os
import statistics
import sys
import time


def percentile(values, fraction):
    """Returns the nearest-rank percentile, as program/statistics.hpp does."""
    ordered = sorted(values)
    return ordered[round(fraction * (len(ordered) - 1))]


def spin_until_done(torch):
    event = torch.cuda.Event()
    event.record()
    while not event.query():
        pass


def measure(rank, options, meeting, results):
    import torch
    import torch.distributed as dist

    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ["MASTER_PORT"] = str(options.port)
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=options.ranks, device_id=torch.device("cuda", rank))
    finish = torch.cuda.synchronize if options.wait == "synchronize" else (lambda: spin_until_done(torch))

    def tensor(size_bytes):
        return torch.zeros(max(1, size_bytes // 4), dtype=torch.float32, device="cuda")

    def one(small):
        dist.all_reduce(small)
        finish()

    def separately(many):
        for each in many:
            dist.all_reduce(each)
        finish()

    def coalesced(many):
        with dist._coalescing_manager(device=torch.device("cuda", rank)):
            for each in many:
                dist.all_reduce(each)
        finish()

    many = [tensor(options.many_bytes) for _ in range(options.many)]
    small = tensor(options.size)
    cases = [(f"{options.size} B all_reduce", one, small, options.iters),
             (f"{options.many} x {options.many_bytes} B separately", separately, many, max(1, options.iters // 20)),
             (f"{options.many} x {options.many_bytes} B coalesced", coalesced, many, max(1, options.iters // 20))]
    found = {name: [] for name, *_ in cases}
    for block in range(options.blocks + 1):  # the first is a warm-up
        for name, work, what, count in cases:
            times = []
            meeting.wait()
            for i in range(count + 3):
                began = time.perf_counter()
                work(what)
                if i >= 3:  # the first operations include the barrier's wake-up times
                    times.append((time.perf_counter() - began) * 1e6)
            if block > 0:
                found[name].append((percentile(times, 0.5), percentile(times, 0.99)))
    if rank == 0:
        results.put((torch.__version__, ".".join(map(str, torch.cuda.nccl.version())), torch.cuda.get_device_name(0),
                     found))
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=0, help="processes, each with a GPU (default: all GPUs)")
    parser.add_argument("--size", type=int, default=8, help="bytes of the one operation (default %(default)s)")
    parser.add_argument("--many", type=int, default=64, help="operations of a burst (default %(default)s)")
    parser.add_argument("--many-bytes", type=int, default=4096, help="bytes of each of them (default %(default)s)")
    parser.add_argument("--iters", type=int, default=2000,
                        help="samples of the one operation in a block (default %(default)s)")
    parser.add_argument("--blocks", type=int, default=5,
                        help="number of blocks; medians over blocks are reported (default %(default)s)")
    parser.add_argument("--wait", choices=("synchronize", "spin"), default="synchronize",
                        help="how a completion is awaited (default %(default)s)")
    parser.add_argument("--port", type=int, default=29507,
                        help="rendezvous port of the processes on this host (default %(default)s)")
    options = parser.parse_args()
    try:
        import torch
        import torch.distributed
        import torch.multiprocessing as processes
    except ImportError as why:
        print(f"torch_latency: not available: {why}")
        return 0
    if not torch.distributed.is_available() or not torch.distributed.is_nccl_available():
        print("torch_latency: not available: this torch has no NCCL")
        return 0
    options.ranks = options.ranks or torch.cuda.device_count()
    if options.ranks < 2 or torch.cuda.device_count() < options.ranks:
        print(f"torch_latency: not available: {torch.cuda.device_count()} GPUs found, {max(2, options.ranks)} needed")
        return 0

    context = processes.get_context("spawn")
    meeting, results = context.Barrier(options.ranks), context.SimpleQueue()
    started = processes.spawn(measure, args=(options, meeting, results), nprocs=options.ranks, join=False)
    while not started.join():
        pass
    version, nccl, device, found = results.get()
    print(f"# torch {version}, NCCL {nccl}, {options.ranks} x {device}, a process each; times on rank 0, awaited by "
          f"{options.wait}, medians of {options.blocks} blocks, us")
    print(f"#{'':>31} {'p50':>9} {'p99':>9}")
    for name, blocks in found.items():
        p50 = statistics.median(block[0] for block in blocks)
        p99 = statistics.median(block[1] for block in blocks)
        print(f" {name:>31} {p50:9.2f} {p99:9.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
