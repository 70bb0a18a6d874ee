"""`tempera bench` from outside: a tiny run of each benchmark, its table and its JSON."""

import json
import subprocess
import sys

import pytest
from program import LONG, PATIENCE, PROGRAM, ROOT, SMOLLM2, few

pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason="build/tempera is missing: run make build")


def run(*arguments):
    return subprocess.run(
        [PROGRAM, "bench", *arguments], capture_output=True, text=True, timeout=PATIENCE, check=False
    )


def result(*arguments):
    done = run(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


TINY = ["--length", "48,64", "--head-size", "16", "--heads", "2", "--batch", "2", "--seconds", "0", "--threads", "2"]


def test_attention():
    document = result("attention", *TINY, "--methods", "softmax,ssa")
    rows = document["rows"]
    assert [(row["method"], row["T"]) for row in rows] == [
        ("softmax", 48), ("ssa", 48), ("softmax", 64), ("ssa", 64),
    ]
    for row in rows:
        assert (row["B"], row["H"], row["D"], row["dtype"]) == (2, 2, 16, "fp32")
        for key in ("forward_ms", "step_ms", "step_gflops", "ceiling_share", "extra_bytes", "torch_extra_bytes"):
            assert row[key] > 0, key
        assert row["forward_ratio"] == pytest.approx(row["torch_forward_ms"] / row["forward_ms"])
        assert row["step_ratio"] == pytest.approx(row["torch_step_ms"] / row["step_ms"])
        assert row["max_error"] < 1e-4
        spread = row["spread_ms"]["step"]
        assert spread["min"] <= spread["lower"] <= spread["median"] <= spread["upper"]
        assert spread["runs"] == 3
        # Causal: half of 4 B H T T D, and 2.5 times that backward.
        flops = 3.5 * 2 * 2 * 2 * row["T"] ** 2 * 16
        assert row["step_gflops"] == pytest.approx(flops / row["step_ms"] / 1e6)
        assert row["ceiling_share"] == pytest.approx(row["step_gflops"] / document["machine"]["matmul_gflops"])
    assert rows[0]["over_plain"] == 1
    assert rows[1]["over_plain"] == pytest.approx(rows[1]["step_ms"] / rows[0]["step_ms"])
    machine = document["machine"]
    assert machine["threads"] == 2
    assert machine["isa"] in ("baseline", "avx2", "avx512")
    assert machine["torch"]
    assert machine["read_gbps"] > 0 and machine["copy_gbps"] > 0


@pytest.mark.skipif(not LONG, reason="the machine is measured anew each time; set TEMPERA_LONG=1")
def test_attention_without_plain_and_with_grouped_heads_in_bf16():
    rows = result("attention", *TINY, "--methods", "head+value", "--kv-heads", "1", "--dtype", "bf16")["rows"]
    assert [row["method"] for row in rows] == ["head+value"] * 2
    assert all(row["over_plain"] is None for row in rows)
    assert all((row["kv_heads"], row["dtype"]) == (1, "bf16") for row in rows)


@pytest.mark.skipif(not LONG, reason="starts Python with torch; set TEMPERA_LONG=1")
def test_attention_beside_pytorch():
    script = ROOT / "bench" / "peers" / "torch_attention.py"
    done = subprocess.run([sys.executable, script, "--device", "cpu", "--batch", "1", "--heads", "2", "--length", "64", "--ways", "eager",
                           "--seconds", "0", "--program", PROGRAM, "--json"], capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    rows = {row["name"]: row for row in json.loads(done.stdout)["rows"]}
    assert list(rows) == ["tempera, softmax", "tempera, ssa", "PyTorch, softmax", "PyTorch eager, ssa"]
    ours, theirs = rows["tempera, ssa"], rows["PyTorch eager, ssa"]
    assert ours["step_ratio"] == 1 and theirs["step_ratio"] == pytest.approx(theirs["step_ms"] / ours["step_ms"])


def test_memory_grows_linearly():
    lengths = ["--length", "512,1024,2048"]
    rows = result("attention", "--memory", *lengths, "--heads", "2", "--methods", "softmax")["rows"]
    assert [row["T"] for row in rows] == [512, 1024, 2048]
    for shorter, longer in zip(rows, rows[1:]):
        assert longer["extra_bytes"] < 2.05 * shorter["extra_bytes"]
    assert "step_ms" not in rows[0]


def test_decode():
    document = result("decode", "--length", "256", "--head-size", "32", "--heads", "2", "--seconds", "0")
    assert [row["dtype"] for row in document["rows"]] == ["fp32", "bf16"]
    for row in document["rows"]:
        size = 4 if row["dtype"] == "fp32" else 2
        assert row["gbps"] == pytest.approx(2 * 2 * 256 * 32 * size / row["decode_ms"] / 1e6)
        assert row["read_share"] == pytest.approx(row["gbps"] / row["read_gbps"])
        assert row["ratio"] == pytest.approx(row["torch_ms"] / row["decode_ms"])
    assert document["machine"]["read_gbps"] > 0


@pytest.mark.skipif(not LONG, reason="the machine is measured anew each time; set TEMPERA_LONG=1")
def test_linear():
    rows = result("linear", "--rows", "1,3,20", "--inputs", "96", "--outputs", "64", "--seconds", "0")["rows"]
    assert [(row["dtype"], row["rows"]) for row in rows] == [(t, n) for t in ("fp32", "bf16") for n in (1, 3, 20)]
    for row in rows:
        assert row["ratio"] == pytest.approx(row["gbps"] / row["torch_gbps"])
        assert row["read_share"] == pytest.approx(row["gbps"] / row["read_gbps"])


TINY_MODEL = [
    "--layers", "2", "--width", "32", "--heads", "2", "--mlp-size", "64", "--vocabulary", "128", "--length", "32",
    "--batch", "2", "--seconds", "0", "--threads", "2", "--python", sys.executable,
    "--script", str(ROOT / "bench" / "peers" / "torch_train.py"),
]


@pytest.mark.skipif(not LONG, reason="starts Python with torch; set TEMPERA_LONG=1")
@pytest.mark.parametrize("method", ["softmax", "ssa"])
def test_train_in_turn_with_torch(method):
    document = result("train", *TINY_MODEL, "--temperature", method, "--peers", "eager")
    ours, torch = document["rows"]
    assert (ours["name"], torch["name"]) == ("tempera", "torch eager")
    assert document["loss_error"] < 1e-5
    assert ours["ratio"] == 1
    assert torch["ratio"] == pytest.approx(torch["step_ms"] / ours["step_ms"])
    assert ours["tokens_per_second"] == pytest.approx(2 * 32 / ours["step_ms"] * 1e3)


def test_where_the_time_of_a_step_goes():
    document = result("train", *TINY_MODEL, "--profile")
    parts = document["parts"]
    assert set(parts) == {
        "matrix products", "attention", "norm", "swiglu", "split, rotation", "cross-entropy", "optimizer", "rest",
    }
    assert all(milliseconds > 0 for milliseconds in parts.values())
    assert sum(parts.values()) == pytest.approx(document["step_ms"])
    assert sum(document["operators"].values()) == pytest.approx(document["step_ms"])


def test_a_peer_that_trains_another_model_is_refused(tmp_path):
    script = tmp_path / "peer.py"
    script.write_text(
        "import sys\nprint('hello')\nprint('{}', flush=True)\n"
        "for line in sys.stdin: print('{\"loss\": 1.0, \"seconds\": 1.0}', flush=True)\n"
    )
    done = run("train", *TINY_MODEL, "--peers", "eager", "--script", script)
    assert done.returncode == 1
    assert "do not train the same model" in done.stderr
    script.write_text("import sys\nsys.exit('no such thing')\n")
    done = run("train", *TINY_MODEL, "--peers", "eager", "--script", script)
    assert done.returncode == 1
    assert "torch eager ended before it answered" in done.stderr and "no such thing" in done.stderr


@pytest.fixture(scope="module")
def tiny_llama(tmp_path_factory):
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    torch.manual_seed(1)
    folder = tmp_path_factory.mktemp("llama")
    transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=96, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, tie_word_embeddings=True,
        )
    ).save_pretrained(folder)
    return folder


