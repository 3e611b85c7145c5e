#!/usr/bin/env python3
"""Plays the stranger against what the program really starts, and says which promises did not hold.

Each case is one thing that a stranger, a careless user or a busy machine does: frames and tokens for the controller of
`troupe launch`, signals, limits of memory, threads and descriptors, numbers at and beyond their range for every option of
every subcommand (the options are read from --help), files that are not files, and pauses. Whatever is done, a program
works, or ends within its time with a status and a sentence; it is never ended by a signal that nobody sent, never names
a C++ exception, never grows without bound, and never is deaf to SIGTERM.

Frames come from another user where this script is run by root, else from the same one.
"""
import argparse
import concurrent.futures
import contextlib
import encodings.idna  # noqa: F401  (a forked child of another user could not load it)
import fnmatch
import functools
import itertools
import os
import pathlib
import re
import resource
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

NOBODY = 65534
MOST_MIB = 1024  # of resident memory, of any program that is given nonsense
MOST_DEVICES_MIB = 2560  # beside it: two mock devices and host memory, of a program that is asked to use all of it
MOST_THREADS = 1000
WORDS_OF_NO_ONE = ("terminate called", "std::", "what():", "basic_string", "vector::")
BIG = ("2147483647", "2147483648", "9223372036854775807", "18446744073709551616")
NUMBERS = ("-1", "0", "1", *BIG, "-9223372036854775809", "1e308", "nan", "0x10", "1ns", "", " ", "9" * 4096)
FEW_NUMBERS = ("-1", "0", "2147483647", "18446744073709551616")


class Failed(Exception):
    """What the case expected, and what happened instead."""


class Skipped(Exception):
    """Why the case cannot be played here."""


def expect(holds, text):
    if not holds:
        raise Failed(text)


