#!/usr/bin/env python3
"""Compares troupe's Python module with torch.distributed on the same GPUs: results, and the time of a small all_reduce.

1. Results: troupe, in this process with all GPUs, reduces torch's CUDA tensors through DLPack. The results must equal
   those of torch.distributed (NCCL) on the same inputs, for several sizes, dtypes and reductions.
2. Times: p50 and p99 from request to reply, in blocks that alternate with those of torch.distributed. The latter runs
   in one process per GPU, as in torch_latency.py, and is timed on rank 0 from the call until its completion is
   seen. troupe receives one message for all ranks, through a prepared request that waits for torch's current streams,
   as torch.distributed does. Its reply is awaited by result() and by await.

Exits with 1 on wrong results. If torch, its NCCL or two GPUs are missing, prints the reason and exits with 0.
"""
import asyncio
import ctypes
import hashlib
import statistics
import sys
import time

from torch_ranks import WARM_UPS, find_torch, join, make_parser, percentiles, timed, wait_for_gpu

CASES = [("float32", "sum"), ("float32", "max"), ("float16", "sum"), ("bfloat16", "sum"), ("float64", "prod"),
         ("int32", "sum"), ("int64", "min"), ("uint8", "max")]
COUNTS = [1, 2, 1000, 1 << 20]


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
    torch, dist = join(rank, options)
    reductions = {"sum": dist.ReduceOp.SUM, "max": dist.ReduceOp.MAX, "min": dist.ReduceOp.MIN,
                  "prod": dist.ReduceOp.PRODUCT}
    small = torch.zeros(max(1, options.size // 4), dtype=torch.float32, device="cuda")

    def reduce(how):
        dist.all_reduce(small)
        wait_for_gpu(torch, how)

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
        meeting.wait()
        figures = timed(lambda: reduce(order[1]), options.iters)  # pylint: disable=cell-var-from-loop
        if rank == 0:
            answers.put(figures)
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


async def measure_await(request, iters):
    times = []
    for _ in range(iters + WARM_UPS):
        began = time.perf_counter()
        await request.ask()
        times.append((time.perf_counter() - began) * 1e6)
    return percentiles(times[WARM_UPS:])


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
        "troupe prepared, result()": lambda: timed(lambda: by_torch.ask().result(), options.iters),
        "troupe prepared, await": lambda: awaiting(by_torch, 50e-6),
        "troupe prepared, await, no spin": lambda: awaiting(by_torch, 0),
        "troupe prepared, ready, result()": lambda: timed(lambda: ready.ask().result(), options.iters),
        "troupe registered memory, result()": lambda: timed(lambda: registered.ask().result(), options.iters),
        "troupe all_reduce(tensors), result()": lambda: timed(lambda: world.all_reduce(tensors).result(),
                                                              options.iters),
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
    parser = make_parser(__doc__, "GPUs (default: all)", "bytes of the all_reduce", 29511)
    parser.add_argument("--profile", default="latency", help="troupe's latency profile (default %(default)s)")
    options = parser.parse_args()
    torch, processes = find_torch("torch_python", options)
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
