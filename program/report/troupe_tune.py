#!/usr/bin/env -S python3 -B
"""troupe-tune: tries values of settings on this machine, and writes those that are better than the defaults.

    troupe tune [--out FILE] [--only SETTING,...] [--rounds N] [--quick] [OPTIONS OF SETTINGS]

Benches measure, each in a process of its own, and their reports decide (docs/benchmarks.md). The file is a settings
file: JSON with comments that state what was measured.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import shlex
import sys
import typing
from dataclasses import dataclass, field

from troupe_report import circumstances, counted, is_of_mock, machine_line
from troupe_tool import (Problem, Progress, Settings, Table, checked_path, find_program, last_words, median,
                         parse_with_settings, run_to_end, save, start, whole_number)


class Figure(typing.NamedTuple):
    """A number in a bench's report."""

    name: str  # with the unit
    path: str  # the members and indices that lead to it
    is_rate: bool = False  # True: larger is better; its inverse is compared

    def cost(self, report: typing.Any) -> float:
        """Returns the figure as a cost, where lower is better. Errors: Problem, if there is none above 0."""
        try:
            for step in self.path.split("/"):
                report = report[int(step) if isinstance(report, list) else step]
        except (KeyError, IndexError, TypeError, ValueError):
            report = None
        if not isinstance(report, (int, float)) or report <= 0:
            raise Problem(f"its report has no figure for '{self.name}'")
        return 1 / report if self.is_rate else report

    def text(self, cost: float) -> str:
        return f"{1 / cost:.0f}" if self.is_rate else f"{cost:.2f}"


@dataclass
class Trial:
    name: str  # of the setting or, if the choice is made in the client's program, of the bench's option
    values: list[str]  # the candidates
    bench: list[str]  # its name and arguments
    figures: list[Figure]  # a candidate is taken if one of them is better and none is worse
    remark: str = ""  # costs or requirements of a choice, for users
    option: str = ""  # of the bench; empty: made of the setting's name
    standard: str = ""  # the default value, if there is no setting

    def __post_init__(self) -> None:
        self.is_setting = not self.name.startswith("--")
        self.option = self.option or (f"--{re.sub('[._]', '-', self.name)}" if self.is_setting else self.name)