class Program:
    """One run of the program, watched: its size, its threads, its words and its end."""

    def __init__(self, words, environment=None, limits=None, user=None, feed=subprocess.DEVNULL,
                 most_mib=MOST_MIB):
        def prepare():
            for which, value in (limits or {}).items():
                resource.setrlimit(which, (value, value))
            if user is not None:
                os.setgroups([])
                os.setgid(user)
                os.setuid(user)

        self.words = words
        self.said = tempfile.TemporaryFile()
        self.process = subprocess.Popen(words, stdin=feed, stdout=self.said, stderr=subprocess.STDOUT, cwd=SCRATCH,
                                        env={**os.environ, "TROUPE_PROFILE": "frugal", **(environment or {})},
                                        preexec_fn=prepare, start_new_session=True)
        self.pid = self.process.pid
        self.most_mib = self.most_threads = 0
        self.allowed_mib = most_mib

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.process.wait()

    def look(self):
        with contextlib.suppress(OSError):
            status = pathlib.Path(f"/proc/{self.pid}/status").read_text()
            size, threads = re.search(r"VmRSS:\s+(\d+)", status), re.search(r"Threads:\s+(\d+)", status)
            self.most_mib = max(self.most_mib, int(size[1]) // 1024 if size else 0)
            self.most_threads = max(self.most_threads, int(threads[1]) if threads else 0)

    def wait(self, seconds):
        """Its status, or None where it still runs."""
        until = time.monotonic() + seconds
        while time.monotonic() < until and self.process.poll() is None and self.is_small():
            time.sleep(0.02)
            self.look()
        return self.process.poll()

    def heeds(self, which):
        """Whether its first thread catches this signal or holds it back, rather than being ended by it."""
        with contextlib.suppress(OSError):
            status = pathlib.Path(f"/proc/{self.pid}/status").read_text()
            return any(int(re.search(rf"{mask}:\s+(\w+)", status)[1], 16) >> (which - 1) & 1 for mask in ("SigCgt", "SigBlk"))
        return False

    def is_small(self):
        return self.most_mib <= self.allowed_mib and self.most_threads <= MOST_THREADS

    def text(self):
        self.said.seek(0)
        return self.said.read().decode(errors="replace")

    def require_sound(self, sent=()):
        """What holds of every program, whatever it was given. \\p sent: signals that may have ended it."""
        status, text = self.process.poll(), self.text()
        tail = text.strip()[-300:]
        expect(self.most_mib <= self.allowed_mib,
               f"it took {self.most_mib} MiB, where {self.allowed_mib} are expected at most")
        expect(self.most_threads <= MOST_THREADS, f"it made {self.most_threads} threads, {MOST_THREADS} at most expected")
        for word in WORDS_OF_NO_ONE:
            expect(word not in text, f"it speaks of '{word}': {tail}")
        if status is None:
            return
        expect(status >= 0 or -status in sent, f"signal {-status} has ended it: {tail}")
        expect(status not in (134, 139), f"status {status}, that of an abort or a crash: {tail}")
        expect(status == 0 or -status in sent or tail, f"it ended with status {status} and without a word")


def run(words, seconds=20, sent=(), must_end=False, **options):
    """Runs the program to its end, or ends it by SIGTERM where it may mean to go on. Returns its status and words."""
    with Program(words, **options) as program:
        status = program.wait(seconds)
        program.require_sound(sent)
        if status is None:
            expect(not must_end, f"it has not ended after {seconds} s: {program.text().strip()[-300:]}")
            program.process.send_signal(signal.SIGTERM)
            status = program.wait(15)
            expect(status is not None, f"it runs for {seconds} s, and is deaf to SIGTERM")
            program.require_sound((signal.SIGTERM, *sent))
        return status, program.text()


# ---------------------------------------------------------------------------------------------------- cases

CASES = {}  # name: (what is done, whether it is one of the slice, at which time it may run beside others)


def case(name, beside=False, in_slice=False):
    def add(body):
        CASES[name] = (body, in_slice, beside)
        return body
    return add


class Job:
    """`troupe launch` with two members of a world that serves requests without pause."""

    def __init__(self, options=(), environment=None):
        self.folder = pathlib.Path(tempfile.mkdtemp(dir=SCRATCH))
        self.report, self.seats = self.folder / "report", self.folder / "seats"
        self.report.touch()
        self.seats.touch()
        member = f'echo "$TROUPE_JOIN_TOKEN $TROUPE_CONTROL $$" >>"{self.seats}"; exec "$0" "$@"'
        words = [TROUPE, "launch", "-n", "2", "--grace", "5s", *options, "--", "sh", "-c", member, TROUPE, "bench",
                 "process-member", "--backend", "mock"]
        self.launcher = Program(words, environment={"TROUPE_BENCH_REPORT": str(self.report), **(environment or {})})

    def __enter__(self):
        until = time.monotonic() + 120
        while len(self.epochs()) == 0 and self.launcher.wait(0.1) is None and time.monotonic() < until:
            pass
        expect(self.epochs(), "no world served within 120 s: " + self.launcher.text()[-300:])
        self.token, self.control, _ = self.seats.read_text().splitlines()[0].split()
        self.port = int(self.control.rsplit(":", 1)[1])
        return self

    def __exit__(self, *_):
        self.launcher.__exit__()

    def lines(self, kind):
        return [line.split() for line in self.report.read_text().splitlines() if line.startswith(kind + " ")]

    def epochs(self):
        return {line[2] for line in self.lines("good")}

    def members(self):
        return [int(line.split()[2]) for line in self.seats.read_text().splitlines()]

    def require_untouched(self, what):
        """The same two processes still serve the first epoch, and the launcher is what it was."""
        expect(self.launcher.wait(0.5) is None, f"{what} has ended the launcher: " + self.launcher.text()[-300:])
        self.launcher.require_sound()
        expect(self.launcher.most_mib < 256, f"{what}: the launcher has grown to {self.launcher.most_mib} MiB")
        expect(len(self.members()) == 2, f"{what} has had processes started again: " + self.launcher.text()[-300:])
        expect(self.epochs() == {"1"}, f"{what} has led to epochs {sorted(self.epochs())}: " + self.launcher.text()[-300:])
        for kind in ("answered", "wrong", "hung"):
            expect(not self.lines(kind), f"{what}: requests were {kind}: {self.lines(kind)[:2]}")


def frame(kind, length, rest=b""):
    """The header of a frame (processes/transport/frame.hpp), and what follows it."""
    return struct.pack(">2sBBI", b"TR", 2, kind, length) + rest


def listening_ports(pid):
    """TCP ports that a process listens at, and names of its Unix sockets that can be connected to."""
    own = set()
    for entry in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            own.add(os.readlink(entry).removeprefix("socket:[").removesuffix("]"))
    ports = []
    for table in ("tcp", "tcp6"):
        rows = [line.split() for line in pathlib.Path(f"/proc/net/{table}").read_text().splitlines()[1:]]
        ports += [int(row[1].rsplit(":", 1)[1], 16) for row in rows if row[3] == "0A" and row[9] in own]
    rows = [line.split() for line in pathlib.Path("/proc/net/unix").read_text().splitlines()[1:]]
    return ports, [row[7:] for row in rows if row[3] == "00010000" and row[6] in own]


def as_stranger(port, payloads, seconds=2.0, connections=1):
    """Another user connects, says each payload in turn, goes on sending zeros for a while, and reads what comes."""
    child = os.fork()
    if child == 0:
        try:
            if os.getuid() == 0:
                os.setgroups([])
                os.setgid(NOBODY)
                os.setuid(NOBODY)
            for _ in range(connections):
                for payload in payloads:
                    with contextlib.suppress(OSError), socket.socket() as line:
                        line.settimeout(seconds)
                        line.connect(("127.0.0.1", port))
                        line.sendall(payload)
                        until = time.monotonic() + seconds
                        while payload and time.monotonic() < until:
                            line.sendall(bytes(65536))
                        while payload and line.recv(65536):
                            pass
        finally:
            os._exit(0)
    os.waitpid(child, 0)


def all_ports(job):
    found = []
    for pid in (job.launcher.pid, *job.members()):
        ports, names = listening_ports(pid)
        gate = [f"@troupe-meetings-{job.port}", f"@troupe-order-{job.port}"] if pid == job.launcher.pid else [] # docs/security.md
        names = sorted(name for line in names for name in line)
        expect(names == gate, f"process {pid} listens at the Unix sockets {names}, where {gate} is expected")
        found += ports
    expect(found == [job.port], f"the launcher listens at {found}, where the control port {job.port} is expected alone")
    return found


@case("frames/a handshake without payload, and a length of 4 GiB", in_slice=True)
def _():
    with Job() as job:
        for port in all_ports(job):
            as_stranger(port, [frame(2, 0), frame(2, 0xffffffff), frame(4, 0xffffffff), frame(4, 0), frame(3, 0x7fffffff)])
        job.require_untouched("a frame of a stranger")


@case("frames/garbage and silence at the gate of the order and at the meetings", in_slice=True)
def _():
    with Job() as job:
        for user, service in itertools.product((NOBODY, os.getuid()), ("order", "meetings")):
            name = f"\0troupe-{service}-{job.port}"
            child = os.fork()
            if child == 0:
                with contextlib.suppress(OSError):
                    if os.getuid() == 0 and user != 0:
                        os.setgroups([])
                        os.setgid(user)
                        os.setuid(user)
                held = []
                for payload in (os.urandom(16), os.urandom(4096), b"", None) * 100:
                    line = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
                    with contextlib.suppress(OSError):
                        line.connect(name)
                        if payload is not None:
                            line.send(payload)
                        held.append(line)
                time.sleep(0.5)
                os._exit(0 if held else 1)
            _, status = os.waitpid(child, 0)
            expect(status == 0, f"user {user} could not connect even once")
        job.require_untouched("strangers at the gate")


@case("frames/garbage, and a thousand half-open connections that do not keep a legitimate process out")
def _():
    with Job() as job:
        as_stranger(job.port, [os.urandom(4096), b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01", b"TR\x02\x02"], 0.05, 75)
        held, opened, most = [], 0, resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 4096), most))

        def hold(count):
            nonlocal opened
            for _ in range(count):
                with contextlib.suppress(OSError):
                    held.append(socket.create_connection(("127.0.0.1", job.port), 2))
                    held[-1].send(b"TR\x02\x02"[:opened % 5])
                    opened += 1
                if len(held) > 1000:
                    held.pop(0).close()

        hold(1000)
        time.sleep(6)
        job.require_untouched("a thousand half-open connections")
        began = time.monotonic()
        os.kill(job.members()[0], signal.SIGKILL)
        served = set()
        while len(served) < 2 and time.monotonic() < began + 60:
            hold(20)  # there are always newer ones than the process that joins
            time.sleep(0.01)
            served = {line[1] for line in job.lines("good") if line[2:5:2] == ["2", "2"]}  # epoch 2, a world of two
        expect(len(served) == 2, "a process could not join within 60 s: " + job.launcher.text()[-300:])
        print(f"    {opened} connections; both processes served again after {time.monotonic() - began:.2f} s", flush=True)
        expect(opened > 1000, f"only {opened} connections could be opened")
        expect(job.launcher.wait(0.5) is None, "the launcher has ended: " + job.launcher.text()[-300:])
        job.launcher.require_sound()
        expect(job.launcher.most_mib < 256, f"the launcher has grown to {job.launcher.most_mib} MiB")
        said = len(job.launcher.text().splitlines())
        expect(said < 400, f"strangers made the launcher write {said} lines")


