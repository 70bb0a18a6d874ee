"""Our tokenizers against the reference implementations, the packages tokenizers and sentencepiece."""

import functools
import json
import os
import pathlib
import random
import subprocess
import unicodedata

import pytest
from program import DATA, LONG, PATIENCE, PROGRAM, tool

os.environ["TOKENIZERS_PARALLELISM"] = "false"
tokenizers = pytest.importorskip("tokenizers", reason="the package tokenizers is not installed")

TOOL = tool("text", "tokenizer_tool")
ODD = 500 if LONG else 200  # texts of each kind

pytestmark = pytest.mark.skipif(not TOOL.exists(), reason=f"{TOOL} is not built (cmake --build build/release --target tests)")

REAL = ["gpt2/tokenizer.json", "llama2/tokenizer.json", "gpt-neox/20B_tokenizer.json", "qwen2_5/tokenizer.json",
        "t5/tokenizer.json", "bert/bert-base-uncased-vocab.txt", "bert/bert_base_cased_vocab.txt"]
VECTORS = {
    "gpt-2": ["vectors/ggml-vocab-gpt-2.gguf", "gpt2/tokenizer.json", "gpt2/vocab.json"],
    "llama-spm": ["vectors/ggml-vocab-llama-spm.gguf", "llama2/tokenizer.json", "llama2/tokenizer.model"],
    "bert-bge": ["vectors/ggml-vocab-bert-bge.gguf", "bert/bert-base-uncased-vocab.txt"],
    "qwen2": ["qwen2_5/tokenizer.json"],
}

POOLS = ["abc XYZ", "  \t\n\r", "0123 45\u00b2\u00bd\u2167\u0663", "'s 'S 'll 'RE '\u017f\u2019s",
         "\u00e9\u00e0\u00fc\u00df\u00c7\u0130\u0131\u03a3\u03c3\u03c2\u0141", "\u0435\u0301\u0436\u0416",
         "\u6f22\u5b57\u304b\u30ab\ud55c\uae00", "\U0001f999\U0001f469\u200d\U0001f467\U0001f1e9\U0001f1ea",
         "\u0301\u0308\u200d\ufeff\u00ad\u180e\u2028\u0085\u00a0\u3000\u2003", "!?.,;:-_()[]{}<>@#$%^&*+=~`\"|\\/",
         "\u2581\u0120\u00c4\x00\x01\x7f", "\ufb01\u2460\u338f\uff21\uff71\u309b",
         "\U00010400\U0001f600\U000e0001\ue000\u0378\ufffd", "aaaa    bbbb\n\n\n"]
FRAGMENTS = ["<s>", "</s>", "<|endoftext|>", "<unk>", "[CLS]", "[MASK]", "<|im_start|>", " ", "  ", "\n", "Hello",
             "world", "a", "  b", "<extra_id_3>", " " * 16, "don't", "I'LL"]


@functools.lru_cache(maxsize=8)
def odd_texts(count, seed=5):
    generator = random.Random(seed)
    texts = [""]
    for _ in range(count):
        pools = generator.sample(POOLS, generator.randint(1, 4))
        texts.append("".join(generator.choice(generator.choice(pools)) for _ in range(generator.randint(1, 40))))
        texts.append("".join(generator.choice(FRAGMENTS) for _ in range(generator.randint(1, 8))))
    return texts + ["a" * 300, "ab " * 300, "\u5b57" * 100, " " * 300, "\n" * 300]


