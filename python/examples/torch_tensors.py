"""PyTorch's tensors on all GPUs of this process: summed in place, behind the kernels that fill them."""
import sys

try:
    import torch
except ImportError:
    sys.exit("torch_tensors: not available: PyTorch is not installed")

import troupe

on_gpus = torch.cuda.device_count() > 1
with troupe.Runtime(backend="nccl" if on_gpus else "mock") as runtime:
    world = runtime.form_world()
    tensors = []
    for rank in world.local_ranks:
        device = f"cuda:{rank}" if on_gpus else "cpu"
        tensors.append(torch.full((1024,), rank + 1.0, device=device))  # enqueued: the GPU may still be at it

    request = world.prepare("all_reduce", tensors)  # operands are read and checked once
    for step in range(3):
        request.ask().result()  # the GPUs wait for torch's current streams, the CPU does not
        for tensor in tensors:
            tensor /= world.size  # the reply says that the GPUs are done: any stream may follow
    print(tensors[0][0].item())
