"""Reads from a build how each source is compiled, and which of troupe's files each source includes."""
import concurrent.futures
import functools
import hashlib
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

from parts.packages import LAYERS

FOLDERS = (*LAYERS, "tests", "examples")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)


def add_options(options):
    """Adds the options of every check that needs a build."""
    options.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent.parent.parent,
                         help="the tree to check (default: this one)")
    options.add_argument("--preset", default="edit",
                         help="the build whose flags are used; it must compile each source by itself (default: edit)")
    options.add_argument("--jobs", type=int, default=os.cpu_count(), help="jobs at a time (default: one per core)")


class CompileDatabase:
    def __init__(self, root, preset):
        """Configures the preset if that was not done before."""
        self.root = root.resolve()
        self.folder = self.root / "build" / preset
        file = self.folder / "compile_commands.json"
        if not file.exists():
            told = subprocess.run(["cmake", "--preset", preset], cwd=self.root, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True, check=False)
            if told.returncode != 0:
                sys.exit(f"{told.stdout}\nthe preset {preset} cannot be configured")
        self.entries = {}
        for entry in json.loads(file.read_text(encoding="utf-8")):
            path = pathlib.Path(os.path.normpath(pathlib.Path(entry["directory"]) / entry["file"]))
            if path.suffix == ".cu":  # nvcc's; clang 14 cannot read the headers of CUDA 13
                continue
            if path.suffix == ".c":  # the rules are those of C++
                continue
            if path.is_relative_to(self.root) and path.relative_to(self.root).parts[0] in FOLDERS:
                self.entries.setdefault(path, entry)  # keeps the library's entry if a test compiles the file again

    def flags(self, path):
        """Returns the command that compiles a source, without its input and output."""
        entry = self.entries[path]
        words = entry.get("arguments") or shlex.split(entry["command"])
        kept = []
        for word, before in zip(words, [None, *words]):
            if word in ("-o", "-c") or before == "-o" or word == entry["file"]:
                continue
            kept.append(word)
        return kept

    def nearest(self, path):
        """Returns the source whose flags are used for this file: the one that shares the most folders with it, chosen
        among the sources that include it, if there are any."""
        def shared(source):
            return path in self.closure(source), len(os.path.commonpath([source, path]))
        return max(sorted(self.entries), key=shared)

    @functools.cache
    def included(self, path):
        """Returns the files of the tree that a file includes directly."""
        found = []
        for bracket, name in INCLUDE.findall(path.read_text(encoding="utf-8", errors="replace")):
            if name.startswith("troupe/"):
                places = [self.root / name[len("troupe/"):], self.root / "runtime" / name[len("troupe/"):]]
            elif bracket == '"':
                places = [path.parent / name, *(self.root / folder / name for folder in ("tests", "program"))]
            else:
                places = []
            found += [pathlib.Path(os.path.normpath(place)) for place in places if place.is_file()][:1]
        return found

    @functools.cache
    def closure(self, path):
        """Returns a file and every file of the tree that it includes, directly or indirectly."""
        seen, waiting = set(), [path]
        while waiting:
            one = waiting.pop()
            if one not in seen:
                seen.add(one)
                waiting += self.included(one)
        return seen


class Stamps:
    """Remembers clean files by a hash of their inputs, so that a check repeats only what has changed."""

    def __init__(self, folder, *makings):
        self.folder = folder
        self.makings = makings

    def file(self, *makings):
        summed = hashlib.sha256()
        for making in (*self.makings, *makings):
            data = making.read_bytes() if isinstance(making, pathlib.Path) else str(making).encode()
            summed.update(hashlib.sha256(data).digest())
        return self.folder / summed.hexdigest()

    def knows(self, stamp):
        return stamp.exists()

    def keep(self, stamp):
        self.folder.mkdir(parents=True, exist_ok=True)
        stamp.touch()


def in_parallel(jobs, work, items):
    """Yields the results of work(item), in the order of the items."""
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        yield from pool.map(work, items)
