"""The smallest use of troupe from Python: one world, one all_reduce of NumPy's arrays."""
import numpy as np

import troupe

with troupe.Runtime(backend="mock", mock_devices=4) as runtime:
    world = runtime.form_world()
    values = [np.full(1024, rank + 1, "float32") for rank in world.local_ranks]
    reply = world.all_reduce(values)  # one message asks all ranks, and does not wait
    completion = reply.result()  # until the last of them is done
    took = (completion.done - completion.queued) * 1e6
    print(f"{world.size} ranks: every sum is {values[0][0]:.0f} ({took:.0f} us)")
    assert all((value == 1 + 2 + 3 + 4).all() for value in values)
