"""What tools/crash-test ends: a small piece of work for each of the verbs that can go on after a kill.

Each says how it is started, which files show that a part of the work is done for good, and what its result is without the times
and paths, which differ from run to run.
"""

import hashlib
import json
import re
import subprocess

STEPS = 30
TRAINING = ["--batch", 2, "--warmup", 5, "--save-every", 1, "--log-every", 1, "--eval-every", 7, "--eval-rows", 4]
MODEL = ["--layers", 1, "--width", 32, "--heads", 2, "--context", 16]
ONE_CORE = ["--device", "cpu", "--threads", 1]


def write_text(path):
    path.write_text("".join(f"{i * i % 97} is the rest of {i} squared.\n" for i in range(300)))
    return path


def train_command(program, text, out, *more):
    return words(program, "train", "--text", text, "--out", out, "--steps", STEPS, *MODEL, *TRAINING, *ONE_CORE,
                 "--temperature", "ssa", "--model.dropout-residual", 0.1, *more)


def words(*arguments):
    return [str(argument) for argument in arguments]


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def timeless(value):
    """Without times, paths and the build."""
    if isinstance(value, dict):
        return {key: timeless(inner) for key, inner in value.items()
                if "second" not in key and key not in ("out", "settings", "tempera", "build", "costs", "sizing", "rank_memory")}
    return [timeless(inner) for inner in value] if isinstance(value, list) else value


def read_log(out):
    return [timeless(json.loads(line)) for line in (out / "log.jsonl").read_text().splitlines()]


def logged_lines(out):
    try:
        return (out / "log.jsonl").read_bytes().count(b"\n")
    except OSError:
        return 0


def last_step(out):
    """The step of the newest checkpoint, from the link that is turned after it is in place."""
    try:
        return int((out / "last").readlink().name.removeprefix("step-"))
    except OSError:
        return 0


def make_input(program, folder):
    """A text, and a model for the verbs that begin with one."""
    text = write_text(folder / "text.txt")
    subprocess.run(words(program, "train", "--text", text, "--out", folder / "model", "--steps", 20, "--batch", 2, *MODEL,
                         *ONE_CORE), check=True, capture_output=True)
    return folder


class Verb:
    """One that trains in a run's folder: the newest checkpoint is what it goes on from."""

    pictures = ()
    finished = ()  # patterns of files that stay as they are once they are there
    places = ("",)  # folders with checkpoints, below the run's

    def __init__(self, program, given):
        self.program, self.given = program, given

    def finished_files(self, out):
        return {path: digest(path) for pattern in self.finished for path in out.glob(pattern)}

    def saved(self, out):
        """How much is safe, by folder: the step of its newest checkpoint."""
        return {str(out / place): last_step(out / place) for place in self.places}

    def resumed(self, out, messages):
        """The same for what a process says that it went on from."""
        return {folder: int(step) for folder, step in re.findall(r"continuing the run in '(.*)' from step (\d+)", messages)}

    def result(self, out):
        weights = {name: digest(out / "last" / name) for name in ("model.safetensors", "optimizer.safetensors")}
        return {"log": read_log(out), **weights, **self.drawn(out)}

    def drawn(self, out):
        return {name: digest(out / name) for name in self.pictures}


class Train(Verb):
    def command(self, out):
        return train_command(self.program, self.given / "text.txt", out)


class Finetune(Verb):
    pictures = ("finetune.svg", "finetune.png")

    def command(self, out):
        return words(self.program, "finetune", self.given / "model", "--text", self.given / "text.txt", "--out", out,
                     "--steps", STEPS, "--length", 16, *TRAINING, *ONE_CORE, "--temperature", "ssa")


class Calibrate(Verb):
    pictures = ("calibration.svg", "calibration.png")
    finished = ("measures/*.json",)
    places = ("", "controls/norm")

    def command(self, out):
        return words(self.program, "calibrate", self.given / "model", "--text", self.given / "text.txt", "--out", out,
                     "--context", 128, "--controls", "norm", "--tokens", 128 * 60, "--step-tokens", 128, "--eval-tokens", 8192,
                     "--eval-lengths", "64,128", *ONE_CORE)

    def result(self, out):
        return {**super().result(out), "calibration": timeless(json.loads((out / "calibration.json").read_text()))}


class Compare(Verb):
    """One that trains models one by one: the finished ones are kept."""

    finished = ("jobs/*.json",)
    methods, seeds = ("softmax", "ssa"), 3

    def command(self, out):
        return words(self.program, "compare", "--text", self.given / "text.txt", "--out", out, "--steps", 40, "--batch", 2,
                     "--warmup", 5, "--learning-rate", 0.003, *MODEL, "--device", "cpu", "--threads", 2, "--methods", ",".join(self.methods), "--seeds", self.seeds)

    def saved(self, out):
        return {str(out): len(self.finished_files(out))}

    def resumed(self, out, messages):
        found = re.search(r"(\d+) of \d+ models were finished before", messages)
        return {str(out): int(found[1])} if found else {}

    def result(self, out):
        return {"results": timeless(json.loads((out / "results.json").read_text())),
                "jobs": {path.name: timeless(json.loads(path.read_text())) for path in self.finished_files(out)},
                "report": (out / "report.html").exists(), **self.drawn(out)}


class Study(Compare):
    pictures = ("report.svg", "report.png")

    def command(self, out):
        return words(self.program, "study", "denoise", "--out", out, "--steps", 60, "--batch", 8, "--threads", 1,
                     "--methods", ",".join(self.methods), "--seeds", self.seeds, "--test-noise", "4,16")


class Scaling(Study):
    """Some forty models, with the learning rates that are tried first, in processes of their own."""

    GRID = """
sizes = ["1x32", "1x64", "2x32"]
methods = ["softmax", "ssa"]
tokens = [800, 1600]
contexts = [16]
seeds = 2
eval-tokens = 512
held-out = 0.2
"""

    def command(self, out):
        grid = self.given / "grid.toml"
        if not grid.exists():
            grid.write_text(self.GRID)
        return words(self.program, "study", "scaling", grid, "--text", self.given / "text.txt", "--out", out, "--jobs", 2,
                     "--save-seconds", 0.02, "--device", "cpu")


VERBS = {"train": Train, "finetune": Finetune, "calibrate": Calibrate, "compare": Compare, "study": Study, "scaling": Scaling}
