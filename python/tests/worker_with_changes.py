"""A process of a world over mock ranks that join and leave as planned. Its client sums ones in a lane until the process leaves
or the world ends. At a line on the standard input it leaves by its own request; with the argument "operate", the process of
rank 0 lets `troupe ctl` change the world. It ends with a line of JSON. See test_changes.py."""
import asyncio
import json
import os
import signal
import subprocess
import sys
import threading

import numpy as np

import troupe

PATIENCE = 60


def work(world, rank, said, began):
    """Asks until a request is refused. Each sum is the number of ranks of its epoch. Sets `began` after the first one."""
    ones = np.ones(4, "float32")
    lane = world.rank(rank).lane("work")
    pause = threading.Event()
    try:
        while True:
            sums = np.zeros(4, "float32")
            done = lane.all_reduce(ones, out=sums, deadline=PATIENCE).result(PATIENCE)
            said["sums"].setdefault(str(done.epoch), set()).add(float(sums[0]))
            said["requests"] += 1
            began.set()
            pause.wait(0.001)
    except troupe.Error as why:
        began.set()
        said["refused"], said["text"] = [why.code, why.effect], why.text


async def leave(world):
    await world.leave()


def ctl(*words):
    done = subprocess.run([troupe.program_path(), "ctl", "--timeout", "30s", *words], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, timeout=PATIENCE)
    return [done.returncode, done.stdout, done.stderr]


if sys.argv[1:] == ["operate"]:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # of the launcher, whose controller stops the world
with troupe.Runtime(backend="mock", log_level="off", control_planned_changes=True) as runtime:
    world = runtime.form_world()
    rank, = world.local_ranks
    said = {"pid": os.getpid(), "epoch": world.epoch, "sums": {}, "requests": 0, "refused": None}
    began = threading.Event()
    client = threading.Thread(target=work, args=(world, rank, said, began))
    client.start()
    if sys.argv[1:] == ["operate"] and rank == 0:
        said["ctl"] = [ctl(*words) for words in (["status"], ["leave", "0"], ["leave", "2"], ["join", "2"], ["status"])]
        print(json.dumps(dict(said, sums={})), flush=True)
    elif sys.argv[1:] != ["operate"]:
        assert began.wait(PATIENCE)
        print("serves", flush=True)
        if sys.stdin.readline() == "leave\n":
            asyncio.run(leave(world))
            said["left"] = True
    client.join()
    said["sums"] = {epoch: sorted(sums) for epoch, sums in said["sums"].items()}
    print(json.dumps(said), flush=True)
