# SPDX-License-Identifier: Apache-2.0
"""One timed training run of build/pleat, for the scripts that measure."""

import csv
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = ROOT / "build" / "pleat"
WARM_UP = 2


def train(deck, steps, overrides, ranks=1, threads=None, idle=None):
    """Rows of metrics.csv of the timed steps, as the first rank wrote them.

    threads: of each rank; all cores of the environment if None
    idle: a library to preload into every rank where ranks outnumber the cores
    """
    environment = dict(os.environ)
    if threads:
        environment.update(OMP_NUM_THREADS=str(threads), OMP_PROC_BIND="false")
    with tempfile.TemporaryDirectory() as folder:
        command = [PROGRAM, "train", deck, f"run.steps={WARM_UP + steps}",
                   f"run.output={folder}/run", "checkpoint.every=0", *overrides]
        if ranks > 1:
            preload = ["env", f"LD_PRELOAD={idle}"] if idle else []
            command = ["mpiexec", "-n", ranks, *preload, *command]
        done = subprocess.run([str(x) for x in command], env=environment, capture_output=True,
                              text=True)
        if done.returncode:
            sys.exit(f"{Path(sys.argv[0]).name}: {overrides} failed:\n"
                     f"{done.stdout[-2000:]}{done.stderr}")
        with open(f"{folder}/run/metrics.csv", newline="") as file:
            return list(csv.DictReader(file))[WARM_UP:]


def median(rows, key):
    return statistics.median(float(row[key]) for row in rows)


def peak_memory(rows):
    """Bytes of the fullest rank."""
    return max(int(row["peak_memory"]) for row in rows)
