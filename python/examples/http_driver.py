"""An HTTP front without a rank or a GPU, whose requests the processes of two ranks serve together.

Each rank holds a part of a vector of weights. For POST /dot with eight numbers, every rank multiplies its part, the sum over
the ranks is an all_reduce, and the front reads it from rank 0.
"""
import asyncio
import json
import subprocess
import sys
import urllib.request
from typing import Dict, List, Optional, Union

import numpy as np

import troupe

RANKS, WIDTH = 2, 4  # weights of each rank


def run_rank() -> None:
    with troupe.Runtime(backend="mock", log_level="off") as runtime:
        world = runtime.form_world()
        rank, = world.local_ranks
        weights = np.arange(rank * WIDTH, (rank + 1) * WIDTH, dtype="float32")
        product = troupe.empty_pinned(world, 1)  # host memory, so that a driver can read it

        def multiply(rank: int, epoch: int, stream: int, memory: List[troupe.Buffer], values: bytes) -> None:
            # on the launcher thread: short
            mine = np.frombuffer(values, "float32")[rank * WIDTH:(rank + 1) * WIDTH]
            np.asarray(product)[0] = weights @ mine

        events = world.events()
        world.register_function("multiply", multiply)
        world.export_memory(rank, product, "product")  # last: who finds it can call the function
        for event in events:
            if event.phase == "failed":
                break


class Front:
    def __init__(self, driver: troupe.Driver) -> None:
        self.driver = driver
        self.products: Optional[List[troupe.RemoteBuffer]] = None
        self.lock = asyncio.Lock()  # one request at a time uses the ranks' memory

    async def find_products(self) -> List[troupe.RemoteBuffer]:
        await self.driver.ready()
        while True:
            try:
                return [await self.driver.find_memory(rank, "product", "float32") for rank in range(self.driver.size)]
            except troupe.Missing:  # a rank's process has not exported it yet
                await asyncio.sleep(0.01)

    async def dot(self, numbers: List[float]) -> float:
        async with self.lock:
            try:
                if self.products is None:
                    self.products = await self.find_products()
                await self.driver.call("multiply", values=np.array(numbers, "float32").tobytes(), deadline=5.0)
                await self.driver.all_reduce(self.products, deadline=5.0)
                return float(np.frombuffer(await self.driver.read(self.products[0]), "float32")[0])
            except troupe.Error:
                self.products = None  # after a fault a process may be a new one
                raise

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(head.partition("content-length:")[2].split()[0])
        said: Dict[str, Union[str, float]]
        try:
            status, said = "200 OK", {"dot": await self.dot(json.loads(await reader.readexactly(length)))}
        except troupe.Error as failure:
            status, said = "503 Service Unavailable", {"error": failure.code, "effect": failure.effect}
        body = json.dumps(said).encode()
        writer.write(f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)
        await writer.drain()
        writer.close()


def post(port: int, numbers: List[float]) -> float:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/dot", json.dumps(numbers).encode(), timeout=60) as reply:
        return float(json.load(reply)["dot"])


async def main(driver: troupe.Driver) -> None:
    server = await asyncio.start_server(Front(driver).answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    dots = await asyncio.gather(*(asyncio.to_thread(post, port, [client] * 8) for client in range(4)))
    server.close()
    print(f"{driver.size} ranks: {dots}")


if __name__ == "__main__":
    if sys.argv[1:] == ["rank"]:
        run_rank()
        sys.exit()
    with troupe.Controller(RANKS) as controller:
        ranks = [subprocess.Popen([sys.executable, __file__, "rank"], env=controller.environment(rank))
                 for rank in range(RANKS)]
        token = controller.joining()["TROUPE_JOIN_TOKEN"]
        with troupe.Driver(control_address=controller.address, token=token) as driver:
            asyncio.run(main(driver))
        controller.stop()
        for one in ranks:
            one.wait()
