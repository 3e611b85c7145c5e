"""Tasks of an asyncio program that use one world at the same time, and go on after a fault."""
import asyncio

import numpy as np

import troupe


async def serve(world: troupe.World, client: int, steps: int) -> int:
    """Sums `steps` arrays over the ranks, one after the other. Returns how many were answered."""
    answered = 0
    while answered < steps:
        values = [np.full(256, client + answered, "float32") for _ in world.local_ranks]
        sums = [np.empty_like(value) for value in values]
        try:
            await world.all_reduce(values, out=sums, deadline=5.0)
        except troupe.Rebuilding:  # it certainly did not run: ask again when the world is ready
            await world.ready()
            continue
        assert (sums[0] == world.size * (client + answered)).all()
        answered += 1
    return answered


async def main(world: troupe.World) -> None:
    answered = await asyncio.gather(*(serve(world, client, steps=20) for client in range(8)))
    print(f"{sum(answered)} of {8 * 20} answered")


if __name__ == "__main__":
    with troupe.Runtime(backend="mock", mock_devices=2, recovery_policy="keep_size") as runtime:
        with runtime.form_world() as world:
            asyncio.run(main(world))
