"""`tempera serve` from outside: what it answers and what it refuses."""

import contextlib
import json
import shutil
import signal
import socket
import threading

import pytest
from program import PATIENCE, fails, result
from server import PROMPT, complete, cpu_seconds, events, make_chatting, needs_stories, posted, serving, wait_until, working

pytest.importorskip("torch")
pytestmark = needs_stories


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return make_chatting(tmp_path_factory.mktemp("serve") / "stories")


@pytest.fixture(scope="module")
def server(model):
    with serving(model, "--max-batch", 8) as running:
        yield running


def test_the_greedy_answer_is_that_of_generate(server, model):
    wanted = result("generate", model, "--prompt", PROMPT, "--sampling-temperature", 0, "--max-tokens", 20)["answers"][0]
    found = complete(server, prompt=PROMPT, max_tokens=20)
    assert found["choices"][0]["text"] == wanted["text"]
    assert found["choices"][0]["finish_reason"] == "length"
    assert found["usage"]["completion_tokens"] == 20


def test_prompts_are_texts_ids_or_lists_of_either(server):
    ids = server.post("/tokenize", prompt=PROMPT)["tokens"]
    answers = [complete(server, prompt=prompt, max_tokens=5)["choices"] for prompt in (PROMPT, ids, [PROMPT, PROMPT], [ids, ids])]
    assert [len(choices) for choices in answers] == [1, 1, 2, 2]
    assert len({choice["text"] for choices in answers for choice in choices}) == 1
    assert server.post("/detokenize", tokens=ids[1:])["prompt"].strip() == PROMPT


def test_special_tokens_that_a_prompt_spells_are_read(server):
    end = 2
    ids = server.post("/tokenize", prompt="Once</s>")["tokens"]
    assert ids[-1] == end and ids[:-1] == server.post("/tokenize", prompt="Once")["tokens"]
    assert server.post("/tokenize", prompt="</s>Once</s>", add_special_tokens=False)["tokens"][::len(ids) - 1] == [end, end]
    echoed = complete(server, prompt="Once</s>", max_tokens=0, echo=True, logprobs=0)
    assert echoed["choices"][0]["logprobs"]["tokens"][-1] == "</s>"
    assert echoed["usage"]["prompt_tokens"] == len(ids)


def test_echo_has_a_score_for_every_token_and_one_more(server):
    """What lm-eval reads: prompt + 1 entries, and equal numbers where the token is the likeliest."""
    ids = server.post("/tokenize", prompt=PROMPT)["tokens"]
    scores = complete(server, prompt=[ids], max_tokens=1, logprobs=1, echo=True, seed=1234)["choices"][0]["logprobs"]
    assert len(scores["tokens"]) == len(scores["token_logprobs"]) == len(scores["top_logprobs"]) == len(ids) + 1
    assert scores["token_logprobs"][0] is None and scores["top_logprobs"][0] is None
    assert scores["token_logprobs"][-1] == max(scores["top_logprobs"][-1].values())
    for token, chance, top in list(zip(scores["tokens"], scores["token_logprobs"], scores["top_logprobs"], strict=True))[1:]:
        assert top[token] == chance <= max(top.values()) <= 0
    alone = complete(server, prompt=[ids], max_tokens=0, logprobs=0, echo=True)["choices"][0]
    assert alone["logprobs"]["token_logprobs"] == scores["token_logprobs"][:-1]
    assert alone["text"].strip() == PROMPT


@pytest.mark.parametrize("prompt", ["Once upon", "the \U0001f9ac \u00e9"])
def test_an_answer_follows_on_the_prompt_that_is_echoed(server, prompt):
    """Offsets count characters, as Python does: those of a character of several tokens are its own."""
    fields = {"prompt": prompt, "max_tokens": 12, "echo": True, "logprobs": 0}
    choice = complete(server, **fields)["choices"][0]
    text, scores = choice["text"], choice["logprobs"]
    assert text.startswith(prompt)
    # A word that begins with a blank keeps it behind the prompt.
    again = complete(server, **fields, logit_bias={str(server.post("/tokenize", prompt="a")["tokens"][-1]): 100})["choices"][0]["text"]
    assert again.startswith(prompt + " a a")
    slices = [text[first:last] for first, last in zip(scores["text_offset"], [*scores["text_offset"][1:], len(text)], strict=True)]
    whole = [(token, part) for token, part in zip(scores["tokens"], slices, strict=True) if not token.startswith(("bytes:", "<s>"))]
    assert "".join(slices) == text and len(whole) > 12
    assert all(part.strip() == token.strip() for token, part in whole), whole
    parts = [part["choices"][0] for part in events(server.request("POST", "/v1/completions", {**fields, "temperature": 0, "stream": True})[2])]
    assert "".join(part["text"] for part in parts) == text
    assert [offset for part in parts for offset in part["logprobs"]["text_offset"]] == scores["text_offset"]


