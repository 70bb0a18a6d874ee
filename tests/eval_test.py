"""`tempera eval` on tasks in text: questions with choices, words to guess, things hidden in long texts.

TEMPERA_DATA names the folder of the data; what needs it is skipped without it.
"""

import json
import subprocess
import sys

import pytest
from program import DATA, LONG, PATIENCE, PROGRAM, ROOT, few

STORIES = DATA / "models/stories260K"
SMOLLM2 = DATA / "models/smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"

pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason="build/tempera is missing: run make build")

PIQA = [
    {"goal": "Open a jar", "sol1": "Turn the lid to the left.", "sol2": "Sing to it", "label": 0},
    {"goal": "Dry a towel", "sol1": "Put it in the lake and wait for rain.", "sol2": "Hang it up.", "label": 1},
    {"goal": "Find a lost dog", "sol1": "Sleep.", "sol2": "Go to the park and call its name.", "label": 1},
]
QA = [{"question": f"Where is the {thing}?", "answers": [place], "passages": [f"The {thing} is in the {place}."],
       "document": f"It was a sunny day. The {thing} is in the {place}. All were happy."}
      for thing, place in (("ball", "park"), ("cat", "tree"), ("dog", "house"), ("bird", "box"))]
LABELS = [{"text": f"I am {word}", "label": label} for word, label in
          (("happy", "good"), ("sad", "bad"), ("glad", "good"), ("mad", "bad"), ("fun", "good"), ("sick", "bad"))]


def run(*arguments):
    return subprocess.run([PROGRAM, *map(str, arguments), "--threads", "1"], capture_output=True, text=True, timeout=PATIENCE,
                          check=False)


def result(*arguments):
    done = run("eval", *arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def write(path, lines):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.fixture(scope="module")
def stories(tmp_path_factory):
    if not STORIES.exists():
        pytest.skip(f"{STORIES} is not there (TEMPERA_DATA)")
    folder = tmp_path_factory.mktemp("stories")
    subprocess.run([sys.executable, ROOT / "tools/convert_llama2c.py", STORIES / "stories260K.bin",
                    STORIES / "tok512.model", folder / "folder"], check=True, capture_output=True)
    return folder / "folder"


@pytest.fixture(scope="module")
def byte_model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bytes")
    (folder / "text.txt").write_text("the quick brown fox jumps over the lazy dog. " * 60)
    done = run("train", "--text", folder / "text.txt", "--out", folder / "run",
               *"--layers 1 --width 32 --heads 2 --context 64 --batch 2 --steps 2 --eval-every 0".split())
    assert done.returncode == 0, done.stderr
    return folder / "run"


def test_likelihoods_are_those_of_transformers(stories, tmp_path):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers", reason="the package transformers is not installed")
    # By way of GGUF, which gives the folder a tokenizer.json.
    for source, target in ((stories, ["a.gguf", "--as", "gguf"]), (tmp_path / "a.gguf", ["model"])):
        subprocess.run([PROGRAM, "export", source, "--out", tmp_path / target[0], *target[1:]], check=True,
                       capture_output=True)
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "model", dtype=torch.float32).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "model")
    scores = result(stories, "--task", "piqa", "--file", write(tmp_path / "a.jsonl", PIQA), "--log-samples")
    samples = scores["samples"]["piqa"]
    assert len(samples) == len(PIQA)
    hits = []
    for line, sample in zip(PIQA, samples):
        context = f"Question: {line['goal']}\nAnswer:"
        assert sample["arguments"] == [[context, " " + line["sol1"]], [context, " " + line["sol2"]]]
        found = []
        for (text, more), (score, greedy) in zip(sample["arguments"], sample["filtered_resps"]):
            before, ids = tokenizer.encode(text), tokenizer.encode(text + more)
            with torch.no_grad():
                chances = model(torch.tensor([ids])).logits[0].log_softmax(1)
            rows = chances[len(before) - 1:-1]
            wanted = torch.tensor(ids[len(before):])
            assert score == pytest.approx(rows.gather(1, wanted[:, None]).sum().item(), abs=1e-3)
            assert greedy == bool((rows.argmax(1) == wanted).all())
            found.append(score)
        lengths = [len(line["sol1"]), len(line["sol2"])]
        assert sample["acc"] == (found.index(max(found)) == line["label"])
        by_character = [score / length for score, length in zip(found, lengths)]
        assert sample["acc_norm"] == (by_character.index(max(by_character)) == line["label"])
        hits.append(sample["acc"])
    assert scores["results"]["piqa"]["acc,none"] == pytest.approx(sum(hits) / len(hits))


