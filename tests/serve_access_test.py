"""Who may reach `tempera serve`: keys, other pages, TLS."""

import contextlib
import http.client
import json
import pathlib
import shutil
import socket
import ssl
import subprocess
import threading
import time
import urllib.request

import pytest
from program import PATIENCE, fails, run
from server import PROMPT, cpu_seconds, events, make_chatting, needs_stories, serving

pytest.importorskip("torch")
pytestmark = needs_stories


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return make_chatting(tmp_path_factory.mktemp("serve") / "stories")


def test_keys_and_other_pages(model, tmp_path):
    (tmp_path / "keys").write_text("first-key\nsecond-key\n")
    with serving(model, "--api-keys", tmp_path / "keys", "--cors", "https://a.example") as server:
        assert server.request("GET", "/health")[0] == 200
        for key, status in [(None, 401), ("first", 401), ("first-key!", 401), ("second-key", 200)]:
            for scheme in ("Bearer", "bearer"):
                headers = {"Authorization": f"{scheme} {key}"} if key else {}
                assert server.request("GET", "/v1/models", None, headers)[0] == status
        status, headers, _ = server.request("OPTIONS", "/v1/models", None, {"Origin": "https://a.example"})
        assert status == 204 and headers["Access-Control-Allow-Origin"] == "https://a.example"


@pytest.mark.skipif(not pathlib.Path("/proc/net/if_inet6").exists(), reason="this machine has no IPv6")
def test_an_address_of_ipv6_has_brackets(model):
    with serving(model, "--host", "::1") as server:
        assert server.url.startswith("http://[::1]:")
        with urllib.request.urlopen(f"{server.url}/health", timeout=PATIENCE) as answer:
            assert answer.status == 200


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """Two, each with its key, by the command openssl."""
    if not shutil.which("openssl"):
        pytest.skip("the command openssl is not installed")
    folder = tmp_path_factory.mktemp("tls")
    for name in ("server", "other"):
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                        "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", folder / f"{name}.key",
                        "-out", folder / f"{name}.pem"], check=True, capture_output=True)
    done = run("serve", folder, "--tls-certificate", folder / "server.pem", "--tls-key", folder / "server.key")
    if "this build cannot encrypt" in done.stderr:
        pytest.skip("the build has no OpenSSL")
    return folder


def test_tls(model, certificate):
    trust = ssl.create_default_context(cafile=certificate / "server.pem")
    with serving(model, "--tls-certificate", certificate / "server.pem", "--tls-key", certificate / "server.key") as server:
        def ask(fields, context=trust):
            connection = http.client.HTTPSConnection(server.host, server.port, context=context, timeout=PATIENCE)
            with contextlib.closing(connection):
                connection.request("POST", "/v1/completions", json.dumps(fields))
                answer = connection.getresponse()
                return answer.status, answer.read().decode()

        fields = {"prompt": PROMPT, "max_tokens": 20, "temperature": 0}
        status, text = ask(fields)
        whole = json.loads(text)["choices"][0]["text"]
        assert status == 200 and whole
        assert "".join(part["choices"][0]["text"] for part in events(ask({**fields, "stream": True})[1])) == whole
        long_prompt = {**fields, "prompt": [7] * 200_000}
        assert ask(long_prompt)[0] == 400
        assert len(json.loads(ask({"prompt": PROMPT, "n": 128, "logprobs": 100, "max_tokens": 8})[1])["choices"]) == 128
        old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        old.load_verify_locations(certificate / "server.pem")
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        assert json.loads(ask(fields, old)[1])["choices"][0]["text"] == whole
        with pytest.raises(ssl.SSLCertVerificationError):
            ask(fields, ssl.create_default_context(cafile=certificate / "other.pem"))
        # Those who do not shake hands, break it off, or leave in the middle hold nobody else up.
        assert server.raw(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n").find("200 OK") < 0
        silent = [socket.create_connection((server.host, server.port)) for _ in range(20)]
        for _ in range(5):
            with trust.wrap_socket(socket.create_connection((server.host, server.port)), server_hostname="127.0.0.1") as connection:
                body = json.dumps({**fields, "max_tokens": 400, "ignore_eos": True, "stream": True})
                connection.sendall(f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
                assert connection.recv(10)
        found = [None] * 8
        threads = [threading.Thread(target=lambda i=i: found.__setitem__(i, ask(fields))) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [json.loads(text)["choices"][0]["text"] for _, text in found] == [whole] * 8
        for connection in silent:
            connection.close()


def test_half_a_record_costs_no_time(model, certificate):
    trust = ssl.create_default_context(cafile=certificate / "server.pem")
    with serving(model, "--tls-certificate", certificate / "server.pem", "--tls-key", certificate / "server.key") as server:
        coming, going = ssl.MemoryBIO(), ssl.MemoryBIO()
        session = trust.wrap_bio(coming, going, server_hostname="127.0.0.1")
        with socket.create_connection((server.host, server.port), timeout=PATIENCE) as connection:
            while True:
                try:
                    session.do_handshake()
                    break
                except ssl.SSLWantReadError:
                    connection.sendall(going.read())
                    coming.write(connection.recv(65536))
            session.write(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            record = going.read()
            connection.sendall(record[:-20])
            time.sleep(0.2)
            before = cpu_seconds(server)
            time.sleep(1)
            assert cpu_seconds(server) - before < 0.1
            connection.sendall(record[-20:])
            while part := connection.recv(65536):
                coming.write(part)
        assert session.read(65536).startswith(b"HTTP/1.1 200 OK")


def test_certificates_that_cannot_be_used(model, certificate):
    pem, key = certificate / "server.pem", certificate / "server.key"
    fails(2, ["--tls-certificate and --tls-key"], "serve", model, "--tls-key", key)
    fails(1, ["certificate", "nowhere.pem"], "serve", model, "--tls-certificate", certificate / "nowhere.pem", "--tls-key", key)
    fails(1, ["key", "mismatch"], "serve", model, "--tls-certificate", pem, "--tls-key", certificate / "other.key")
    fails(1, ["certificate"], "serve", model, "--tls-certificate", key, "--tls-key", key)
