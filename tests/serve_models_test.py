"""Several models of one server: temperatures of one by name, turns, and vectors of texts."""

import base64
import json
import struct

import pytest
from program import result
from server import PROMPT, TEXTS, complete, make_chatting, make_encoder, needs_stories, serving, wait_until, working

pytest.importorskip("torch")
pytestmark = needs_stories


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return make_chatting(tmp_path_factory.mktemp("serve") / "stories")


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    pytest.importorskip("transformers", reason="the package transformers is not installed")
    return make_encoder(tmp_path_factory.mktemp("serve") / "bert")


def test_two_models(model):
    with serving(model, model) as server:
        names = [entry["id"] for entry in json.loads(server.request("GET", "/v1/models")[2])["data"]]
        assert names == ["stories", "stories-2"]
        texts = [complete(server, model=name, prompt=PROMPT, max_tokens=5)["choices"][0]["text"] for name in names]
        assert texts[0] == texts[1]


def test_temperatures_of_one_model(model):
    with serving(model, "--temperatures", 1) as server:
        def answer(name):
            fields = {"model": name, "prompt": PROMPT, "max_tokens": 12, "logprobs": 0, "temperature": 0}
            # An answer comes a moment before its request counts as ended.
            assert wait_until(lambda: server.request("POST", "/v1/completions", fields)[0] != 429)
            found = server.post("/v1/completions", **fields)
            assert found["model"] == name
            return found["choices"][0]["logprobs"]["token_logprobs"]

        plain = answer("stories")
        assert answer("stories@softmax") == plain
        sharp = answer("stories@focal:t=0.5")
        assert sharp != plain
        # The one before made room; it comes back the same, under another spelling, too.
        assert answer("stories@ssa") == plain
        assert answer("stories@focal:t=0.50") == sharp
        names = [entry["id"] for entry in json.loads(server.request("GET", "/v1/models")[2])["data"]]
        assert names == ["stories", "stories@focal:t=0.50"]
        for name, words in (("stories@sofmax", "did you mean 'softmax'"), ("stories@", "temperature method"), ("stories@focal:t", "OPTION=VALUE"),
                            ("stories@focal:t=-1", "0.001 to 1000"), ("stories@focal:t=nan", "nan given"), ("stories@focal:u=1", "no option 'u'"),
                            ("stories@focal" + ":t=1" * 200, "characters")):
            assert words in server.refused("/v1/completions", 400, model=name, prompt="a")["message"], name
        assert "no model" in server.refused("/v1/completions", 404, model="other@softmax", prompt="a")["message"]
        # While the one is in use, there is no room for another.
        with working(server, 16, model="stories@focal:t=0.50"):
            assert server.refused("/v1/completions", 429, model="stories@softmax", prompt="a")
    with serving(model, "--temperatures", 0) as server:
        assert "--temperatures 0" in server.refused("/v1/completions", 400, model="stories@softmax", prompt="a")["message"]


def test_models_that_compute_at_once_take_turns(model):
    """A short request of one model ends while another model writes without a pause."""
    with serving(model) as server:
        complete(server, model="stories@softmax", prompt=PROMPT, max_tokens=1)
        with working(server, 16, model="stories"):
            complete(server, model="stories@softmax", prompt=PROMPT, max_tokens=4)


def test_embeddings(encoder, model, tmp_path):
    (tmp_path / "texts").write_text("".join(text + "\n" for text in TEXTS))
    wanted = [entry["embedding"] for entry in result("embed", encoder, "--text", tmp_path / "texts")["texts"]]
    with serving(encoder, model) as server:
        found = server.post("/v1/embeddings", model="bert", input=TEXTS)
        assert [entry["index"] for entry in found["data"]] == [0, 1, 2]
        assert [entry["embedding"] for entry in found["data"]] == [pytest.approx(vector, abs=1e-6) for vector in wanted]
        ids = server.post("/tokenize", prompt=TEXTS[1])["tokens"]
        alone = server.post("/v1/embeddings", input=ids)
        assert alone["data"][0]["embedding"] == pytest.approx(wanted[1], abs=1e-6)
        assert alone["usage"] == {"prompt_tokens": len(ids), "total_tokens": len(ids)}
        coded = server.post("/v1/embeddings", input=TEXTS[1], encoding_format="base64")["data"][0]["embedding"]
        assert list(struct.unpack("<32f", base64.b64decode(coded))) == pytest.approx(wanted[1], abs=1e-6)
        assert server.post("/v1/embeddings", model="bert@focal:t=0.3", input=ids)["data"][0]["embedding"] != pytest.approx(wanted[1], abs=1e-3)
        for fields, name in [({}, "input"), ({"input": []}, "input"), ({"input": 3}, "input"), ({"input": [1, "a"]}, "input"),
                             ({"input": [99]}, "input"), ({"input": [[7] * 25]}, "input"), ({"input": ["a"] * 2049}, "input"),
                             ({"input": "a", "encoding_format": "int8"}, "encoding_format"), ({"input": "a", "dimensions": 8}, "dimensions"),
                             ({"input": "a", "model": "stories"}, "model")]:
            assert server.refused("/v1/embeddings", 400, **fields)["param"] == name, fields
        assert "/v1/embeddings" in server.refused("/v1/completions", 400, model="bert", prompt="a")["message"]
        assert complete(server, prompt=PROMPT, max_tokens=3)["choices"]