def test_the_layout_of_results(byte_model, tmp_path):
    file = write(tmp_path / "a.jsonl", PIQA)
    scores = result(byte_model, "--task", "piqa", "--file", file, "--limit", 2, "--out", tmp_path / "out")
    task = scores["results"]["piqa"]
    assert {"alias", "acc,none", "acc_stderr,none", "acc_norm,none", "acc_norm_stderr,none"} == set(task)
    low, high = scores["intervals"]["piqa"]["acc"]
    assert 0 <= low <= task["acc,none"] <= high <= 1
    assert scores["n-samples"]["piqa"]["effective"] == 2
    assert "samples" not in scores
    assert json.loads((tmp_path / "out" / "eval.json").read_text()) == scores
    assert (tmp_path / "out" / "eval.png").read_bytes().startswith(b"\x89PNG")
    table = run("eval", byte_model, "--task", "piqa", "--file", file).stdout
    assert "acc_norm" in table and "95 % interval" in table
    words = result(byte_model, "--task", "lambada", "--file", write(tmp_path / "b.jsonl", [{"text": "a b c"}]))
    assert words["results"]["lambada"]["perplexity,none"] > 1


def test_a_passkey_grid(byte_model, tmp_path):
    (tmp_path / "hay.txt").write_text("Hay is dry grass. It is for cows! " * 20)
    grid = result(byte_model, "--task", "passkey", "--text", tmp_path / "hay.txt", "--lengths", "300,400",
                  "--depths", "0,0.5,1", "--cases", 2, "--out", tmp_path / "out")
    assert [row["length"] for row in grid["lengths"]] == [300, 400]
    again = result(byte_model, "--task", "passkey", "--text", tmp_path / "hay.txt", "--lengths", "400",
                   "--depths", "0.5", "--cases", 2)
    assert again["cells"][0] in grid["cells"]
    assert len(grid["cells"]) == 6 and all(cell["cases"] == 2 for cell in grid["cells"])
    picture = (tmp_path / "out" / "eval.svg").read_text()
    assert "depth of the answer" in picture and "tokens of text" in picture


@pytest.mark.parametrize("task, lines, cells", [
    ("needle-keys", None, 2), ("needle-values", None, 1), ("needle-queries", None, 1), ("key-value", None, 2),
    ("qa", QA, 2), ("rerank", QA, 2), ("document-qa", QA, 1), ("classify", LABELS, 1),
])
def test_long_tasks(stories, tmp_path, task, lines, cells):
    file = ["--file", write(tmp_path / "a.jsonl", lines)] if lines else []
    grid = result(stories, "--task", task, *file, "--lengths", 450, "--depths", "0,1", "--cases", 2, "--needles", 2)
    assert grid["task"] == task and len(grid["cells"]) == cells
    assert all(cell["cases"] == (4 if task == "needle-queries" else 2) for cell in grid["cells"])


@pytest.mark.parametrize("arguments, code, words", few(4, [
    (["--task", "piqa"], 2, "--file"),
    (["--task", "qa"], 2, "--file"),
    (["--task", "piqa", "--file", "{folder}/gone.jsonl"], 1, "gone.jsonl"),
    (["--task", "piqa", "--file", "{folder}/broken.jsonl"], 1, "line 2: no sol2"),
    (["--task", "passkey", "--lengths", "30"], 2, "the question alone have"),
    (["--task", "passkey", "--depths", "50"], 2, "depths"),
    (["--task", "piqua"], 2, "did you mean 'piqa'?"),
    (["--task", "piqa", "--file", "{folder}/broken.jsonl", "--sizes", "3"], 2, "--sizes"),
]))
def test_wrong_calls(byte_model, tmp_path, arguments, code, words):
    write(tmp_path / "broken.jsonl", [PIQA[0], {"goal": "a", "sol1": "b", "label": 0}])
    done = run("eval", byte_model, *(word.format(folder=tmp_path) for word in arguments))
    assert done.returncode == code, done.stderr
    assert words in done.stderr


def test_every_example_as_in_lm_eval(tmp_path):
    pytest.importorskip("lm_eval", reason="the package lm-eval is not installed")
    if not LONG:
        pytest.skip("takes minutes: TEMPERA_LONG=1")
    if not (SMOLLM2.exists() and (DATA / "eval").exists()):
        pytest.skip(f"{SMOLLM2} or {DATA / 'eval'} is not there (TEMPERA_DATA)")
    import lm_eval_parity as parity
    subprocess.run([PROGRAM, "export", SMOLLM2, "--out", tmp_path / "model", "--dtype", "fp32"], check=True,
                   capture_output=True)
    lm = parity.open_lm(tmp_path / "model", 16)
    for task in parity.TASKS:
        file = tmp_path / f"{task}.jsonl"
        parity.write_lines(file, parity.original_lines(task, DATA / "eval", 20))
        ours, _ = parity.run_tempera(PROGRAM, tmp_path / "model", task, file)
        theirs, _ = parity.run_lm_eval(lm, task, file)
        found = parity.compare(task, ours, theirs)
        assert found["texts"] == found["greedy"] == found["hits"] == 0, (task, found)
        assert found["worst"] < 5e-3, (task, found)
