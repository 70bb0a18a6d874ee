"""--cache-dtype of the verbs that keep keys and values, on a small model trained here."""

import json
import re

import pytest
from program import PROGRAM, fails, result, run
from server import serving

pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason="build/tempera is missing: run make build")

TEXT = "the quick brown fox jumps over the lazy dog. " * 60
PROMPT = TEXT[:37]
ANSWER = ["--max-tokens", 20, "--sampling-temperature", 0]
# Measured on a model that knows its text: 7e-6 in bf16 and 1e-5 in 8 bits.
NATS = {"bf16": 1e-3, "int8": 1e-3}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    (folder / "text.txt").write_text(TEXT)
    done = run("train", "--text", folder / "text.txt", "--out", folder / "run", "--temperature", "ssa", "--threads", 1,
               *"--layers 2 --width 64 --heads 2 --context 128 --batch 8 --steps 120 --warmup 10 --eval-every 0".split())
    assert done.returncode == 0, done.stderr
    (folder / "run" / "last" / "chat_template.jinja").write_text("{% for message in messages %}{{ message.content }}{% endfor %}")
    return folder / "run" / "last"


def test_generate(model):
    answers = {dtype: result("generate", model, "--prompt", PROMPT, *ANSWER, "--cache-dtype", dtype)["answers"][0]
               for dtype in ("auto", "fp32", "bf16", "int8")}
    assert answers["fp32"] == answers["auto"]
    exact = answers["auto"]["log_probabilities"]
    for dtype, nats in NATS.items():
        found = answers[dtype]["log_probabilities"]
        assert found != exact, "the cache has all its digits"
        assert answers[dtype]["tokens"] == answers["auto"]["tokens"]
        assert found == pytest.approx(exact, abs=nats)


def test_computing_in_bf16(model):
    found = result("generate", model, "--prompt", PROMPT, *ANSWER, "--dtype", "bf16", "--cache-dtype", "int8")["answers"][0]
    assert found["text"] == result("generate", model, "--prompt", PROMPT, *ANSWER, "--dtype", "bf16")["answers"][0]["text"]


def test_chat(model):
    answers = {result("chat", model, "--prompt", PROMPT, *ANSWER, "--cache-dtype", dtype)["answer"] for dtype in ("auto", "bf16", "int8")}
    assert len(answers) == 1


def test_eval(model, tmp_path):
    """Texts and tasks in text see the keys and values that a cache would keep."""
    text = tmp_path / "text.txt"
    text.write_text(TEXT[:600])
    questions = tmp_path / "questions.jsonl"
    questions.write_text("".join(json.dumps({"goal": f"the quick {word}", "sol1": "brown fox", "sol2": "lazy dog", "label": 0}) + "\n"
                                 for word in ("", "brown")))
    losses = {dtype: result("eval", model, "--text", text, "--cache-dtype", dtype)["loss"] for dtype in ("auto", "fp32", *NATS)}
    assert losses["fp32"] == losses["auto"]
    # A single text goes whole, and texts that begin alike share a cache.
    likelihoods = {dtype: result("eval", model, "--task", "piqa", "--file", questions, "--log-samples", "--cache-dtype",
                                 dtype)["samples"]["piqa"] for dtype in ("auto", *NATS)}
    for dtype, nats in NATS.items():
        assert losses[dtype] != losses["auto"] and losses[dtype] == pytest.approx(losses["auto"], abs=nats)
        assert likelihoods[dtype] != likelihoods["auto"]


def test_serve(model):
    """The answers are those of generate, and the memory is that of the type."""
    bytes_of = {}
    for dtype in ("fp32", "bf16", "int8"):
        with serving(model, "--cache-tokens", 1024, "--cache-dtype", dtype) as server:
            found = server.post("/v1/completions", prompt=PROMPT, max_tokens=20, temperature=0, logprobs=0)["choices"][0]
            bytes_of[dtype] = int(float(re.search(r"^tempera:kv_cache_bytes\S* (\S+)$", server.request("GET", "/metrics")[2], re.M)[1]))
        wanted = result("generate", model, "--prompt", PROMPT, *ANSWER, "--cache-dtype", dtype)["answers"][0]
        assert found["text"] == wanted["text"]
        assert found["logprobs"]["token_logprobs"] == pytest.approx(wanted["log_probabilities"], abs=1e-3)
    # 2 layers with 64 columns of keys and of values; in 8 bits each of 2 heads has a factor for both.
    assert bytes_of == {"fp32": 1024 * 2 * 128 * 4, "bf16": 1024 * 2 * 128 * 2, "int8": 1024 * 2 * (128 + 2 * 2 * 4)}


@pytest.mark.parametrize("verb", ["generate", "chat", "eval", "serve"])
def test_bad_values_are_refused(model, verb):
    fails(2, ["--cache-dtype", "fp16", "bf16", "int8"], verb, model, "--cache-dtype", "fp16")
    fails(2, ["--cache-dtype fp32", "--dtype bf16", "int8"], verb, model, "--dtype", "bf16", "--cache-dtype", "fp32")
