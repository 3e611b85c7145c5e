"""A process of a world over several mock ranks: captures a plan of two sums, replays it twice and prints one line. See
test_processes.py."""
import numpy as np

import troupe

with troupe.Runtime(backend="mock", log_level="off") as runtime:
    world = runtime.form_world()
    rank, = world.local_ranks
    values = troupe.empty(world, rank, 8, "float32")
    np.asarray(values)[:] = rank + 1
    sums = [world.prepare("all_reduce", values), world.prepare("all_reduce", values)]
    plan = world.capture(sums, name="two sums")
    for _ in range(2):
        world.replay(plan).result(60)
    print(f"rank {rank} of {world.size}: {np.asarray(values)[0]:.0f}", flush=True)