GENERATE = ["--prompt-tokens", "12", "--tokens", "9", "--seconds", "0", "--threads", "1", "--python", sys.executable]


def expect_measured(rows):
    for row in rows:
        for key in ("load_seconds", "prompt_tokens_per_second", "generated_tokens_per_second", "peak_bytes"):
            assert row[key] > 0, key
        assert row["rounds"] == 3


def test_generate(tiny_llama):
    document = result("generate", tiny_llama, *GENERATE)
    rows = document["rows"]
    expect_measured(rows)
    # Both matrices of a block and the tied table; norms are vectors.
    numbers = 96 * 32 + 2 * (32 * (32 + 32) + 32 * 32 + 3 * 32 * 48 + 2 * 32) + 32
    assert [(row["name"], row["weight_bytes"]) for row in rows] == [("tempera fp32", 4 * numbers), ("tempera bf16", 2 * numbers)]
    row = rows[0]
    assert row["gbps"] == pytest.approx(row["weight_bytes"] * row["generated_tokens_per_second"] / 1e9)
    assert row["read_share"] == pytest.approx(row["gbps"] / document["machine"]["read_gbps"])


def test_generate_with_caches_of_fewer_bits(tiny_llama):
    rows = result("generate", tiny_llama, *GENERATE, "--dtype", "fp32", "--cache-dtype", "fp32,bf16,int8")["rows"]
    assert [row["name"] for row in rows] == [f"tempera fp32, cache {dtype}" for dtype in ("fp32", "bf16", "int8")]
    expect_measured(rows)


