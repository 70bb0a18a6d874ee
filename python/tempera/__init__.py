"""Attention with a temperature, for PyTorch and for models of transformers.

    model = tempera.apply(model, "ssa")          # any family the program reads; plain attention at step 0
    tempera.save(model, "temps")                 # the new numbers alone; tempera.load(base, "temps")
    plain = tempera.fold(model)                  # an ordinary model again, where the method folds
    report = tempera.calibrate("SmolLM2", text="book.txt")    # by the program's own engine
    view = tempera.lens(model, "some text")      # entropy, maximum, temperatures and chosen weights of every layer

Importing the package loads the operators, torch.ops.tempera.attention and torch.ops.tempera.decode, and with transformers installed
makes the model type and the attention implementation "tempera" known to it. The library is the file that TEMPERA_LIBRARY names, that
of the installed package, or the newest libtempera_torch.so in build/ of the source tree.
"""

import importlib.util

from ._calibrate import Calibration, LayerTemperatures, calibrate
from ._lens import LayerView, View, lens
from ._library import ask as _ask
from ._library import find_library, find_program
from ._model import apply, describe, fold, load, methods, save, temperatures
from ._operators import AttentionResult, Recipe, attention

__version__: str = _ask("version")
__all__ = ["AttentionResult", "Calibration", "LayerTemperatures", "LayerView", "Recipe", "View", "apply", "attention", "calibrate",
           "describe", "find_library", "find_program", "fold", "lens", "load", "methods", "save", "temperatures"]

if importlib.util.find_spec("transformers"):
    from . import _auto

    _auto.register()
