"""Tokenizers of GGUF as files that transformers reads, and files as GGUF: the same ids on either way."""

import functools
import json
import pathlib
import subprocess

import pytest
from tokenizer_test import LONG, TOOL, books, data, encode, expect_equal, odd_texts, tokenizers

gguf = pytest.importorskip("gguf", reason="the package gguf is not installed")
transformers = pytest.importorskip("transformers", reason="the package transformers is not installed")

pytestmark = pytest.mark.skipif(not TOOL.exists(), reason=f"{TOOL} is not built (cmake --build build/release --target tests)")

FILES = {
    "smollm2": "models/smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    "gpt-2": "tokenizers/vectors/ggml-vocab-gpt-2.gguf",
    "llama": "tokenizers/vectors/ggml-vocab-llama-spm.gguf",
}
ROWS = {"gpt2": 50257, "llama2": 32000, "qwen2_5": 151936, "gpt-neox": 50432}
# One name for each set of steps, and those that stand for the same.
NAMES = ["gpt-2", "olmo", "smollm", "llama-bpe", "smaug-bpe", "qwen2", "falcon", "deepseek-llm"]
OTHERS = ["jais", "mpt", "gpt-neox", "starcoder", "refact", "granite", "codeshell", "command-r", "llama3", "llama-v3", "dbrx",
          "deepseek-r1-qwen"]


def tool(*arguments):
    return subprocess.run([TOOL, *map(str, arguments)], capture_output=True, text=True, check=False)


def written(*arguments):
    done = tool(*arguments)
    assert done.returncode == 0, done.stderr
    return pathlib.Path(arguments[2])


def folder_of(file, folder):
    folder.mkdir()
    return written("files", file, folder)


def by_transformers(folder, texts, special):
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    return tokenizer(texts, add_special_tokens=special, split_special_tokens=not special)["input_ids"]


@functools.lru_cache(maxsize=4)
def metadata(path):
    return {key: field.contents() for key, field in gguf.GGUFReader(path).fields.items() if key.startswith("tokenizer.")}


@pytest.mark.parametrize("name", FILES if LONG else ["llama"])
@pytest.mark.parametrize("special", [False, True] if LONG else [True])
def test_transformers_gives_the_ids_of_the_gguf_file(name, special, tmp_path):
    file = data(FILES[name])
    texts = odd_texts(200) + books(1 if LONG else 0.1)
    wanted = encode(file, texts, tmp_path, special)
    folder = folder_of(file, tmp_path / "folder")
    expect_equal(by_transformers(folder, texts, special), wanted, texts)
    expect_equal(encode(folder, texts, tmp_path, special), wanted, texts)

    back = written("gguf", folder, tmp_path / "back.gguf", len(metadata(file)["tokenizer.ggml.tokens"]))
    expect_equal(encode(back, texts, tmp_path, special), wanted, texts)
    ours, original = metadata(back), metadata(file)
    for key in ("model", "tokens", "merges", "bos_token_id", "eos_token_id", "pre" if name != "llama" else "model"):
        assert ours.get("tokenizer.ggml." + key) == original.get("tokenizer.ggml." + key), key


@pytest.mark.parametrize("name", ["gpt-2", "llama-spm"])
def test_vectors(name, tmp_path):
    base = data("tokenizers/vectors") / f"ggml-vocab-{name}.gguf"
    texts = pathlib.Path(f"{base}.inp").read_text(encoding="utf-8").split("\n__ggml_vocab_test__\n")
    wanted = [[int(field) for field in line.split()] for line in pathlib.Path(f"{base}.out").read_text().split("\n")]
    expect_equal(by_transformers(folder_of(base, tmp_path / "folder"), texts, False), wanted, texts)


def copied(name, folder):
    source = data("tokenizers/" + name)
    folder.mkdir()
    for file in source.glob("*"):
        target = "tokenizer.json" if file.name == "20B_tokenizer.json" else file.name
        (folder / target).write_bytes(file.read_bytes())
    return folder


@pytest.mark.parametrize("name", ROWS if LONG else ["llama2"])
@pytest.mark.parametrize("special", [False, True] if LONG else [True])
def test_files_as_gguf(name, special, tmp_path):
    folder = copied(name, tmp_path / "folder")
    file = written("gguf", folder, tmp_path / "out.gguf", ROWS[name])
    texts = odd_texts(200) + books(0.3 if LONG else 0.05)
    if name == "llama2":  # its file finds these only behind a blank, GGUF everywhere
        texts = [text for text in texts if not special or "<" not in text]
    expect_equal(encode(file, texts, tmp_path, special), encode(folder, texts, tmp_path, special), texts)
    fields = metadata(file)
    assert len(fields["tokenizer.ggml.tokens"]) == len(fields["tokenizer.ggml.token_type"]) == ROWS[name]


