"""A running `tempera serve` for tests."""

import contextlib
import http.client
import json
import os
import pathlib
import socket
import subprocess
import sys

import pytest
from program import DATA, PATIENCE, PROGRAM, ROOT, wait_until  # noqa: F401

STORIES = DATA / "models/stories260K"
PROMPT = "Once upon a time, there was a little"
CHAT = "{% for m in messages %}<{{ m.role }}> {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
needs_stories = pytest.mark.skipif(not (PROGRAM.exists() and STORIES.exists()), reason=f"{PROGRAM} is not built or {STORIES} is missing")
TEXTS = ["the dog sees a cat", "a cat runs", "the cat and the dog and a dog"]


def make_stories(folder):
    """The small model as a folder."""
    subprocess.run([sys.executable, ROOT / "tools/convert_llama2c.py", STORIES / "stories260K.bin", STORIES / "tok512.model", folder],
                   check=True, capture_output=True)
    return folder


def make_chatting(folder):
    """The small model with a chat template."""
    make_stories(folder)
    (folder / "chat_template.jinja").write_text(CHAT)
    return folder


def make_encoder(folder):
    """BERT with weights drawn from a seed and a tokenizer of words."""
    import torch
    import transformers

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "dog", "sees", "a", "cat", "and", "runs"]
    torch.manual_seed(1)
    config = transformers.BertConfig(vocab_size=len(words), hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=48,
                                     max_position_embeddings=24, initializer_range=0.3)
    transformers.BertModel(config).save_pretrained(folder)
    (folder / "vocab.txt").write_text("".join(word + "\n" for word in words))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "BertTokenizer", "do_lower_case": True}))
    return folder


class Server:
    def __init__(self, process, host, port):
        # Of IPv6, an address of a URL has brackets.
        self.process, self.host, self.port = process, host.strip("[]"), port
        self.url = f"http://{host}:{port}"

    def request(self, method, path, body=None, headers=None):
        """Status, headers and the text of the answer."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=PATIENCE)
        try:
            data = body if body is None or isinstance(body, (str, bytes)) else json.dumps(body)
            connection.request(method, path, data, {"Content-Type": "application/json", **(headers or {})})
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read().decode()
        finally:
            connection.close()

    def post(self, path, **fields):
        status, _, text = self.request("POST", path, fields)
        assert status == 200, text
        return json.loads(text)

    def refused(self, path, status, **fields):
        """The error."""
        found, _, text = self.request("POST", path, fields)
        assert found == status, text
        return json.loads(text)["error"]

    def raw(self, data, timeout=PATIENCE):
        """All that comes for these bytes until the connection ends."""
        with socket.create_connection((self.host, self.port), timeout=timeout) as connection:
            with contextlib.suppress(ConnectionError):
                connection.sendall(data)
            answer = b""
            with contextlib.suppress(ConnectionError):
                while part := connection.recv(65536):
                    answer += part
            return answer.decode(errors="replace")

    def metric(self, name):
        lines = self.request("GET", "/metrics")[2].splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(f"vllm:{name}{{"))


@contextlib.contextmanager
def serving(*arguments):
    process = subprocess.Popen([PROGRAM, "serve", *map(str, arguments), "--port", "0"], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)
    try:
        for line in process.stdout:
            if line.startswith(("http://", "https://")):
                host, port = line.strip().split("//")[1].rsplit(":", 1)
                yield Server(process, host, int(port))
                break
        else:
            raise AssertionError(process.stderr.read())
    finally:
        if process.poll() is None:
            process.terminate()
        process.wait(timeout=PATIENCE)
        process.stdout.close()
        process.stderr.close()


def complete(server, **fields):
    return server.post("/v1/completions", **{"model": "stories", "temperature": 0, **fields})


def posted(path, fields):
    """The bytes of a request."""
    body = json.dumps(fields)
    return f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()


@contextlib.contextmanager
def working(server, at_once, **fields):
    """A server that writes so many texts at once, with more that wait: it would take long, and ends with the block."""
    with socket.create_connection((server.host, server.port)) as connection:
        connection.sendall(posted("/v1/completions", {"prompt": PROMPT, "max_tokens": 400, "n": 128, "ignore_eos": True, "stream": True,
                                                      **fields}))
        assert wait_until(lambda: server.metric("num_requests_running") == at_once)
        yield
        assert server.metric("num_requests_waiting") > 0


def events(text):
    parts = [part[len("data: "):] for part in text.split("\n\n") if part]
    assert parts[-1] == "[DONE]"
    return [json.loads(part) for part in parts[:-1]]


def cpu_seconds(server):
    times = pathlib.Path(f"/proc/{server.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(times[11]) + int(times[12])) / os.sysconf("SC_CLK_TCK")
