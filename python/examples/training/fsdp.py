"""Trains with fully_shard(), and goes on when a process is lost: its replacement takes the copy in the next rank's memory.

    troupe launch -n 4 --spares 1 -- python3 fsdp.py --steps 1000
"""
import argparse
import hashlib
import os
import time

import torch
import torch._dynamo  # noqa: F401  now, and not with the first optimizer, when a process that stands by is needed
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import troupe.torch


def batch(step, rank):
    return torch.randn(8, 64, generator=torch.Generator().manual_seed(1000 * step + rank))


def build():
    torch.manual_seed(7)
    net = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 64))
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in (net[0], net[2], net):
        fully_shard(layer, mesh=mesh)
    return net, torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)


def main(options):
    torch.set_num_threads(1)
    dist.init_process_group("troupe")
    copies, step = troupe.torch.Copies(), 0
    while step < options.steps:
        try:
            net, optimizer = build()
            first = step = copies.restore(now := troupe.torch.resume(step), net, optimizer)
            while step < options.steps:
                optimizer.zero_grad()
                net(batch(step, dist.get_rank())).square().mean().backward()
                optimizer.step()
                step += 1
                if step % 10 == 0:
                    copies.commit(step, net, optimizer)
                if step == first + 1:
                    print(f"rank {dist.get_rank()} (pid {os.getpid()}) has done step {step} in epoch {now.epoch}", flush=True)
                time.sleep(options.pause)
        except dist.DistBackendError as lost:
            print(f"rank {dist.get_rank()} after step {step}: {lost}", flush=True)
    weights = b"".join(one.full_tensor().detach().numpy().tobytes() for one in net.parameters())
    print(f"rank {dist.get_rank()} ends with weights {hashlib.sha256(weights).hexdigest()[:16]}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--pause", type=float, default=0, help="seconds after each step")
    main(parser.parse_args())
