#!/usr/bin/env python3
"""Measures all_reduce through torch.distributed (NCCL), with one process per GPU, to compare with `troupe bench
latency` and `troupe bench clients` on the same machine.

Each operation is timed on rank 0, from before the call until its completion is seen, by synchronizing the stream or by
polling an event (--wait). Each rank continues as soon as it has seen its own completion, so only the operations keep
the ranks in step: a barrier of the processes before each operation would add their wake-up times. If torch, its NCCL
or two GPUs are missing, prints the reason and exits with 0.
"""
import statistics
import sys

from torch_ranks import find_torch, join, make_parser, timed, wait_for_gpu


def measure(rank, options, meeting, results):
    torch, dist = join(rank, options)

    def finish():
        wait_for_gpu(torch, options.wait)

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
            meeting.wait()
            figures = timed(lambda: work(what), count)  # pylint: disable=cell-var-from-loop
            if block > 0:
                found[name].append(figures)
    if rank == 0:
        results.put((torch.__version__, ".".join(map(str, torch.cuda.nccl.version())), torch.cuda.get_device_name(0),
                     found))
    dist.destroy_process_group()


def main():
    parser = make_parser(__doc__, "processes, each with a GPU (default: all GPUs)", "bytes of the one operation", 29507)
    parser.add_argument("--many", type=int, default=64, help="operations of a burst (default %(default)s)")
    parser.add_argument("--many-bytes", type=int, default=4096, help="bytes of each of them (default %(default)s)")
    parser.add_argument("--wait", choices=("synchronize", "spin"), default="synchronize",
                        help="how a completion is awaited (default %(default)s)")
    options = parser.parse_args()
    _, processes = find_torch("torch_latency", options)

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