@pytest.mark.skipif(not LONG, reason="starts Python with transformers; set TEMPERA_LONG=1")
def test_generate_in_turn_with_transformers(tiny_llama):
    script = str(ROOT / "bench" / "peers" / "transformers_generate.py")
    rows = result("generate", tiny_llama, *GENERATE, "--peers", "transformers", "--script", script)["rows"]
    assert [row["name"] for row in rows] == [f"{name} {dtype}" for name in ("tempera", "transformers") for dtype in ("fp32", "bf16")]
    expect_measured(rows)


def test_a_peer_that_runs_another_model_is_refused(tiny_llama, tmp_path):
    script = tmp_path / "peer.py"
    script.write_text(
        "import json, sys\nprint(json.dumps({'load_seconds': 1}), flush=True)\nfor line in sys.stdin:\n"
        "    print(json.dumps({'prompt_seconds': 1, 'generate_seconds': 1, 'tokens': [1, 2], 'peak_bytes': 1}),"
        " flush=True)\n"
    )
    done = run("generate", tiny_llama, *GENERATE, "--peers", "transformers", "--script", script)
    assert done.returncode == 1
    assert "they do not run the same model" in done.stderr


SERVE = ["--clients", "3", "--requests", "2", "--prompt-tokens", "20", "--tokens", "6", "--seconds", "0", "--threads", "1"]


def expect_served(rows):
    for row in rows:
        assert row["rounds"] == 2
        assert row["generated_tokens_per_second"] > 0
        assert row["tokens_per_second"] == pytest.approx(row["generated_tokens_per_second"] * 26 / 6)
        for when in ("alone", "p95_at_once", "p95_later"):
            assert row[f"first_token_seconds_{when}"] > 0
        assert row["own_bytes"] > row["cache_bytes"]


@pytest.mark.skipif(not SMOLLM2.exists(), reason=f"{SMOLLM2} is not there (TEMPERA_SMOLLM2)")
def test_serve():
    rows = result("serve", SMOLLM2, *SERVE)["rows"]
    assert [row["name"] for row in rows] == ["tempera"]
    expect_served(rows)
    # Keys and values of three texts of 90 tokens, each a block of 128, in 30 layers with 3 heads of 64.
    assert rows[0]["cache_bytes"] == 3 * 128 * 2 * 30 * 3 * 64 * 4


@pytest.mark.skipif(not (LONG and SMOLLM2.exists()), reason=f"starts llama.cpp's server; set TEMPERA_LONG=1, and {SMOLLM2} has to be there")
def test_serve_in_turn_with_llama_cpp():
    for module in ("llama_cpp", "uvicorn", "fastapi"):
        pytest.importorskip(module, reason=f"the package {module} is not installed (llama-cpp-python[server])")
    rows = result("serve", SMOLLM2, *SERVE, "--peers", "llama.cpp", "--python", sys.executable)["rows"]
    assert [row["name"] for row in rows] == ["tempera", "llama.cpp"]
    expect_served(rows)


def test_a_server_that_does_not_start_is_named(tmp_path):
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    done = run("serve", tmp_path / "model.gguf", *SERVE)
    assert done.returncode == 1 and "model.gguf" in done.stderr


def test_the_table_goes_to_stdout_and_progress_to_stderr():
    done = run("attention", "--memory", "--length", "256", "--heads", "2", "--methods", "focal")
    assert done.returncode == 0
    assert "torch" in done.stdout and "focal" in done.stdout
    assert "bench" in done.stderr


@pytest.mark.parametrize(
    "arguments, message",
    few(5, [
        ([], "benchmark is missing"),
        (["atention"], "did you mean 'attention'?"),
        (["attention", "--methods", "sssa"], "did you mean 'ssa'?"),
        (["attention", "--head-size", "20"], "a multiple of 8 expected"),
        (["attention", "--kv-heads", "3"], "a divisor of the 8 query heads expected"),
        (["decode", "--head-size", "20"], "a multiple of 8 expected"),
        (["decode", "--kv-heads", "3"], "a divisor of the 8 query heads expected"),
        (["attention", "--length", ""], ""),
        (["train", "--peers", "eagr"], "did you mean 'eager'?"),
        (["train", "--peers", "eager", "--script", "nowhere.py"], "'nowhere.py' is not there"),
        (["train", "--peers", "eager", "--profile"], "leave --peers out"),
        (["generate"], "model is missing"),
        (["generate", "folder", "--peers", "llama.cpp", "--script", __file__, "--python", __file__],
         "'folder' is no .gguf file"),
        (["serve"], "model is missing"),
        (["serve", "folder", "--peers", "llama.cpp"], "'folder' is no .gguf file"),
    ]),
)
def test_wrong_usage(arguments, message):
    done = run(*arguments)
    assert done.returncode == 2, done.stderr
    assert message in done.stderr
