"""The verbs on a GPU: what they train there learns, and what they measure and write there is what the CPU measures and writes."""

import shutil

import pytest
import torch

from program import PROGRAM, result, run

if not torch.cuda.is_available():
    pytest.skip("there is no GPU that torch can use", allow_module_level=True)
if not PROGRAM.exists():
    pytest.skip("the program is not built", allow_module_level=True)

GPU = ("--device", "cuda")
SMALL = ("--layers", 2, "--width", 64, "--heads", 2, "--context", 64, "--batch", 16, "--eval-rows", 16)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    lines = [f"number {i} comes before number {i + 1} and after number {i - 1}." for i in range(1, 1500)]
    (folder / "text.txt").write_text("\n".join(lines) + "\n")
    words = ["red", "blue", "green", "small", "large", "old"]
    sentences = [" ".join(words[(i * k + k) % 6] for k in range(1, 5)) for i in range(240)]
    (folder / "a.en").write_text("\n".join(sentences) + "\n")
    (folder / "a.xx").write_text("\n".join(" ".join(reversed(s.split())) for s in sentences) + "\n")
    (folder / "labels.tsv").write_text("text\tlabel\n" + "".join(f"{s}\t{'red' in s:d}\n" for s in sentences))
    return folder


@pytest.fixture(scope="module")
def decoder(files):
    """Trained as a graph in bf16."""
    out = files / "decoder"
    result("train", "--text", files / "text.txt", "--steps", 60, "--temperature", "ssa", "--dtype", "bf16",
           "--out", out, *SMALL, *GPU)
    return out


def loss(model, files, *options):
    return result("eval", model, "--text", files / "text.txt", *options)["loss"]


def test_a_graph_in_bf16_trains_as_single_steps_in_fp32(files, decoder):
    other = files / "single"
    result("train", "--text", files / "text.txt", "--steps", 60, "--temperature", "ssa", "--dtype", "fp32", "--micro-batch", 8,
           "--out", other, *SMALL, *GPU)
    first, second = loss(decoder, files, "--device", "cpu"), loss(other, files, "--device", "cpu")
    assert first < 3
    assert first == pytest.approx(second, rel=0.03)


def test_losses_are_those_of_the_cpu(files, decoder):
    assert loss(decoder, files, *GPU) == pytest.approx(loss(decoder, files, "--device", "cpu"), rel=1e-4)


def test_greedy_answers_are_those_of_the_cpu(decoder):
    answers = [run("generate", decoder, "--prompt", "number 7 comes", "--max-tokens", 24, "--sampling-temperature", 0, "--device",
                   device).stdout for device in ("cuda", "cpu")]
    assert answers[0] and answers[0] == answers[1]


def test_a_run_that_lost_its_last_steps_repeats_them(files):
    out = files / "resumed"
    arguments = ("train", "--text", files / "text.txt", "--steps", 20, "--save-every", 10, "--dtype", "bf16", "--out", out, *SMALL, *GPU)
    result(*arguments)
    before = loss(out, files, *GPU)
    shutil.rmtree(max((out / "checkpoints").iterdir(), key=lambda path: path.name))
    again = run(*arguments)
    assert again.returncode == 0 and "from step 10" in again.stderr, again.stderr
    assert loss(out, files, *GPU) == pytest.approx(before, rel=1e-6)


def test_calibration(files):
    plain, calibrated = files / "plain", files / "calibrated"
    result("train", "--text", files / "text.txt", "--steps", 40, "--dtype", "bf16", "--out", plain, *SMALL, *GPU)
    result("calibrate", plain, "--text", files / "text.txt", "--length", 64, "--tokens", 8192, "--eval-tokens", 2048,
           "--passkey-cases", 0, "--out", calibrated, *GPU)
    assert loss(calibrated, files, *GPU) < loss(plain, files, *GPU)
    assert loss(calibrated, files, *GPU) == pytest.approx(loss(calibrated, files, "--device", "cpu"), rel=1e-4)


def test_a_long_window_in_fp32_fits(files):
    """9 heads of 32,768 x 32,768 logits would be 36 GiB: beside a model of this size, nothing else is."""
    long, text = files / "long", files / "long.txt"
    text.write_text((files / "text.txt").read_text() * 24)
    shape = ("--layers", 1, "--width", 72, "--heads", 9, "--kv-heads", 3, "--context", 64, "--batch", 16, "--eval-rows", 16)
    result("train", "--text", text, "--steps", 5, "--out", long, *shape, *GPU)
    options = ("--context", 32768, "--length", 32768, "--tokens", 65536, "--eval-tokens", 32768, "--passkey-cases", 0, "--dtype", "fp32")
    result("calibrate", long, "--text", text, *options, "--out", files / "long-calibrated", *GPU)


