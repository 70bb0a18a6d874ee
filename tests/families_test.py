"""Every family against transformers: random tiny models; logits, gradients, padding, cache, files that do not fit."""

import json
import subprocess

import pytest
from program import LONG, PROGRAM, tool

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", reason="the package transformers is not installed")
from safetensors.torch import load_file, save_file  # noqa: E402

TOOL = tool("models", "model_tool")

pytestmark = pytest.mark.skipif(not TOOL.exists(), reason=f"{TOOL} is not built (cmake --build build/release --target tests)")
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

SHAPE = dict(vocab_size=96, hidden_size=64, num_hidden_layers=3, num_attention_heads=4, intermediate_size=96,
             max_position_embeddings=64, bos_token_id=1, eos_token_id=2)
GROUPED = dict(SHAPE, num_key_value_heads=2)
GPT2 = dict(vocab_size=96, n_embd=64, n_layer=3, n_head=4, n_positions=64, bos_token_id=1, eos_token_id=2)
LENGTH = 40


def rope(kind, **more):
    return dict(GROUPED, rope_parameters=dict(rope_type=kind, rope_theta=10000.0, **more))


CASES = {
    "gpt2": ("GPT2", GPT2),
    "gpt2-inner-untied": ("GPT2", dict(GPT2, n_inner=80, activation_function="gelu", tie_word_embeddings=False)),
    "neox": ("GPTNeoX", dict(SHAPE, rotary_pct=0.25)),
    "neox-sequential": ("GPTNeoX", dict(SHAPE, rotary_pct=1.0, use_parallel_residual=False, hidden_act="gelu_new")),
    "neox-no-bias": ("GPTNeoX", dict(SHAPE, rotary_pct=0.5, attention_bias=False)),
    "llama": ("Llama", dict(GROUPED, tie_word_embeddings=True)),
    "llama-untied-biases": ("Llama", dict(SHAPE, tie_word_embeddings=False, attention_bias=True, mlp_bias=True)),
    "llama-head-size": ("Llama", dict(GROUPED, head_dim=24)),
    "llama-linear": ("Llama", rope("linear", factor=4.0)),
    "llama-dynamic": ("Llama", dict(rope("dynamic", factor=2.0), max_position_embeddings=16)),
    "llama-yarn": ("Llama", rope("yarn", factor=4.0, original_max_position_embeddings=16)),
    "llama-yarn-scaled": ("Llama", rope("yarn", factor=4.0, original_max_position_embeddings=16, beta_fast=16.0,
                                        beta_slow=2.0, attention_factor=1.3, truncate=False)),
    "llama-longrope": ("Llama", rope("longrope", long_factor=[1.0, 1.0, 1.2, 1.9, 2.6, 3.0, 4.0, 4.0], factor=4.0,
                                     short_factor=[1.0, 1.0, 1.2, 1.9, 2.6, 3.0, 4.0, 4.0], attention_factor=1.2,
                                     original_max_position_embeddings=16)),
    "llama-longrope-two": ("Llama", rope("longrope", long_factor=[2.0] * 8, short_factor=[1.5] * 8, factor=4.0,
                                         original_max_position_embeddings=16)),
    "qwen3-longrope": ("Qwen3", dict(rope("longrope", long_factor=[3.0] * 16, short_factor=[3.0] * 16, factor=4.0,
                                          original_max_position_embeddings=16, attention_factor=1.3), head_dim=32)),
    "llama-llama3": ("Llama", rope("llama3", factor=8.0, original_max_position_embeddings=16, low_freq_factor=1.0,
                                   high_freq_factor=4.0)),
    "mistral": ("Mistral", dict(GROUPED, sliding_window=None)),
    "mistral-window": ("Mistral", dict(GROUPED, sliding_window=7)),
    "qwen2": ("Qwen2", GROUPED),
    "qwen2-window": ("Qwen2", dict(GROUPED, use_sliding_window=True, sliding_window=5, max_window_layers=1)),
    "qwen3": ("Qwen3", dict(GROUPED, head_dim=32, tie_word_embeddings=True)),
    "granite": ("Granite", dict(GROUPED, embedding_multiplier=3.0, attention_multiplier=0.1, residual_multiplier=0.7,
                                logits_scaling=2.0)),
    "gemma2": ("Gemma2", dict(GROUPED, head_dim=16, sliding_window=6, query_pre_attn_scalar=24,
                              attn_logit_softcapping=2.0, final_logit_softcapping=20.0)),
    "olmo2": ("Olmo2", GROUPED),
}