def run(*arguments):
    done = subprocess.run([TOOL, *map(str, arguments)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split("\n")[:-1]


def write_lines(path, values):
    path.write_text("".join(json.dumps(value) + "\n" for value in values))
    return path


def encode(tokenizer, texts, folder, special=False):
    lines = run("encode", tokenizer, write_lines(folder / "texts.jsonl", texts), *(["special"] if special else []))
    return [[int(field) for field in line.split()] for line in lines]


def expect_equal(found, wanted, texts):
    assert len(found) == len(wanted)
    wrong = [i for i in range(len(texts)) if found[i] != wanted[i]]
    assert not wrong, f"{len(wrong)} of {len(texts)}; {texts[wrong[0]]!r}: {found[wrong[0]]} and not {wanted[wrong[0]]}"


@functools.lru_cache(maxsize=8)
def reference(path):
    if path.suffix == ".txt":
        made = tokenizers.BertWordPieceTokenizer(str(path), lowercase="uncased" in path.name)._tokenizer
        made.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
        return made
    parts = json.loads(path.read_text())
    merges = parts["model"].get("merges")
    # The package refuses merges of blanks in the old notation.
    if merges and isinstance(merges[0], str):
        pieces = parts["model"]["vocab"]
        parts["model"]["merges"] = [next([merge[:i], merge[i + 1:]] for i, c in enumerate(merge)
                                         if c == " " and merge[:i] in pieces and merge[i + 1:] in pieces)
                                    for merge in merges]
    return tokenizers.Tokenizer.from_str(json.dumps(parts))


def data(name):
    path = DATA / name
    if not path.exists():
        pytest.skip(f"{path} is not there (TEMPERA_DATA)")
    return path


@functools.lru_cache(maxsize=4)
def books(megabytes):
    with open(data("text/books.train.txt"), encoding="utf-8") as file:
        return [part for part in file.read(int(megabytes * 1e6)).split("\n\n") if part]


@pytest.mark.parametrize("special", [False, True])  # the inner one: what was read for a name is there for the next test
@pytest.mark.parametrize("name", REAL)
def test_real_tokenizers(name, special, tmp_path):
    path = data("tokenizers/" + name)
    oracle = reference(path)
    oracle.encode_special_tokens = not special
    texts = odd_texts(400) + books(10 if LONG else 0.3)
    if name.startswith("t5") and not special:
        # The package lets the spelling of a special token in a text become one; we never do.
        texts = [text for text in texts if not any(token in text for token in ("</s>", "<unk>", "<pad>", "<extra"))]
    wanted = [oracle.encode(text, add_special_tokens=special).ids for text in texts]
    expect_equal(encode(path, texts, tmp_path, special), wanted, texts)


@pytest.mark.parametrize("name", REAL)
def test_real_decoding(name, tmp_path):
    path = data("tokenizers/" + name)
    oracle = reference(path)
    texts = [text for text in odd_texts(300) + books(0.2) if "<" not in text and "[" not in text]
    ids = [oracle.encode(text, add_special_tokens=False).ids for text in texts]
    lines = tmp_path / "ids.txt"
    lines.write_text("".join(" ".join(map(str, line)) + "\n" for line in ids))
    found = [json.loads(line) for line in run("decode", path, lines)]
    expect_equal(found, [oracle.decode(line) for line in ids], texts)


@pytest.mark.parametrize("name", ["gpt2/tokenizer.json", "llama2/tokenizer.json", "llama2/tokenizer.model",
                                  "vectors/ggml-vocab-gpt-2.gguf", "vectors/ggml-vocab-llama-spm.gguf"])
def test_texts_come_back(name, tmp_path):
    path = data("tokenizers/" + name)
    texts = odd_texts(400) + books(10 if LONG else 0.3)
    # sentencepiece writes a blank as this character.
    texts = [text for text in texts if "\u2581" not in text]
    run("trip", path, write_lines(tmp_path / "texts.jsonl", texts))


@pytest.mark.parametrize("name", VECTORS)
def test_vectors(name, tmp_path):
    base = data("tokenizers/vectors") / f"ggml-vocab-{name}.gguf"
    texts = pathlib.Path(f"{base}.inp").read_text(encoding="utf-8").split("\n__ggml_vocab_test__\n")
    wanted = [[int(field) for field in line.split()] for line in pathlib.Path(f"{base}.out").read_text().split("\n")]
    for file in VECTORS[name]:
        expect_equal(encode(data("tokenizers/" + file), texts, tmp_path), wanted, texts)


# A model that shows where words start: every byte is a piece, at the start of a word or within.
def parts(normalizer=None, pre_tokenizers=(), added=(), **others):
    letters = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {piece: i for i, piece in enumerate(["[UNK]"] + letters + ["##" + letter for letter in letters])}
    last = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    return {"version": "1.0", "truncation": None, "padding": None, "normalizer": normalizer,
            "added_tokens": [{"id": len(vocabulary) + i, "single_word": False, "lstrip": False, "rstrip": False,
                              "normalized": False, "special": False, **token} for i, token in enumerate(added)],
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [*pre_tokenizers, last]},
            "post_processor": None, "decoder": None,
            "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                      "max_input_chars_per_word": 100000, "vocab": vocabulary}, **others}


def compare(description, texts, folder, special=False):
    path = folder / "tokenizer.json"
    path.write_text(json.dumps(description))
    oracle = tokenizers.Tokenizer.from_file(str(path))
    oracle.encode_special_tokens = not special
    wanted = [oracle.encode(text, add_special_tokens=special).ids for text in texts]
    expect_equal(encode(path, texts, folder, special), wanted, texts)
    return oracle


def split(pattern, behavior="Isolated", invert=False, kind="Regex"):
    return {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": invert}


BEHAVIORS = ["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"]
NORMALIZERS = {
    **{form: {"type": form} for form in ["NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Nmt", "ByteLevel"]},
    "Strip": {"type": "Strip", "strip_left": True, "strip_right": True},
    "Strip left": {"type": "Strip", "strip_left": True, "strip_right": False},
    "Bert": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None,
             "lowercase": True},
    "Bert cased": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": False, "strip_accents": None,
                   "lowercase": False},
    "Prepend": {"type": "Prepend", "prepend": "\u2581"},
    "Replace": {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"},
    "Replace regex": {"type": "Replace", "pattern": {"Regex": "[ab]+|\\s{2,}"}, "content": "-"},
    "Sequence": {"type": "Sequence", "normalizers": [{"type": "NFD"}, {"type": "StripAccents"}, {"type": "Lowercase"}]},
}
PRE_TOKENIZERS = {
    **{f"Split {behavior} {invert}": [split("\\d+|[ab]|\\s", behavior, invert)]
       for behavior in BEHAVIORS for invert in (False, True)},
    **{f"Punctuation {behavior}": [{"type": "Punctuation", "behavior": behavior}] for behavior in BEHAVIORS},
    **{f"Metaspace {scheme} {cut}": [{"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": scheme,
                                      "split": cut}] for scheme in ("always", "first", "never") for cut in (True, False)},
    "literal": [split(" ", "MergedWithPrevious", False, "String")],
    "GPT-2": [{"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}],
    "Llama-3": [split("(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}|"
                      " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+")],
    "Qwen2": [split("(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}|"
                    " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+")],
    "GPT-4o": [split("[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+"
                     "(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+"
                     "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\\p{N}{1,3}|"
                     " ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+", "Removed", True)],
    "possessive": [split("[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]|\\s+")],
    "empty matches": [split("(?=[0-9])|(?<=b)")],
    "lines": [split("^.|.$")],
    "hexadecimal": [split("\\h+|\\H\\s")],
    "Digits": [{"type": "Digits", "individual_digits": False}],
    "single digits": [{"type": "Digits", "individual_digits": True},
                      {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}],
    "Whitespace": [{"type": "Whitespace"}],
    "WhitespaceSplit": [{"type": "WhitespaceSplit"}],
    "Bert": [{"type": "BertPreTokenizer"}],
    "delimiter": [{"type": "CharDelimiterSplit", "delimiter": "b"}],
    "Falcon": [{"type": "Punctuation", "behavior": "Contiguous"},
               {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
               {"type": "Digits", "individual_digits": False}, split("[0-9][0-9][0-9]")],
}


@pytest.mark.parametrize("name", NORMALIZERS)
def test_normalizers(name, tmp_path):
    compare(parts(normalizer=NORMALIZERS[name]), odd_texts(ODD), tmp_path)


@pytest.mark.parametrize("name", PRE_TOKENIZERS)
def test_pre_tokenizers(name, tmp_path):
    compare(parts(pre_tokenizers=PRE_TOKENIZERS[name]), odd_texts(ODD), tmp_path)


@pytest.mark.parametrize("flags", [{}, {"lstrip": True}, {"rstrip": True}, {"single_word": True}, {"normalized": True},
                                   {"special": True}, {"lstrip": True, "rstrip": True, "special": True}])
@pytest.mark.parametrize("special", [False, True])
def test_added_tokens(flags, special, tmp_path):
    # Not a token of blanks as well: the package reads those that follow a token with rstrip twice.
    added = [{"content": content, **flags} for content in ["Hello", "<s>", "[MASK]", "[MASK]</s>", "b  ", "world<s>"]]
    compare(parts(normalizer=NORMALIZERS["Lowercase"], pre_tokenizers=PRE_TOKENIZERS["Metaspace first True"],
                  added=added), odd_texts(ODD), tmp_path, special)


PROCESSORS = {
    "template": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "x", "type_id": 0}},
                                                          {"Sequence": {"id": "A", "type_id": 0}},
                                                          {"SpecialToken": {"id": "y", "type_id": 0}}],
                 "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
                 "special_tokens": {"x": {"id": "x", "ids": [5, 6], "tokens": ["a", "b"]},
                                    "y": {"id": "y", "ids": [7], "tokens": ["c"]}}},
    "bert": {"type": "BertProcessing", "sep": ["x", 7], "cls": ["y", 9]},
    "roberta": {"type": "RobertaProcessing", "sep": ["x", 7], "cls": ["y", 9], "trim_offsets": True,
                "add_prefix_space": False},
}
PROCESSORS["sequence"] = {"type": "Sequence", "processors": [
    {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}, PROCESSORS["template"]]}


@pytest.mark.parametrize("name", PROCESSORS)
@pytest.mark.parametrize("special", [False, True])
def test_post_processors(name, special, tmp_path):
    compare(parts(post_processor=PROCESSORS[name]), odd_texts(20), tmp_path, special)


DECODERS = {
    "none": None,
    "wordpiece": {"type": "WordPiece", "prefix": "##", "cleanup": True},
    "metaspace": {"type": "Metaspace", "replacement": "a", "prepend_scheme": "always", "split": True},
    "metaspace never": {"type": "Metaspace", "replacement": "a", "prepend_scheme": "never", "split": True},
    "bpe": {"type": "BPEDecoder", "suffix": "b"},
    "sequence": {"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"String": "##"}, "content": ""},
        {"type": "Replace", "pattern": {"Regex": "[a-c]+"}, "content": " "},
        {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 2, "stop": 0}]},
}


