"""`tempera eval --task ruler`, and its scores against lm-eval's own scorer."""

import importlib.util
import json
import pathlib

import pytest
from program import fails, result, run, tool

TOOL = tool("models", "model_tool")

pytestmark = pytest.mark.skipif(not TOOL.exists(), reason=f"{TOOL} is not built (cmake --build build/release --target tests)")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A model that reads text: a few steps on bytes."""
    folder = tmp_path_factory.mktemp("ruler")
    (folder / "text.txt").write_text("".join(f"{i} and {i} are {2 * i}. The book says so!\n" for i in range(3000)))
    done = run("train", "--text", folder / "text.txt", "--steps", 2, "--batch", 2, "--context", 64, "--layers", 1, "--width", 32,
               "--heads", 2, "--out", folder / "run", "--threads", 1)
    assert done.returncode == 0, done.stderr
    return folder / "run"


@pytest.fixture(scope="module")
def found(model, tmp_path_factory):
    out = tmp_path_factory.mktemp("ruler-out") / "out"
    return result("eval", model, "--task", "ruler", "--lengths", "2048,3000", "--cases", 1, "--log-samples", "--threads", 1,
                  "--out", out), out


def test_a_table_by_task_and_length(found, model):
    scores, out = found
    tasks = {cell["task"] for cell in scores["cells"]}
    assert len(tasks) == 12 and len(scores["cells"]) == 24 and [row["length"] for row in scores["average"]] == [2048, 3000]
    for cell in scores["cells"]:
        assert 0 <= cell["low"] <= cell["score"] <= cell["high"] <= 1 and cell["cases"] == 1
    assert {cell["task"]: cell["new_tokens"] for cell in scores["cells"]}["ruler-vt"] == 30
    assert json.loads((out / "eval.json").read_text())["cells"] == scores["cells"]
    assert (out / "eval.png").read_bytes().startswith(b"\x89PNG")
    table = run("eval", model, "--task", "ruler-vt", "--lengths", 1024, "--cases", 1, "--threads", 1)
    assert table.returncode == 0 and "vt" in table.stdout and "95 % interval" in table.stdout


def test_texts_come_from_a_file(model, tmp_path):
    (tmp_path / "hay.txt").write_text("Hay is dry grass for the hungry cows of the valley! " * 40)
    scores = result("eval", model, "--task", "ruler-niah-single-2", "--text", tmp_path / "hay.txt", "--lengths", 1024, "--cases", 1,
                    "--log-samples", "--threads", 1)
    assert "hungry cows" in scores["cells"][0]["samples"][0]["prompt"]


def test_wrong_input_to_ruler(model):
    fails(2, ["ruler-vt: 64 tokens given", "30 are for the answer"], "eval", model, "--task", "ruler-vt", "--lengths", 64)
    fails(2, ["ruler-vt"], "eval", model, "--task", "ruler-vd", "--lengths", 1024)
    fails(2, ["twice"], "eval", model, "--task", "ruler-vt", "--lengths", "1024,1024")


def test_scores_are_those_of_lm_eval(found):
    """Its own scorer, given our answers, and given answers that hold some of what was asked for."""
    spec = importlib.util.find_spec("lm_eval")
    if spec is None:
        pytest.skip("the package lm-eval is not installed")
    pytest.importorskip("transformers", reason="the package transformers is not installed")
    path = pathlib.Path(spec.origin).parent / "tasks/ruler/common_utils.py"
    spec = importlib.util.spec_from_file_location("ruler_scorer", path)
    scorer = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(scorer)
    for cell in found[0]["cells"]:
        scores = []
        for sample in cell["samples"]:
            doc = {"max_length": cell["length"], "outputs": sample["references"]}
            scores.append(scorer.process_results(doc, [sample["answer"]])[str(cell["length"])])
            assert scores[-1] == sample["score"]
            assert scorer.process_results(doc, [" ".join(sample["references"]).upper()])[str(cell["length"])] == 1
        assert scorer.aggregate_metrics(scores) == pytest.approx(cell["score"])