def storm(frames):
    if not STORM:
        raise Skipped("--storm does not name troupe_frame_storm")
    with Job() as job:
        words = [STORM, str(frames), "7", "64", job.control, str(job.launcher.pid)]
        ended = subprocess.run(words, env={**os.environ, "TROUPE_JOIN_TOKEN": job.token}, capture_output=True, text=True,
                               timeout=3600, check=False)
        print("    " + ended.stdout.strip(), flush=True)
        expect(ended.returncode == 0, f"the storm failed: {ended.stdout}{ended.stderr}")
        job.require_untouched(f"a storm of {frames} frames")


@case("frames/a storm of 9,000 frames", in_slice=True)
def _():
    storm(9_000)


@case("frames/a storm of a million frames")
def _():
    storm(1_000_000)


@case("tokens/a wrong one evicts nobody", in_slice=True)
def _():
    with Job() as job:
        for token in ("f" * 64, job.token[:-1] + ("0" if job.token[-1] != "0" else "1"), job.token + "0"):
            for name in ("0", "1"):
                status, text = run([TROUPE, "bench", "process-member", "--backend", "mock"], 60,
                                   environment={"TROUPE_CONTROL": job.control, "TROUPE_JOIN_TOKEN": token,
                                                "TROUPE_PROCESS": name, "TROUPE_PLACE": name})
                expect(status != 0 and "join token" in text, f"status {status}, and not a word of the token: {text[-300:]}")
                expect(token not in text, "the token is printed")
        job.require_untouched("a wrong token")