@pytest.mark.parametrize("name", DECODERS)
def test_decoders(name, tmp_path):
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(parts(pre_tokenizers=[{"type": "WhitespaceSplit"}], decoder=DECODERS[name])))
    oracle = tokenizers.Tokenizer.from_file(str(path))
    texts = [text for text in odd_texts(200) if text.strip()]
    ids = [oracle.encode(text).ids for text in texts]
    texts, ids = zip(*[pair for pair in zip(texts, ids) if pair[1]])
    lines = tmp_path / "ids.txt"
    lines.write_text("".join(" ".join(map(str, line)) + "\n" for line in ids))
    found = [json.loads(line) for line in run("decode", path, lines)]
    expect_equal(found, [oracle.decode(list(line)) for line in ids], texts)


def random_bpe(seed, **options):
    generator = random.Random(seed)
    letters = list("abcdxyz\u2581\u00e9\u5b57")
    prefix, suffix = options.get("continuing_subword_prefix") or "", options.get("end_of_word_suffix") or ""
    pieces = [p + letter + s for letter in letters for p in {"", prefix} for s in {"", suffix}]
    merges = []
    for _ in range(400):
        left, right = generator.choice(pieces), generator.choice(pieces)
        if suffix and left.endswith(suffix) or prefix and not right.startswith(prefix):
            continue
        joined = left + right[len(prefix):]
        if len(joined) < 20 and [left, right] not in merges:
            merges.append([left, right])
            if joined not in pieces:
                pieces.append(joined)
    pieces += ["<unk>"] + ([f"<0x{byte:02X}>" for byte in range(256)] if options.get("byte_fallback") else [])
    return {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None,
            "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
            "vocab": {piece: i for i, piece in enumerate(pieces)}, "merges": merges, **options}


