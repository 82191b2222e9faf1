# SPDX-License-Identifier: Apache-2.0
"""Rules of the source tree that no compiler checks. Usage: check.py RULE ROOT"""

import pathlib
import re
import sys

# What each module may include; comm, tensor and plan stand side by side on base.
USES = {"base": set()}
USES["comm"] = USES["tensor"] = USES["plan"] = {"base"}
USES["kernels"] = {"base", "tensor"}
USES["io"] = {"base", "comm", "tensor", "plan"}
USES["model"] = {"base", "comm", "tensor", "plan", "kernels"}
USES["train"] = USES["model"] | {"io", "model"}
USES["bench"] = USES["train"] | {"train"}
USES["cli"] = USES["bench"] | {"bench"}

INCLUDE = re.compile(r'^\s*#\s*include\s*["<]pleat/(\w+)/', re.MULTILINE)
ERROR_ID = re.compile(r'"(PL\d{4})[":]')
ERROR_ROW = re.compile(r"^\|\s*(PL\d{4})\s*\|", re.MULTILINE)


def sources(root):
    for folder in ("include/pleat", "src"):
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in (".hpp", ".cpp"):
                yield path


def module_of(root, path):
    parts = path.relative_to(root).parts
    return parts[2] if parts[0] == "include" else parts[1]


def layers(root):
    """Modules include only what lies below them."""
    for path in sources(root):
        module = module_of(root, path)
        if module == "main.cpp":
            continue
        for used in INCLUDE.findall(path.read_text()):
            if module not in USES:
                yield f"{path}: unknown module '{module}'"
            elif used != module and used not in USES[module]:
                yield f"{path}: {module} must not include {used}"


def communicator(root):
    """The world communicator is named in one file."""
    for path in sources(root):
        if path.name != "runtime.cpp" and re.search(r"\bMPI_COMM_WORLD\b", path.read_text()):
            yield f"{path}: names MPI_COMM_WORLD; take it from pleat::Runtime"


def errors(root):
    """Every identifier of an error has one row in docs/errors.md."""
    used = {}
    for path in sources(root):
        for identifier in ERROR_ID.findall(path.read_text()):
            used.setdefault(identifier, path)
    rows = ERROR_ROW.findall((root / "docs/errors.md").read_text())
    if not used:
        yield "no error identifier found in the sources"
    for identifier, path in sorted(used.items()):
        if rows.count(identifier) != 1:
            yield f"{path}: {identifier} has {rows.count(identifier)} rows in docs/errors.md"
    for identifier in sorted(set(rows) - set(used)):
        yield f"docs/errors.md: {identifier} is no longer used"


def main(root):
    """src/main.cpp stays a list of steps."""
    lines = len((root / "src/main.cpp").read_text().splitlines())
    if lines >= 100:
        yield f"src/main.cpp has {lines} lines; commands belong to src/cli"


def includes(root):
    """A source includes its own header first, which then compiles alone."""
    for path in sorted((root / "src").rglob("*.cpp")):
        own = f"pleat/{module_of(root, path)}/{path.stem}.hpp"
        if not (root / "include" / own).exists():
            continue
        first = re.search(r'^#include (.*)$', path.read_text(), re.MULTILINE)
        if first is None or first.group(1) != f'"{own}"':
            yield f"{path}: includes {own} not first"


def commands(root):
    """Objects of CLI::App are made where Kokkos is not included (src/cli/program.hpp)."""
    making = re.compile(r"\badd_subcommand\(|\bCLI::App\s+\w+[({]|make_\w+<CLI::App>")
    for path in sorted((root / "src").rglob("*.cpp")):
        text = path.read_text()
        if path == root / "src/cli/program.cpp":
            if "Kokkos" in text or "pleat/" in text:
                yield f"{path}: must stay free of Kokkos and of what may include it"
        elif making.search(text):
            yield f"{path}: call make_program or add_command of src/cli/program.hpp"


if __name__ == "__main__":
    rule, root = sys.argv[1], pathlib.Path(sys.argv[2])
    rules = {f.__name__: f for f in (layers, communicator, errors, main, includes, commands)}
    findings = list(rules[rule](root))
    print("\n".join(findings) or "ok")
    sys.exit(bool(findings))