def trials_of(quick: bool, mock: bool) -> list[Trial]:
    """Returns what is tried. The mock has small sizes, and no settings of NCCL."""
    def count(full: int | str, fast: int | str, on_mock: int | str) -> int | str:
        return on_mock if mock else fast if quick else full

    all_trials = []

    def add(name: str, values: str, bench: str, figures: list[Figure], remark: str = "", **more: str) -> None:
        all_trials.append(Trial(name, values.split(), bench.split(), figures, remark, **more))

    def clients(number: int, size: str) -> str:
        return (f"clients --clients {16 if mock else number} -b {size} --fusions free --no-raw -n {count(50, 20, 4)} "
                f"--blocks 1 --requests {count(20000, 5000, 300)}")

    def clients_figures(who: str) -> list[Figure]:
        return [Figure(f"burst of {who} (us)", "rows/0/burst_us/p50"),
                Figure(f"operations of {who} (/s)", "rows/0/operations_per_s/p50", True)]

    def rate(size: str, depth: int) -> str:
        return f"rate -b {size} --depths {depth} --fusions free -n {count(2000, 500, 32)} --blocks 1"

    def rate_figures(what: str) -> list[Figure]:
        return [Figure(f"{what} (/s)", "rows/0/operations_per_s/p50", True)]

    latency = f"latency -n {count(2000, 500, 50)} --blocks 1 --ways world-actor,world-facade"
    latency_figures = [Figure("8 B, an actor asks, p50 (us)", "rows/0/time/p50"),
                       Figure("8 B, a thread asks, p50 (us)", "rows/1/time/p50")]
    add("profile", "latency frugal", latency, latency_figures,
        "latency keeps one core per GPU and one more busy, also when the world is idle")
    add("strategy", "flag event host_fn", latency, latency_figures)
    if not quick:
        add("placement", "none", latency, latency_figures)
        add("scheduler_threads", "2 3 4 8", clients(64, "4K"), clients_figures("64 clients, 4 KiB"))

    add("fusion_max_operations", "16 256" if quick else "16 32 128 256", clients(256, "8"),
        clients_figures("16 clients, 8 B" if mock else "256 clients, 8 B"))
    # Each value is tried at a size that it treats differently from the default of 256K.
    add("fusion_max_operation_bytes", "64K", rate("256K", 16), rate_figures("256 KiB, 16 in flight"))
    add("fusion_max_operation_bytes", "1M", rate("1M", 16), rate_figures("1 MiB, 16 in flight"))
    add("fusion_max_bytes", "1M 16M", rate("256K", 64), rate_figures("256 KiB, 64 in flight"))

    # The largest size at which it is taken counts. Each value is tried at the largest operation that it makes a kernel.
    for size in "4K 64K".split() if mock else "64K 1M".split() if quick else "16K 64K 256K 1M 4M".split():
        add("one_shot_bytes", size, f"{latency} -b {size}",
            [Figure(f"{size}, an actor asks, p50 (us)", "rows/0/time/p50"),
             Figure(f"{size}, a thread asks, p50 (us)", "rows/1/time/p50")],
            "kernels of troupe's own, which use memory of the device (docs/small-collectives.md); the same in all "
            "processes of a world")

    host = f"host -b {count('128M', '32M', '1M')} --memory pinned -n {count(10, 5, 2)} --blocks 1 -c 0"
    host_figures = [Figure("all_reduce of host memory (us)", "rows/0/staged/p50")]
    add("host_staging.chunk_bytes", "1M 16M" if quick else "1M 2M 8M 16M", host, host_figures)
    if not quick:
        add("host_staging.slots", "2 4", host, host_figures, "each slot holds a chunk of inputs and one of results")
    add("--memory", "registered" if mock else "ordinary registered", latency, latency_figures,
        "not a setting: a program chooses it with world::allocate (pool), adopt (ordinary) or register_memory "
        "(registered)", standard="pool")
    if mock:
        return all_trials

    sizes = f"all_reduce -b 1K -e 256M -f 64 -c 0 --blocks 1 -n {count(50, 20, 2)} --latency-iters 1"
    size_figures = [Figure(f"all_reduce of {size} (us)", f"rows/{row}/out_of_place/troupe/time_us")
                    for row, size in enumerate(("1 KiB", "64 KiB", "4 MiB", "256 MiB"))]
    restricts = "other collectives are restricted to it, too"
    add("nccl.config", "CTAPolicy=1 CTAPolicy=2", sizes, size_figures)
    add("nccl.environment", "NCCL_ALGO=ring NCCL_ALGO=tree", sizes, size_figures, restricts)
    add("nccl.environment", "NCCL_PROTO=Simple NCCL_PROTO=^LL128", sizes, size_figures, restricts)
    add("nccl.environment", "NCCL_NVLS_ENABLE=0", sizes, size_figures)
    if not quick:
        # NCCL refuses a minimum without a maximum.
        add("nccl.config", "minCTAs=16;maxCTAs=64 minCTAs=32;maxCTAs=64", sizes, size_figures,
            "thread blocks are taken from kernels that run beside")
        add("nccl.config", "maxCTAs=8 maxCTAs=16", sizes, size_figures)
        add("nccl.config", "cgaClusterSize=0 cgaClusterSize=2", sizes, size_figures)
    return all_trials


ASSIGNMENTS = ("nccl.config", "nccl.environment")  # NAME=VALUE;NAME=VALUE...

# Two or three rounds may agree by chance; a smaller difference is not worth a setting.
LEAST_NOISE = 0.02


@dataclass
class Verdict:
    """A comparison of one figure. Costs are medians over rounds."""

    standard: float = 0
    candidate: float = 0
    ratio: float = 1  # candidate over default: the median of the rounds' ratios, so that drift cancels out
    noise: float = LEAST_NOISE  # the largest relative difference between the two measurements of the default
    is_better: bool = False  # by more than the noise, and in every round
    is_worse: bool = False  # by more than the noise


def judge(standard: list[float], again: list[float], candidate: list[float]) -> Verdict:
    """Compares costs of the candidate, by round, with those of the default, which each round measures twice."""
    if not len(standard) == len(again) == len(candidate) > 0:
        raise ValueError("a candidate is judged without rounds of its own and of the default")
    ratios = [one / base for one, base in zip(candidate, standard)]
    ratio = median(ratios)
    noise = max(LEAST_NOISE, *(abs(one / base - 1) for one, base in zip(again, standard)))
    return Verdict(median(standard), median(candidate), ratio, noise,
                   ratio < 1 - noise and all(one < 1 for one in ratios), ratio > 1 + noise)


def is_taken(figures: list[Verdict]) -> bool:
    return any(one.is_better for one in figures) and not any(one.is_worse for one in figures)


def gain_of(figures: list[Verdict]) -> float:
    """Returns the product of the ratios, so that no figure outweighs another. The smallest is the best."""
    return math.prod(one.ratio for one in figures)