def make(name, folder, **how):
    family, values = CASES[name]
    torch.manual_seed(3)
    config = getattr(transformers, family + "Config")(**values)
    # eager: the only one of its attentions that has a cap, and the plainest of all
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    with torch.no_grad():
        for parameter in model.parameters():  # every part must show in the logits, the gains and biases too
            parameter.normal_(0, 0.2 if parameter.dim() > 1 else 0.5)
            if parameter.dim() == 1:
                parameter.add_(1)
    model.save_pretrained(folder, **how)
    return model


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A case's folder and the logits of its tokens, made once; the folder is for reading."""
    made = {}

    def get(name):
        if name not in made:
            folder = tmp_path_factory.mktemp(name) / "model"
            with torch.no_grad():
                made[name] = folder, make(name, folder)(tokens()).logits
        return made[name]
    return get


def tokens(batch=2, length=LENGTH):
    return torch.randint(3, 96, (batch, length), generator=torch.Generator().manual_seed(5))


def run(model, out, **tensors):
    save_file(tensors, out.with_suffix(".in"))
    done = subprocess.run([TOOL, "run", model, out.with_suffix(".in"), out], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return load_file(out)


def expect_close(ours, theirs, what, tolerance=1e-4):
    error = (ours - theirs).abs().max().item()
    assert error <= tolerance * theirs.abs().max().item(), f"{what}: {error} beside {theirs.abs().max().item()}"


# Rotary angles depend on the length: a row in a cache keeps those of the pass that wrote it.
LENGTH_DEPENDENT = ("llama-dynamic", "llama-longrope-two")


def cached_decoding(path, ids, mask, positions):
    """The first half in one pass, then a row at a time. The model is new: its rotary module remembers the longest text."""
    model = transformers.AutoModelForCausalLM.from_pretrained(path).eval()
    cache, logits, begin = None, [], 0
    for end in range(LENGTH // 2, LENGTH + 1):
        with torch.no_grad():
            out = model(ids[:, begin:end], attention_mask=mask[:, :end], position_ids=positions[:, begin:end],
                        past_key_values=cache, use_cache=True)
        logits.append(out.logits)
        cache, begin = out.past_key_values, end
    return torch.cat(logits, 1)


@pytest.mark.parametrize("name", CASES)
def test_logits_gradients_padding_and_cache_equal_those_of_transformers(name, tmp_path):
    model = make(name, tmp_path / "model")
    ids = tokens()
    targets = torch.roll(ids, -1, 1)
    start = torch.tensor([0, 9])
    found = run(tmp_path / "model", tmp_path / "out", tokens=ids, targets=targets, key_start=start)

    logits = model(ids).logits
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
    loss.backward()
    expect_close(found.pop("logits"), logits, "logits")
    expect_close(found.pop("loss"), loss.detach(), "loss")

    mask = (torch.arange(LENGTH)[None] >= start[:, None]).long()
    positions = (mask.cumsum(1) - 1).clamp_min(0)
    with torch.no_grad():
        padded = model(ids, attention_mask=mask, position_ids=positions).logits * mask[..., None]
    expect_close(found.pop("padded") * mask[..., None], padded, "padded")
    if name in LENGTH_DEPENDENT:
        padded = cached_decoding(tmp_path / "model", ids, mask, positions) * mask[..., None]
    expect_close(found.pop("cached") * mask[..., None], padded, "cached")

    theirs = {key: value.grad for key, value in model.named_parameters()}
    if name.startswith("neox"):  # the files keep a name that the module has given up
        theirs["embed_out.weight"] = theirs.pop("lm_head.weight")
    assert found.keys() == theirs.keys()
    for key, gradient in theirs.items():
        expect_close(found[key], gradient, key)


# What a model cannot be made without; 32 heads, which every family's own number of key-value heads divides.
SIZES = dict(vocab_size=96, hidden_size=256, num_hidden_layers=3, num_attention_heads=32, intermediate_size=96,
             max_position_embeddings=64)
LEAST = {"gpt2": dict(vocab_size=96, n_embd=64, n_layer=3, n_head=4, n_positions=64), "gpt_neox": SIZES, "llama": SIZES,
         "mistral": SIZES, "qwen2": SIZES, "qwen3": SIZES, "granite": SIZES, "gemma2": SIZES, "olmo2": SIZES, "bert": SIZES,
         "t5": dict(vocab_size=96, d_model=64, num_layers=3, num_heads=4, d_ff=96)}
# For their owners alone, or for training; and how a file says what another says in other words.
UNCOMPARED = {"_name_or_path", "architectures", "bos_token_id", "classifier_dropout", "dtype", "eos_token_id", "initializer_factor",
              "initializer_range", "n_inner", "n_positions", "pad_token_id", "pretraining_tp", "transformers_version", "use_cache"}


@pytest.mark.parametrize("family", LEAST)
def test_absent_fields_mean_what_they_mean_in_transformers(family, tmp_path):
    """A file with the sizes alone is written again with everything in it, and transformers reads both as the same model."""
    config = transformers.AutoConfig.for_model(family, **LEAST[family])
    auto = {"bert": transformers.AutoModel, "t5": transformers.AutoModelForSeq2SeqLM}.get(family, transformers.AutoModelForCausalLM)
    auto.from_config(config).save_pretrained(tmp_path / "model")
    (tmp_path / "model" / "config.json").write_text(json.dumps(dict(LEAST[family], model_type=family)))
    done = export(tmp_path / "model", "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr

    written, read = (transformers.AutoConfig.from_pretrained(tmp_path / name).to_dict() for name in ("out", "model"))
    assert {key: (value, written.get(key)) for key, value in read.items()
            if key not in UNCOMPARED and written.get(key) != value} == {}


@pytest.mark.parametrize("name", ["gpt2", "neox", "llama", "gemma2"] if LONG else ["gpt2", "llama"])
def test_shards_and_missing_prefixes(name, tmp_path):
    model = make(name, tmp_path / "whole")
    make(name, tmp_path / "shards", max_shard_size="20KB")
    assert len(list((tmp_path / "shards").glob("*.safetensors"))) > 1
    ids = tokens()
    whole = run(tmp_path / "whole", tmp_path / "a", tokens=ids)["logits"]
    assert torch.equal(run(tmp_path / "shards", tmp_path / "b", tokens=ids)["logits"], whole)
    if name == "gpt2":
        weights = {key.removeprefix("transformer."): value.clone() for key, value in model.state_dict().items()
                   if key != "lm_head.weight"}
        weights["h.0.attn.bias"] = torch.ones(1, 1, 64, 64)
        save_file(weights, tmp_path / "whole" / "model.safetensors")
        assert torch.equal(run(tmp_path / "whole", tmp_path / "c", tokens=ids)["logits"], whole)


def fails(folder, tmp_path):
    save_file({"tokens": tokens()}, tmp_path / "x.in")
    done = subprocess.run([TOOL, "run", folder, tmp_path / "x.in", tmp_path / "x"], capture_output=True, text=True,
                          check=False)
    assert done.returncode == 1, "this model should have been refused"
    return done.stderr


def test_what_does_not_fit_is_refused_by_name(tmp_path):
    folder = tmp_path / "model"
    make("llama", folder)
    weights = load_file(folder / "model.safetensors")

    def written(change):
        changed = dict(weights)
        change(changed)
        save_file(changed, folder / "model.safetensors")
        return fails(folder, tmp_path)

    assert "model.layers.1.self_attn.k_proj.weight" in written(lambda w: w.pop("model.layers.1.self_attn.k_proj.weight"))
    assert "model.layers.0.extra" in written(lambda w: w.update({"model.layers.0.extra": torch.ones(3)}))
    text = written(lambda w: w.update({"model.norm.weight": torch.ones(63)}))
    assert "[63]" in text and "[64]" in text and "model.norm.weight" in text
    save_file(weights, folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(dict(config, attention_chunk_size=8)))
    assert "attention_chunk_size" in fails(folder, tmp_path)
    (folder / "config.json").write_text(json.dumps(dict(config, model_type="lama")))
    assert "did you mean 'llama'" in fails(folder, tmp_path)
    (folder / "config.json").write_text(json.dumps(config)[:-20])
    assert "config.json" in fails(folder, tmp_path)


def export(*arguments):
    return subprocess.run([PROGRAM, "export", *map(str, arguments)], capture_output=True, text=True, check=False)


def theirs(folder):
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").eval()
    with torch.no_grad():
        return model(tokens()).logits


# One of each family; the others differ in what the reading tells.
WRITTEN = ["gpt2", "neox", "llama-llama3", "mistral-window", "qwen2-window", "qwen3", "granite", "gemma2", "olmo2"]


@pytest.mark.parametrize("name", CASES if LONG else WRITTEN)
def test_transformers_reads_what_we_write(name, whole, tmp_path):
    model, logits = whole(name)
    done = export(model, "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    expect_close(theirs(tmp_path / "out"), logits, "logits", 1e-6)


# A temperature a head, and what takes it up: W_q, W_v, or the gain of a QK-norm over all heads.
@pytest.mark.parametrize("name", ["gpt2", "neox", "llama", "qwen2", "gemma2", "olmo2"] if LONG else ["gpt2", "olmo2"])
def test_a_folded_model_gives_the_same_logits_in_transformers(name, whole, tmp_path):
    model, plain = whole(name)
    subprocess.run([TOOL, "temper", model, "head,value", tmp_path / "tempered"], check=True)
    assert json.loads((tmp_path / "tempered" / "config.json").read_text())["model_type"] == "tempera"
    ours = run(tmp_path / "tempered", tmp_path / "x", tokens=tokens())["logits"]
    assert not torch.allclose(ours, plain, rtol=1e-2), "the temperature does nothing"
    done = export(tmp_path / "tempered", "--fold", "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    folded = run(tmp_path / "out", tmp_path / "y", tokens=tokens())["logits"]
    expect_close(folded, ours, "folded", 1e-5)
    expect_close(theirs(tmp_path / "out"), ours, "transformers")


def test_what_cannot_be_folded_is_refused_with_the_reason(whole, tmp_path):
    model = whole("llama")[0]
    subprocess.run([TOOL, "temper", model, "ssa", tmp_path / "tempered"], check=True)
    done = export(tmp_path / "tempered", "--fold", "--out", tmp_path / "out")
    assert done.returncode == 1 and "depends on the token" in done.stderr
    assert not (tmp_path / "out").exists() and not list(tmp_path.glob("*.part"))
    subprocess.run([TOOL, "temper", whole("qwen3")[0], "head", tmp_path / "tempered3"], check=True)
    done = export(tmp_path / "tempered3", "--fold", "--out", tmp_path / "out")
    assert done.returncode == 1 and "share the gain of their QK-norm" in done.stderr
    done = export(model, "--out", model)
    assert done.returncode == 1 and "is there already" in done.stderr


def test_one_temperature_for_all_is_a_scale_of_granite(whole, tmp_path):
    subprocess.run([TOOL, "temper", whole("llama")[0], "focal", tmp_path / "tempered"], check=True)
    ours = run(tmp_path / "tempered", tmp_path / "x", tokens=tokens())["logits"]
    done = export(tmp_path / "tempered", "--fold", "--as", "granite", "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["model_type"] == "granite" and config["attention_multiplier"] > 16**-0.5
    expect_close(theirs(tmp_path / "out"), ours, "transformers")


# What the format has no words for: layers with a window outside Gemma-2, RoPE by length, scales, activations.
NO_GGUF = ["mistral-window", "qwen2-window", "llama-dynamic", "llama-yarn-scaled", "llama-longrope-two", "qwen3-longrope", "gemma2", "gpt2-inner-untied",
           "neox-sequential"]
GGUF_CASES = [name for name in CASES if name not in NO_GGUF]


QUICK_GGUF = ["gpt2", "neox", "llama-untied-biases", "qwen3"]


@pytest.mark.parametrize("name", GGUF_CASES if LONG else QUICK_GGUF)
def test_gguf_there_and_back(name, whole, tmp_path):
    model, logits = whole(name)
    file = tmp_path / "out.gguf"
    done = export(model, "--as", "gguf", "--out", file)
    assert done.returncode == 0, done.stderr
    expect_close(run(file, tmp_path / "x", tokens=tokens())["logits"], logits, "logits")


@pytest.mark.parametrize("dtype, stored, tolerance", [("q8_0", "Q8_0", 0.01), ("q5_1", "Q5_1", 0.04), ("q4_k", "Q5_0", 0.06)])
def test_gguf_in_blocks(dtype, stored, tolerance, whole, tmp_path):
    """Rows of no whole number of blocks of 256 get the nearest type with blocks of 32."""
    gguf = pytest.importorskip("gguf", reason="the package gguf is not installed")
    model, _ = whole("llama")
    for name, options in ("whole", []), ("blocks", ["--dtype", dtype]):
        done = export(model, "--as", "gguf", *options, "--out", tmp_path / f"{name}.gguf")
        assert done.returncode == 0, done.stderr
    wanted = {tensor.name: tensor for tensor in gguf.GGUFReader(tmp_path / "whole.gguf").tensors}
    found = {tensor.name: tensor for tensor in gguf.GGUFReader(tmp_path / "blocks.gguf").tensors}
    assert found.keys() == wanted.keys()
    assert found["blk.0.ffn_down.weight"].tensor_type.name == stored and found["output_norm.weight"].tensor_type.name == "F32"
    for name in ("blk.0.ffn_down.weight", "blk.2.attn_q.weight"):
        plain, blocks = (torch.tensor(gguf.quants.dequantize(tensor[name].data, tensor[name].tensor_type)) for tensor in (wanted, found))
        assert 0 < (blocks - plain).norm() < tolerance * plain.norm()
    # Read here as a reader that unpacks them reads them.
    assert export(tmp_path / "blocks.gguf", "--out", tmp_path / "back").returncode == 0
    expect_close(run(tmp_path / "blocks.gguf", tmp_path / "x", tokens=tokens())["logits"], theirs(tmp_path / "back"), "logits")


@pytest.mark.parametrize("name", NO_GGUF)
def test_gguf_refuses_what_its_readers_would_run_otherwise(name, whole, tmp_path):
    done = export(whole(name)[0], "--as", "gguf", "--out", tmp_path / "out.gguf")
    assert done.returncode == 1 and "GGUF has no words for" in done.stderr
    assert not (tmp_path / "out.gguf").exists()


def test_transformers_assumes_the_activation_that_a_gguf_of_gpt2_does_not_name(whole, tmp_path):
    pytest.importorskip("gguf", reason="the package gguf is not installed")
    model, _ = whole("gpt2")
    assert export(model, "--as", "gguf", "--out", tmp_path / "out.gguf").returncode == 0
    read = transformers.AutoConfig.from_pretrained(tmp_path, gguf_file="out.gguf")
    assert read.activation_function == json.loads((model / "config.json").read_text())["activation_function"] == "gelu_new"


def test_gguf_keeps_a_file_that_is_there(whole, tmp_path):
    (tmp_path / "out.gguf").write_text("mine")
    done = export(whole("llama")[0], "--as", "gguf", "--out", tmp_path / "out.gguf")
    assert done.returncode == 1 and "is there already" in done.stderr
    assert (tmp_path / "out.gguf").read_text() == "mine"


def test_gguf_has_the_factors_of_a_stretched_context(whole, tmp_path):
    """As the converter of llama.cpp writes them; and it is read back as the same scaling."""
    gguf = pytest.importorskip("gguf", reason="the package gguf is not installed")
    model, _ = whole("llama-llama3")
    assert export(model, "--as", "gguf", "--out", tmp_path / "out.gguf").returncode == 0
    reader = gguf.GGUFReader(tmp_path / "out.gguf")
    (found,) = (tensor.data for tensor in reader.tensors if tensor.name == "rope_freqs.weight")
    wanted = []
    for i in range(8):  # of a head of 16; factor 8, context 16, ends 1 and 4
        wave = 2 * torch.pi * 10000.0 ** (i / 8)
        smooth = (16 / wave - 1) / 3
        wanted.append(1.0 if wave < 16 / 4 else 8.0 if wave > 16 else 1 / ((1 - smooth) / 8 + smooth))
    assert found.tolist() == pytest.approx(wanted)
    assert export(tmp_path / "out.gguf", "--out", tmp_path / "back").returncode == 0
    scaling = json.loads((tmp_path / "back" / "config.json").read_text())["rope_scaling"]
    assert scaling["rope_type"] == "llama3" and scaling["factor"] == 8
    expect_close(theirs(tmp_path / "back"), whole("llama-llama3")[1], "logits")


def test_gguf_has_any_factors_and_what_they_multiply_goes_into_the_weights(whole, tmp_path):
    gguf = pytest.importorskip("gguf", reason="the package gguf is not installed")
    model, logits = whole("llama-longrope")
    assert export(model, "--as", "gguf", "--out", tmp_path / "out.gguf").returncode == 0
    tensors = {tensor.name: tensor.data for tensor in gguf.GGUFReader(tmp_path / "out.gguf").tensors}
    factors = json.loads((model / "config.json").read_text())["rope_parameters"]["long_factor"]
    assert tensors["rope_freqs.weight"].tolist() == pytest.approx(factors)
    expect_close(run(tmp_path / "out.gguf", tmp_path / "x", tokens=tokens())["logits"], logits, "logits")
    assert export(tmp_path / "out.gguf", "--out", tmp_path / "back").returncode == 0
    scaling = json.loads((tmp_path / "back" / "config.json").read_text())["rope_scaling"]
    assert scaling["rope_type"] == "longrope" and scaling["attention_factor"] == 1
    expect_close(theirs(tmp_path / "back"), logits, "logits")


@pytest.mark.parametrize("wrong, words", [
    (dict(long_factor=[1.0] * 7), "long_factor: 7 numbers given, 8 expected"),
    (dict(short_factor=[1.0] * 9), "short_factor: 9 numbers given, 8 expected"),
    (dict(long_factor=None), "long_factor: no list given"), (dict(long_factor="1"), "long_factor: no list given"),
    (dict(long_factor=[1.0] * 7 + [0.0]), "long_factor: 0.0 given"), (dict(long_factor=[1.0] * 7 + [1e300]), "below a million"), (dict(long_factor=[1.0] * 7 + [-1.0]), "long_factor: -1.0"),
    (dict(short_factor=[1.0] * 7 + ["x"]), 'short_factor: "x" given'),
    (dict(attention_factor="x"), "attention_factor"), (dict(original_max_position_embeddings=0), "original_max_position_embeddings: 0")])
def test_longrope_that_does_not_fit_is_refused(wrong, words, whole, tmp_path):
    model, _ = whole("llama-longrope")
    config = json.loads((model / "config.json").read_text())
    config["rope_parameters"].update(wrong)
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "model.safetensors").symlink_to(model / "model.safetensors")
    done = subprocess.run([PROGRAM, "info", tmp_path], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and words in done.stderr, done.stderr


@pytest.mark.parametrize("wrong, words", [
    (dict(rope_type="linear", factor=0.0), "factor: 0 given"), (dict(rope_type="linear", factor=-2.0), "factor: -2 given"),
    (dict(rope_type="yarn", factor=-4.0, original_max_position_embeddings=32), "factor: -4 given"),
    (dict(rope_type="llama3", factor=0.0, low_freq_factor=1.0, high_freq_factor=4.0), "factor: 0 given"),
    (dict(rope_theta=0), "rope_theta: 0 given"), (dict(rope_theta=-3.0), "rope_theta: -3 given"),
    (dict(rope_type="yarm"), 'rope_type: "yarm"')])
def test_rotary_positions_without_a_meaning_are_refused(wrong, words, whole, tmp_path):
    model, _ = whole("llama")
    config = json.loads((model / "config.json").read_text())
    config["rope_parameters"] = dict(rope_theta=10000.0, rope_type="default") | wrong
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "model.safetensors").symlink_to(model / "model.safetensors")
    done = subprocess.run([PROGRAM, "info", tmp_path], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "config.json" in done.stderr and words in done.stderr, done.stderr


@pytest.mark.parametrize("factors, words", [([1.0] * 7, "shape [7] given, [8] expected"), ([1.0] * 7 + [float("nan")], "nan"),
                                            ([1.0] * 7 + [float("inf")], "inf"), ([0.0] * 8, "above 0")])
def test_rope_freqs_that_do_not_fit_are_refused(factors, words, whole, tmp_path):
    gguf = pytest.importorskip("gguf", reason="the package gguf is not installed")
    numpy = pytest.importorskip("numpy")
    model, _ = whole("llama-longrope")
    assert export(model, "--as", "gguf", "--out", tmp_path / "out.gguf").returncode == 0
    reader = gguf.GGUFReader(tmp_path / "out.gguf")
    writer = gguf.GGUFWriter(tmp_path / "bad.gguf", "llama")
    for key in ("context_length", "embedding_length", "block_count", "feed_forward_length", "attention.head_count",
                "attention.head_count_kv"):
        writer.add_uint32(f"llama.{key}", int(reader.fields[f"llama.{key}"].contents()))
    writer.add_float32("llama.attention.layer_norm_rms_epsilon", 1e-6)
    for tensor in reader.tensors:
        data = numpy.array(factors, numpy.float32) if tensor.name == "rope_freqs.weight" else tensor.data
        writer.add_tensor(tensor.name, data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    done = subprocess.run([PROGRAM, "info", tmp_path / "bad.gguf"], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and words in done.stderr and "rope_freqs.weight" in done.stderr, done.stderr