def test_a_request_has_the_same_numbers_in_any_company(server):
    def ask(length):
        return complete(server, prompt=PROMPT * 16, max_tokens=30, logprobs=3, temperature=1, seed=length)["choices"][0]

    alone = [ask(i) for i in range(6)]
    found = [None] * 6
    threads = [threading.Thread(target=lambda i=i: found.__setitem__(i, ask(i))) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == alone
    assert server.metric("prefix_cache_hits_total") > 0


def test_choices_differ_and_come_again(server):
    first, again = [complete(server, prompt=PROMPT, n=3, temperature=1, seed=5, max_tokens=12) for _ in range(2)]
    texts = [choice["text"] for choice in first["choices"]]
    assert texts == [choice["text"] for choice in again["choices"]]
    assert len(set(texts)) == 3
    assert [choice["index"] for choice in first["choices"]] == [0, 1, 2]


def test_a_tiny_temperature_takes_the_likeliest(server):
    assert len({complete(server, prompt=PROMPT, temperature=t)["choices"][0]["text"] for t in (0, 1e-50, 1e-300)}) == 1


def test_stop_and_bias(server):
    whole = complete(server, prompt=PROMPT, max_tokens=30)["choices"][0]["text"]
    word = whole.split()[3]
    cut = complete(server, prompt=PROMPT, max_tokens=30, stop=[word, "never"])["choices"][0]
    assert cut["text"] == whole[:whole.index(word)] and cut["finish_reason"] == "stop"
    assert wait_until(lambda: 'finished_reason="stop"' in server.request("GET", "/metrics")[2])
    forced = complete(server, prompt=PROMPT, max_tokens=3, logit_bias={"42": 100}, logprobs=0)["choices"][0]["logprobs"]
    assert len(set(forced["tokens"])) == 1


def test_streams_add_up_to_the_whole(server):
    fields = {"prompt": PROMPT, "max_tokens": 12, "temperature": 0, "logprobs": 1, "n": 2, "stream": True,
              "stream_options": {"include_usage": True}}
    status, headers, text = server.request("POST", "/v1/completions", fields)
    assert status == 200 and headers["Content-Type"].startswith("text/event-stream")
    *parts, last = events(text)
    whole = complete(server, prompt=PROMPT, max_tokens=12, logprobs=1)["choices"][0]
    for index in range(2):
        own = [part["choices"][0] for part in parts if part["choices"][0]["index"] == index]
        assert "".join(part["text"] for part in own) == whole["text"]
        assert [x for part in own for x in part["logprobs"]["token_logprobs"]] == whole["logprobs"]["token_logprobs"]
        assert [part["finish_reason"] for part in own][-1] == "length"
    assert last["choices"] == [] and last["usage"]["completion_tokens"] == 24


def test_chat(server):
    fields = {"messages": [{"role": "user", "content": [{"type": "text", "text": PROMPT}]}], "temperature": 0, "max_tokens": 8}
    answer = server.post("/v1/chat/completions", **fields, logprobs=True, top_logprobs=2)
    choice = answer["choices"][0]
    assert choice["message"]["role"] == "assistant"
    assert len(choice["logprobs"]["content"]) == 8
    assert all(len(token["top_logprobs"]) == 2 for token in choice["logprobs"]["content"])
    written = server.post("/tokenize", messages=[{"role": "user", "content": PROMPT}])
    assert written["count"] == answer["usage"]["prompt_tokens"]
    assert server.post("/v1/chat/completions", **fields, logprobs=False, top_logprobs=0)["choices"][0]["logprobs"] is None
    assert server.refused("/v1/chat/completions", 400, **fields, top_logprobs=1)["param"] == "top_logprobs"
    parts = events(server.request("POST", "/v1/chat/completions", {**fields, "stream": True})[2])
    assert parts[0]["choices"][0]["delta"]["role"] == "assistant"
    assert "".join(part["choices"][0]["delta"].get("content", "") for part in parts) == choice["message"]["content"]


def test_models_page_and_metrics(server):
    status, _, text = server.request("GET", "/v1/models")
    assert status == 200 and [entry["id"] for entry in json.loads(text)["data"]] == ["stories"]
    assert json.loads(server.request("GET", "/v1/models/stories")[2]) == json.loads(text)["data"][0]
    assert server.request("GET", "/v1/models/storys")[0] == server.request("GET", "/v1/models/")[0] == 404
    assert json.loads(server.request("GET", "/health")[2]) == {"status": "ok"}
    assert json.loads(server.request("GET", "/tokenizer_info")[2])["eos_token"] == "</s>"
    status, headers, text = server.request("GET", "/")
    assert status == 200 and "default-src 'none'" in headers["Content-Security-Policy"] and "http" not in text.replace("html", "")
    before = server.metric("generation_tokens_total")
    complete(server, prompt=PROMPT, max_tokens=7)
    assert server.metric("generation_tokens_total") == before + 7
    assert server.metric("time_to_first_token_seconds_count") >= 1


WRONG = [
    ({"prompt": PROMPT, "temperature": "warm"}, "temperature"),
    ({"prompt": PROMPT, "temperature": -1}, "temperature"),
    ({"prompt": PROMPT, "max_tokens": 1.5}, "max_tokens"),
    ({"prompt": PROMPT, "max_tokens": -1}, "max_tokens"),
    ({"prompt": PROMPT, "max_tokens": 10**30}, "max_tokens"),
    ({"prompt": PROMPT, "n": True}, "n"),
    ({"prompt": PROMPT, "n": 0}, "n"),
    ({"prompt": PROMPT, "echo": "yes"}, "echo"),
    ({"prompt": PROMPT, "stop": [1]}, "stop"),
    ({"prompt": PROMPT, "user": "u" * 257}, "user"),
    ({"prompt": PROMPT, "stop": {"a": 1}}, "stop"),
    ({"prompt": PROMPT, "logit_bias": {"-1": 1}}, "logit_bias"),
    ({"prompt": PROMPT, "logit_bias": {"1": "x"}}, "logit_bias"),
    ({"prompt": PROMPT, "suffix": "end"}, "suffix"),
    ({"prompt": PROMPT, "best_of": 5}, "best_of"),
    ({"prompt": PROMPT, "stream_options": 1}, "stream_options"),
    ({"prompt": [512]}, "prompt"),
    ({"prompt": [-1]}, "prompt"),
    ({"prompt": [1, "a"]}, "prompt"),
    ({"prompt": [[1], 2]}, "prompt"),
    ({"prompt": [1.5]}, "prompt"),
    ({"prompt": []}, "prompt"),
    ({"prompt": {}}, "prompt"),
    ({}, "prompt"),
    ({"prompt": PROMPT, "model": 3}, "model"),
]


@pytest.mark.parametrize(("fields", "name"), WRONG, ids=[str(number) for number in range(len(WRONG))])
def test_wrong_fields_are_named(server, fields, name):
    error = server.refused("/v1/completions", 400, **fields)
    assert error["param"] == name and error["type"] == "invalid_request_error"


def test_what_cannot_be_done_is_refused(server):
    assert "did you mean 'stories'" in server.refused("/v1/completions", 404, model="storys", prompt="a")["message"]
    assert "context" in server.refused("/v1/completions", 400, prompt=[7] * 513)["message"]
    assert "at most" in server.refused("/v1/completions", 400, prompt=[[7] * 500] * 100, n=128)["message"]
    assert "at most" in server.refused("/v1/completions", 400, prompt=[[7]] * 100, n=128)["message"]
    scores = server.refused("/v1/completions", 400, prompt=[[7] * 500] * 100, echo=True, logprobs=100)
    assert "log-probabilities" in scores["message"] and scores["param"] == "logprobs"
    assert server.refused("/v1/completions", 400, prompt=[[7]] * 90, max_tokens=500, logprobs=100)["param"] == "logprobs"
    assert "messages" in server.refused("/v1/chat/completions", 400, messages=[])["message"]
    assert "messages" in server.refused("/v1/chat/completions", 400, messages=[{"content": "a"}])["message"]
    for part in ({"type": 3, "text": "a"}, {"text": "a"}, {"type": "text", "text": 3}, {"type": "image"}, 3):
        assert server.refused("/v1/chat/completions", 400, messages=[{"role": "user", "content": [part]}])["param"] == "messages"
    assert complete(server, prompt=[7] * 512, max_tokens=9)["usage"]["completion_tokens"] == 1
    assert complete(server, prompt=PROMPT, max_tokens=1, top_secret_field={"a": [1]})["choices"]


@pytest.mark.parametrize("body", [
    b"", b"{", b"[]", b"null", b'{"prompt": "a", "temperature": 1e999}', b'{"prompt": "a", "temperature": NaN}',
    b'{"prompt": "a", "temperature": -Infinity}', b'{"prompt": "\xff"}', b'{"prompt": "\\ud800"}', b'{"prompt": "a", "prompt": "b"}',
    b'{"prompt": ' + b"[" * 10000 + b"]" * 10000 + b"}", b'{"prompt": "a"}{}', b"\0" * 50])
def test_what_is_no_json_is_refused(server, body):
    status, _, text = server.request("POST", "/v1/completions", body)
    assert status == 400 and json.loads(text)["error"]["message"], text


def test_objects_of_many_keys_are_refused_at_once(server):
    start = cpu_seconds(server)
    assert "4096 keys" in server.refused("/v1/completions", 400, prompt=PROMPT, metadata={str(i): 1 for i in range(100_000)})["message"]
    assert cpu_seconds(server) - start < 3


def test_hostile_http(server):
    head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
    for lines, status in [("Content-Length: 5\r\nContent-Length: 6\r\n", 400), ("Transfer-Encoding: chunked\r\nContent-Length: 3\r\n", 400),
                          ("Content-Length: 99999999999\r\n", 413), ("X: " + "a" * 20000 + "\r\n", 431), ("X: y\r\n" * 200, 431),
                          ("Transfer-Encoding: chunked\r\n\r\nzz\r\n", 400), ("Transfer-Encoding: gzip\r\n", 501)]:
        assert server.raw((head + lines + "\r\n").encode()).startswith(f"HTTP/1.1 {status} "), lines[:60]
    assert server.request("POST", "/v1/completions", b" " * (30 << 20))[0] == 413
    assert server.raw(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\n").startswith("HTTP/1.1 400 ")
    assert server.raw(b"GET / HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n").startswith("HTTP/1.1 421 ")
    body = json.dumps({"prompt": PROMPT, "max_tokens": 1})
    asked = f"{head}Content-Length: {len(body)}\r\n\r\n{body}"
    pipelined = server.raw((asked * 3 + "GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").encode())
    assert pipelined.count("HTTP/1.1 200 OK") == 4 and pipelined.rindex('"status":"ok"') > pipelined.rindex("text_completion")
    assert server.request("DELETE", "/v1/completions")[0] == 405
    assert server.request("GET", "/etc/passwd")[0] == 404
    assert server.request("POST", "/v1/completions", {"prompt": "a"}, {"Origin": "https://evil.example"})[0] == 403


def test_a_client_that_leaves_frees_its_place(server):
    fields = {"prompt": PROMPT, "max_tokens": 450, "n": 8, "ignore_eos": True, "stream": True}
    before = server.metric("request_success_total")
    with socket.create_connection((server.host, server.port)) as connection:
        connection.sendall(posted("/v1/completions", fields))
        assert connection.recv(100)
    # All eight, also those that had not begun when the client left.
    assert wait_until(lambda: server.metric("request_success_total") == before + 8)
    assert server.metric("num_requests_running") == 0


def test_failures_are_logged_and_not_told(model, tmp_path):
    import numpy
    from safetensors.numpy import load_file, save_file

    shutil.copytree(model, tmp_path / "stories")
    file = tmp_path / "stories" / "model.safetensors"
    tensors = load_file(file)
    tensors["model.norm.weight"] = numpy.full_like(tensors["model.norm.weight"], numpy.nan)
    save_file(tensors, file, metadata={"format": "pt"})
    with serving(tmp_path / "stories") as server:
        for temperature in (0, 1):
            error = server.refused("/v1/completions", 500, prompt=PROMPT, temperature=temperature)
            assert "finite" not in error["message"]
        for path, fields in (("/v1/completions", {"prompt": PROMPT}), ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}]})):
            answer = server.raw(posted(path, {**fields, "stream": True}))
            assert '"error":{"message":"the server failed' in answer and "finite" not in answer and "[DONE]" not in answer
        assert 'vllm:request_success_total{' not in server.request("GET", "/metrics")[2]
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(timeout=PATIENCE) == 0
        assert server.process.stderr.read().count("not finite") == 4


