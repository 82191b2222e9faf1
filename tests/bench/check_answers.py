# SPDX-License-Identifier: Apache-2.0
"""src/bench/stored_answers.cpp is what scripts/bench_answers prints. Usage: check_answers.py ROOT"""

import pathlib
import subprocess
import sys

root = pathlib.Path(sys.argv[1])
printed = subprocess.run([sys.executable, root / "scripts/bench_answers"], check=True,
                         capture_output=True, text=True).stdout
if printed != (root / "src/bench/stored_answers.cpp").read_text():
    sys.exit("src/bench/stored_answers.cpp is not what scripts/bench_answers prints")