@case("tokens/empty, short and long ones are refused at once", in_slice=True)
def _():
    for token in ("", "short", "x" * 15, "x" * 1025):
        status, text = run([TROUPE, "controller", "-n", "1"], 10, environment={"TROUPE_JOIN_TOKEN": token})
        expect(status == 1 and "token" in text.lower(), f"a token of {len(token)}: status {status}: {text[-300:]}")


# ---------------------------------------------------------------------------------------------------- signals

def after_signal(words, which, statuses, seconds=10.0, delay=1.0, environment=None):
    with Program(words, environment=environment) as program:
        until = time.monotonic() + 60
        while not program.heeds(which) and program.process.poll() is None and time.monotonic() < until:
            time.sleep(0.02)
        program.wait(delay)
        expect(program.process.poll() is None, f"it had ended before: {program.text()[-300:]}")
        program.process.send_signal(which)
        status = program.wait(seconds)
        program.require_sound((which,))
        expect(status in statuses, f"{which.name}: status {status} after {seconds} s, one of {statuses} expected: "
                                   f"{program.text().strip()[-300:]}")
        return program.text()


DEMO = ("demo", "--backend", "mock", "--ranks", "2", "--requests", "100000000")
for _which, _status in ((signal.SIGTERM, 143), (signal.SIGINT, 130)):
    @case(f"signals/demo ends on {_which.name} with its summary", in_slice=_which == signal.SIGTERM)
    def _(which=_which, status=_status):
        text = after_signal([TROUPE, *DEMO], which, (status,))
        expect("answered" in text, f"no summary: {text[-300:]}")

    @case(f"signals/launch ends on {_which.name}, and with it programs that leave the mask alone", in_slice=True)
    def _(which=_which):
        after_signal([TROUPE, "launch", "-n", "2", "--", "sleep", "1000"], which, (0, 128 + which))

    @case(f"signals/controller ends on {_which.name}")
    def _(which=_which):
        after_signal([TROUPE, "controller", "-n", "2"], which, (0, 1, 128 + which),
                     environment={"TROUPE_JOIN_TOKEN": "f" * 64})


@case("signals/launched programs start with the launcher's mask", in_slice=True)
def _():
    own = re.search(r"SigBlk:\s+(\w+)", pathlib.Path("/proc/self/status").read_text())[1]
    _, text = run([TROUPE, "launch", "-n", "1", "--no-prefix", "--", "grep", "SigBlk", "/proc/self/status"])
    expect(own in text, f"blocked are: {text.strip()[-200:]}; expected: {own}")


