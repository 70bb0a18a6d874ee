"""`tempera calibrate` and `tempera finetune` from outside, on tiny models of transformers with a byte-level tokenizer."""

import json
import signal
import subprocess

import pytest
from program import LONG, PATIENCE, PROGRAM, ROOT, fails, result, run, tool, wait_until

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", reason="the package transformers is not installed")
tokenizers = pytest.importorskip("tokenizers", reason="the package tokenizers is not installed")
from safetensors.torch import load_file, save_file  # noqa: E402

TOOL = tool("models", "model_tool")

pytestmark = pytest.mark.skipif(not TOOL.exists(), reason=f"{TOOL} is not built (cmake --build build/release --target tests)")
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

TEXT = "".join(f"{i} and {i + 1} make {2 * i + 1}. The quick brown fox counts to {i * 7 % 50}.\n" for i in range(2000))
OTHER = "".join(f"{i} and {i + 1} make {2 * i + 1}. The lazy dog counts to {i * 3 % 50}.\n" for i in range(500))
TEMPLATE = ("{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}<|end|>{% endfor %}"
            "{% if add_generation_prompt %}<|assistant|>{% endif %}")
QUICK = ["--threads", "1", "--passkey-cases", "0", "--eval-tokens", "2000", "--step-tokens", "256", "--tokens", "2560"]


