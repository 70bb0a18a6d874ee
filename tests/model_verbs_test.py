"""`tempera eval`, `generate` and `info` from outside, on small models trained here."""

import json
import math

import pytest
from program import PROGRAM, result, run

pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason="build/tempera is missing: run make build")

TEXT = "the quick brown fox jumps over the lazy dog. " * 60


@pytest.fixture(scope="module")
def text_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("text")
    (folder / "text.txt").write_text(TEXT)
    done = run(
        "train", "--text", folder / "text.txt", "--out", folder / "run", "--temperature", "ssa", "--threads", 1,
        *"--layers 1 --width 64 --heads 2 --context 64 --batch 8 --steps 150 --warmup 10 --eval-every 0".split(),
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def task_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("task")
    done = run("train", "--task", "phonebook", "--out", folder / "run", "--steps", 3, "--threads", 1,
               "--temperature", "focal")
    assert done.returncode == 0, done.stderr
    return folder


# eval


def test_perplexity_of_a_text(text_run):
    scores = result("eval", text_run / "run", "--text", text_run / "text.txt")
    assert scores["tokens"] == len(TEXT) - 1
    assert scores["perplexity"] == pytest.approx(math.exp(scores["loss"]))
    assert scores["perplexity"] < 3, "it has learned its text"
    assert scores["bits_per_byte"] == pytest.approx(scores["loss"] / math.log(2))
    assert (scores["window"], scores["stride"]) == (64, 64)
    buckets = scores["by_position"]
    assert [(bucket["first"], bucket["last"]) for bucket in buckets] == [(1, 15), (16, 31), (32, 64)]
    assert sum(bucket["tokens"] for bucket in buckets) == scores["tokens"]
    mean = sum(bucket["tokens"] * bucket["loss"] for bucket in buckets) / scores["tokens"]
    assert scores["loss"] == pytest.approx(mean)
    # A smaller stride gives every token more to see.
    overlapping = result("eval", text_run / "run", "--text", text_run / "text.txt", "--stride", 8)
    assert overlapping["tokens"] == scores["tokens"]
    assert overlapping["by_position"][0]["tokens"] == 15
    few = result("eval", text_run / "run", "--text", text_run / "text.txt", "--eval-tokens", 100, "--window", 32)
    assert few["tokens"] == 99 and few["by_position"][-1]["last"] == 32


def test_the_default_is_the_models_own_held_out_text(text_run):
    own = result("eval", text_run / "run")
    log = [json.loads(line) for line in (text_run / "run" / "log.jsonl").read_text().splitlines()]
    validation = [line["validation_loss"] for line in log if "validation_loss" in line][-1]
    assert own["loss"] == pytest.approx(validation, rel=1e-5)


def test_a_built_in_task(task_run, tmp_path):
    own = result("eval", task_run / "run" / "last", "--out", tmp_path / "picture")
    assert [row["size"] for row in own["sets"]] == [32, 64, 128, 256, 512, 1024]
    assert [row["rows"] for row in own["sets"]] == [64, 16, 16, 16, 16, 16]
    assert all(0 <= row["accuracy"] <= 100 and 0 < row["answer_weight"] < 1 for row in own["sets"])
    assert json.loads((tmp_path / "picture" / "eval.json").read_text()) == own
    assert (tmp_path / "picture" / "eval.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (tmp_path / "picture" / "eval.svg").read_text()
    some = result("eval", task_run / "run", "--task", "phonebook", "--sizes", "64,100", "--rows", 16)
    assert [row["size"] for row in some["sets"]] == [64, 100]
    assert some["sets"][0] == own["sets"][1], "the same books"
    table = run("eval", task_run / "run", "--task", "phonebook", "--sizes", "8").stdout
    assert "accuracy" in table and "size" in table


@pytest.mark.parametrize(
    "arguments, code, words",
    [
        (["--text", "{text}", "--stride", "65"], 2, "the stride must be from 1 to the window"),
        (["--text", "{text}", "--task", "copy"], 2, "give one of them"),
        (["--text", "{folder}/nothing.txt"], 1, "nothing.txt"),
        (["--text", "{text}", "--sizes", "8"], 2, "built-in task"),
        (["--task", "copi"], 2, "did you mean 'copy'?"),
    ],
)
def test_wrong_evaluations(text_run, arguments, code, words):
    names = {"text": text_run / "text.txt", "folder": text_run}
    done = run("eval", text_run / "run", *(str(word).format(**names) for word in arguments))
    assert done.returncode == code, done.stderr
    assert words in done.stderr


def test_models_and_data_must_fit(text_run, task_run):
    done = run("eval", task_run / "run", "--text", text_run / "text.txt")
    assert done.returncode == 1 and "has no tokenizer" in done.stderr
    done = run("eval", task_run / "run", "--task", "phonebook", "--task.names", 4096, "--sizes", 32)
    assert done.returncode == 1 and "vocabulary" in done.stderr
    for verb in ("eval", "generate", "info"):
        done = run(verb, text_run / "nowhere")
        assert done.returncode == 1 and "nowhere" in done.stderr


# generate


def test_a_model_continues_its_text(text_run):
    done = run("generate", text_run / "run", "--prompt", "the quick brown", "--sampling-temperature", 0, "--max-tokens", 30)
    assert done.returncode == 0, done.stderr
    assert done.stdout == " fox jumps over the lazy dog. \n"
    answer = result(
        "generate", text_run / "run", "--prompt", "the quick brown", "--sampling-temperature", 0, "--max-tokens", 30,
        "--stop", "lazy",
    )["answers"][0]
    assert answer["text"] == " fox jumps over the " and answer["finish"] == "stop"
    assert bytes(answer["tokens"]).decode() == " fox jumps over the lazy"
    assert len(answer["log_probabilities"]) == len(answer["tokens"])
    assert all(-3 < chance <= 0 for chance in answer["log_probabilities"])


def test_seeds_samples_and_files_of_prompts(text_run, tmp_path):
    prompt = ["generate", text_run / "run", "--prompt", "the", "--max-tokens", 20, "--sampling-temperature", 2]
    assert result(*prompt, "--seed", 1)["answers"] == result(*prompt, "--seed", 1)["answers"]
    assert result(*prompt, "--seed", 1)["answers"] != result(*prompt, "--seed", 2)["answers"]
    texts = {answer["text"] for answer in result(*prompt, "--samples", 4)["answers"]}
    assert len(texts) > 1
    lines = tmp_path / "prompts.txt"
    lines.write_text("the quick brown\n\nover the lazy")
    greedy = ["--sampling-temperature", 0, "--max-tokens", 5]
    answers = result("generate", text_run / "run", "--prompts", lines, *greedy)["answers"]
    assert [(answer["prompt"], answer["text"]) for answer in answers] == [
        ("the quick brown", " fox "), ("over the lazy", " dog."),
    ]
    assert "=== 2: over the lazy\n dog.\n" in run("generate", text_run / "run", "--prompts", lines, *greedy).stdout
    lines.write_text("the quick brown")
    assert run("generate", text_run / "run", "--file", lines, *greedy).stdout == " fox \n"
    assert result("generate", text_run / "run", "--max-tokens", 0)["answers"][0]["text"] == ""


def test_wrong_generations(text_run, task_run, tmp_path):
    done = run("generate", task_run / "run", "--prompt", "x")
    assert done.returncode == 1 and "has no tokenizer" in done.stderr
    done = run("generate", text_run / "run", "--prompt", "x", "--file", "y")
    assert done.returncode == 2 and "give one of" in done.stderr
    done = run("generate", text_run / "run", "--top-p", "0")
    assert done.returncode == 2 and "--top-p" in done.stderr
    (tmp_path / "empty").write_text("\n")
    done = run("generate", text_run / "run", "--prompts", tmp_path / "empty")
    assert done.returncode == 2 and "has no line" in done.stderr


# info


def test_what_a_model_is(text_run, task_run):
    info = result("info", text_run / "run")
    config = json.loads((text_run / "run" / "last" / "config.json").read_text())
    assert info["config"] == config["tempera"]["config"]
    assert info["parameters"] == sum(info["parameters_by_kind"].values())
    assert info["temperature_parameters"] == info["parameters_by_kind"]["temperature"] == 2 * (2 * 32 + 2)
    assert info["temperature_share"] == pytest.approx(info["temperature_parameters"] / info["parameters"])
    assert info["tokenizer"] == {"name": "bytes", "vocabulary": 259}
    assert info["training"]["step"] == 150
    layer = info["temperatures"]["layers"][0]
    assert layer["methods"] == ["ssa"] and len(layer["q"]) == len(layer["v"]) == 2 and layer["k"] is None

    info = result("info", task_run / "run")
    assert info["tokenizer"] is None
    assert info["temperatures"]["layers"][0]["q"] == pytest.approx([2.5] * 4)
    text = run("info", task_run / "run").stdout
    assert "focal" in text and "2.500" in text and "166336" in text


def test_an_export_in_several_files_is_read_back(text_run, tmp_path):
    for size, name in ((1e-5, "many"), (5, "one")):
        done = run("export", text_run / "run", "--out", tmp_path / name, "--shard-gb", size)
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "many" / "model.safetensors.index.json").exists()
    losses = [result("eval", tmp_path / name, "--text", text_run / "text.txt")["loss"] for name in ("many", "one")]
    assert losses[0] == losses[1]