@case("signals/a start that fails ends at once, by itself or on SIGTERM", in_slice=True)
def _():
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen()
        port = str(held.getsockname()[1])
        for words in (["launch", "-n", "1", "--port", port, "--", "true"],
                      ["launch", "-n", "1", "--certs", "no-such-folder", "--", "true"],
                      ["launch", "-n", "1", "--bind", "192.0.2.1", "--", "true"],
                      ["controller", "-n", "1", "--port", port], ["controller", "-n", "1", "--certs", "no-such-folder"],
                      ["controller", "-n", "1", "--bind", "192.0.2.1"]):
            with Program([TROUPE, *words], environment={"TROUPE_JOIN_TOKEN": "f" * 64}) as program:
                status = program.wait(10)
                program.require_sound()
                expect(status not in (None, 0), f"{' '.join(words)}: status {status} after 10 s")


# ---------------------------------------------------------------------------------------------------- limits

SHORT = {"demo": ("demo", "--backend", "mock", "--ranks", "2", "--requests", "200"), "doctor": ("doctor",),
         "config": ("config",), "simulate": ("simulate", "--seeds", "1..2"), "certs": ("certs", "--out", "certs-{unique}"),
         "launch": ("launch", "-n", "1", "--no-respawn", "--", "true"), "controller": ("controller", "-n", "1"),
         "conform": ("conform", "--backend", "mock", "--ranks", "2", "--only", "barrier"),
         "trace": ("trace", "/dev/null"), "plot": ("plot", "/dev/null", "-"), "report": ("report", "/"),
         "top": ("top", "--once", "--url", "http://127.0.0.1:1"),
         "tune": ("tune", "--backend", "mock", "--ranks", "2", "--quick", "--rounds", "1", "--only", "profile"),
         "stress order": ("stress", "order", "--backend", "mock", "--ranks", "2", "--seconds", "1")}
ENDS = ("launch", "config", "doctor", "certs")  # with every option: what they do takes a moment
_unique = iter(range(1 << 30))


def short_words(command):
    words = SHORT.get(command, (*command.split(), "--backend", "mock", "--ranks", "2"))
    return [word.replace("{unique}", str(next(_unique))) for word in words]


def with_token(command):
    return {"TROUPE_JOIN_TOKEN": "f" * 64} if command == "controller" else {}


@functools.cache
def program_for_any_user():
    """The program where every user may run it: a copy, if its own folders are closed to others, as /root is."""
    own = pathlib.Path(TROUPE)
    if all(folder.stat().st_mode & 0o001 for folder in own.parents):
        return TROUPE
    copies = SCRATCH / "bin"
    copies.mkdir()
    for one in own.parent.glob("troupe*"):
        if one.is_file() and (one.name == own.name or one.name.startswith("troupe-")):
            shutil.copy(one, copies)
    return str(copies / own.name)


for _name in ("demo", "simulate", "launch", "controller", "doctor", "config", "conform"):
    for _mib in (64, 256, 512, 1000, 4000):
        @case(f"limits/{_name} in {_mib} MiB of addresses", in_slice=_mib == 512 and _name in ("demo", "launch"))
        def _(name=_name, mib=_mib):
            run([TROUPE, *short_words(name)], 15, limits={resource.RLIMIT_AS: mib << 20}, environment=with_token(name))

    for _files in (4, 8, 16, 32):
        @case(f"limits/{_name} with {_files} descriptors", beside=True, in_slice=_files == 16 and _name == "launch")
        def _(name=_name, files=_files):
            run([TROUPE, *short_words(name)], 15, limits={resource.RLIMIT_NOFILE: files}, environment=with_token(name))

    for _threads in (1, 4, 8, 16):
        @case(f"limits/{_name} with {_threads} threads", in_slice=_threads == 8 and _name == "demo")
        def _(name=_name, threads=_threads):
            if os.getuid() != 0:
                raise Skipped("only root can run it as a user whose threads are counted from none")
            run([program_for_any_user(), *short_words(name)], 15, limits={resource.RLIMIT_NPROC: threads},
                user=NOBODY + 1 + threads, environment=with_token(name))


# ---------------------------------------------------------------------------------------------------- numbers and files

