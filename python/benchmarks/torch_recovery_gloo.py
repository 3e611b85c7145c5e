"""What torch_recovery.py compares with: ddp.py on gloo, with the rendezvous and the supervision of processes written by hand.

This process starts the others and has PyTorch's store. When a process dies, it raises the generation in the store and names in it
the process that takes the place. The survivors notice by an error of gloo, leave their process group, and meet in a new one.
"""
import argparse
import ctypes
import datetime
import gc
import hashlib
import json
import os
import subprocess
import sys
import threading
import time

TIMEOUT = datetime.timedelta(seconds=120)


def say(line):
    os.write(1, f"{line}\n".encode())  # at once: all processes write to one pipe


def batch(step, rank):
    import torch

    return torch.randn(8, 64, generator=torch.Generator().manual_seed(1000 * step + rank))


def run_rank(options):
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    torch.set_num_threads(1)
    torch.manual_seed(7)
    net = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 64))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    store = dist.TCPStore("127.0.0.1", options.port, is_master=False, timeout=datetime.timedelta(hours=1))
    ctypes.CDLL(None).prctl(15, b"spare", 0, 0, 0)  # PR_SET_NAME: torch_recovery.py sees that it stands by
    generation, step = 0, 0
    while step < options.steps:
        try:
            while True:  # the next generation that has this process
                generation += 1
                members = json.loads(store.get(f"generation {generation}"))
                if options.name in members:
                    break
            while store.check([f"generation {generation + 1}"]):  # others have died since
                generation += 1
                members = json.loads(store.get(f"generation {generation}"))
            rank = members.index(options.name)
            ctypes.CDLL(None).prctl(15, b"python", 0, 0, 0)
            dist.init_process_group("gloo", store=dist.PrefixStore(f"group {generation}", store), rank=rank, world_size=len(members),
                                    timeout=TIMEOUT)
            steps = torch.tensor([step])
            all_steps = [torch.zeros_like(steps) for _ in members]
            dist.all_gather(all_steps, steps)
            source = max(range(len(members)), key=lambda one: (int(all_steps[one]), -one))
            state = [net.state_dict(), optimizer.state_dict()]
            dist.broadcast_object_list(state, source)
            net.load_state_dict(state[0]), optimizer.load_state_dict(state[1])
            model = DistributedDataParallel(net, find_unused_parameters=True)
            first = step = int(all_steps[source])
            while step < options.steps:
                optimizer.zero_grad()
                model(batch(step, rank)).square().mean().backward()
                optimizer.step()
                step += 1
                if step == first + 1:
                    say(f"rank {rank} (pid {os.getpid()}) has done step {step} in epoch {generation}")
                time.sleep(options.pause)
        except RuntimeError as lost:
            say(f"rank {rank} after step {step}: {lost}")
            if dist.is_initialized():
                dist.group.WORLD.abort()
                dist.destroy_process_group()
                model = lost.__traceback__ = None  # the last to hold the group, whose connections only then are closed: those who wait
                gc.collect()  # for this process notice it by that, and not by abort()
    weights = b"".join(one.detach().numpy().tobytes() for one in net.parameters())
    say(f"rank {rank} ends with weights {hashlib.sha256(weights).hexdigest()[:16]}")
    store.set(f"done {options.name}", "")


def supervise(options):
    import torch.distributed as dist

    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    changed, running, started = threading.Condition(), {}, [0]

    def start():
        name = str(started[0])
        started[0] += 1
        running[name] = subprocess.Popen([sys.executable, __file__, *sys.argv[1:], "--port", str(store.port), "--name", name])

        def watch(process=running[name]):
            process.wait()
            with changed:
                changed.notify_all()

        threading.Thread(target=watch, daemon=True).start()
        return name

    members = [start() for _ in range(options.ranks)]
    spares = [start() for _ in range(options.spares)]
    generation = 1
    store.set("generation 1", json.dumps(members))
    with changed:
        while any(running[one].poll() != 0 for one in members):
            dead = [one for one in members if running[one].poll() not in (None, 0)]
            if not dead:
                changed.wait()
                continue
            for one in dead:
                spares.append(start())
                members[members.index(one)] = spares.pop(0)
            generation += 1
            store.set(f"generation {generation}", json.dumps(members))
    for one in spares:
        running[one].kill()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--pause", type=float, default=0, help="seconds after each step")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--spares", type=int, default=1)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--name", help=argparse.SUPPRESS)
    options = parser.parse_args()
    run_rank(options) if options.port else supervise(options)


if __name__ == "__main__":
    main()