@pytest.mark.parametrize("seed", range(4 if LONG else 1))
@pytest.mark.parametrize("options", [{}, {"fuse_unk": True}, {"byte_fallback": True}, {"ignore_merges": True},
                                     {"unk_token": None}, {"continuing_subword_prefix": "##"},
                                     {"end_of_word_suffix": "</w>"}])
def test_bpe(seed, options, tmp_path):
    generator = random.Random(seed)
    texts = ["".join(generator.choice("aaabbcdxyz\u2581\u00e9\u5b57\U0001f600?") for _ in range(generator.randint(1, 200)))
             for _ in range(300)]
    for pre_tokenizer in (None, {"type": "WhitespaceSplit"}, {"type": "Metaspace", "replacement": "\u2581",
                                                              "prepend_scheme": "always", "split": True}):
        description = {**parts(), "pre_tokenizer": pre_tokenizer, "model": random_bpe(seed, **options)}
        compare(description, texts, tmp_path)


@pytest.mark.parametrize("seed", range(4 if LONG else 1))
@pytest.mark.parametrize("byte_fallback", [False, True])
def test_unigram(seed, byte_fallback, tmp_path):
    generator = random.Random(seed)
    pieces = {"<unk>"} | set("abcd") | {"".join(generator.choice("abcd\u00e9") for _ in range(generator.randint(2, 6)))
                                        for _ in range(300)}
    pieces = sorted(pieces) + ([f"<0x{byte:02X}>" for byte in range(256)] if byte_fallback else [])
    vocabulary = [[piece, -generator.randint(1, 20) / 2] for piece in pieces]
    texts = ["".join(generator.choice("aaabbcd\u00e9\u5b57x") for _ in range(generator.randint(1, 200)))
             for _ in range(300)]
    model = {"type": "Unigram", "unk_id": pieces.index("<unk>"), "vocab": vocabulary, "byte_fallback": byte_fallback}
    compare({**parts(), "pre_tokenizer": None, "model": model}, texts, tmp_path)


