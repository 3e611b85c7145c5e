"""Kills ranks in actors of Ray, one by Ray and one by SIGKILL, and compares the results with those of an undisturbed run.

Prints how long after a kill every rank has done a step in the next epoch. Uses the examples on_ray.py and, if the argument "ddp" is
given, ddp.py of python/examples/training. PYTHONPATH must have the module, that folder and this one.
"""
import os
import re
import signal
import sys
import time
import types

import numpy as np
import on_ray
import ray

import troupe
import troupe.ray

RANKS, STEPS, LOSSES = 3, 90, 2
PATIENCE = 170  # seconds for anything


class Progress:
    """The ranks that have done a step in an epoch, each with its process and the time."""

    def __init__(self):
        self.noted = {}

    def note(self, epoch, rank, *what):
        self.noted.setdefault(epoch, {})[rank] = what

    def of(self, epoch):
        return self.noted.get(epoch, {})


def hold(world, step):
    """Waits for the loss that ends the epoch, if the step is where that is to be."""
    now = world.status
    if now.phase == "ready" and now.epoch <= LOSSES and step >= STEPS * now.epoch // (LOSSES + 1):
        world.wait_ready(PATIENCE, after_epoch=now.epoch)


class Trainer(on_ray.Trainer):
    """Verifies the weights of each step, and reports the first one of each epoch."""

    def __init__(self, joining, rank, size, progress):
        super().__init__(joining, rank, size)
        self.progress, self.before = progress, None

    def gradient(self, step):
        epoch = self.world.status.epoch
        if self.before == (epoch, step - 1):
            assert (self.weights == undisturbed(step)).all(), f"the weights of rank {self.rank} after step {step} are wrong"
            self.progress.note.remote(epoch, self.rank, os.getpid(), time.monotonic())
        self.before = epoch, step
        hold(self.world, step)
        return super().gradient(step)


def undisturbed(steps):
    weights = np.zeros(256)
    for step in range(steps):
        weights = weights * 0.5 + sum(on_ray.Trainer.gradient(types.SimpleNamespace(rank=rank, weights=weights), step) for rank in range(RANKS))
    return weights


class DdpTrainer:
    """Runs the example for DistributedDataParallel in the process of a rank."""

    def __init__(self, joining, rank, size, progress):
        troupe.ray.take_rank(joining, rank, size)
        self.progress = progress

    def train(self, steps):
        import ddp
        import torch

        batch, said = ddp.batch, []

        def held_batch(step, rank):
            if self.progress is not None:
                hold(ddp.dist.group.WORLD._get_backend(torch.device("cpu"))._world.world, step)
            return batch(step, rank)

        def note(text, flush):
            said.append(text)
            if self.progress is not None and (done := re.match(r"rank (\d+) \(pid (\d+)\) has done step \d+ in epoch (\d+)", text)):
                rank, process, epoch = map(int, done.groups())
                self.progress.note.remote(epoch, rank, process, time.monotonic())

        ddp.batch, ddp.print = held_batch, note
        ddp.main(types.SimpleNamespace(steps=steps, pause=0))
        return re.search(r"ends with weights (\w+)", said[-1])[1]

    def leave(self):
        pass


def await_step(progress, epoch):
    """Waits until all ranks have done a step in the epoch. Returns what they have noted."""
    until = time.monotonic() + PATIENCE
    while len(noted := ray.get(progress.of.remote(epoch))) < RANKS:
        if time.monotonic() > until:
            sys.exit(f"of {RANKS} ranks only {sorted(noted)} have done a step in epoch {epoch} within {PATIENCE} s")
        time.sleep(0.02)
    return noted


def run(kind, losses):
    """Returns what the ranks' train() returns."""
    made = ray.remote(max_restarts=10, max_task_retries=-1, num_cpus=0)(kind)
    progress = ray.remote(num_cpus=0)(Progress).remote() if losses else None
    with troupe.Controller(RANKS) as controller:
        ranks = [made.remote(controller.joining(), rank, RANKS, progress) for rank in range(RANKS)]
        trained = [one.train.remote(STEPS) for one in ranks]
        for epoch in range(1, losses + 1):
            noted = await_step(progress, epoch)
            victim, by_ray = RANKS - epoch, epoch % 2 == 1
            began = time.monotonic()
            if by_ray:
                ray.kill(ranks[victim], no_restart=False)
            else:
                os.kill(noted[victim][0], signal.SIGKILL)
            later = await_step(progress, epoch + 1)
            assert later[victim][0] != noted[victim][0], "the rank is in the process that was killed"
            print(f"{kind.__name__}: {max(when for _, when in later.values()) - began:.2f} s after {'ray.kill' if by_ray else 'SIGKILL'} of rank "
                  f"{victim}, all ranks had done a step in epoch {epoch + 1}", flush=True)
        results = ray.get(trained, timeout=PATIENCE)
        ray.get([one.leave.remote() for one in ranks], timeout=PATIENCE)
        if not controller.wait(PATIENCE) or controller.reason is not None:
            sys.exit(f"the world has not ended well: {controller.reason}")
        for one in ranks:
            ray.kill(one)
        return results


def start_ray():
    for is_last in (False, False, True):
        try:
            ray.init(address="local", include_dashboard=False, _node_ip_address="127.0.0.1", num_cpus=1, logging_level="ERROR")
            return
        except Exception as why:  # it waits for its own processes for 30 s, and a busy machine needs longer
            if is_last or "timed out during startup" not in str(why):
                raise
            ray.shutdown()


def main():
    start_ray()
    on_ray.main(RANKS, STEPS)
    right = undisturbed(STEPS)
    if not all((one == right).all() for one in run(Trainer, LOSSES)):
        sys.exit("the weights of Trainer are not those of an undisturbed run")
    if "ddp" in sys.argv[1:]:
        right, weights = set(run(DdpTrainer, 0)), set(run(DdpTrainer, LOSSES))
        if len(right) != 1 or weights != right:
            sys.exit(f"the weights of DdpTrainer are {weights}, and those of an undisturbed run {right}")
    print("all weights are those of an undisturbed run")


if __name__ == "__main__":
    main()
