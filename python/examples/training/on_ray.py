"""Trains in actors of Ray, which starts an actor again when its process dies. All ranks then go on from the last commit."""
import numpy as np
import ray

import troupe
import troupe.ray


class Trainer:
    """The process of one rank."""

    def __init__(self, joining, rank, size):
        troupe.ray.take_rank(joining, rank, size)  # first, because all else reads the variables that it sets
        self.rank, self.weights = rank, np.zeros(256)
        self.world = troupe.Runtime(backend="gloo", log_level="off").form_world()

    def gradient(self, step):
        return np.random.default_rng([step, self.rank]).integers(-8, 9, self.weights.size).astype("float64")

    def train(self, steps):
        """Returns the weights. Ray calls it again, in another process, if this one dies."""
        lane = self.world.rank(self.rank).lane("steps")
        kept, now = troupe.Checkpoints(lane, [self.weights]), self.world.status
        while True:
            try:
                self.weights = np.zeros_like(self.weights)  # work of the epoch before may still write to the old ones
                step = kept.resume(now, [self.weights]).commit or 0
                while step < steps:
                    total = self.gradient(step)
                    lane.all_reduce(total).result()
                    self.weights *= 0.5
                    self.weights += total
                    step += 1
                    kept.commit(step)
                return self.weights
            except troupe.Error:
                before, now = now, self.world.wait_ready(60, after_epoch=now.epoch)
                if now.phase != "ready" or now.epoch == before.epoch:
                    raise  # no process was lost, or the world has ended

    def leave(self):
        self.world.stop()


def main(size=3, steps=100):
    made = ray.remote(max_restarts=10, max_task_retries=-1, num_cpus=0)(Trainer)
    with troupe.Controller(size) as controller:  # in this process, which Ray does not restart
        ranks = [made.remote(controller.joining(), rank, size) for rank in range(size)]
        weights = ray.get([one.train.remote(steps) for one in ranks])
        ray.get([one.leave.remote() for one in ranks])  # when all are done, because each is needed until then
    assert all((one == weights[0]).all() for one in weights)
    print(f"{size} ranks have done {steps} steps")


if __name__ == "__main__":
    ray.init(address="local", include_dashboard=False, _node_ip_address="127.0.0.1")
    main()