@pytest.mark.parametrize("options", [
    {"model_type": "unigram"},
    {"model_type": "unigram", "byte_fallback": True, "user_defined_symbols": ["<sep>", "foo bar"],
     "normalization_rule_name": "nfkc_cf", "remove_extra_whitespaces": False},
    {"model_type": "bpe", "user_defined_symbols": ["<sep>", "##"]},
    {"model_type": "bpe", "normalization_rule_name": "identity", "byte_fallback": True, "split_by_whitespace": False},
])
def test_sentencepiece(options, tmp_path):
    sentencepiece = pytest.importorskip("sentencepiece", reason="the package sentencepiece is not installed")
    generator = random.Random(3)
    words = ["".join(generator.choice("etaoinshrdlu\u00e9") for _ in range(generator.randint(1, 8))) for _ in range(300)]
    lines = [" ".join(generator.choice(words) for _ in range(12)) for _ in range(1500)]
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(lines), model_prefix=str(tmp_path / "m"),
                                             vocab_size=600, hard_vocab_limit=False, minloglevel=2, **options)
    oracle = sentencepiece.SentencePieceProcessor(str(tmp_path / "m.model"))
    texts = odd_texts(ODD) + lines[:200]
    expect_equal(encode(tmp_path / "m.model", texts, tmp_path), [oracle.encode(text) for text in texts], texts)


@pytest.mark.skipif(not LONG, reason="every character takes a minute; set TEMPERA_LONG=1")
@pytest.mark.parametrize("name", ["GPT-2", "Qwen2", "GPT-4o", "Digits", "WhitespaceSplit", "Whitespace"])
def test_every_character(name, tmp_path):
    # The tables of the libraries are of different years, so only characters that this Python knows.
    texts = [f"a{chr(code)}b1{chr(code)} {chr(code)}c" for code in range(1, 0x110000)
             if not 0xD800 <= code < 0xE000 and unicodedata.category(chr(code)) != "Cn"]
    compare(parts(pre_tokenizers=PRE_TOKENIZERS[name]), texts, tmp_path)


@pytest.mark.skipif(not PROGRAM.exists(), reason="build/tempera is missing: run make build")
def test_the_verb(tmp_path):
    def program(*arguments, **options):
        return subprocess.run([PROGRAM, "tokenize", *map(str, arguments)], capture_output=True, text=True, check=False,
                              timeout=PATIENCE, **options)

    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(parts(pre_tokenizers=PRE_TOKENIZERS["GPT-2"], post_processor=PROCESSORS["bert"])))
    oracle = tokenizers.Tokenizer.from_file(str(path))
    text = "Hello,\n w\u00f6rld"
    ids = oracle.encode(text).ids
    pieces = [oracle.id_to_token(piece) for piece in ids]
    (tmp_path / "text.txt").write_text(text, encoding="utf-8")
    for found in (program(path, text, "--json"), program(tmp_path, "--json", input=text),
                  program(path, "--file", tmp_path / "text.txt", "--json")):
        assert found.returncode == 0, found.stderr
        assert json.loads(found.stdout) == {"ids": ids, "pieces": pieces}
    plain = program(path, text, "--no-special")
    rows = [line.split(maxsplit=1) for line in plain.stdout.splitlines()]
    assert [[int(row[0]), json.loads(row[1])] for row in rows] == [list(row) for row in zip(ids[1:-1], pieces[1:-1])]
    assert program(path, text, "--file", "x").returncode == 2
    missing = program(tmp_path / "none", text)
    assert missing.returncode == 1
    assert "no file or folder" in missing.stderr