@functools.cache
def help_of(words):
    ended = subprocess.run([TROUPE, *words, "--help"], capture_output=True, text=True, timeout=60, check=False)
    expect(ended.returncode == 0, f"{' '.join(words)} --help: status {ended.returncode}")
    return ended.stdout


def subcommands(words=()):
    """All that have no further ones, from what --help says."""
    _, _, section = help_of(words).partition("\nSubcommands:\n")  # with the programs of their own after them
    names = [match[1] for match in re.finditer(r"^  ([\w-]+)(?:  |$)", section, re.MULTILINE)]
    if not names:
        yield " ".join(words)
    for name in names:
        yield from subcommands((*words, name))


def options_of(command):
    """Long names (a short one where there is no long one) with what they take."""
    found = []
    for line in help_of(tuple(command.split())).splitlines():
        if match := re.match(r"^  (-[\w-]+(?:,--?[\w-]+)*)(?:\{\w+\})? +([^a-z\s]\S*|yes\|no)?", line):
            name = match[1].split(",")[-1] if "--" in match[1] else match[1]
            if match[2] and name != "--help":
                found.append((name, match[2]))
    return found


def words_with(command, option, value):
    words = [word for word in short_words(command)]
    tail = words[words.index("--"):] if "--" in words else []
    words = words[:len(words) - len(tail)]
    for given in [at for at, word in enumerate(words) if word == option]:
        del words[given:given + 2]
    return [TROUPE, *words, f"{option}={value}" if option.startswith("--") else option + value, *tail]


def try_values(command, option, values, seconds, must_end):
    # Memory of mock devices is this process's: where much was asked for, and where 1 GiB of host memory is the default.
    much = option == "--maxbytes" or command.startswith("bench host")
    most_mib = MOST_MIB + (MOST_DEVICES_MIB if much else 0)
    for value in values:
        try:
            run(words_with(command, option, value), seconds, must_end=must_end, environment=with_token(command),
                most_mib=most_mib)
        except Failed as failure:
            shown = value if len(value) < 40 else value[:8] + f"… ({len(value)} characters)"
            raise Failed(f"{option} '{shown}': {failure}") from None


