"""Trains with DistributedDataParallel, and goes on when a process is lost: its replacement takes the state of a survivor.

    troupe launch -n 4 --spares 1 -- python3 ddp.py --steps 1000
"""
import argparse
import hashlib
import os
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import troupe.torch


def batch(step, rank):
    return torch.randn(8, 64, generator=torch.Generator().manual_seed(1000 * step + rank))


def main(options):
    torch.set_num_threads(1)
    torch.manual_seed(7)
    net = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 64))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    dist.init_process_group("troupe")  # a process that stands by waits here
    step = 0
    while step < options.steps:
        try:
            first = step = troupe.torch.share(now := troupe.torch.resume(step), net, optimizer)
            model = DistributedDataParallel(net, find_unused_parameters=True)
            while step < options.steps:
                optimizer.zero_grad()
                model(batch(step, dist.get_rank())).square().mean().backward()
                optimizer.step()
                step += 1
                if step == first + 1:
                    print(f"rank {dist.get_rank()} (pid {os.getpid()}) has done step {step} in epoch {now.epoch}", flush=True)
                time.sleep(options.pause)
        except dist.DistBackendError as lost:
            print(f"rank {dist.get_rank()} after step {step}: {lost}", flush=True)
    weights = b"".join(one.detach().numpy().tobytes() for one in net.parameters())
    print(f"rank {dist.get_rank()} ends with weights {hashlib.sha256(weights).hexdigest()[:16]}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--pause", type=float, default=0, help="seconds after each step")
    main(parser.parse_args())