def test_sentencepiece_models_keep_their_scores(tmp_path):
    folder = copied("llama2", tmp_path / "folder")
    (folder / "tokenizer.json").unlink()
    file = written("gguf", folder, tmp_path / "out.gguf", 32000)
    original = metadata(data(FILES["llama"]))
    for key in ("tokens", "scores", "token_type"):
        assert metadata(file)["tokenizer.ggml." + key] == original["tokenizer.ggml." + key]
    texts = odd_texts(300)
    expect_equal(encode(file, texts, tmp_path), encode(folder, texts, tmp_path), texts)


@pytest.mark.parametrize("name", NAMES + OTHERS if LONG else NAMES)
def test_every_way_to_split_words(name, tmp_path):
    # Ids of GPT-2: the bytes, then a piece a merge, then the end of a text; the first merges alone tell how words are split.
    fields = metadata(data(FILES["gpt-2"]))
    merges = fields["tokenizer.ggml.merges"][:None if LONG else 3000]
    size = 256 + len(merges)
    tokens, types = ([*fields["tokenizer.ggml." + key][:size], fields["tokenizer.ggml." + key][-1]]
                     for key in ("tokens", "token_type"))
    writer = gguf.GGUFWriter(tmp_path / "in.gguf", "gpt2")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(name)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges(merges)
    writer.add_bos_token_id(size)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    texts = odd_texts(100) + books(0.02)
    wanted = encode(tmp_path / "in.gguf", texts, tmp_path)
    folder = folder_of(tmp_path / "in.gguf", tmp_path / "folder")
    oracle = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    oracle.encode_special_tokens = True
    expect_equal([oracle.encode(text, add_special_tokens=False).ids for text in texts], wanted, texts)
    back = written("gguf", folder, tmp_path / "back.gguf", size + 1)
    expect_equal(encode(back, texts, tmp_path), wanted, texts)
    assert metadata(back)["tokenizer.ggml.add_bos_token"] == (len(encode(folder, ["a"], tmp_path, True)[0]) == 2)


def test_what_has_no_words_is_refused_with_the_reason(tmp_path):
    folder = copied("gpt2", tmp_path / "gpt2")
    parts = json.loads((folder / "tokenizer.json").read_text())

    def refusal(**changes):
        (folder / "tokenizer.json").write_text(json.dumps({**parts, **changes}))
        done = tool("gguf", folder, tmp_path / "out.gguf", 50257)
        assert done.returncode == 1 and not (tmp_path / "out.gguf").exists()
        return done.stderr

    assert "no known name" in refusal(pre_tokenizer={**parts["pre_tokenizer"], "add_prefix_space": True})
    assert '"Lowercase"' in refusal(normalizer={"type": "Lowercase"})
    assert '"lstrip"' in refusal(added_tokens=[{**parts["added_tokens"][0], "lstrip": True}])
    (folder / "tokenizer.json").write_text(json.dumps(parts))
    assert "50257 tokens, and the model 50000 rows" in tool("gguf", folder, tmp_path / "x.gguf", 50000).stderr
    assert "none of sentencepiece" in tool("gguf", copied("t5", tmp_path / "t5"), tmp_path / "x.gguf", 32128).stderr
    (tmp_path / "bert").mkdir()
    assert "'bert' is not written" in tool("files", data("tokenizers/vectors/ggml-vocab-bert-bge.gguf"),
                                           tmp_path / "bert").stderr


def test_merges_that_follow_from_no_scores_are_refused(tmp_path):
    folder = copied("llama2", tmp_path / "folder")
    parts = json.loads((folder / "tokenizer.json").read_text())
    parts["model"]["merges"] = parts["model"]["merges"][1:] + parts["model"]["merges"][:1]
    (folder / "tokenizer.json").write_text(json.dumps(parts))
    assert tool("gguf", folder, tmp_path / "a.gguf", 32000).returncode == 0  # another order is another set of scores
    parts["model"]["merges"].pop(5)
    (folder / "tokenizer.json").write_text(json.dumps(parts))
    assert "do not follow from scores" in tool("gguf", folder, tmp_path / "b.gguf", 32000).stderr
