"""Calibration by the program's own engine."""

import dataclasses
import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Optional, Sequence, Union

from ._library import find_program, program_environment

PathLike = Union[str, os.PathLike[str]]


@dataclasses.dataclass(frozen=True)
class LayerTemperatures:
    """The mean scale of each head of a layer; None: the method has none there."""

    layer: int
    q: Optional[list[float]]
    k: Optional[list[float]]
    v: Optional[list[float]]


@dataclasses.dataclass(frozen=True)
class Calibration:
    """What a calibration found. `measures` has a model's perplexities and passkeys by its name, "before", "after" and controls;
    `rope` the rotary frequencies, and `answers` what the report says of it."""

    model: str
    name: str
    out: Path
    learned: str
    numbers: int
    parameters: int
    context: int
    length: int
    rope: Optional[dict[str, Any]]
    tokens: int
    seconds: float
    measures: dict[str, Any]
    temperatures: list[LayerTemperatures]
    answers: dict[str, str]
    warnings: list[str]

    def perplexity(self, name: str, length: int) -> float:
        """Of the windows of that length, of the model "before", "after" or of a control."""
        scores: dict[str, dict[str, float]] = self.measures[name]["perplexity"]
        if str(length) not in scores:
            raise ValueError(f"windows of {length} tokens were not measured; measured: {', '.join(scores)}")
        return scores[str(length)]["perplexity"]

    def load(self, **options: Any) -> Any:
        """The calibrated model, opened by transformers."""
        from transformers import AutoModelForCausalLM
        return AutoModelForCausalLM.from_pretrained(self.folder, **options)

    @property
    def folder(self) -> Path:
        """Where the calibrated model is."""
        return next(folder for folder in (self.out, self.out / "best", self.out / "last") if (folder / "config.json").exists())


def _flag(name: str, value: Any) -> list[str]:
    flag = "--" + name.replace("_", "-")
    if isinstance(value, bool):
        return [f"{flag}={'true' if value else 'false'}"]
    if isinstance(value, (list, tuple)):
        return [flag, ",".join(map(str, value))]
    return [flag, os.fspath(value) if isinstance(value, os.PathLike) else str(value)]


def calibrate(model: Any, *, text: Union[PathLike, Sequence[PathLike]], out: PathLike = "calibrated", context: int = 0, progress: bool = True,
              **options: Any) -> Calibration:
    """Learns temperatures for an existing model with its weights frozen; `tempera calibrate` does the work.

    model: a folder, a .gguf file, or a model of transformers with its tokenizer's folder as `name_or_path`. text: files to learn
    from. out: a folder for the result, new or of the run to continue. context: tokens to extend the context to. options: those of
    `tempera calibrate --help-all`, with underscores: learn="ssa", tokens=100_000. progress: shown on stderr.
    """
    with tempfile.TemporaryDirectory() as scratch:
        given = model
        if hasattr(model, "save_pretrained"):
            from transformers import AutoTokenizer
            AutoTokenizer.from_pretrained(model.name_or_path).save_pretrained(scratch)
            model.save_pretrained(scratch)
            given = scratch
        texts = [text] if isinstance(text, (str, os.PathLike)) else list(text)
        command = [str(find_program()), "calibrate", os.fspath(given), "--out", os.fspath(out), "--json"]
        for name, value in {"text": [os.fspath(file) for file in texts], "context": context, **options}.items():
            command += _flag(name, value)
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=None if progress else subprocess.PIPE, text=True, check=False,
                              env=program_environment())
    if done.returncode != 0:
        said = (done.stderr or "see the lines above").strip().splitlines()
        error = ValueError if done.returncode == 2 else RuntimeError
        raise error("tempera calibrate: " + next((line.removeprefix("tempera: ") for line in said if line.startswith("tempera: ")), said[-1]))
    found = json.loads(done.stdout)
    found["temperatures"] = [LayerTemperatures(**layer) for layer in found["temperatures"]]
    found["out"] = Path(found["out"])
    return Calibration(**{field.name: found[field.name] for field in dataclasses.fields(Calibration)})
