"""`tempera study` from outside: the controlled tasks, dilution, the ablation; resuming and refusals."""

import json
import math
import subprocess

import pytest
from program import PATIENCE, PROGRAM, few

pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason="build/tempera is not built")


def study(*arguments):
    return subprocess.run([PROGRAM, "study", *map(str, arguments)], capture_output=True, text=True, timeout=PATIENCE)


def results(*arguments):
    done = study(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def check_folder(folder, document):
    assert json.loads((folder / "results.json").read_text()) == document
    assert "<svg" in (folder / "report.html").read_text()
    assert (folder / "report.svg").read_text().startswith("<svg")
    assert (folder / "report.png").read_bytes().startswith(b"\x89PNG")


def test_denoise_learns_and_stays_above_the_optimum(tmp_path):
    out = tmp_path / "denoise"
    options = ["denoise", "--steps", 250, "--seeds", 2, "--methods", "softmax,ssa", "--train-noise", 8, "--test-noise", "8,64",
               "--out", out]
    document = results(*options)
    check_folder(out, document)
    optimum, naive = document["baselines"]["optimum"], document["baselines"]["naive average"]
    # sigma^2 / (R + sigma^2), (M^2 + R sigma^2 + M) / (R + M)^2 with R = 4, sigma = 0.5
    assert math.isclose(optimum["8"]["closed"], 0.25 / 4.25)
    assert math.isclose(naive["8"]["closed"], (64 + 1 + 8) / 144)
    for method in document["results"].values():
        for noise, error in method["error"].items():
            assert len(error["seeds"]) == 2
            assert min(error["seeds"]) > 0.9 * optimum[noise]["closed"]
            assert max(error["seeds"]) < naive[noise]["closed"]
    plain, ssa = document["results"]["softmax"], document["results"]["ssa"]
    assert all(value["mean"] == 1 for value in plain["noise_scale"].values())
    # Noise tokens end with less of their value than relevant ones.
    assert ssa["noise_scale"]["250"]["mean"] < ssa["relevant_scale"]["250"]["mean"]
    marks = {path: path.stat().st_mtime_ns for path in (out / "jobs").iterdir()}
    assert results(*options) == document
    assert marks == {path: path.stat().st_mtime_ns for path in (out / "jobs").iterdir()} and len(marks) == 4


def test_graph_learns_the_transitions(tmp_path):
    out = tmp_path / "graph"
    document = results("graph", "--steps", 200, "--seeds", 2, "--nodes", 12, "--neighbours", 3, "--methods", "softmax,ssa:v=false",
                       "--out", out)
    check_folder(out, document)
    for name, method in document["results"].items():
        assert list(method["l1"]) == ["1", "2", "3"]
        curve = method["curve"]
        assert curve["200"]["mean"] < 0.5 * curve["0"]["mean"]
        assert method["total"]["frobenius"]["mean"] >= method["total"]["spectral"]["mean"] > 0
        assert len(method["nodes"]) == 2 and len(method["nodes"][0]) == 12
        scales = {node["scale"] for node in method["nodes"][0]}
        assert scales == {1} if name == "softmax" else len(scales) == 12


TINY = ["--steps", "3", "--batch", "2", "--seeds", "2", "--task.test-max", "64"]


def test_dilution_of_trained_models_and_of_a_run(tmp_path):
    out = tmp_path / "dilution"
    document = results("dilution", *TINY, "--methods", "softmax,focal:t=0.02", "--out", out)
    check_folder(out, document)
    plain, sharp = document["results"]["softmax"], document["results"]["focal:t=0.02"]
    for entries in ("32", "64"):
        assert 0 <= sharp["answer_entropy"][entries]["mean"] < plain["answer_entropy"][entries]["mean"]
        assert plain["answer_entropy"][entries]["mean"] < math.log(2 * 2 * int(entries))
    again = results("dilution", "--run", out, "--out", tmp_path / "again")
    assert again == document and (tmp_path / "again" / "report.png").exists()


def test_ablation_has_parameters_and_cost_of_every_part(tmp_path):
    out = tmp_path / "ablation"
    methods = ["softmax", "ssa", "ssa:f=feature:pos=false:v=false", "yarn"]
    document = results("ablation", *TINY, "--methods", ",".join(methods), "--out", out)
    check_folder(out, document)
    assert list(document["costs"]) == methods
    # 4 heads of size 16, for q and v: 16 weights and a slope each.
    assert document["costs"]["ssa"]["new_parameters"] == 2 * 4 * 17
    assert document["costs"]["ssa:f=feature:pos=false:v=false"]["new_parameters"] == 4 * 2
    assert document["costs"]["yarn"]["new_parameters"] == 0
    assert document["costs"]["softmax"]["cost"]["seeds"] == [1, 1]
    assert all(row["cost"]["mean"] > 0 for row in document["costs"].values())


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A small model of text."""
    folder = tmp_path_factory.mktemp("model")
    text = folder / "text.txt"
    text.write_text("the quick brown fox jumps over the lazy dog. " * 40)
    done = subprocess.run([PROGRAM, "train", "--text", text, "--out", folder / "run", "--steps", "2", "--batch", "2", "--layers", "2",
                           "--width", "32", "--heads", "2", "--context", "128"], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    return folder / "run", text


def test_dilution_of_a_model_that_reads_text(tmp_path, model):
    run, text = model
    out = tmp_path / "out"
    document = results("dilution", run, "--text", text, "--out", out)
    check_folder(out, document)
    (measured,) = document["results"].values()
    assert list(measured["entropy"]) == ["32", "64", "128"]
    assert len(measured["layers"]) == 2
    # Hardly trained, it weighs all it sees alike.
    for length, entropy in measured["entropy"].items():
        assert abs(entropy["mean"] - math.log(int(length) - 7.5)) < 0.1
        assert measured["first_weight"][length]["mean"] < 2 / int(length)


@pytest.mark.parametrize("arguments, words", few(5, [
    (["denoisy"], "denoise"),
    (["denoise", "--methods", "softmax,sssa"], "ssa"),
    (["denoise", "--methods", "ssa:f=feature"], "frequency"),
    (["denoise", "--test-noise", "4,4"], "rising"),
    (["denoise", "--sigma", "-1"], "sigma"),
    (["graph", "--nodes", "4", "--neighbours", "4"], "room for 3"),
    (["graph", "--methods", "ssa"], "ssa:v=false"),
    (["dilution", "--run", "nowhere"], "results.json"),
    (["dilution", "--text", "some.txt"], "MODEL"),
    (["dilution", "nowhere", "--text", "some.txt"], "nowhere"),
    (["ablation", "--methods", "softmax,softmax"], "twice"),
]))
def test_bad_input_is_refused_and_leaves_nothing(tmp_path, arguments, words):
    done = study(*arguments, *([] if arguments[0] == "denoisy" else ["--out", tmp_path / "run"]))
    assert done.returncode in (1, 2) and words in done.stderr, done.stderr
    assert not (tmp_path / "run").exists()


def test_a_text_that_is_too_short_is_refused(tmp_path, model):
    run, text = model
    done = study("dilution", run, "--text", text, "--window", 4096, "--out", tmp_path / "run")
    assert done.returncode == 2 and "4096" in done.stderr and "--window" in done.stderr


def test_other_settings_in_the_same_folder_are_refused(tmp_path):
    options = ["graph", "--steps", 2, "--seeds", 1, "--nodes", 4, "--neighbours", 2, "--methods", "softmax", "--out", tmp_path / "run"]
    assert study(*options).returncode == 0
    refused = study(*options, "--learning-rate", "0.5")
    assert refused.returncode == 2 and "learning-rate" in refused.stderr and "0.5" in refused.stderr
