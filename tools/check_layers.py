#!/usr/bin/env python3
"""Checks the rules that no compiler knows: who may include whom, the form of files, and how long they and functions are.

    check_layers.py [ROOT]      prints one line a fault; exit 1 if there is any
"""

import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import functions

LOWER = {"base", "config", "io", "kernels", "ops", "temperature", "nn"}
JOB = LOWER | {"plot", "text", "families", "models"}

# What the files of a layer may include, beside their own layer.
ALLOWED = {
    "base": set(),
    "config": {"base"},
    "io": {"base"},
    "text": {"base", "io"},
    "http": {"base", "text"},
    "kernels": {"base"},
    "plot": {"base"},
    "ops": {"base", "config", "io", "kernels"},
    "temperature": {"base", "config", "io", "kernels", "ops"},
    "nn": LOWER - {"nn"},
    "families": {"base", "config", "io", "temperature", "nn"},
    "models": LOWER | {"families", "text"},
    "extension": LOWER | {"families", "models", "text"},
    "data": JOB,
    "eval": JOB | {"data"},
    "dist": {"base", "config", "ops"},
    "train": JOB | {"data", "eval", "dist"},
    "generate": JOB,
    "lens": JOB | {"http"},
    "adapt": JOB | {"data", "eval", "dist", "train"},
    "study": JOB | {"data", "eval", "dist", "generate", "train"},
    "bench": JOB | {"data", "dist", "train", "generate"},
    "serve": JOB | {"http", "generate"},
}
ALLOWED["cli"] = set(ALLOWED)

WITHOUT_TORCH = {"base", "config", "io", "kernels", "plot", "text", "http", "families"}
TORCH = re.compile(r"(torch|ATen|c10|caffe2)/")
INCLUDE = re.compile(r'\s*#\s*include\s*([<"])([^">]+)[">]')

HEADERS = {".h", ".cuh"}
SOURCES = HEADERS | {".cc", ".cu"}
SIZED = SOURCES | {".py"}
SIZED_FOLDERS = ("src", "examples", "bench", "tests", "tools", "python")
FILE_LINES, FUNCTION_LINES = 500, 60
TEST_NAMES = ("_test", "testing")

# The slow formulas that tests, benchmarks and double tensors use: no kernel needs them, and they need no kernel.
REFERENCE = "tempera/kernels/reference/"
KERNELS = ("tempera/kernels/cpu/", "tempera/kernels/cuda/")
COMPARES = (*TEST_NAMES, "bench")


def compares(path):
    return REFERENCE in path.as_posix() or any(name in path.stem for name in COMPARES)


def include_faults(path, layer, lines):
    for number, line in enumerate(lines, 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        quote, target = match.groups()
        where = f"{path}:{number}"
        if TORCH.match(target) and layer in WITHOUT_TORCH:
            yield f"{where}: {target}: {layer} has no torch in it"
        if target.startswith("tempera/"):
            other = target.split("/")[1]
            if other not in ALLOWED:
                yield f"{where}: {target}: there is no layer {other}"
            elif other != layer and other not in ALLOWED[layer]:
                yield f"{where}: {target}: {layer} may not include {other}"
            elif layer == "kernels" and target.startswith(REFERENCE) and not compares(path):
                yield f"{where}: {target}: a kernel may not include its reference"
            elif REFERENCE in path.as_posix() and target.startswith(KERNELS):
                yield f"{where}: {target}: a reference may not include a kernel"
        elif quote == '"' and (path.parent / target).exists():
            yield f"{where}: {target}: write the path from src/, as in \"tempera/{layer}/...\""


def source_faults(root):
    source = root / "src" / "tempera"
    for path in sorted(p for p in source.rglob("*") if p.suffix in SOURCES):
        layer = path.relative_to(source).parts[0]
        if layer not in ALLOWED:
            yield f"{path}: there is no layer {layer} (tools/check_layers.py lists them)"
            continue
        lines = path.read_text(encoding="utf-8").splitlines()
        yield from include_faults(path, layer, lines)
        # Highway reads a file again for every instruction set; such a file toggles a guard of its own.
        guards = ("#pragma once", "HWY_TARGET_TOGGLE")
        if path.suffix in HEADERS and not any(guard in line for line in lines for guard in guards):
            yield f"{path}: no #pragma once"


def long_files(root):
    for folder in SIZED_FOLDERS:
        for path in sorted(p for p in (root / folder).rglob("*") if p.suffix in SIZED):
            lines = len(path.read_text(encoding="utf-8").splitlines())
            if lines > FILE_LINES:
                yield f"{path}: {lines} lines; split it by concern, {FILE_LINES} are the limit"


def long_functions(root):
    source = root / "src" / "tempera"
    for path in sorted(p for p in source.rglob("*") if p.suffix in SOURCES):
        if any(name in path.stem for name in TEST_NAMES):
            continue
        for name, line, lines in functions.functions(path.read_text(encoding="utf-8")):
            if lines > FUNCTION_LINES:
                yield f"{path}:{line}: {name} has {lines} lines; {FUNCTION_LINES} are the limit"


def main(arguments):
    root = pathlib.Path(arguments[0]) if arguments else pathlib.Path(__file__).resolve().parents[1]
    faults = [*source_faults(root), *long_files(root), *long_functions(root)]
    for fault in faults:
        print(fault)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
