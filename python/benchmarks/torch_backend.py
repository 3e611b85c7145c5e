"""Times of all_reduce of the backend troupe beside PyTorch's gloo, in the same processes, in alternating blocks.

    PYTHONPATH=build/ci/python python3 python/benchmarks/torch_backend.py --ranks 4

The table has the median of each size in microseconds over all blocks but the first, and the ratio. See docs/guide/torch.md for an
environment with PyTorch.
"""
import argparse
import datetime
import multiprocessing
import os
import statistics
import tempfile
import time

SIZES = ((8, 200), (4096, 200), (1 << 20, 40), (16 << 20, 8))  # bytes, operations in a block


def run(rank, options, file):
    import torch
    import torch.distributed as dist

    import troupe.torch  # noqa: F401  registers the backend

    torch.set_num_threads(1)
    dist.init_process_group("troupe", init_method=f"file://{file}", rank=rank, world_size=options.ranks,
                            timeout=datetime.timedelta(seconds=120))
    groups = {"gloo": dist.new_group(backend="gloo"), "troupe": dist.group.WORLD}
    if rank == 0:
        print(f"PyTorch {torch.__version__}, {options.ranks} processes on {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
        print(f"{'bytes':>9} | {'gloo':>9} | {'troupe':>9} | ratio")
    for size, count in SIZES:
        tensor, times = torch.ones(size // 4), {name: [] for name in groups}
        for block in range(options.blocks + 1):
            for name, group in groups.items():
                dist.barrier(groups["gloo"])
                for _ in range(count):
                    began = time.perf_counter()
                    dist.all_reduce(tensor, group=group)
                    if block:
                        times[name].append((time.perf_counter() - began) * 1e6)
                tensor.fill_(1)
        if rank == 0:
            gloo, troupe_ = (statistics.median(times[name]) for name in groups)
            print(f"{size:9d} | {gloo:9.1f} | {troupe_:9.1f} | {troupe_ / gloo:.2f}", flush=True)
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=4, help="processes (default %(default)s)")
    parser.add_argument("--blocks", type=int, default=5, help="blocks of each backend and size (default %(default)s)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        processes = [multiprocessing.get_context("spawn").Process(target=run, args=(rank, options, f"{folder}/store"))
                     for rank in range(options.ranks)]
        for one in processes:
            one.start()
        for one in processes:
            one.join()
    raise SystemExit(max(one.exitcode for one in processes))


if __name__ == "__main__":
    main()
