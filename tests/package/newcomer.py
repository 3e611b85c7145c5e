#!/usr/bin/env python3
"""Does what docs/quick-start.md and README.md tell a newcomer to do, word for word, in a folder with nothing in it.

The documents say themselves what is run: the block after a line
    <!-- newcomer: run -->       by the newcomer, in one shell, one block after the other
    <!-- newcomer: install -->   before that; with --prefix, which names an installed troupe, it is left out
    <!-- newcomer: gpu -->       on machines with a GPU; never run here
A block of text (```text) behind a block that is run is what that block is promised to print: each of its lines, in their
order, among the lines printed. Times, counts of requests and of what a machine lacks may differ. Of README.md there are
run: its C++ program, which is promised to print what the last indented line behind it says; and each "troupe COMMAND" it
shows, with --help. No GPU is seen by any of it.
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BLOCK = re.compile(r"(?:^<!-- newcomer: (?P<who>\w+) -->\n)?^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
MARKER = re.compile(r"^<!-- newcomer: .* -->$", re.MULTILINE)
END = "@@ the newcomer has done step "


class Broken(Exception):
    """A document tells what does not come true."""


class Step:
    def __init__(self, who: str, commands: str, line: int):
        self.who, self.commands, self.line = who, commands, line
        self.promised: list[str] = []


def steps_of(document: str) -> list[Step]:
    steps: list[Step] = []
    latest = None  # the block that a promise belongs to
    marked = 0
    for block in BLOCK.finditer(document):
        if block["who"]:
            marked += 1
            if block["who"] not in ("run", "install", "gpu"):
                raise Broken(f"'newcomer: {block['who']}' is none of run, install, gpu")
            latest = Step(block["who"], block["text"], document.count("\n", 0, block.start()) + 1)
            steps.append(latest)
        elif block["language"] == "text" and latest:
            latest.promised += block["text"].splitlines()
        else:
            latest = None
    if marked != len(MARKER.findall(document)):
        raise Broken("a line <!-- newcomer: ... --> has no block of ``` right behind it")
    return steps


def general(line: str) -> str:
    """What is promised of a line whoever runs it, and whenever."""
    line = re.sub(r"\b\d+ us\b", "N us", line.strip())
    line = re.sub(r"\banswered (\d+)/\1\b", "answered all", line)
    return re.sub(r"\b\d+ missing\b", "N missing", line)


def check_promise(promised: list[str], printed: str, where: str) -> None:
    left = [general(line) for line in printed.splitlines()]
    for line in promised:
        if general(line) not in left:
            raise Broken(f"{where} promises\n    {line}\nbut there came\n{printed}")
        left = left[left.index(general(line)) + 1:]


def environment(home: pathlib.Path, prefix: pathlib.Path | None) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TROUPE_", "NCCL_"))}
    kept.setdefault("CCACHE_DIR", str(pathlib.Path(os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache"))) / "ccache"))
    kept |= {"HOME": str(home), "CUDA_VISIBLE_DEVICES": ""}
    if prefix:
        kept["TROUPE_PREFIX"] = str(prefix)
        shared = [str(file.parent) for file in prefix.rglob("libtroupe.so")]
        if shared:  # not where the loader looks
            kept["LD_LIBRARY_PATH"] = ":".join([*shared, *filter(None, [kept.get("LD_LIBRARY_PATH")])])
    return kept


def run(steps: list[Step], folder: pathlib.Path, surroundings: dict[str, str], name: str) -> tuple[str, pathlib.Path]:
    """Runs them in one shell. Returns TROUPE_PREFIX and the folder that the shell was in at the end."""
    script = "set -euo pipefail\n" + "".join(f"{step.commands}\necho; echo '{END}{i}'\n" for i, step in enumerate(steps))
    script += 'printf "%s\\n%s\\n" "${TROUPE_PREFIX-}" "$PWD"\n'
    done = subprocess.run(["bash", "-c", script], cwd=folder, env=surroundings, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", check=False)
    said = re.split(rf"^{END}\d+\n", done.stdout, flags=re.MULTILINE)
    for step, printed in zip(steps, said):
        print(f"== {name}:{step.line}\n{step.commands}-- printed:\n{printed}")
        if done.returncode == 0 or len(said) > steps.index(step) + 1:
            check_promise(step.promised, printed, f"{name}:{step.line}")
    if done.returncode != 0:
        failed = steps[min(len(said), len(steps)) - 1]
        raise Broken(f"the commands of {name}:{failed.line} end with status {done.returncode}")
    prefix, last = said[-1].splitlines()
    return prefix, pathlib.Path(last)


def check_readme(text: str, folder: pathlib.Path, prefix: str, surroundings: dict[str, str]) -> None:
    program = re.search(r"^```cpp\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    if not program:
        raise Broken("README.md has no C++ program")
    promise = re.search(r"^    \$ [^\n]*\n((?:    [^\n]*\n)+)", text[program.end():], re.MULTILINE)
    if not promise:
        raise Broken("README.md does not show what its program prints: an indented line '$ PROGRAM' and the lines behind it")
    source, built = folder / "all_reduce.cpp", folder / "build"
    if source.read_text(encoding="utf-8") != program[1]:  # else the quick start has built it
        source.write_text(program[1], encoding="utf-8")
        subprocess.run(["cmake", "--build", built], env=surroundings, check=True)
    printed = subprocess.run([built / "all_reduce"], env=surroundings, text=True, stdout=subprocess.PIPE, check=True).stdout
    check_promise(promise[1].splitlines(), printed, "README.md")
    print(f"== README.md: its program\n{printed}")

    commands = sorted(set(re.findall(r"^    troupe ((?:[a-z_]+(?:-[a-z]+)* )*[a-z_]+(?:-[a-z]+)*)\b", text, re.MULTILINE)))
    if not commands:
        raise Broken("README.md shows no command of the program troupe")
    for command in commands:
        helped = subprocess.run([f"{prefix}/bin/troupe", *command.split(), "--help"], env=surroundings, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        if helped.returncode != 0:
            raise Broken(f"README.md shows 'troupe {command}', which says\n{helped.stdout}")
    print(f"== README.md: troupe {', '.join(commands)}")
    for tool in sorted(set(re.findall(r"\btools/[a-z-]+\b", text))):
        if not os.access(ROOT / tool, os.X_OK):
            raise Broken(f"README.md names {tool}, which is not there")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prefix", type=pathlib.Path, help="where troupe is installed; without it the newcomer installs it, "
                        "from a clone of what is committed here")
    parser.add_argument("--work", type=pathlib.Path, help="the newcomer's folder, which is emptied (default: a temporary one)")
    parser.add_argument("--quick-start", type=pathlib.Path, default=ROOT / "docs/quick-start.md")
    parser.add_argument("--readme", type=pathlib.Path, default=ROOT / "README.md")
    options = parser.parse_args()

    if options.work:
        shutil.rmtree(options.work, ignore_errors=True)
        options.work.mkdir(parents=True)
    home = options.work.resolve() if options.work else pathlib.Path(tempfile.mkdtemp(prefix="troupe-newcomer-"))
    try:
        steps = steps_of(options.quick_start.read_text(encoding="utf-8"))
        wanted = ("run",) if options.prefix else ("install", "run")
        steps = [step for step in steps if step.who in wanted]
        if not any(step.who == "run" for step in steps):
            raise Broken(f"{options.quick_start} has no block that a newcomer runs: <!-- newcomer: run -->")
        if not any(step.promised for step in steps):
            raise Broken(f"{options.quick_start} promises nothing: a block of ```text behind one that is run")
        surroundings = environment(home, options.prefix and options.prefix.resolve())
        folder = home
        if not options.prefix:
            folder = home / "clone"
            subprocess.run(["git", "clone", "--quiet", ROOT, folder], check=True)
        prefix, last = run(steps, folder, surroundings, options.quick_start.name)
        check_readme(options.readme.read_text(encoding="utf-8"), last, prefix, surroundings)
    except Broken as why:
        print(why, file=sys.stderr)
        return 1
    finally:
        if not options.work:
            shutil.rmtree(home, ignore_errors=True)
    print(f"{len(steps)} steps of a newcomer came out as told")
    return 0


if __name__ == "__main__":
    sys.exit(main())