def test_an_encoder_and_its_classes(files):
    masked, classes = files / "masked", files / "classes"
    result("train", "--kind", "encoder", "--text", files / "text.txt", "--steps", 40, "--temperature", "focal-learned", "--dtype",
           "bf16", "--out", masked, *SMALL, *GPU)
    result("finetune", masked, "--labelled", files / "labels.tsv", "--out", classes, "--steps", 60, "--batch", 16, *GPU)
    scores = [result("eval", classes, "--labelled", files / "labels.tsv", "--device", device) for device in ("cuda", "cpu")]
    assert scores[0]["accuracy"] == pytest.approx(scores[1]["accuracy"], abs=0.01)
    assert scores[0]["loss"] == pytest.approx(scores[1]["loss"], rel=1e-3)


def test_a_translator(files):
    out = files / "translator"
    result("train", "--source", files / "a.en", "--target", files / "a.xx", "--steps", 40, "--temperature", "ssa", "--dtype", "bf16",
           "--label-smoothing", 0.1, "--out", out, *SMALL, *GPU)
    scores = [result("eval", out, "--source", files / "a.en", "--target", files / "a.xx", "--device", device)
              for device in ("cuda", "cpu")]
    assert scores[0]["chrf"] == pytest.approx(scores[1]["chrf"], abs=1)


def test_a_comparison_learns_and_sees_its_attention(files):
    found = [result("compare", "--methods", "softmax,ssa", "--seeds", 2, "--steps", 60, "--task.test-max", 64,
                    "--out", files / f"compare-{device}", "--device", device)["results"] for device in ("cuda", "cpu")]
    for method, ours in found[0].items():
        for size, loss in ours["loss"].items():
            assert loss["mean"] == pytest.approx(found[1][method]["loss"][size]["mean"], abs=0.2)
        for size, entropy in ours["answer_entropy"].items():
            assert entropy["mean"] == pytest.approx(found[1][method]["answer_entropy"][size]["mean"], abs=0.4)


def test_chat_answers_as_the_cpu(files):
    talker = files / "talker"
    result("train", "--text", files / "text.txt", "--steps", 40, "--dtype", "bf16", "--out", talker, *SMALL, *GPU)
    (model,) = (talker / "checkpoints").iterdir()
    (model / "chat_template.jinja").write_text("{% for message in messages %}{{ message.content }} {% endfor %}")
    answers = [result("chat", talker, "--prompt", "number 7 comes", "--max-tokens", 24, "--sampling-temperature", 0, "--device", device)
               for device in ("cuda", "cpu")]
    assert answers[0]["answer"] and answers[0] == answers[1]


def test_vectors_of_texts_are_those_of_the_cpu(files, decoder):
    vectors = [result("embed", decoder, "--text", files / "a.en", "--device", device)["texts"] for device in ("cuda", "cpu")]
    for ours, expected in zip(*vectors):
        assert ours["embedding"] == pytest.approx(expected["embedding"], abs=1e-3)


def test_dilution_of_a_model_that_reads_text(files, decoder):
    found = [result("study", "dilution", decoder, "--text", files / "text.txt", "--window", 64, "--out", files / f"dilution-{device}",
                    "--device", device)["results"]["decoder"] for device in ("cuda", "cpu")]
    for length, entropy in found[0]["entropy"].items():
        assert entropy["mean"] == pytest.approx(found[1]["entropy"][length]["mean"], abs=1e-3)


@pytest.mark.parametrize("call", (
    ("bench", "train", "--layers", 1, "--width", 2048, "--heads", 16, "--batch", 32768, "--length", 2048),
    ("train", "--text", "text.txt", *SMALL, "--width", 8192, "--heads", 64, "--batch", 200000, "--steps", 1, "--out", "large"),
), ids=("bench", "train"))
def test_out_of_memory_says_what_was_needed_and_free_and_what_to_lower(files, call):
    done = run(*call, "--dtype", "bf16", *GPU, cwd=files)
    assert done.returncode == 1
    for words in ("CUDA out of memory. Tried to allocate", "is free", "--batch"):
        assert words in done.stderr
    assert "frame #" not in done.stderr