class Chosen(typing.NamedTuple):
    option: str
    value: str  # as on a command line
    comments: list[str] = []  # the measurements, one line each


def tuned_file(heading: list[str], chosen: dict[str, Chosen], settings: dict[str, typing.Any]) -> str:
    """Returns a settings file (docs/configuration.md) of `chosen`, by name. `settings` are those in effect.

    `heading` is in comments at the top. Text in comments cannot end them.
    """
    def comment(indent: str, text: str) -> str:
        return indent + "// " + text.replace("\n", " ").replace("\r", " ")

    lines = [comment("", line) for line in heading] + ["{"]
    if not chosen:
        lines.append(comment("  ", "No setting was better than its default by more than the noise."))
    for i, (name, one) in enumerate(chosen.items()):
        lines += [comment("  ", line) for line in one.comments]
        value = one.value if isinstance(settings[name], (int, float)) else json.dumps(one.value)
        lines.append(f"  {json.dumps(name)}: {value}" + ("," if i + 1 < len(chosen) else ""))
    return "\n".join(lines) + "\n}\n"


@dataclass
class Contender:
    """A value that is tried, with its costs by figure and round. The default has an empty value and is listed twice."""

    value: str | None = None
    costs: list[list[float]] = field(default_factory=list)
    failure: str = ""  # why it could not be measured


class Tuner:
    def __init__(self, settings: Settings, rounds: int):
        self.settings, self.rounds = settings, rounds
        self.chosen: dict[str, Chosen] = {}
        self.advice: list[str] = []
        self.table = Table(("setting", "", 26), ("value", "", 11), ("figure", "", 35), ("default", "", 10),
                           ("with it", "", 10), ("ratio", "", 7), ("noise", "", 7), ("", "", 8))

    def measured(self, bench: list[str], options: dict[str, str]) -> dict:
        """Returns the report of `bench`. `options` replace given ones. Errors: Problem, with the bench's message."""
        more = [f"{option}={value}" for option, value in options.items()]
        done = run_to_end([find_program("troupe-bench"), "bench", *bench, *self.settings.without(options), *more,
                           "--json", "-"])
        if done.returncode != 0:
            raise Problem(last_words(done))
        return json.loads(done.stdout)

    def probe(self) -> dict:
        """Returns the report of the shortest bench, which describes this machine."""
        try:
            return self.measured("latency -n 1 --blocks 1 --ways world-facade".split(), {})
        except Problem as why:
            raise Problem(f"unsupported: {why}") from None

    def measure(self, trial: Trial, values: list[str], progress: Progress) -> list[Contender]:
        """Measures rounds of the default, of the default again and of `values`. Each round begins with another one."""
        contenders = [Contender(), Contender(), *(Contender(value) for value in values)]
        for one in contenders:
            one.costs = [[] for _ in trial.figures]
        for i in range(self.rounds):
            for j in range(len(contenders)):
                one = contenders[(i + j) % len(contenders)]
                progress.show(f"{trial.name} {one.value or 'default'}, round {i + 1}/{self.rounds}")
                progress.done += 1
                if one.failure:
                    continue
                try:
                    report = self.measured(trial.bench, {trial.option: one.value} if one.value else {})
                    for figure, costs in zip(trial.figures, one.costs):
                        costs.append(figure.cost(report))
                except Problem as why:
                    one.failure = str(why)
        progress.clear()
        return contenders

    def decide(self, trial: Trial, progress: Progress) -> None:
        standard = str(self.settings.values[trial.name]) if trial.is_setting else trial.standard
        first, again, *others = self.measure(trial, [one for one in trial.values if one != standard], progress)
        if failure := first.failure or again.failure:
            print(f"# {trial.name}: not measured: {failure}", flush=True)
            return
        best, best_gain = None, 1.0
        for one in others:
            if one.failure:
                print(f"# {trial.name} = {one.value} cannot be used here: {one.failure}", flush=True)
                continue
            figures = list(map(judge, first.costs, again.costs, one.costs))
            self.print(trial, one.value, figures)
            if is_taken(figures) and gain_of(figures) < best_gain:
                best, best_gain = one.value, gain_of(figures)
        if best:
            self.confirm(trial, standard, best, progress)

    def confirm(self, trial: Trial, standard: str, value: str, progress: Progress) -> None:
        """Measures the best value once more by itself, because the best of several looks better than it is."""
        contenders = self.measure(trial, [value], progress)
        if any(one.failure for one in contenders):
            return
        figures = list(map(judge, *(one.costs for one in contenders)))
        self.print(trial, value, figures, "chosen" if is_taken(figures) else "dropped")
        if not is_taken(figures):
            return
        comments = [f"{figure.name}: {figure.text(one.standard)} with the default ({standard or 'empty'}), "
                    f"{figure.text(one.candidate)} with {value}; time ratio {one.ratio:.3f}, noise {one.noise:.3f}"
                    for figure, one in zip(trial.figures, figures)]
        comments += [trial.remark] if trial.remark else []
        if trial.is_setting:
            self.take(trial.name, Chosen(trial.option, value, comments))
        else:
            self.advice.append(f"{trial.name} {value} is faster ({trial.remark}): {comments[0]}")

    def take(self, name: str, one: Chosen) -> None:
        """Chooses the setting, unless it is incompatible with those chosen before."""
        if name in ASSIGNMENTS and name in self.chosen:  # NCCL's fields and variables are chosen one after another.
            before = self.chosen[name]
            one = Chosen(one.option, f"{before.value};{one.value}", before.comments + one.comments)
        new = {**self.chosen, name: one}  # A setting that is tried at several sizes keeps its place.
        words = [f"{other.option}={other.value}" for other in new.values()]
        done = run_to_end([find_program("troupe"), "config",
                           *self.settings.without([other.option for other in new.values()]), *words])
        if done.returncode == 0:
            self.chosen = new
        else:
            why = last_words(done).removeprefix("troupe: ")
            print(f"# {name} = {one.value} is not compatible with the others: {why}", flush=True)

    def print(self, trial: Trial, value: str | None, figures: list[Verdict], choice: str = "") -> None:
        for figure, one in zip(trial.figures, figures):
            self.table.print_row(trial.name, str(value), figure.name, figure.text(one.standard),
                                 figure.text(one.candidate), f"{one.ratio:.3f}", f"{one.noise:.3f}",
                                 choice or ("better" if one.is_better else "worse" if one.is_worse else "same"))


