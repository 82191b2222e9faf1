# SPDX-License-Identifier: Apache-2.0
"""One timed training run of build/pleat, for the scripts that measure."""

import csv
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = ROOT / "build" / "pleat"
# Ranks that outnumber the cores hand them on while they wait.
YIELDING = ROOT / "build" / "tests" / "libpleat_yield_when_idle.so"
WARM_UP = 2
CORES = len(os.sched_getaffinity(0))


class Training(NamedTuple):
    rows: list  # of metrics.csv, of the timed steps, as the first rank wrote them
    memory: int  # bytes of the program that was started, at most
    others: float  # share of all cores that other processes took meanwhile


def check_deck(parser, deck):
    if not deck.is_file():
        parser.error(f"--deck: there is no file {deck}")


def build(most_ranks=1):
    """Builds what train() starts with that many ranks of one thread."""
    targets = ["pleat"] + (["pleat_yield_when_idle"] if most_ranks > CORES else [])
    done = subprocess.run([ROOT / "scripts" / "build", "release", *targets], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode:
        sys.exit(f"{Path(sys.argv[0]).name}: the build failed:\n{done.stdout[-2000:]}")


def busy_seconds():
    """CPU time of all processes of the machine since it started."""
    with open("/proc/stat") as stat:
        values = [int(x) for x in stat.readline().split()[1:]]
    return (sum(values) - values[3] - values[4]) / os.sysconf("SC_CLK_TCK")


def run(command, environment):
    """Runs a command; its output, peak memory in bytes, and the share of all cores that other
    processes took meanwhile."""
    command = [str(x) for x in command]
    before, start = busy_seconds(), time.monotonic()
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(command, env=environment, stdout=output,
                                   stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(process.pid, 0)
        output.seek(0)
        text = output.read()
    if status:
        sys.exit(f"{Path(sys.argv[0]).name}: {' '.join(command)} failed:\n{text[-2000:]}")
    own = usage.ru_utime + usage.ru_stime
    elapsed = time.monotonic() - start
    others = max(0.0, busy_seconds() - before - own) / (elapsed * os.cpu_count())
    return text, usage.ru_maxrss * 1024, others


def train(deck, steps, overrides, ranks=1, threads=None):
    """One run. threads: of each rank; all cores of the environment if None."""
    environment = dict(os.environ)
    if threads:
        environment.update(OMP_NUM_THREADS=str(threads), OMP_PROC_BIND="false")
    with tempfile.TemporaryDirectory() as folder:
        command = [PROGRAM, "train", deck, f"run.steps={WARM_UP + steps}",
                   f"run.output={folder}/run", "checkpoint.every=0", *overrides]
        if ranks > 1:
            preload = ["env", f"LD_PRELOAD={YIELDING}"] if ranks > CORES else []
            command = ["mpiexec", "-n", ranks, *preload, *command]
        _, memory, others = run(command, environment)
        with open(f"{folder}/run/metrics.csv", newline="") as file:
            return Training(list(csv.DictReader(file))[WARM_UP:], memory, others)


def median(rows, key):
    return statistics.median(float(row[key]) for row in rows)


def peak_memory(rows):
    """Bytes of the fullest rank."""
    return max(int(row["peak_memory"]) for row in rows)
