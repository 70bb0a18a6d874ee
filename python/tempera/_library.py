"""Finds the shared library with the operators and loads it."""

import json
import os
from pathlib import Path
from typing import Any, Optional

import torch


def find_library() -> Optional[Path]:
    """The shared library with the operators, or None."""
    named = os.environ.get("TEMPERA_LIBRARY")
    if named:
        return Path(named) if Path(named).is_file() else None
    here = Path(__file__).resolve().parent
    found = [*here.glob("lib/libtempera_torch.so"), *here.parents[1].glob("build/**/libtempera_torch.so")]
    return max(found, key=lambda path: path.stat().st_mtime, default=None)


def find_program() -> Path:
    """The program: that of the package, or of the source tree."""
    here = Path(__file__).resolve().parent
    for path in (here / "bin" / "tempera", here.parents[1] / "build" / "tempera"):
        if path.is_file():
            return path
    raise FileNotFoundError("tempera: the program is missing; install the wheel, or run `make build` in the source tree")


def program_environment() -> dict[str, str]:
    """For the program: that of the package looks for libtorch beside itself, and torch may come from another environment."""
    package, libraries = Path(__file__).resolve().parent, Path(torch.__file__).parent / "lib"
    if not (package / "bin" / "tempera").is_file() or (package.parent / "torch" / "lib").exists():
        return dict(os.environ)
    given = os.environ.get("LD_LIBRARY_PATH")
    return {**os.environ, "LD_LIBRARY_PATH": os.pathsep.join([str(libraries), *([given] if given else [])])}


def _check_torch() -> None:
    """libtorch's C++ interface differs from release to release: a library fits the torch that it was built with."""
    built = Path(__file__).resolve().parent / "torch.txt"
    if not built.exists():
        return
    expected = built.read_text().strip()
    if expected.split(".")[:2] != torch.__version__.split("+")[0].split(".")[:2]:
        raise ImportError(f"tempera: this build runs with torch {expected}, and here is {torch.__version__}: "
                          f"pip install 'torch=={expected}'")


def load_library() -> None:
    library = find_library()
    if library is None:
        named = os.environ.get("TEMPERA_LIBRARY")
        where = f"TEMPERA_LIBRARY={named} is no file" if named else "build/ has no libtempera_torch.so"
        raise ImportError(f"tempera: {where}; run `make build`, or set TEMPERA_LIBRARY to the library")
    _check_torch()
    torch.ops.load_library(str(library))


def ask(operator: str, *arguments: Any) -> Any:
    """Calls an operator that answers in text; what it refuses is a ValueError with the program's own words."""
    try:
        return getattr(torch.ops.tempera, operator)(*arguments)
    except RuntimeError as error:
        raise ValueError(str(error).split("\nException raised from")[0]) from None


def ask_json(operator: str, *arguments: Any) -> Any:
    return json.loads(ask(operator, *arguments))


load_library()
