"""No verb trains on a token that another verb, window or stage measures as held out.

The last twentieth of the text is written in capitals, and nothing else is: whoever trains on it moves the rows of the
capitals in the token table, and whoever measures more than it measures text that was trained on.
"""

import json
import random

import pytest
from program import PROGRAM, result, run

safetensors = pytest.importorskip("safetensors.torch", reason="the package safetensors is not installed")
torch = pytest.importorskip("torch", reason="the package torch is not installed")

pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason="build/tempera is missing: run make build")

HELD_OUT = 200  # letters; with the end of the text, 201 of 4,001 tokens
SHAPE = ("--layers 1 --width 32 --heads 2 --model.tied-embeddings=false --weight-decay 0 --warmup 1 --threads 1 "
         "--device cpu --eval-every 0").split()
CAPITALS = [ord(letter) for letter in "ABCDEFGH"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("held-out")
    letters = random.Random(1)
    text = "".join(letters.choices("abcdefgh", k=4000 - HELD_OUT)) + "".join(letters.choices("ABCDEFGH", k=HELD_OUT))
    (folder / "text.txt").write_text(text)
    return folder


def train(folder, name, *more):
    return result("train", "--text", folder / "text.txt", "--out", folder / name, *SHAPE, *more)


@pytest.fixture(scope="module")
def untouched(folder):
    """A run of one short step, and its token table."""
    train(folder, "run", "--context", 16, "--batch", 1, "--steps", 1)
    return folder / "run"


def rows(run_folder, tokens):
    table = safetensors.load_file(run_folder / "last" / "model.safetensors")["embedding.weight"]
    return table[tokens]


def expect_untouched(run_folder, untouched):
    assert torch.equal(rows(run_folder, CAPITALS), rows(untouched, CAPITALS)), "held-out text was trained on"
    small = [ord(letter) for letter in "abcdefgh"]
    assert not torch.equal(rows(run_folder, small), rows(untouched, small)), "nothing was trained at all"


@pytest.mark.parametrize("name, options", [
    ("short", ["--context", 16, "--batch", 16, "--steps", 32]),
    ("long", ["--context", 1900, "--batch", 1, "--steps", 4]),
    ("stages", ["--context", 16, "--batch", 8, "--stages", "16:4096,64:4096,1024:8192"]),
    ("longest stage first", ["--context", 16, "--batch", 8, "--stages", "1024:8192,16:4096"]),
])
def test_training_leaves_it_alone(folder, untouched, name, options):
    train(folder, name, *options)
    expect_untouched(folder / name, untouched)


def test_finetuning_on_the_same_text_leaves_it_alone(folder, untouched):
    for length in (16, 1500):
        out = folder / f"finetuned-{length}"
        result("finetune", untouched, "--text", folder / "text.txt", "--length", length, "--batch", 1, "--steps", 30,
               "--out", out, "--weight-decay", 0, "--warmup", 1, "--threads", 1, "--device", "cpu", "--eval-every", 0)
        expect_untouched(out, untouched)


@pytest.mark.parametrize("window", [8, 100, 201, 300, 3900, 16384])
def test_eval_measures_it_alone(untouched, window):
    done = run("eval", untouched, "--window", window, "--json")
    assert done.returncode == 0, done.stderr
    scores = json.loads(done.stdout)
    used = min(window, HELD_OUT + 1)
    assert scores["window"] == used
    whole = (HELD_OUT + 1) // used * used
    assert scores["tokens"] == (whole if whole <= HELD_OUT else HELD_OUT), "every token but the last has a next one"
    assert ("windows of 201 tokens are measured instead" in done.stderr) == (window > HELD_OUT + 1)


def test_calibration_measures_it_alone(folder, untouched):
    found = result("calibrate", untouched, "--text", folder / "text.txt", "--length", 16, "--context", 4096, "--learn", "head",
                   "--eval-lengths", "8,150,2000,4000", "--tokens", 64, "--step-tokens", 32, "--passkey-cases", 0,
                   "--out", folder / "calibrated", "--threads", 1)
    for measured in found["measures"].values():
        assert {length: scores["tokens"] for length, scores in measured["perplexity"].items()} == \
            {"8": 200, "150": 150, "201": 200}
    assert any("has 201 tokens" in line for line in found["warnings"])


def test_eval_of_a_calibration_measures_its_eval_text(folder, untouched):
    """All of the text was learned from: its last twentieth is not held out."""
    (folder / "other.txt").write_text("ABAB" * 30)
    out = folder / "calibrated on all"
    result("calibrate", untouched, "--text", folder / "text.txt", "--eval-text", folder / "other.txt", "--learn", "head",
           "--tokens", 64, "--step-tokens", 32, "--passkey-cases", 0, "--out", out, "--threads", 1)
    scores = result("eval", out)
    assert scores["text"] == [str(folder / "other.txt")]
    assert scores["tokens"] == 119
    assert scores["loss"] == result("eval", out, "--text", folder / "other.txt")["loss"]


def test_compare_measures_it_alone(folder):
    found = result("compare", "--text", folder / "text.txt", "--methods", "softmax", "--seeds", 1, "--out", folder / "compare",
                   "--context", 300, "--batch", 1, "--steps", 1, "--layers", 1, "--width", 32, "--heads", 2, "--threads", 1)
    assert list(found["results"]["softmax"]["loss"]) == ["201"], "one row, of all that is held out"


def test_two_texts_are_both_read(folder, tmp_path):
    (tmp_path / "a.txt").write_text("a" * 300)
    (tmp_path / "b.txt").write_text("b" * 500)
    done = run("train", "--text", tmp_path / "a.txt", "--text", tmp_path / "b.txt", "--held-out", 0, "--out", tmp_path / "run",
               "--context", 16, "--batch", 1, "--steps", 1, *SHAPE)
    assert done.returncode == 0, done.stderr
    shard = (tmp_path / "run" / "data" / "shard-00000.tokens").read_bytes()
    assert shard.count(b"a\0") >= 300 and shard.count(b"b\0") >= 500
