#!python
"""The command `tempera`: the program of the installed package, which finds libtorch in the installed torch."""

import importlib.metadata
import importlib.util
import os
import sys


def main():
    package = importlib.util.find_spec("tempera").submodule_search_locations[0]
    with open(os.path.join(package, "torch.txt"), encoding="ascii") as file:
        expected = file.read().strip()
    try:
        found = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        found = "none"
    if found.split("+")[0].rsplit(".", 1)[0] != expected.rsplit(".", 1)[0]:
        sys.exit(f"tempera: this build runs with torch {expected}, and here is {found}: pip install 'torch=={expected}'")
    program = os.path.join(package, "bin", "tempera")
    os.execv(program, [sys.argv[0], *sys.argv[1:]])


main()
