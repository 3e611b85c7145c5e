"""A process of a world over three mock ranks: splits it into two worlds that share rank 1, sums in all of them at once, and
prints one line. See test_processes.py."""
import numpy as np

import troupe

with troupe.Runtime(backend="mock", log_level="off") as runtime:
    whole = runtime.form_world()
    rank, = whole.local_ranks
    parts = whole.split({"low": [0, 1], "high": [1, 2]})
    worlds = [whole] + [parts[name] for name in ("high", "low") if parts[name] is not None]
    if rank == 1:
        worlds.reverse()  # in another order than the others
    sums = []
    for world in worlds:
        mine, = world.local_ranks
        values = troupe.empty(world, mine, 8, "float32")
        np.asarray(values)[:] = rank + 1
        sums.append((world.size, values, world.rank(mine).lane("sums").all_reduce(values)))
    for _, _, reply in sums:
        reply.result(60)
    whole.rank(rank).lane("end").barrier().result(60)  # a process that ends leaves its worlds
    print(f"rank {rank}: {sorted((size, float(np.asarray(values)[0])) for size, values, _ in sums)}", flush=True)
