"""Hosts on one machine: network namespaces whose packets pass through this process, which delays, loses or drops them.

Needs root, iproute2 and /dev/net/tun. The kernel's own shaper (netem) is not in every kernel; this one needs nothing of it.
"""
import ctypes
import fcntl
import heapq
import itertools
import os
import random
import selectors
import shutil
import struct
import subprocess
import threading
import time

CLONE_NEWNET = 0x40000000
TUNSETIFF = 0x400454CA
IFF_TUN = 0x0001
IFF_NO_PI = 0x1000
MTU = 9000


class Unavailable(Exception):
    """This machine lets nobody make network namespaces."""


def run(*words):
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode != 0:
        raise Unavailable(f"{' '.join(words)}: {done.stderr.strip()}")


class Link:
    """What happens to packets from one host to another."""

    def __init__(self):
        self.delay = 0.0
        self.loss = 0.0
        self.cut = False
        self.most = 0  # bytes: larger packets are lost; 0: none is
        self.sound = 0  # bytes: larger packets arrive with a wrong byte; 0: none does
        self.rate = 0  # bytes per second; 0: without limit
        self.free = 0.0  # when it has carried all that was sent


class VirtualNetwork:
    """Hosts 0 to count-1, of the addresses 10.77.0.1 and so on, each with one interface, eth0."""

    _numbers = itertools.count()  # of the networks of this process

    def __init__(self, count, seed=1):
        if os.geteuid() != 0:
            raise Unavailable("only root can make network namespaces")
        if shutil.which("ip") is None:
            raise Unavailable("there is no ip: install iproute2")
        self.count = count
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._draw = random.Random(seed)
        self._links = {(a, b): Link() for a in range(count) for b in range(count)}
        self._number = next(VirtualNetwork._numbers)
        self._names = []
        self._devices = []
        self._due = []
        self._sent = 0
        self._wake = os.pipe()
        self._thread = None
        try:
            for host in range(count):
                self._make_host(host)
        except Exception:
            self.close()
            raise
        self._thread = threading.Thread(target=self._forward, daemon=True)
        self._thread.start()

    def name(self, host):
        """That of the host's namespace."""
        return self._names[host]

    @staticmethod
    def address(host):
        return f"10.77.0.{host + 1}"

    def set(self, sources, targets, **what):
        """What a Link has (delay in seconds, loss from 0 to 1, cut ...), for packets from any source to any target."""
        for source in sources:
            for target in targets:
                if source != target:
                    for key, value in what.items():
                        setattr(self._links[source, target], key, value)

    def heal(self):
        everybody = range(self.count)
        self.set(everybody, everybody, delay=0.0, loss=0.0, cut=False, most=0, sound=0, rate=0, free=0.0)

    def close(self):
        if self._thread:
            os.write(self._wake[1], b"x")
            self._thread.join()
        for device in self._devices:
            os.close(device)
        for name in self._names:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)
        self._devices, self._names, self._thread = [], [], None

    def _make_host(self, host):
        name = f"troupe-{os.getpid()}-{self._number}-{host}"
        run("ip", "netns", "add", name)
        self._names.append(name)
        self._devices.append(self._open_tun(name))
        run("ip", "-n", name, "address", "add", f"{self.address(host)}/24", "dev", "eth0")
        run("ip", "-n", name, "link", "set", "eth0", "up", "mtu", str(MTU))
        run("ip", "-n", name, "link", "set", "lo", "up")

    def _open_tun(self, name):
        """A tunnel's device belongs to the namespace of the thread that opens it."""
        with open("/proc/thread-self/ns/net") as home, open(f"/run/netns/{name}") as there:
            self._enter(there)
            try:
                device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
                fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH14x", b"eth0", IFF_TUN | IFF_NO_PI))
                return device
            except OSError as failure:
                raise Unavailable(f"/dev/net/tun: {failure}") from failure
            finally:
                self._enter(home)

    def _enter(self, namespace):
        if self._libc.setns(namespace.fileno(), CLONE_NEWNET) != 0:
            raise Unavailable(f"setns: {os.strerror(ctypes.get_errno())}")

    def _forward(self):
        selector = selectors.DefaultSelector()
        selector.register(self._wake[0], selectors.EVENT_READ, None)
        for host, device in enumerate(self._devices):
            selector.register(device, selectors.EVENT_READ, host)
        while True:
            wait = max(self._due[0][0] - time.monotonic(), 0) if self._due else None
            for key, _ in selector.select(wait):
                if key.data is None:
                    return
                self._read_all(key.data)
            self._deliver()

    def _read_all(self, host):
        for _ in range(64):  # then the others have their turn
            try:
                packet = os.read(self._devices[host], 65536)
            except BlockingIOError:
                return
            self._route(host, packet)

    def _route(self, source, packet):
        if len(packet) < 20 or packet[0] >> 4 != 4 or packet[16:19] != b"\x0a\x4d\x00":
            return
        target = packet[19] - 1
        if not 0 <= target < self.count:
            return
        link = self._links[source, target]
        if link.cut or (link.most and len(packet) > link.most) or (link.loss and self._draw.random() < link.loss):
            return
        if link.sound and len(packet) > link.sound:
            packet = packet[:-1] + bytes([packet[-1] ^ 1])
        if link.delay == 0 and link.rate == 0 and not self._due:
            self._write(target, packet)
            return
        due = time.monotonic()
        if link.rate:
            if link.free > due + 10:  # its queue is full
                return
            due = link.free = max(due, link.free) + len(packet) / link.rate
        self._sent += 1  # of two that are due together, the first comes first
        heapq.heappush(self._due, (due + link.delay, self._sent, target, packet))

    def _deliver(self):
        while self._due and self._due[0][0] <= time.monotonic():
            _, _, target, packet = heapq.heappop(self._due)
            self._write(target, packet)

    def _write(self, target, packet):
        try:
            os.write(self._devices[target], packet)
        except OSError:  # its queue is full: packets are lost in networks
            pass