def test_too_many_are_told_to_come_again(model):
    with serving(model, "--max-batch", 1, "--max-queue", 1) as server:
        with working(server, 1):
            status, headers, text = server.request("POST", "/v1/completions", {"prompt": "a"})
            assert status == 429 and headers["Retry-After"] == "1", text


def accepts(server):
    with contextlib.suppress(ConnectionError), socket.create_connection((server.host, server.port), timeout=PATIENCE):
        return True
    return False


def test_the_server_ends_what_is_under_way(model):
    with serving(model, "--max-batch", 8) as server:
        answers = []
        fields = {"prompt": PROMPT, "max_tokens": 400, "n": 32, "ignore_eos": True}
        thread = threading.Thread(target=lambda: answers.append(server.request("POST", "/v1/completions", fields)))
        thread.start()
        assert wait_until(lambda: server.metric("num_requests_running") == 8)
        server.process.send_signal(signal.SIGTERM)
        # Those who come now are turned away and do not wait.
        assert wait_until(lambda: not accepts(server))
        assert not answers
        thread.join()
        assert answers[0][0] == 200 and json.loads(answers[0][2])["usage"]["completion_tokens"] == 32 * 400
        assert server.process.wait(timeout=PATIENCE) == 0


def test_bad_command_lines(model, tmp_path):
    fails(2, ["MODEL"], "serve")
    fails(1, ["host"], "serve", model, "--host", "nowhere.example")
    (tmp_path / "keys").write_text("\n")
    fails(1, ["no key"], "serve", model, "--api-keys", tmp_path / "keys")
