"""Real clients of `tempera serve`: the packages openai and lm-eval, and a crowd of clients of every kind."""

import json
import subprocess
import sys

import pytest
from program import DATA, LONG, PATIENCE, PROGRAM, ROOT, SMOLLM2, run
from server import PROMPT, TEXTS, make_chatting, make_encoder, needs_stories, serving, wait_until

pytest.importorskip("torch")
pytestmark = needs_stories


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return make_chatting(tmp_path_factory.mktemp("serve") / "stories")


@pytest.fixture(scope="module")
def server(model):
    with serving(model, "--max-batch", 8) as running:
        yield running


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    pytest.importorskip("transformers", reason="the package transformers is not installed")
    return make_encoder(tmp_path_factory.mktemp("serve") / "bert")


def test_clients_of_every_kind_at_once(server):
    clients, seconds = (100, 20) if LONG else (12, 1)
    done = subprocess.run([sys.executable, ROOT / "tests/serve_load.py", server.url, "--clients", str(clients), "--seconds", str(seconds),
                           "--pid", str(server.process.pid)], capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    if LONG:
        assert found["left"] and found["slow"] and found["hostile"]
        assert found["memory_after_mib"] <= 1.1 * found["memory_before_mib"], found
    assert wait_until(lambda: server.metric("num_requests_running") == 0)


def test_the_client_of_openai(server):
    openai = pytest.importorskip("openai", reason="the package openai is not installed")
    client = openai.OpenAI(base_url=server.url + "/v1", api_key="none")
    assert [entry.id for entry in client.models.list()] == ["stories"]
    whole = client.completions.create(model="stories", prompt=PROMPT, max_tokens=10, temperature=0, logprobs=2)
    assert len(whole.choices[0].logprobs.tokens) == 10
    stream = client.completions.create(model="stories", prompt=PROMPT, max_tokens=10, temperature=0, stream=True)
    assert "".join(part.choices[0].text for part in stream) == whole.choices[0].text
    messages = [{"role": "user", "content": "Tell a story."}]
    chat = client.chat.completions.create(model="stories", messages=messages, max_tokens=10, temperature=0)
    stream = client.chat.completions.create(model="stories", messages=messages, max_tokens=10, temperature=0, stream=True,
                                            stream_options={"include_usage": True})
    parts = list(stream)
    assert "".join(part.choices[0].delta.content or "" for part in parts if part.choices) == chat.choices[0].message.content
    assert parts[-1].usage.completion_tokens == chat.usage.completion_tokens
    with pytest.raises(openai.BadRequestError, match="temperature"):
        client.completions.create(model="stories", prompt="a", temperature=1000)
    with pytest.raises(openai.NotFoundError):
        client.completions.create(model="gpt-4", prompt="a")


@pytest.fixture(scope="module")
def smollm2(tmp_path_factory):
    """The model with all its digits, as a folder that transformers reads."""
    if not LONG:
        pytest.skip("takes minutes: TEMPERA_LONG=1")
    pytest.importorskip("lm_eval", reason="the package lm-eval is not installed")
    if not (SMOLLM2.exists() and (DATA / "eval").exists()):
        pytest.skip(f"{SMOLLM2} or {DATA / 'eval'} is not there (TEMPERA_DATA)")
    folder = tmp_path_factory.mktemp("lm-eval") / "smollm2"
    done = run("export", SMOLLM2, "--out", folder, "--dtype", "fp32")
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def smollm2_server(smollm2):
    with serving(smollm2, SMOLLM2) as running:
        yield running


@pytest.fixture(scope="module")
def smollm2_in_lm_eval(smollm2):
    """lm-eval's own backend, on transformers."""
    import lm_eval_parity as parity
    return parity.open_lm(smollm2, 8)


@pytest.mark.parametrize("task", ["arc_easy", "piqa", "lambada", "hellaswag"])
def test_scores_through_lm_eval(smollm2, smollm2_server, smollm2_in_lm_eval, tmp_path, task):
    """local-completions: equal to tempera eval's and to those of lm-eval with transformers."""
    import lm_eval_parity as parity
    from lm_eval.models.openai_completions import LocalCompletionsAPI

    client = LocalCompletionsAPI(model="smollm2", base_url=smollm2_server.url + "/v1/completions", tokenizer_backend="remote",
                                 max_length=2048, batch_size=8)
    file = tmp_path / f"{task}.jsonl"
    parity.write_lines(file, parity.original_lines(task, DATA / "eval", 8))
    served, _ = parity.run_lm_eval(client, task, file)
    ours, _ = parity.run_tempera(PROGRAM, smollm2, task, file)
    theirs, _ = parity.run_lm_eval(smollm2_in_lm_eval, task, file)
    for name, found in (("server", parity.compare(task, ours, served)), ("transformers", parity.compare(task, ours, theirs))):
        assert found["texts"] == found["greedy"] == found["hits"] == 0, (name, found)
        assert found["worst"] < 5e-3, (name, found)
    wanted, same = theirs["results"], served["results"]
    assert [score for name in wanted for score in wanted[name].items() if str(score[0]).startswith("acc,")] == [
        score for name in same for score in same[name].items() if str(score[0]).startswith("acc,")]


def test_scores_on_the_blocks_of_a_file_are_those_of_eval(smollm2_server, tmp_path):
    """Rows in 8 bits: where the order of a sum differs, so may a rounding, and the scores a little."""
    import lm_eval_parity as parity
    from lm_eval.models.openai_completions import LocalCompletionsAPI

    client = LocalCompletionsAPI(model=SMOLLM2.stem, base_url=smollm2_server.url + "/v1/completions", tokenizer_backend="remote",
                                 max_length=2048, batch_size=8)
    file = tmp_path / "lambada.jsonl"
    parity.write_lines(file, parity.original_lines("lambada", DATA / "eval", 8))
    served, _ = parity.run_lm_eval(client, "lambada", file)
    found = parity.compare("lambada", parity.run_tempera(PROGRAM, SMOLLM2, "lambada", file)[0], served)
    assert found["texts"] == found["greedy"] == found["hits"] == 0, found
    assert found["worst"] < 0.5, found


QUESTIONS = ["What is the capital of France?", "Name a colour of the rainbow.", "How many legs has a spider?", "Say hello.",
             "What do bees make?", "Which planet do we live on?"]


def test_chats_through_lm_eval(smollm2_server, smollm2_in_lm_eval, tmp_path):
    """local-chat-completions writes what lm-eval writes with transformers and the model's chat template."""
    import lm_eval
    from lm_eval.models.openai_completions import LocalChatCompletion

    (tmp_path / "questions.jsonl").write_text("".join(json.dumps({"question": text}) + "\n" for text in QUESTIONS))
    task = tmp_path / "questions.yaml"
    task.write_text(f"""task: questions
dataset_path: json
dataset_kwargs:
  data_files:
    test: {tmp_path / "questions.jsonl"}
output_type: generate_until
test_split: test
doc_to_text: "{{{{question}}}}"
doc_to_target: "."
generation_kwargs:
  until: ["\\n\\n"]
  do_sample: false
  max_gen_toks: 24
metric_list:
  - metric: exact_match
""")
    client = LocalChatCompletion(model="smollm2", base_url=smollm2_server.url + "/v1/chat/completions", num_concurrent=3)
    answers = []
    for lm in (client, smollm2_in_lm_eval):
        found = lm_eval.simple_evaluate(model=lm, tasks=[str(task)], apply_chat_template=True, log_samples=True, bootstrap_iters=0)
        samples = sorted(found["samples"]["questions"], key=lambda sample: sample["doc_id"])
        answers.append([sample["resps"][0][0] for sample in samples])
    assert answers[0] == answers[1]
    assert len(set(answers[0])) == len(QUESTIONS)


def test_embeddings_by_the_client_of_openai(encoder):
    openai = pytest.importorskip("openai", reason="the package openai is not installed")
    with serving(encoder) as server:
        client = openai.OpenAI(base_url=server.url + "/v1", api_key="none")
        found = client.embeddings.create(model="bert", input=TEXTS)
        plain = server.post("/v1/embeddings", input=TEXTS)
        assert [entry.embedding for entry in found.data] == [pytest.approx(entry["embedding"], abs=1e-6) for entry in plain["data"]]
