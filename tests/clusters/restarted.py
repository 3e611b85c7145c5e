"""A training script under torchrun, with its state in a file. In its first attempt rank 1 dies."""
import os
import pathlib
import signal

import torch
import torch.distributed as dist

import troupe.torch  # registers the backend

STEPS, LOST_AT, SAVED_EVERY = 20, 13, 5

dist.init_process_group("troupe")
rank, size, attempt = dist.get_rank(), dist.get_world_size(), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
file = pathlib.Path(os.environ["TROUPE_TEST_STATE"])
state = torch.load(file) if attempt > 0 else {"step": 0, "weights": torch.zeros(4)}
dist.barrier()  # all have read it
if attempt > 0:
    assert state["step"] == LOST_AT // SAVED_EVERY * SAVED_EVERY, state
for step in range(state["step"], STEPS):
    if step == LOST_AT and rank == 1 and attempt == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    gradient = torch.full((4,), float(rank + step))
    dist.all_reduce(gradient)
    state["weights"] += gradient
    if rank == 0 and (step + 1) % SAVED_EVERY == 0:
        torch.save({"step": step + 1, "weights": state["weights"]}, file)
assert state["weights"].tolist() == [sum(r + s for r in range(size) for s in range(STEPS))] * 4, state
print(f"rank {rank} has done {STEPS} steps in attempt {attempt}", flush=True)
dist.destroy_process_group()