def heading_of(report: dict, settings: Settings, quick: bool, rounds: int) -> list[str]:
    lines = ["Measured by: " + shlex.join(["troupe", "tune", *(["--quick"] if quick else []), *settings.given]),
             circumstances(report)[0], "Devices: " + counted(one["name"] for one in report["devices"]),
             f"{machine_line(report)}, {report['date']}"]
    if is_of_mock(report):
        lines.append("On the mock: this choice says nothing about GPUs.")
    return [*lines, f"Each figure: medians of {rounds} interleaved rounds, each value in a process of its own, the "
            "default twice in each round: its difference from itself is the noise.",
            "A value is taken if it is better by more than the noise, in every round, measured twice, and worse in no "
            "figure. pool_reserve_bytes depends on the program and is not tried."]


def wanted(trials: list[Trial], only: list[str]) -> list[Trial]:
    names = list(dict.fromkeys(one.name for one in trials))  # A setting may be tried at several sizes.
    for name in only:
        if name not in names:
            raise Problem(f"invalid_argument: '{name}' is not a setting that is tried here: choose some of "
                          + ", ".join(names))
    return [one for one in trials if not only or one.name in only]


def run(words: list[str]) -> int:
    parser = argparse.ArgumentParser("troupe tune", allow_abbrev=False, description=(
        "try values of settings on this machine, and write those that are better"))
    parser.add_argument("--out", metavar="FILE", help="the settings file to write (default: print it)")
    parser.add_argument("--only", action="append", default=[], metavar="SETTING",
                        help="try only these settings, comma-separated")
    parser.add_argument("--rounds", type=whole_number(1, 1000), metavar="N",
                        help="interleaved rounds (default 5, with --quick 3)")
    parser.add_argument("--quick", action="store_true", help="fewer values, requests and rounds")
    options, settings = parse_with_settings(parser, words)
    rounds = options.rounds or (3 if options.quick else 5)
    file = checked_path(options.out) if options.out else None
    tuner = Tuner(settings, rounds)
    first = tuner.probe()
    trials = wanted(trials_of(options.quick, is_of_mock(first)), options.only)
    heading = heading_of(first, settings, options.quick, rounds)
    print(*(f"# {line}" for line in heading), "#", sep="\n", flush=True)
    tuner.table.print_heading()
    with Progress(sum(len(one.values) + 2 for one in trials) * rounds) as progress:
        for one in trials:
            tuner.decide(one, progress)
    text = tuned_file(heading + tuner.advice, tuner.chosen, settings.values)
    if file:
        save(file, text)
    print("#", *(f"# {line}" for line in tuner.advice), f"# {len(tuner.chosen)} of {len(trials)} trials gave a setting"
          + (f": {file}" if file else "; the file:"), sep="\n")
    if not file:
        print(text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(start({"tune": run}))
