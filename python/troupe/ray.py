"""Ranks of a world in the actors of a Ray cluster: docs/clusters.md#ray."""
from __future__ import annotations

import importlib
import os
import warnings
from typing import Mapping


def take_rank(joining: Mapping[str, str], rank: int, size: int) -> None:
    """Makes this actor's process that of a rank: sets the variables of a launcher in os.environ. Call it first in the actor's constructor.

    Ray calls the constructor of an actor that it restarts with the same arguments; the rank then joins as the replacement of the one
    that was lost. Ray gives a process the GPUs that it may use, so the rank uses the first one.
    joining: Controller.joining(), or TROUPE_CONTROL and TROUPE_JOIN_TOKEN of a controller that the cluster runs. size: ranks of the world.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Ray's function calls another one of Ray's that is deprecated
        was_restarted = importlib.import_module("ray").get_runtime_context().was_current_actor_reconstructed
    os.environ.update(joining, TROUPE_PROCESS=str(rank), TROUPE_PLACE=str(rank), TROUPE_ATTEMPT=str(int(was_restarted)),
                      RANK=str(rank), WORLD_SIZE=str(size), LOCAL_RANK="0")
