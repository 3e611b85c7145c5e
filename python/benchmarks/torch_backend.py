"""Times of all_reduce of the backend troupe, in Python alone and with its native part, beside PyTorch's gloo, in the same processes,
in alternating blocks. Builds the native part first.

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

    import troupe.torch

    troupe.torch.build()
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=options.ranks,
                            timeout=datetime.timedelta(seconds=120))
    groups = {"gloo": dist.group.WORLD}
    for name, mode in (("python", "off"), ("native", "use")):
        os.environ["TROUPE_TORCH_NATIVE"] = mode
        groups[name] = dist.new_group(backend="troupe")
        assert groups[name].backend.is_native == (name == "native")
    if rank == 0:
        print(f"PyTorch {torch.__version__}, {options.ranks} processes on {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
        print(f"{'bytes':>9} | " + " | ".join(f"{name:>9}" for name in groups) + " | python/gloo | native/gloo | CPU time of each, us")
    for size, count in [one for one in SIZES if one[0] <= options.most]:
        tensor, times, used = torch.ones(size // 4), {name: [] for name in groups}, {name: [] for name in groups}
        for block in range(options.blocks + 1):
            for name, group in groups.items():
                dist.barrier(groups["gloo"])
                before = time.process_time()
                for _ in range(count):
                    began = time.perf_counter()
                    dist.all_reduce(tensor, group=group)
                    if block:
                        times[name].append((time.perf_counter() - began) * 1e6)
                used[name].append((time.process_time() - before) * 1e6 / count)
                tensor.fill_(1)
        if rank == 0:
            found = {name: statistics.median(all_of) for name, all_of in times.items()}
            print(f"{size:9d} | " + " | ".join(f"{one:9.1f}" for one in found.values()) +
                  "".join(f" | {found[name] / found['gloo']:11.2f}" for name in ("python", "native")) +
                  " | " + ", ".join(f"{statistics.median(all_of[1:]):.0f}" for all_of in used.values()), flush=True)
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=4, help="processes (default %(default)s)")
    parser.add_argument("--blocks", type=int, default=5, help="blocks of each backend and size (default %(default)s)")
    parser.add_argument("--most", type=int, default=SIZES[-1][0], help="the largest size, in bytes (default %(default)s)")
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
