"""Shared by troupe's programs in Python: errors, files, other programs, tables, the progress line and main().

It is imported from the folder of the programs: in the build tree as installed, `troupe-NAME` is a link into it.
"""

from __future__ import annotations

import argparse
import io
import json
import math
import os
import pathlib
import re
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
import typing


class Problem(Exception):
    """An error for the user: what, why and the remedy."""


def percentile(values: list, fraction: float) -> typing.Any:
    """Returns the value below which `fraction` of `values` lie; 0 if there are no values."""
    return sorted(values)[math.floor(fraction * (len(values) - 1) + 0.5)] if values else 0


def median(values: list) -> typing.Any:
    return percentile(values, 0.5)


def checked_path(path: pathlib.Path | str) -> pathlib.Path:
    """Returns the file that a link leads to, or `path`, after a check that save() can write it."""
    at = pathlib.Path(os.path.realpath(path))
    remedy = "name a file in a folder that you may write to"
    if at.exists() and not at.is_file():
        raise Problem(f"invalid_argument: cannot write {at}: it exists and is not a regular file: {remedy}")
    part = at.with_name(f"{at.name}.{os.getpid()}.part")
    try:
        part.touch()
        part.unlink()
    except OSError as why:
        raise Problem(f"invalid_argument: cannot write {at}: {why.strerror}: {remedy}") from None
    return at


def save(path: pathlib.Path | str, text: str) -> None:
    """Writes the file completely or not at all; "-" is standard output."""
    if path == "-":
        sys.stdout.write(text)
        return
    at = checked_path(path)
    part = at.with_name(f"{at.name}.{os.getpid()}.part")
    try:
        with part.open("w", encoding="utf-8", errors="replace") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        part.replace(at)
    except OSError as why:
        part.unlink(missing_ok=True)
        raise Problem(f"invalid_argument: cannot write {at}: {why.strerror}: name a file in a folder that you may "
                      "write to") from None


def read_regular_file(what: str, path: str, remedy: str) -> bytes:
    """Returns the content. Never blocks on a pipe or a device."""
    try:
        mode = os.stat(path).st_mode
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            raise OSError(0, "it is a pipe, a socket or a device, not a regular file")
        return pathlib.Path(path).read_bytes()
    except OSError as why:
        raise Problem(f"invalid_argument: {what} {path} cannot be read ({why.strerror}): {remedy}") from None


def find_program(name: str) -> str:
    """Returns the path of one of troupe's programs: beside this one, otherwise the first in PATH."""
    folder = os.path.dirname(os.path.abspath(sys.argv[0]))
    found = shutil.which(name, path=folder) or shutil.which(name)
    if not found:
        raise Problem(f"missing: the program {name} is neither in {folder} nor in PATH: build the target {name}, or "
                      "install troupe's program package")
    return found


def run_to_end(words: list[str]) -> subprocess.CompletedProcess:
    """Runs a program without input and captures its output. Ctrl-C ends it too."""
    return subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8", errors="replace",
                          check=False)


def last_words(done: subprocess.CompletedProcess) -> str:
    """Returns the last line of standard error that is not empty or, if there is none, how the program ended."""
    if said := [line for line in re.split("[\r\n]", done.stderr) if line.strip()]:
        return said[-1].rstrip()
    if done.returncode >= 0:
        return f"it ended with exit status {done.returncode}"
    number = -done.returncode
    known = number in [int(one) for one in signal.Signals]
    return f"it was ended by signal {number}" + (f" ({signal.Signals(number).name})" if known else "")


def whole_number(least: int, most: int) -> typing.Callable[[str], int]:
    def number(text: str) -> int:
        if not text.isdecimal() or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"Value {text} not in range {least} to {most}")
        return int(text)

    return number


class Settings:
    """The options of settings, which every bench takes: checked by `troupe config`, and passed on."""

    def __init__(self, words: list[str]):
        """Ends this program as `troupe config` does if that does not accept `words`."""
        self.given: list[str] = []  # each as --option=value
        rest = list(words)
        while rest:
            word = rest.pop(0)
            self.given.append(f"{word}={rest.pop(0)}" if word.startswith("--") and "=" not in word and rest else word)
        if any(word.split("=")[0] == "--json" for word in self.given):
            raise Problem("unexpected argument --json, which only a bench and `troupe config` have")
        done = run_to_end([find_program("troupe"), "config", "--json", *self.given])
        if done.returncode != 0:
            sys.stderr.write(done.stderr)
            sys.exit(done.returncode)
        self.values: dict[str, typing.Any] = json.loads(done.stdout)  # in effect, by name

    def without(self, options: typing.Iterable[str]) -> list[str]:
        return [word for word in self.given if word.split("=")[0] not in options]


