"""Shared by torch_latency.py and torch_python.py: processes of torch.distributed, one for each GPU, and their times."""
import argparse
import os
import time


def percentiles(times):
    """Returns p50 and p99 (nearest rank)."""
    ordered = sorted(times)
    return tuple(ordered[round(fraction * (len(ordered) - 1))] for fraction in (0.5, 0.99))


WARM_UPS = 3  # the first operations include the wake-up times of the barrier before them


def timed(work, count):
    """Returns p50 and p99 of `count` calls in microseconds."""
    times = []
    for _ in range(count + WARM_UPS):
        began = time.perf_counter()
        work()
        times.append((time.perf_counter() - began) * 1e6)
    return percentiles(times[WARM_UPS:])


def join(rank, options):
    """Makes this process a rank of torch.distributed. Returns torch and torch.distributed."""
    import torch
    import torch.distributed as dist

    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ["MASTER_PORT"] = str(options.port)
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=options.ranks, device_id=torch.device("cuda", rank))
    return torch, dist


def wait_for_gpu(torch, how):
    """Waits for the current stream: `how` is "synchronize" or "spin"."""
    if how == "synchronize":
        torch.cuda.synchronize()
        return
    event = torch.cuda.Event()
    event.record()
    while not event.query():
        pass


def make_parser(description, ranks, size, port):
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=0, help=ranks)
    parser.add_argument("--size", type=int, default=8, help=f"{size} (default %(default)s)")
    parser.add_argument("--iters", type=int, default=2000,
                        help="samples of the one operation in a block (default %(default)s)")
    parser.add_argument("--blocks", type=int, default=5,
                        help="number of blocks; medians over blocks are reported (default %(default)s)")
    parser.add_argument("--port", type=int, default=port,
                        help="rendezvous port of the processes on this host (default %(default)s)")
    return parser


def find_torch(name, options):
    """Returns torch and its multiprocessing, and sets options.ranks. Prints why and ends with 0 if they are missing."""
    try:
        import torch
        import torch.distributed
        import torch.multiprocessing as processes
    except ImportError as why:
        print(f"{name}: not available: {why}")
        raise SystemExit(0) from None
    if not torch.distributed.is_available() or not torch.distributed.is_nccl_available():
        print(f"{name}: not available: this torch has no NCCL")
        raise SystemExit(0)
    options.ranks = options.ranks or torch.cuda.device_count()
    if options.ranks < 2 or torch.cuda.device_count() < options.ranks:
        print(f"{name}: not available: {torch.cuda.device_count()} GPUs found, {max(2, options.ranks)} needed")
        raise SystemExit(0)
    return torch, processes
