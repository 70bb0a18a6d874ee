"""A tokenizer that `tempera data` learnt goes with the model: into its checkpoints, and into every verb that reads them."""

import json
import shutil

import pytest
from program import PROGRAM, result, run

pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason="build/tempera is missing: run make build")

SENTENCES = ["the quick brown fox jumps over the lazy dog. ", "a stitch in time saves nine, as the tailors say. ",
             "caf\u00e9s open early; \u6f22\u5b57 are written slowly. "]
TEXT = "\n<|endoftext|>\n".join(sentence * 12 for sentence in SENTENCES * 4)
SMALL = ("--layers 1 --width 64 --heads 2 --context 32 --batch 8 --warmup 10 --eval-every 0 --held-out 0.1 --threads 1").split()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """text.txt, its shards with their tokenizer, and a run on them."""
    made = tmp_path_factory.mktemp("own")
    (made / "text.txt").write_text(TEXT, encoding="utf-8")
    told = result("data", made / "text.txt", "--out", made / "shards", "--train-tokenizer", 320)
    assert told["vocabulary"] == 320
    (made / "shards" / "chat_template.jinja").write_text("{% for m in messages %}{{ m.content }}{% endfor %}")
    summary = result("train", "--text", made / "shards", "--out", made / "run", "--steps", 150, *SMALL)
    assert summary["loss"] < 1.5
    return made


def test_the_checkpoint_has_the_tokenizer_with_it(folder):
    last = folder / "run" / "last"
    for name in ("tokenizer.json", "chat_template.jinja"):
        assert (last / name).read_bytes() == (folder / "shards" / name).read_bytes()
    known = json.loads((last / "config.json").read_text())
    assert known["vocab_size"] == 320 and known["tempera"]["tokenizer"].startswith("bpe-320-")
    assert {"tokenizer.json", "chat_template.jinja"} <= set(json.loads((last / "state.json").read_text())["files"])
    again = run("train", "--text", folder / "shards", "--out", folder / "run", "--steps", 150, *SMALL)
    assert again.returncode == 0 and "continuing the run" in again.stderr


def test_every_verb_reads_it_from_a_checkpoint_alone(folder, tmp_path):
    model = shutil.copytree(folder / "run" / "last", tmp_path / "model")
    assert result("info", model)["tokenizer"]["vocabulary"] == 320
    ids = result("tokenize", model, "the quick brown")
    assert ids == result("tokenize", folder / "shards", "the quick brown") and len(ids["ids"]) < 8
    answer = result("generate", model, "--prompt", "the quick brown", "--max-tokens", 12, "--sampling-temperature", 0)["answers"][0]
    assert answer["text"].startswith(" fox jumps over"), answer
    told = result("chat", model, "--prompt", "a stitch in", "--max-tokens", 6, "--sampling-temperature", 0)
    assert told["answer"].startswith(" time saves"), told
    scores = result("eval", model, "--text", folder / "text.txt")
    assert scores["perplexity"] < 3
    # A token has several bytes, so the same loss means fewer bits of a byte.
    assert scores["bits_per_byte"] < 0.7 * scores["loss"] / 0.6931
    exact = result("eval", model, "--text", folder / "shards")
    assert exact["loss"] == pytest.approx(scores["loss"]) and exact["tokens"] == scores["tokens"]


def test_its_own_held_out_text_is_found_in_the_shards(folder):
    own = result("eval", folder / "run")
    log = [json.loads(line) for line in (folder / "run" / "log.jsonl").read_text().splitlines()]
    assert own["loss"] == pytest.approx([line["validation_loss"] for line in log if "validation_loss" in line][-1], rel=1e-5)


def test_a_single_shard_and_text_beside_it(folder, tmp_path):
    (shard,) = (folder / "shards").glob("*.tokens")
    summary = result("train", "--text", f"{shard},{folder / 'text.txt'}", "--out", tmp_path / "run", "--steps", 2, *SMALL)
    assert summary["steps"] == 2
    assert (tmp_path / "run" / "last" / "tokenizer.json").exists()
    name = json.loads((folder / "run" / "last" / "config.json").read_text())["tempera"]["tokenizer"]
    assert json.loads((tmp_path / "run" / "last" / "config.json").read_text())["tempera"]["tokenizer"] == name
    made = next((tmp_path / "run" / "data").glob("*.tokens"))
    assert made.read_bytes() == shard.read_bytes()


def refusal(folder, *arguments):
    done = run("train", "--out", folder / "run", "--steps", 2, *SMALL, *arguments)
    assert done.returncode == 1 and not (folder / "run").exists(), done.stderr
    return done.stderr


def test_what_does_not_fit_is_refused(folder, tmp_path):
    assert "vocabulary mismatch" in refusal(tmp_path, "--text", folder / "shards", "--model.vocabulary", 300)
    other = tmp_path / "other"
    result("data", folder / "text.txt", "--out", other, "--train-tokenizer", 300)
    assert "do not fit together" in refusal(tmp_path, "--text", f"{folder / 'shards'},{other}")
    shutil.copy(folder / "shards" / "tokenizer.json", other / "tokenizer.json")
    text = refusal(tmp_path, "--text", other)
    assert "bpe-320-" in text and "bpe-300-" in text and "put the one that made them there" in text
    (other / "tokenizer.json").write_text("{}")
    assert str(other / "tokenizer.json") in refusal(tmp_path, "--text", other)
    model = shutil.copytree(folder / "run" / "last", tmp_path / "model")
    result("data", folder / "text.txt", "--out", tmp_path / "third", "--train-tokenizer", 310)
    shutil.copy(tmp_path / "third" / "tokenizer.json", model / "tokenizer.json")
    done = run("generate", model, "--prompt", "the")
    assert done.returncode == 1 and "bpe-310-" in done.stderr and "bpe-320-" in done.stderr
    (model / "tokenizer.json").unlink()
    done = run("generate", model, "--prompt", "the")
    assert done.returncode == 1 and "the folder has no tokenizer" in done.stderr


@pytest.mark.parametrize("name", ["mine.json", "model.gguf"])
def test_a_tokenizer_under_another_name_goes_with_the_run(folder, tmp_path, name):
    given = tmp_path / "given" / name
    given.parent.mkdir()
    if name == "model.gguf":
        result("train", "--text", folder / "shards", "--out", tmp_path / "plain", "--steps", 1, *SMALL)
        done = run("export", tmp_path / "plain", "--as", "gguf", "--out", given)
        assert done.returncode == 0, done.stderr
    else:
        shutil.copy(folder / "shards" / "tokenizer.json", given)
        result("data", folder / "text.txt", "--out", tmp_path / "other", "--train-tokenizer", 300)
        shutil.copy(tmp_path / "other" / "tokenizer.json", given.parent / "tokenizer.json")
    result("train", "--text", folder / "text.txt", "--tokenizer", given, "--out", tmp_path / "run", "--steps", 2, *SMALL)
    model = tmp_path / "run" / "last"
    ids = result("tokenize", model, "the quick brown")["ids"]
    assert ids == result("tokenize", given, "the quick brown")["ids"]
    assert result("generate", tmp_path / "run", "--prompt", "the quick", "--max-tokens", 2)["answers"]
    assert result("eval", tmp_path / "run")["tokens"] > 0
