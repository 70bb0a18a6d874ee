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
    # The program looks for libtorch beside itself; a torch that this environment has from another one is elsewhere.
    torch = importlib.util.find_spec("torch")
    libraries = [os.path.join(folder, "lib") for folder in (torch.submodule_search_locations if torch else [])]
    environment = os.environ
    if libraries and not os.path.exists(os.path.join(package, "..", "torch", "lib")):
        given = environment.get("LD_LIBRARY_PATH")
        environment = {**environment, "LD_LIBRARY_PATH": os.pathsep.join(libraries + ([given] if given else []))}
    program = os.path.join(package, "bin", "tempera")
    os.execve(program, [sys.argv[0], *sys.argv[1:]], environment)


main()