def make_model(folder, kind="Llama", **more):
    specials = ["<|end|>", "<|user|>", "<|assistant|>"]
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=300, special_tokens=specials, show_progress=False,
                                             initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator([TEXT], trainer)
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|end|>",
                                         chat_template=TEMPLATE).save_pretrained(folder)
    shape = dict(vocab_size=tokenizer.get_vocab_size(), hidden_size=64, num_hidden_layers=2, num_attention_heads=4,
                 num_key_value_heads=2, intermediate_size=96, max_position_embeddings=64, eos_token_id=0, bos_token_id=None)
    torch.manual_seed(1)
    config = getattr(transformers, f"{kind}Config")(**{**shape, **more})
    model = getattr(transformers, f"{kind}ForCausalLM")(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.mul_(4)  # so that attention has something to sharpen
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("adapt")
    make_model(folder / "llama")
    (folder / "text.txt").write_text(TEXT)
    (folder / "other.txt").write_text(OTHER)
    return folder


def logits(model, path, length=48):
    ids = torch.arange(length).remainder(250)[None] + 5
    save_file({"tokens": ids}, path.with_suffix(".in"))
    done = subprocess.run([TOOL, "run", model, path.with_suffix(".in"), path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return ids, load_file(path)["logits"]


def theirs(model, ids):
    with torch.no_grad():
        return transformers.AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32, attn_implementation="eager")(ids).logits


@pytest.fixture(scope="module")
def calibrated(folder):
    found = result("calibrate", folder / "llama", "--text", folder / "text.txt", "--eval-text", folder / "other.txt",
                   "--out", folder / "calibrated", "--controls", "all", "--tokens", 10240, *QUICK[:-2])
    return folder / "calibrated", found


def test_calibration_helps_and_says_how_much(calibrated):
    out, found = calibrated
    measures = found["measures"]
    before, after = (measures[name]["perplexity"]["64"]["perplexity"] for name in ("before", "after"))
    assert after < before * 0.99
    assert set(measures) == {"before", "after", "norm alone", "temperatures alone", "LoRA"}
    assert found["numbers"] == 2 * (4 + 2) + 5 * 64, "a number a query head and KV head, and the gains"
    assert len(found["temperatures"]) == 2 and len(found["temperatures"][0]["q"]) == 4
    assert any(abs(a - 1) > 1e-3 for layer in found["temperatures"] for a in layer["q"])
    for name in ("calibration.json", "calibration.svg", "calibration.png", "report.html"):
        assert (out / name).stat().st_size > 500


def test_what_is_not_learned_stays_as_it_was(calibrated, folder):
    before, after = load_file(folder / "llama" / "model.safetensors"), load_file(calibrated[0] / "last" / "model.safetensors")
    assert torch.equal(after["embedding.weight"], before["model.embed_tokens.weight"])
    assert torch.equal(after["layers.1.mlp.out.weight"], before["model.layers.1.mlp.down_proj.weight"])
    assert not torch.equal(after["norm.weight"], before["model.norm.weight"])


def test_frozen_weights_come_back_bit_for_bit_from_a_calibration_in_bf16(folder, tmp_path):
    done = run("calibrate", folder / "llama", "--text", folder / "text.txt", "--learn", "head,value", "--dtype", "bf16",
               "--out", tmp_path / "run", *QUICK)
    assert done.returncode == 0, done.stderr
    before = load_file(folder / "llama" / "model.safetensors")
    assert any(not torch.equal(tensor, tensor.bfloat16().float()) for tensor in before.values())
    assert run("export", tmp_path / "run", "--out", tmp_path / "own").returncode == 0
    for own in (tmp_path / "run" / "last", tmp_path / "own"):
        after = load_file(own / "model.safetensors")
        qkv = [before[f"model.layers.1.self_attn.{name}_proj.weight"] for name in "qkv"]
        assert torch.equal(after["layers.1.attention.qkv.weight"], torch.cat(qkv))
        assert torch.equal(after["embedding.weight"], before["model.embed_tokens.weight"])
        assert torch.equal(after["layers.0.mlp.out.weight"], before["model.layers.0.mlp.down_proj.weight"])
        assert torch.equal(after["norm.weight"], before["model.norm.weight"])
    assert run("export", tmp_path / "run", "--fold", "--out", tmp_path / "folded").returncode == 0
    folded = load_file(tmp_path / "folded" / "model.safetensors")
    assert folded.keys() == before.keys()
    taken_up = {name for name in before if not torch.equal(folded[name], before[name])}
    assert taken_up == {name for name in before if "q_proj" in name or "v_proj" in name}
    for name in taken_up:  # one factor a head, and not the rounding of bf16
        factors = (folded[name] / before[name]).view(-1, 16 * 64)
        assert (factors - factors[:, :1]).abs().max() < 1e-5


def test_learn_takes_methods_with_their_options(folder, tmp_path):
    done = run("calibrate", folder / "llama", "--text", folder / "text.txt", "--learn", "ssa:k=true:v=false,norm", "--out",
               tmp_path / "run", *QUICK)
    assert done.returncode == 0, done.stderr
    after = load_file(tmp_path / "run" / "last" / "model.safetensors")
    assert {name.split(".")[-1] for name in after if ".temperature." in name} == {"q_w", "q_slope", "k_w", "k_slope"}
    assert "ssa" in run("info", tmp_path / "run").stdout


def test_the_folded_result_is_an_ordinary_model(calibrated, folder):
    done = run("export", calibrated[0], "--fold", "--out", folder / "folded")
    assert done.returncode == 0, done.stderr
    assert json.loads((folder / "folded" / "config.json").read_text())["model_type"] == "llama"
    ids, ours = logits(calibrated[0], folder / "ours")
    found = theirs(folder / "folded", ids)
    assert (found - ours).abs().max() <= 1e-5 * ours.abs().max()
    assert (found - theirs(folder / "llama", ids)).abs().max() > 1e-2, "calibration changed something"
    assert transformers.AutoTokenizer.from_pretrained(folder / "folded")("1 and 2").input_ids


def stretched(folder, name, *more, model="llama"):
    """A calibration to twice the length, and its folder of transformers."""
    found = result("calibrate", folder / model, "--text", folder / "text.txt", "--context", 128, "--out", folder / name,
                   *more, *QUICK)
    done = run("export", folder / name, "--fold", "--out", folder / f"{name}-folded")
    assert done.returncode == 0, done.stderr
    return found, json.loads((folder / f"{name}-folded" / "config.json").read_text())


def same_logits(folder, name, length):
    """Of our folder and of the exported one in transformers, at positions beyond the trained 64 too."""
    ids, ours = logits(folder / name, folder / f"{name}.out", length)
    found = theirs(folder / f"{name}-folded", ids)
    assert (found - ours).abs().max() <= 2e-5 * ours.abs().max()
    return ours


def test_a_longer_context_by_rotations_leaves_as_longrope(folder):
    found, config = stretched(folder, "long", "--controls", "positions,norm")
    assert found["context"] == 128 and found["rope"]["rule"] == "rotations" and found["rope"]["stretch"] == 2
    assert set(found["measures"]) == {"before", "after", "positions alone", "norm alone"}
    assert list(found["measures"]["before"]["perplexity"]) == ["64", "128"]
    scaling, factors = config["rope_scaling"], found["rope"]["factors"]
    assert scaling["rope_type"] == "longrope" and scaling["long_factor"] == scaling["short_factor"]
    assert scaling["long_factor"] == pytest.approx(factors) and len(factors) == 8 and factors[-1] == pytest.approx(2)
    assert scaling["original_max_position_embeddings"] == 64 and config["max_position_embeddings"] == 128
    assert scaling["attention_factor"] ** 2 == pytest.approx(found["rope"]["logit_factor"]) != 1
    for length in (40, 200):
        same_logits(folder, "long", length)
    again = transformers.AutoConfig.from_pretrained(folder / "long-folded")
    assert again.rope_parameters["rope_type"] == "longrope"
    ids, ours = logits(folder / "long", folder / "long.a", 100)
    _, back = logits(folder / "long-folded", folder / "long.b", 100)
    assert (back - ours).abs().max() <= 1e-5 * ours.abs().max(), "longrope is read, too"


def test_generation_with_a_cache_goes_by_the_same_factors(folder):
    """Greedy tokens past the trained length: ours with a cache, and those of transformers without one."""
    if not (folder / "long-folded").exists():
        stretched(folder, "long")
    text = TEXT[:200]
    model = transformers.AutoModelForCausalLM.from_pretrained(folder / "long-folded", dtype=torch.float32)
    tokens = transformers.AutoTokenizer.from_pretrained(folder / "llama")(text, return_tensors="pt").input_ids
    assert tokens.shape[1] > 64, "beyond the trained length"
    wanted = tokens
    with torch.no_grad():
        for _ in range(8):
            wanted = torch.cat([wanted, model(wanted, use_cache=False).logits[:, -1:].argmax(-1)], 1)
    done = run("generate", folder / "long", "--prompt", text, "--max-tokens", 8, "--sampling-temperature", 0, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["answers"][0]["tokens"] == wanted[0, tokens.shape[1]:].tolist()


@pytest.mark.parametrize("rule, kind", [("base", None), ("ntk", None), ("yarn", "yarn"), ("linear", "linear"),
                                        ("llama3", "llama3")])
def test_rules_of_other_programs_leave_in_their_words(rule, kind, folder):
    found, config = stretched(folder, f"by-{rule}", "--rope", rule)
    scaling = config.get("rope_scaling")
    assert (scaling["rope_type"] if scaling else None) == kind
    if rule == "base":
        assert config["rope_theta"] == found["rope"]["base"] == pytest.approx(10000 * 4)
    ours = same_logits(folder, f"by-{rule}", 100)
    done = run("export", folder / f"by-{rule}", "--fold", "--as", "gguf", "--out", folder / f"by-{rule}.gguf")
    assert done.returncode == 0, done.stderr
    _, back = logits(folder / f"by-{rule}.gguf", folder / f"by-{rule}.back", 100)
    assert (back - ours).abs().max() <= 2e-5 * ours.abs().max()


@pytest.mark.parametrize("kind, more", [
    ("linear", dict(factor=2.0)), ("dynamic", dict(factor=2.0)), ("yarn", dict(factor=2.0, original_max_position_embeddings=32)),
    ("llama3", dict(factor=8.0, original_max_position_embeddings=16, low_freq_factor=1.0, high_freq_factor=4.0)),
    ("longrope", dict(long_factor=[1 + i / 8 for i in range(8)], short_factor=[1.0] * 8, factor=2.0,
                      original_max_position_embeddings=32, attention_factor=1.1))])
def test_a_scaled_model_is_a_starting_point(kind, more, folder):
    make_model(folder / f"was-{kind}", rope_parameters=dict(rope_type=kind, rope_theta=10000.0, **more))
    found, config = stretched(folder, f"from-{kind}", model=f"was-{kind}")
    assert config["rope_scaling"]["rope_type"] == "longrope"
    before = dict(linear=2, llama3=8, longrope=1 + 7 / 8, yarn=2).get(kind, 1)
    assert found["rope"]["factors"][-1] == pytest.approx(2 * before), "the slowest frequency, over what it had"
    same_logits(folder, f"from-{kind}", 100)
    if kind == "longrope":
        short = ["calibrate", folder / "was-longrope", "--text", folder / "text.txt", "--learn", "head,rope", "--out", folder / "two"]
        fails(2, ["--learn rope: the model has two sets of frequencies", "give --context"], *short, *QUICK)
        assert not (folder / "two").exists()
        done = run(*short, "--context", 128, *QUICK)
        assert done.returncode == 0, done.stderr


def test_learned_frequencies_slopes_and_short_windows(folder):
    found, config = stretched(folder, "learned", "--learn", "head,norm,rope", "--learning-rate", 0.01)
    assert found["numbers"] == 2 * 4 + 5 * 64 + 8
    plain = json.loads((folder / "long-folded" / "config.json").read_text()) if (folder / "long-folded").exists() else None
    assert config["rope_scaling"]["long_factor"] == pytest.approx(found["rope"]["factors"])
    if plain:
        assert config["rope_scaling"]["long_factor"] != pytest.approx(plain["rope_scaling"]["long_factor"], rel=1e-4)
    same_logits(folder, "learned", 100)
    found = result("calibrate", folder / "llama", "--text", folder / "text.txt", "--learn", "head,slope,value", "--context",
                   128, "--out", folder / "sloped", *QUICK)
    assert found["numbers"] == 2 * (4 + 4 + 2)
    done = run("export", folder / "sloped", "--fold", "--out", folder / "sloped-folded")
    assert done.returncode == 1 and "depends on the token or its position" in done.stderr
    fails(2, ["--short-share", "2048"], "calibrate", folder / "llama", "--text", folder / "text.txt", "--short-share", 0.25,
          "--out", folder / "short")


def test_repeated_spans_and_spread_windows(folder, tmp_path):
    """Both say what they do, leave as ordinary models, and change nothing that is measured before."""
    plain, _ = stretched(folder, "plain-windows")
    done = run("calibrate", folder / "llama", "--text", folder / "text.txt", "--context", 128, "--out", tmp_path / "said", "--echo", 0.25,
               "--echo-length", 8, "--spread", 64, *QUICK)
    assert done.returncode == 0, done.stderr
    assert "echo: in windows of 64 tokens, 2 spans of 8" in done.stderr and "spread: windows of 64 tokens in 4 parts" in done.stderr
    found, config = stretched(folder, "echoed", "--echo", 0.25, "--echo-length", 8, "--spread", 64, "--learn", "head,value,norm,rope",
                              "--controls", "norm")
    assert found["windows"] == {"echo": {"share": 0.25, "length": 8, "weight": 5.0, "until": 1.0},
                                "spread": {"window": 64, "parts": 4, "correction": 0.0}} and plain["windows"] is None
    assert found["measures"]["before"] == plain["measures"]["before"] and "norm alone" in found["measures"]
    assert list(found["measures"]["after"]["perplexity"])[-1] == "128" and found["length"] == 64
    assert config["max_position_embeddings"] == 128
    same_logits(folder, "echoed", 100)


@pytest.mark.parametrize("methods", ["ssa", "head,value"])
def test_retrofitted_methods_begin_as_plain_attention(folder, methods, tmp_path):
    """One step at a vanishing rate gives the untouched model with its temperature."""
    done = run("finetune", folder / "llama", "--text", folder / "text.txt", "--update", "temperature", "--temperature",
               methods, "--steps", 1, "--batch", 1, "--length", 32, "--learning-rate", 1e-30, "--out", tmp_path / "run",
               "--eval-rows", 1, "--threads", 1)
    assert done.returncode == 0, done.stderr
    _, plain = logits(folder / "llama", tmp_path / "plain")
    _, tempered = logits(tmp_path / "run", tmp_path / "tempered")
    assert torch.equal(plain, tempered)


def test_a_fixed_temperature_leaves_as_granite(folder, tmp_path):
    done = run("export", folder / "llama", "--temperature", "focal", "--temperature.t", 0.5, "--fold", "--as", "granite",
               "--out", tmp_path / "granite")
    assert done.returncode == 0 and "was not trained" in done.stderr, done.stderr
    assert json.loads((tmp_path / "granite" / "config.json").read_text())["attention_multiplier"] == pytest.approx(2 / 4)
    assert run("export", folder / "llama", "--temperature", "focal", "--temperature.t", 0.5, "--out", tmp_path / "own").returncode == 0
    ids, ours = logits(tmp_path / "own", tmp_path / "ours")
    assert (theirs(tmp_path / "granite", ids) - ours).abs().max() <= 1e-5 * ours.abs().max()
    assert (theirs(folder / "llama", ids) - ours).abs().max() > 1e-2


def test_info_of_a_model_with_a_temperature(folder):
    found = result("info", folder / "llama", "--temperature", "ssa")
    assert found["temperature_parameters"] == 2 * (4 + 2) * (16 + 1)
    assert found["temperatures"]["layers"][0]["q"] == [1.0] * 4, "it begins as plain attention"


def test_heads_that_share_a_gain_share_a_temperature(folder):
    make_model(folder / "qwen3", "Qwen3", head_dim=16)
    done = run("calibrate", folder / "qwen3", "--text", folder / "text.txt", "--learn", "head,value", "--out",
               folder / "qwen3-out", *QUICK)
    assert done.returncode == 0, done.stderr
    assert "one temperature a layer" in done.stderr
    assert run("export", folder / "qwen3-out", "--fold", "--out", folder / "qwen3-folded").returncode == 0
    ids, ours = logits(folder / "qwen3-out", folder / "ours-qwen3")
    assert (theirs(folder / "qwen3-folded", ids) - ours).abs().max() <= 1e-5 * ours.abs().max()


@pytest.mark.skipif(not LONG, reason="tests/crash_test.py interrupts training, which does the same; set TEMPERA_LONG=1")
def test_an_interrupted_calibration_goes_on(folder, tmp_path):
    arguments = ["calibrate", folder / "llama", "--text", folder / "text.txt", *QUICK[:-1], "60000"]
    whole = result(*arguments, "--out", tmp_path / "whole")
    process = subprocess.Popen([PROGRAM, *map(str, arguments), "--out", tmp_path / "cut"], stderr=subprocess.PIPE, text=True)
    log = tmp_path / "cut" / "log.jsonl"
    wait_until(lambda: log.exists() and log.read_text().count("\n") > 5, process)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, errors
    assert "tempera calibrate --config" in errors
    again = result("calibrate", "--config", tmp_path / "cut" / "run.toml")
    key = lambda found: found["measures"]["after"]["perplexity"]["64"]["loss"]  # noqa: E731
    assert key(again) == key(whole), "the same bits as without the interruption"


def test_the_table_of_longer_contexts_is_made_in_pieces(folder, tmp_path):
    command = [ROOT / "tools/longer-context", PROGRAM, folder / "llama", "--text", folder / "text.txt", "--eval-text",
               folder / "other.txt", "--passkey-text", folder / "other.txt", "--out", tmp_path / "out", "--trained", "64",
               "--contexts", "128", "--tokens", "1024", "--eval-tokens", "1000", "--passkeys", "0", "--device", "cpu",
               "--dtype", "fp32", "--only", "rules/base", "echo/share-3-0", "spread/2048-half-0", "echo/alone-lora-0"]
    call = lambda *more: subprocess.run([*map(str, command), *more], capture_output=True, text=True, check=False)  # noqa: E731
    none = call("--seconds", "-1")
    assert none.returncode == 1 and "0 of 5" in none.stdout, none.stderr
    done = call()
    assert done.returncode == 0 and "5 of 5" in done.stdout, done.stdout + done.stderr
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert results["rules/base-0"]["result"]["rope"]["rule"] == "base"
    assert "positions alone" in results["rules/base-1"]["result"]["measures"]
    assert results["echo/share-3-0"]["result"]["windows"]["echo"]["share"] == 0.03
    assert results["echo/alone-lora-0"]["result"]["learned"] == "lora"
    assert results["spread/2048-half-0"]["result"]["windows"]["spread"] == {"window": 64, "parts": 4, "correction": 0.5}
    again = (tmp_path / "out" / "results.json").stat().st_mtime_ns
    assert call().returncode == 0 and (tmp_path / "out" / "results.json").stat().st_mtime_ns == again, "nothing is done twice"
    assert "done  rules/base-0" in call("--list").stdout
    report = call("--report").stdout.splitlines()
    assert [line.split(" | ")[0][2:] for line in report[2:]] == [
        "the model itself", "rules/base-0", "rules/base-0: positions alone", "rules/base-1", "rules/base-1: positions alone",
        "the model itself", "echo/share-3-0", "spread/2048-half-0", "echo/alone-lora-0"]
    assert "16: " in report[9] and ", 128: " in report[9]
    assert len(call("--best", "--only", "echo").stdout.splitlines()) == 5


def test_wrong_input_to_calibrate(folder, tmp_path):
    model, text = folder / "llama", folder / "text.txt"
    before = sorted(p.stat().st_mtime_ns for p in model.iterdir())
    fails(2, [f"tempera calibrate {model} --text FILE"], "calibrate", model, "--out", tmp_path / "a")
    fails(2, ["--learn", "did you mean 'head'"], "calibrate", model, "--text", text, "--learn", "haed", "--out", tmp_path / "a")
    for nothing in ("focal", "log-n"):
        fails(2, ["--learn", f"'{nothing}' has nothing to learn", "ssa"], "calibrate", model, "--text", text, "--learn", nothing,
              "--out", tmp_path / "a")
    fails(2, ["--context", "64", "--length"], "calibrate", model, "--text", text, "--context", 32, "--out", tmp_path / "a")
    for option in (("--rope-base", 5e5), ("--rope", "yarn"), ("--rope-low", 2)):
        fails(2, ["--rope", "--context"], "calibrate", model, "--text", text, *option, "--out", tmp_path / "a")
    stretch = ["calibrate", model, "--text", text, "--context", 128, "--out", tmp_path / "a"]
    fails(2, ["--echo-weight", "--echo 0.03"], *stretch, "--echo-weight", 3)
    fails(2, ["--spread-parts", "--spread 2048"], *stretch, "--spread-parts", 3)
    fails(2, ["--echo", "0.7", "0.5"], *stretch, "--echo", 0.7)
    fails(2, ["--echo-length", "a quarter"], *stretch, "--echo", 0.1, "--echo-length", 64)
    fails(2, ["--spread", "the context is 128", "fewer"], *stretch, "--spread", 128)
    fails(2, ["--spread", "the context is 128", "fewer"], *stretch, "--spread", 129)
    fails(2, ["--spread 64", "--length 64", "one of them"], *stretch, "--spread", 64, "--length", 64)
    fails(2, ["--spread-parts", "at most 8"], *stretch, "--spread", 64, "--spread-parts", 9)
    fails(2, ["rotatoins", "rotations"], *stretch, "--rope", "rotatoins")
    fails(2, ["--rope base"], *stretch, "--rope-base", 5e5)
    fails(2, ["--rope-low", "--rope-high (128)"], *stretch, "--rope-low", 300)
    fails(2, ["ramp"], *stretch, "--rope", "ntk", "--rope-high", 30)
    fails(2, ["at least 1"], *stretch, "--rope-scale", 0.5)
    fails(2, ["--controls", "norm"], *stretch, "--controls", "nrom")
    done = run("train", "--text", text, "--model.position", "learned", "--steps", 1, "--batch", 1, "--context", 64, "--layers", 1,
               "--width", 32, "--heads", 2, "--out", tmp_path / "neither", "--threads", 1)
    assert done.returncode == 0, done.stderr
    fails(2, ["no rotary positions"], "calibrate", tmp_path / "neither", "--text", text, "--context", 128, "--out", tmp_path / "a")
    fails(2, ["no rotary positions"], "calibrate", tmp_path / "neither", "--text", text, "--learn", "rope", "--out", tmp_path / "a")
    fails(2, ["--spread", "no rotary positions"], "calibrate", tmp_path / "neither", "--text", text, "--spread", 32, "--out", tmp_path / "a")
    (tmp_path / "brief.txt").write_text(TEXT[:400])
    fails(1, ["too small", "context of 4096"], "calibrate", model, "--text", tmp_path / "brief.txt", "--context", 4096, "--out",
          tmp_path / "a")
    (tmp_path / "short.txt").write_text("1 and 2")
    (tmp_path / "one.txt").write_text("1")
    (tmp_path / "binary.txt").write_bytes(bytes(range(256)))
    fails(1, ["--eval-text", "two tokens"], *stretch, "--eval-text", tmp_path / "one.txt")
    fails(1, ["none.txt"], *stretch, "--eval-text", tmp_path / "none.txt")
    fails(1, ["none.txt"], *stretch, "--passkey-text", tmp_path / "none.txt")
    fails(1, ["binary"], *stretch, "--passkey-text", tmp_path / "binary.txt")
    fails(1, ["short"], "calibrate", model, "--text", tmp_path / "short.txt", "--out", tmp_path / "a")
    assert not (tmp_path / "a").exists()
    done = run("calibrate", model, "--text", text, "--eval-text", text, "--length", 32, "--out", tmp_path / "b", *QUICK)
    assert done.returncode == 0, done.stderr
    assert "says nothing about other text" in done.stderr and "shorter than the context" in done.stderr
    duration, measuring = done.stderr.index("about "), done.stderr.index("measure before")
    assert duration < measuring, "how long it takes is said before anything long"
    assert "2,560 tokens to learn from (--tokens), and 2 measurements of up to 2,000 tokens" in done.stderr
    assert sorted(p.stat().st_mtime_ns for p in model.iterdir()) == before, "the model's folder was not written to"


# finetune


def finetune(folder, *more):
    return result("finetune", folder / "llama", "--steps", 40, "--batch", 4, "--length", 64, "--eval-rows", 8, "--threads", 1,
                  "--learning-rate", 3e-3, *more)


def test_all_weights_learn_a_text(folder, tmp_path):
    found = finetune(folder, "--text", folder / "text.txt", "--out", tmp_path / "run")
    assert found["validation"]["loss"] < 4.2, "below the loss of guessing, 5.7"
    assert (tmp_path / "run" / "finetune.svg").exists()
    assert run("export", tmp_path / "run", "--out", tmp_path / "hf").returncode == 0
    ids, ours = logits(tmp_path / "run", tmp_path / "ours")
    assert (theirs(tmp_path / "hf", ids) - ours).abs().max() <= 1e-5 * ours.abs().max()


def test_stages_have_rows_for_their_own_lengths(folder, tmp_path):
    """Whatever longer context the model has."""
    done = run("finetune", folder / "llama", "--text", folder / "text.txt", "--stages", "8:256,16:256", "--steps", 0, "--batch", 4,
               "--threads", 1, "--log-every", 1, "--out", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    assert [line["tokens"] for line in lines if "loss" in line] == [64 * step for step in range(1, 9)]


def test_adapters_learn_and_merge(folder, tmp_path):
    found = finetune(folder, "--text", folder / "text.txt", "--update", "lora", "--lora.rank", 4, "--temperature", "head",
                     "--out", tmp_path / "run")
    assert found["validation"]["loss"] < 5.2
    before, after = load_file(folder / "llama" / "model.safetensors"), load_file(tmp_path / "run" / "last" / "model.safetensors")
    assert torch.equal(after["layers.0.mlp.out.weight"], before["model.layers.0.mlp.down_proj.weight"])
    assert after["layers.0.mlp.out.lora_a"].shape[0] == 4
    fails(1, ["adapters"], "export", tmp_path / "run", "--as", "llama", "--out", tmp_path / "none")
    assert run("export", tmp_path / "run", "--fold", "--out", tmp_path / "hf").returncode == 0
    ids, ours = logits(tmp_path / "run", tmp_path / "ours")
    assert (theirs(tmp_path / "hf", ids) - ours).abs().max() <= 1e-5 * ours.abs().max()
    assert (theirs(folder / "llama", ids) - ours).abs().max() > 1e-2


def test_answers_of_conversations_are_learned(folder, tmp_path):
    lines = [dict(messages=[dict(role="user", content=f"say {i % 5}"), dict(role="assistant", content="fox " * (i % 5))])
             for i in range(100)]
    (tmp_path / "chat.jsonl").write_text("\n".join(map(json.dumps, lines)))
    found = finetune(folder, "--chat", tmp_path / "chat.jsonl", "--out", tmp_path / "run")
    assert found["validation"]["loss"] < 1.5, "the answers are nearly known; the questions were not to be learned"
    answer = result("chat", tmp_path / "run", "--prompt", "say 3", "--max-tokens", 12, "--sampling-temperature", 0)
    assert answer["answer"].startswith("fox fox")


def test_wrong_input_to_finetune(folder, tmp_path):
    model, text = folder / "llama", folder / "text.txt"
    fails(2, ["--text", "--chat"], "finetune", model, "--out", tmp_path / "a")
    fails(2, ["--temperature"], "finetune", model, "--text", text, "--update", "temperature", "--out", tmp_path / "a")
    (tmp_path / "bad.jsonl").write_text('{"messages": [{"role": "user", "content": "x"}]}\n')
    fails(1, ["line 1", "assistant"], "finetune", model, "--chat", tmp_path / "bad.jsonl", "--out", tmp_path / "a")
    assert not (tmp_path / "a").exists()
