"""A process of a world over several: sums its rank's values with Gloo and prints one line. See test_processes.py."""
import numpy as np

import troupe

with troupe.Runtime(backend="gloo", log_level="off") as runtime:
    world = runtime.form_world()
    rank, = world.local_ranks
    values = np.full(8, rank + 1, "float32")
    world.all_reduce(values).result(60)
    print(f"rank {rank} of {world.size}: {values[0]:.0f}", flush=True)
