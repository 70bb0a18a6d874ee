"""Our BPE trainer against the package tokenizers: the same merges, the same ids."""

import json
import subprocess

import pytest
from program import DATA, PROGRAM, tool

tokenizers = pytest.importorskip("tokenizers", reason="the package tokenizers is not installed")
from tokenizers import models, pre_tokenizers, trainers  # noqa: E402

TOOL = tool("text", "bpe_trainer_tool")
SPECIAL = ["<|endoftext|>", "<pad>"]

pytestmark = pytest.mark.skipif(not TOOL.exists(), reason=f"{TOOL} is not built (cmake --build build/release --target tests)")


def reference(text, size, frequency):
    made = tokenizers.Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.train_from_iterator([text], trainers.BpeTrainer(
        vocab_size=size, min_frequency=frequency, special_tokens=SPECIAL, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return made


def check(folder, text, size, frequency):
    path = folder / "text"
    path.write_bytes(text.encode())
    done = subprocess.run([TOOL, str(size), str(frequency), ",".join(SPECIAL), path], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    wanted = reference(text, size, frequency)
    model, wanted_model = json.loads(done.stdout)["model"], json.loads(wanted.to_str())["model"]
    pairs = [pair if isinstance(pair, list) else pair.split(" ") for pair in wanted_model["merges"]]
    assert [pair.split(" ") for pair in model["merges"]] == pairs
    assert model["vocab"] == wanted_model["vocab"]
    read = tokenizers.Tokenizer.from_str(done.stdout.decode())
    sample = text[:20000] + "\nnever séen 漢字 <|endoftext|>"
    assert read.encode(sample).ids == wanted.encode(sample).ids
    assert read.decode(read.encode(text[:20000]).ids) == text[:20000]


@pytest.mark.parametrize("size, frequency", [(258, 0), (300, 2), (2000, 1)])
def test_same_merges(tmp_path, size, frequency):
    # Many equal counts, pieces that come about in two ways, and characters of several bytes.
    text = " ".join(["abcabc bcabca aaaa aaaaa ababab it's we'll 12345 漢字漢 é😀é\n\n  \t"] * 3 + ["abc xyz zyx aaaaaaaaa"] * 5)
    check(tmp_path, text, size, frequency)


@pytest.mark.parametrize("name, size, frequency, part", [
    ("text/tinyshakespeare/input.txt", 512, 2, None), ("text/tinyshakespeare/input.txt", 60000, 0, None),
    ("text/books.valid.txt", 8000, 2, 2_000_000)])
def test_same_merges_on_texts(tmp_path, name, size, frequency, part):
    if not (DATA / name).exists():
        pytest.skip(f"{DATA / name} is not there")
    check(tmp_path, (DATA / name).read_text(encoding="utf-8")[:part], size, frequency)


@pytest.mark.skipif(not PROGRAM.exists(), reason="build/tempera is missing: run make build")
def test_data_learns_a_tokenizer(tmp_path):
    text = "the cat sat on the mat, the cat and the mat\n" * 3
    (tmp_path / "a.txt").write_text(text, encoding="utf-8")
    done = subprocess.run([PROGRAM, "data", tmp_path / "a.txt", "--out", tmp_path / "out", "--train-tokenizer", "270", "--json"],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    read = tokenizers.Tokenizer.from_file(str(tmp_path / "out" / "tokenizer.json"))
    assert json.loads(done.stdout)["vocabulary"] == read.get_vocab_size() == 270
    assert json.loads(done.stdout)["tokens"] == len(read.encode(text).ids) + 1
