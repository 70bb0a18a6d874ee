"""Encoders and encoder-decoders as a process: masked language models, classes, translations, and their scores."""

import json
import os
import random
import shutil
import subprocess

import pytest
from program import PATIENCE, PROGRAM, few, tool

SCORER = tool("eval", "translation_tool")

pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason="build/tempera is missing: run make build")

SMALL = ("--layers 1 --width 32 --heads 2 --context 32 --batch 4 --steps 8 --warmup 2 --eval-every 4 --eval-rows 4 --log-every 1 "
         "--save-every 4 --device cpu --threads 1").split()


def run(*arguments, code=0):
    done = subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == code, done.stderr
    return done


def result(*arguments):
    return json.loads(run(*arguments, "--json").stdout)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A text, labelled texts and pairs, all learnable: a class is a word, a translation is upper case."""
    folder = tmp_path_factory.mktemp("files")
    words = random.Random(0)
    some = lambda: " ".join(words.choice(["red", "fox", "sun", "old", "map", "key"]) for _ in range(words.randint(2, 4)))
    (folder / "text.txt").write_text("the quick brown fox jumps over the lazy dog. " * 60)
    (folder / "labels.tsv").write_text("sentence\tlabel\n" + "".join(
        f"{some()} {'good' if i % 2 else 'bad'} {some()}\t{i % 2}\n" for i in range(120)))
    lines = [some() for _ in range(120)]
    (folder / "a.en").write_text("\n".join(lines) + "\n")
    (folder / "a.xx").write_text("\n".join(line.upper() for line in lines) + "\n")
    return folder


@pytest.fixture(scope="module")
def masked(files, tmp_path_factory):
    out = tmp_path_factory.mktemp("masked") / "run"
    summary = result("train", "--kind", "encoder", "--text", files / "text.txt", "--temperature", "ssa", "--out", out, *SMALL)
    assert summary["steps"] == 8 and summary["validation"]["targets"] > 0 and summary["temperature_parameters"] > 0
    return out


@pytest.fixture(scope="module")
def translator(files, tmp_path_factory):
    out = tmp_path_factory.mktemp("translator") / "run"
    summary = result("train", "--source", files / "a.en", "--target", files / "a.xx", "--label-smoothing", 0.1, "--temperature",
                     "focal-learned", "--out", out, *SMALL)
    assert summary["steps"] == 8 and summary["validation"]["loss"] > 0
    return out


def test_masked_language_model(files, masked):
    config = json.loads((masked / "last" / "config.json").read_text())["tempera"]["config"]
    assert config["model"]["kind"] == "encoder"
    own = result("eval", masked)
    assert own["loss"] > 0 and 0 <= own["accuracy"] <= 100
    text = result("eval", masked, "--text", files / "text.txt")
    # 15 % of the tokens, in rows of 32.
    assert text["targets"] == pytest.approx(0.15 * 60 * 45, rel=0.1)
    assert text == result("eval", masked, "--text", files / "text.txt")


@pytest.mark.parametrize("data", ["text", "pairs"])
def test_a_run_that_lost_its_last_steps_repeats_them(files, tmp_path, data):
    arguments = (["--kind", "encoder", "--text", files / "text.txt"] if data == "text"
                 else ["--source", files / "a.en", "--target", files / "a.xx"])
    out = tmp_path / "run"
    run("train", *arguments, "--out", out, *SMALL, "--model.dropout-residual", 0.1)
    weights = (out / "last" / "model.safetensors").read_bytes()
    log = (out / "log.jsonl").read_text().splitlines()
    shutil.rmtree(out / "checkpoints" / "step-00000008")
    again = run("train", *arguments, "--out", out, *SMALL, "--model.dropout-residual", 0.1)
    assert "from step 4" in again.stderr
    assert (out / "last" / "model.safetensors").read_bytes() == weights
    losses = lambda lines: [(line["step"], line["loss"]) for line in map(json.loads, lines) if "loss" in line]
    assert losses((out / "log.jsonl").read_text().splitlines()) == losses(log)


def test_span_corruption(files, tmp_path):
    out = tmp_path / "run"
    summary = result("train", "--kind", "encoder-decoder", "--text", files / "text.txt", "--out", out, *SMALL)
    # 32 tokens, 5 of them in 2 spans: 30 are read and 8 written, each with the end.
    assert summary["tokens"] == 8 * 4 * (32 - 5 + 2 + 1 + 5 + 2 + 1)
    assert result("eval", out)["loss"] > 0


def test_classes_from_a_trained_encoder(files, masked, tmp_path):
    out = tmp_path / "run"
    summary = result("finetune", masked, "--labelled", files / "labels.tsv", "--out", out, "--steps", 60, "--batch", 16,
                     "--learning-rate", 0.01, "--device", "cpu", "--threads", 1)
    assert summary["temperature"] == "ssa"
    config = json.loads((out / "last" / "config.json").read_text())["tempera"]["config"]["model"]
    assert config["head"] == "sequence" and config["outputs"] == 2
    scores = result("eval", out, "--labelled", files / "labels.tsv")
    assert scores["targets"] == 120
    assert scores["accuracy"] > 90 and scores["f1_macro"] > 90 and scores["f1_binary"] > 90
    assert scores["accuracy_interval"][0] <= scores["accuracy"] <= scores["accuracy_interval"][1]
    assert result("eval", out)["targets"] == 6  # what was held out


def test_translations_line_by_line(files, translator, tmp_path):
    lines = tmp_path / "lines.en"
    lines.write_text("red fox\n\nold map key\n")
    for beams in (1, 3):
        printed = run("generate", translator, "--prompts", lines, "--beams", beams, "--max-tokens", 12).stdout
        answers = result("generate", translator, "--prompts", lines, "--beams", beams, "--max-tokens", 12)["answers"]
        assert [answer["prompt"] for answer in answers] == ["red fox", "", "old map key"]
        assert all(len(answer["tokens"]) <= 12 for answer in answers)
        if all(answer["text"].isprintable() for answer in answers):
            assert printed == "".join(answer["text"] + "\n" for answer in answers)


def test_eval_scores_what_generate_writes(files, translator, tmp_path):
    if not SCORER.exists():
        pytest.skip(f"{SCORER} is not built (cmake --build build/release --target tests)")
    scores = result("eval", translator, "--source", files / "a.en", "--target", files / "a.xx", "--beams", 2)
    assert scores["sentences"] == 120 and scores["beams"] == 2
    assert scores["chrf_interval"][0] <= scores["chrf"] <= scores["chrf_interval"][1]
    written = tmp_path / "out.xx"
    written.write_text(run("generate", translator, "--prompts", files / "a.en", "--beams", 2).stdout)
    again = json.loads(subprocess.run([SCORER, written, files / "a.xx"], capture_output=True, check=True).stdout)
    assert again["bleu"] == pytest.approx(scores["bleu"], abs=1e-9)
    assert again["chrf"] == pytest.approx(scores["chrf"], abs=1e-9)


@pytest.mark.skipif(os.environ.get("TEMPERA_LONG") != "1", reason="takes minutes: TEMPERA_LONG=1")
def test_a_translator_learns(files, tmp_path):
    out = tmp_path / "run"
    run("train", "--source", files / "a.en", "--target", files / "a.xx", "--out", out, "--layers", 2, "--width", 64, "--heads", 4,
        "--context", 32, "--batch", 32, "--steps", 800, "--warmup", 50, "--learning-rate", 3e-3, "--device", "cpu")
    scores = result("eval", out, "--source", files / "a.en", "--target", files / "a.xx", "--beams", 4)
    assert scores["chrf"] > 90


def test_methods_are_compared(files, tmp_path):
    small = ["--layers", 1, "--width", 32, "--heads", 2, "--context", 32, "--batch", 4, "--steps", 4, "--device", "cpu"]
    pairs = result("compare", "--source", files / "a.en", "--target", files / "a.xx", "--methods", "softmax,ssa", "--seeds", 2,
                   "--out", tmp_path / "pairs", *small)
    for method in ("softmax", "ssa"):
        assert len(pairs["results"][method]["bleu"]["32"]["seeds"]) == 2
        assert pairs["results"][method]["chrf"]["32"]["mean"] >= 0
    classes = result("compare", "--labelled", files / "labels.tsv", "--methods", "softmax,focal", "--seeds", 1, "--out",
                     tmp_path / "classes", *small)
    assert "f1_macro" in classes["results"]["focal"]
    hidden = run("compare", "--kind", "encoder", "--text", files / "text.txt", "--methods", "softmax", "--seeds", 1, "--out",
                 tmp_path / "text", *small)
    assert "loss" in hidden.stdout


@pytest.mark.parametrize("arguments, complaint", few(3, [
    (["--kind", "encoder", "--source", "a.en", "--target", "a.xx"], "kind encoder-decoder"),
    (["--source", "a.en"], "each file of one needs its other"),
    (["--labelled", "labels.tsv", "--text", "text.txt"], "both --text and --labelled given"),
    (["--kind", "encoder", "--task", "copy"], "kind decoder"),
    (["--labelled", "a.en"], "the columns are"),
    (["--source", "a.en", "--target", "text.txt"], "has 120 lines and"),
]))
def test_what_does_not_go_together_is_refused(files, tmp_path, arguments, complaint):
    given = [files / word if (files / word).exists() else word for word in arguments]
    done = subprocess.run([PROGRAM, "train", *map(str, given), "--out", tmp_path / "run", *SMALL], capture_output=True, text=True,
                          timeout=PATIENCE, check=False)
    assert done.returncode in (1, 2) and complaint in done.stderr
    assert not (tmp_path / "run").exists()


def test_models_of_another_kind_are_refused(files, masked, translator):
    assert "encoder-decoder expected" in run("eval", masked, "--source", files / "a.en", "--target", files / "a.xx", code=1).stderr
    assert "sequences" in run("eval", translator, "--labelled", files / "labels.tsv", code=1).stderr