def not_files():
    """Things that an option that names a file may be given. Each call makes its own: where one program reads a FIFO that
    another writes, the end of the reader ends the writer (SIGPIPE)."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="files-", dir=SCRATCH))
    folder.chmod(0o755)
    fifo, closed, loop, huge = (folder / name for name in ("fifo", "closed", "loop", "huge"))
    os.mkfifo(fifo)
    closed.touch(0o000)
    loop.symlink_to(loop)
    with open(huge, "wb") as made:
        made.truncate(1 << 40)
    return [str(one) for one in (fifo, "/dev/zero", "/dev/full", "/proc/self/mem", folder, closed, loop, huge,
                                 folder / "not" / "there", "x" * 5000)]


TAKES_FILE = re.compile(r"config|out|path|file|events|record|trace|certs|report|json|--nccl$|-ca$|-key$|-certificate$")


def add_option_cases():
    shared = {name for name, _ in options_of("config")}
    for command in subcommands():
        for option, takes in options_of(command):
            if command not in ("config", "demo") and option in shared:
                continue  # the settings are the same everywhere; demo uses them
            seconds = 4 if command.startswith(("bench", "tune", "stress", "top", "conform")) else 8
            few = command in ("launch", "controller", "simulate") or (command == "demo" and option not in shared)
            if "PATH" not in takes and "FOLDER" not in takes and "FILE" not in takes:
                @case(f"numbers/{command} {option}", beside=True, in_slice=few)
                def _(command=command, option=option, seconds=seconds):
                    try_values(command, option, FEW_NUMBERS if SLICE else NUMBERS, seconds, command in ENDS)
            if TAKES_FILE.search(option):
                @case(f"files/{command} {option}", beside=True, in_slice=few or command == "config")
                def _(command=command, option=option, seconds=seconds):
                    if option in ("--out", "--record", "--trace", "--events", "--json"):
                        values = [one for one in not_files() if one not in ("/proc/self/mem",)]
                        values = [one for one in values if not one.endswith("/huge")]  # it would be overwritten
                    else:
                        values = not_files()
                    try_values(command, option, values, seconds, command in ENDS or command == "demo")


@case("files/TROUPE_CONFIG names what is not a file", beside=True, in_slice=True)
def _():
    for value in not_files():
        for command in ("config", "demo"):
            run([TROUPE, *short_words(command)], 8, must_end=True, environment={"TROUPE_CONFIG": value})


@case("files/output that nobody takes", beside=True, in_slice=True)
def _():
    for command in ("config", "demo", "doctor"):
        reading, writing = os.pipe()
        os.close(reading)
        ended = subprocess.run([TROUPE, *short_words(command)], stdout=writing, stderr=subprocess.PIPE, timeout=60,
                               check=False)
        os.close(writing)
        expect(ended.returncode in (0, 1, -signal.SIGPIPE), f"{command}: status {ended.returncode}")


# ---------------------------------------------------------------------------------------------------- pauses

def pause(pids, seconds):
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(seconds)
    for pid in pids:
        os.kill(pid, signal.SIGCONT)


for _seconds in (0.5, 1.5, 2.5, 5.0, 10.0):
    @case(f"pauses/of everything for {_seconds} s", in_slice=_seconds == 2.5)
    def _(seconds=_seconds):
        with Job() as job:
            pause([job.launcher.pid, *job.members()], seconds)
            time.sleep(4)
            job.require_untouched(f"a pause of everything for {seconds} s")

    @case(f"pauses/of the launcher for {_seconds} s")
    def _(seconds=_seconds):
        with Job() as job:
            pause([job.launcher.pid], seconds)
            time.sleep(4)
            job.require_untouched(f"a pause of the launcher for {seconds} s")

    @case(f"pauses/of the demo for {_seconds} s")
    def _(seconds=_seconds):
        with Program([TROUPE, "demo", "--backend", "mock", "--ranks", "2", "--requests", "200000"]) as program:
            program.wait(0.5)
            if program.process.poll() is None:
                pause([program.pid], seconds)
            status = program.wait(120)
            program.require_sound()
            expect(status == 0, f"status {status}: {program.text()[-300:]}")


# ---------------------------------------------------------------------------------------------------- the script

def play(name):
    started = time.monotonic()
    try:
        CASES[name][0]()
        outcome, why = "ok", ""
    except Skipped as reason:
        outcome, why = "skipped", f": {reason}"
    except (Failed, subprocess.TimeoutExpired, OSError) as failure:
        outcome, why = "FAILED", f": {failure}"
    print(f"{outcome:8}{time.monotonic() - started:6.1f} s  {name}{why}", flush=True)
    return outcome


def main():
    global TROUPE, STORM, SCRATCH, SLICE
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--troupe", required=True, help="the program")
    parser.add_argument("--storm", help="troupe_frame_storm, for the storms of frames")
    parser.add_argument("--slice", action="store_true", help="a part of all cases, and fewer values: minutes")
    parser.add_argument("--list", action="store_true", help="name the cases, and play none")
    parser.add_argument("--beside", type=int, default=max(2, (os.cpu_count() or 2) // 2), help="programs at a time")
    parser.add_argument("cases", nargs="*", help="patterns of names, as 'numbers/launch *' (default: all)")
    options = parser.parse_args()
    TROUPE, SLICE = str(pathlib.Path(options.troupe).resolve()), options.slice
    STORM = str(pathlib.Path(options.storm).resolve()) if options.storm else None
    with tempfile.TemporaryDirectory(prefix="troupe-stranger-") as folder:
        SCRATCH = pathlib.Path(folder)
        os.chmod(SCRATCH, 0o777)
        if not options.cases or any(wanted[0] in "*nf" for wanted in options.cases):  # numbers/ and files/
            add_option_cases()
        names = [name for name, (_, in_slice, _) in CASES.items() if in_slice or not options.slice]
        if options.cases:
            names = [name for name in names if any(fnmatch.fnmatch(name, wanted) for wanted in options.cases)]
        if options.list:
            print("\n".join(names))
            return 0
        alone = [name for name in names if not CASES[name][2]]
        with concurrent.futures.ThreadPoolExecutor(options.beside) as pool:
            outcomes = list(pool.map(play, (name for name in names if CASES[name][2])))
        outcomes += [play(name) for name in alone]
    failed, skipped = outcomes.count("FAILED"), outcomes.count("skipped")
    print(f"{len(outcomes) - failed - skipped} passed, {failed} failed, {skipped} skipped")
    return 1 if failed or not outcomes else 0


if __name__ == "__main__":
    sys.exit(main())