def parse_with_settings(parser: argparse.ArgumentParser, words: list[str]) -> tuple[argparse.Namespace, Settings]:
    """Parses the own options of a program. All others are options of settings.

    Names follow --only, separated by commas or blanks. The first may begin with dashes, which argparse would refuse.
    """
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    if {"-h", "--help"} & set(words):
        known = run_to_end([find_program("troupe"), "config", "--help"]).stdout.partition("\n\n\n")[2]
        parser.epilog = f"--config PATH names a settings file, and these options override it.\n\n{known}"
    joined: list[str] = []
    for word in words:
        if joined[-1:] == ["--only"]:
            joined[-1] += f"={word}"
        elif joined and joined[-1].startswith("--only=") and not word.startswith("-"):
            joined[-1] += f",{word}"
        else:
            joined.append(word)
    options, rest = parser.parse_known_args(joined)
    options.only = [name for names in options.only for name in names.split(",") if name]
    return options, Settings(rest)


class Table:
    """Prints right-aligned columns in the format of nccl-tests. Longer cells are not cut."""

    def __init__(self, *columns: tuple[str, str, int]):
        """`columns` are titles, units and widths."""
        self.widths = [width for _, _, width in columns]
        self.heading = [[title for title, _, _ in columns], [unit for _, unit, _ in columns]]

    def print_heading(self) -> None:
        for cells in self.heading:
            print("#" + " ".join(f"{cell:>{width}}" for cell, width in zip(cells, self.widths)), flush=True)

    def print_row(self, *cells: str) -> None:
        print("", *(f"{cell:>{width}}" for cell, width in zip(cells, self.widths)), flush=True)


class Progress:
    """A line on standard error with the present step and the time left.

    It is rewritten on a terminal. Elsewhere a line is printed after two seconds and then every ten, so that a long
    command is never silent.
    """

    def __init__(self, steps: int):
        self.steps, self.done, self.what, self.began = steps, 0, "", time.monotonic()
        self.terminal, self.ended = sys.stderr.isatty(), threading.Event()

    def __enter__(self) -> Progress:
        if not self.terminal:
            threading.Thread(target=self.repeat, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()
        self.ended.set()

    def repeat(self) -> None:
        seconds = 2
        while not self.ended.wait(seconds):
            seconds = 10
            if self.what:
                print(self.line(), file=sys.stderr, flush=True)

    def line(self) -> str:
        if not self.done:
            return self.what
        left = round((time.monotonic() - self.began) * max(0, self.steps - self.done) / self.done)
        return f"{self.what}, {left // 60}:{left % 60:02} left"

    def show(self, what: str) -> None:
        self.what = what
        if self.terminal:
            print(f"\r{self.line()}\033[K", end="", file=sys.stderr, flush=True)

    def clear(self) -> None:
        """Removes the line, before something else is printed."""
        if self.terminal and self.what:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
        self.what = ""


def start(programs: dict[str, typing.Callable[[list[str]], int]]) -> int:
    """Runs the one of `programs` whose name this file was started with, troupe-NAME. Returns the exit status."""
    name, words = os.path.basename(sys.argv[0]).removeprefix("troupe-"), sys.argv[1:]
    if words[:1] == [name]:  # `troupe plot ...` starts troupe-plot with all its arguments, "plot" included
        words = words[1:]
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="surrogateescape")  # A file's name may contain any bytes.
    try:
        if name not in programs:
            names = " or ".join(f"troupe-{one}" for one in programs)
            raise Problem(f"unknown program '{name}': start it as {names}")
        try:
            return programs[name](words)
        finally:  # what is flushed later can no longer be caught
            print(end="", flush=True)
    except Problem as why:
        print(f"troupe: {why}", file=sys.stderr)
    except BrokenPipeError:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # pylint: disable=consider-using-with
    except (OSError, MemoryError) as why:
        print(f"troupe: {why}", file=sys.stderr)
    except KeyboardInterrupt:
        return 130
    return 1
