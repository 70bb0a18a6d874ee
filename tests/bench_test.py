"""`tempera bench` from outside: a tiny run of each benchmark, its table and its JSON."""

import json
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAM = ROOT / "build" / "tempera"

pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason="build/tempera is missing: run make build")


def run(*arguments):
    return subprocess.run(
        [PROGRAM, "bench", *arguments], capture_output=True, text=True, timeout=120, check=False
    )


def result(*arguments):
    done = run(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


TINY = ["--length", "48,64", "--head-size", "16", "--heads", "2", "--batch", "2", "--seconds", "0", "--threads", "2"]


def test_attention():
    document = result("attention", *TINY, "--methods", "softmax,ssa")
    rows = document["rows"]
    assert [(row["method"], row["T"]) for row in rows] == [
        ("softmax", 48), ("ssa", 48), ("softmax", 64), ("ssa", 64),
    ]
    for row in rows:
        assert (row["B"], row["H"], row["D"], row["dtype"]) == (2, 2, 16, "fp32")
        for key in ("forward_ms", "step_ms", "step_gflops", "ceiling_share", "extra_bytes", "torch_extra_bytes"):
            assert row[key] > 0, key
        assert row["forward_ratio"] == pytest.approx(row["torch_forward_ms"] / row["forward_ms"])
        assert row["step_ratio"] == pytest.approx(row["torch_step_ms"] / row["step_ms"])
        assert row["max_error"] < 1e-4
        spread = row["spread_ms"]["step"]
        assert spread["min"] <= spread["lower"] <= spread["median"] <= spread["upper"]
        assert spread["runs"] == 3
        # Causal: half of 4 B H T T D, and 2.5 times that backward.
        flops = 3.5 * 2 * 2 * 2 * row["T"] ** 2 * 16
        assert row["step_gflops"] == pytest.approx(flops / row["step_ms"] / 1e6)
        assert row["ceiling_share"] == pytest.approx(row["step_gflops"] / document["machine"]["matmul_gflops"])
    assert rows[0]["over_plain"] == 1
    assert rows[1]["over_plain"] == pytest.approx(rows[1]["step_ms"] / rows[0]["step_ms"])
    machine = document["machine"]
    assert machine["threads"] == 2
    assert machine["isa"] in ("baseline", "avx2", "avx512")
    assert machine["torch"]
    assert machine["read_gbps"] > 0 and machine["copy_gbps"] > 0


def test_attention_without_plain_and_with_grouped_heads_in_bf16():
    rows = result("attention", *TINY, "--methods", "head+value", "--kv-heads", "1", "--dtype", "bf16")["rows"]
    assert [row["method"] for row in rows] == ["head+value"] * 2
    assert all(row["over_plain"] is None for row in rows)
    assert all((row["kv_heads"], row["dtype"]) == (1, "bf16") for row in rows)


def test_memory_grows_linearly():
    lengths = ["--length", "512,1024,2048"]
    rows = result("attention", "--memory", *lengths, "--heads", "2", "--methods", "softmax")["rows"]
    assert [row["T"] for row in rows] == [512, 1024, 2048]
    for shorter, longer in zip(rows, rows[1:]):
        assert longer["extra_bytes"] < 2.05 * shorter["extra_bytes"]
    assert "step_ms" not in rows[0]


def test_decode():
    document = result("decode", "--length", "256", "--head-size", "32", "--heads", "2", "--seconds", "0")
    assert [row["dtype"] for row in document["rows"]] == ["fp32", "bf16"]
    for row in document["rows"]:
        size = 4 if row["dtype"] == "fp32" else 2
        assert row["gbps"] == pytest.approx(2 * 2 * 256 * 32 * size / row["decode_ms"] / 1e6)
        assert row["read_share"] == pytest.approx(row["gbps"] / row["read_gbps"])
        assert row["ratio"] == pytest.approx(row["torch_ms"] / row["decode_ms"])
    assert document["machine"]["read_gbps"] > 0


def test_the_table_goes_to_stdout_and_progress_to_stderr():
    done = run("attention", *TINY, "--methods", "focal")
    assert done.returncode == 0
    assert "torch" in done.stdout and "focal" in done.stdout
    assert "bench" in done.stderr


@pytest.mark.parametrize(
    "arguments, message",
    [
        ([], "benchmark is missing"),
        (["atention"], "did you mean 'attention'?"),
        (["attention", "--methods", "sssa"], "did you mean 'ssa'?"),
        (["attention", "--head-size", "20"], "a multiple of 8 expected"),
        (["attention", "--kv-heads", "3"], "a divisor of the 8 query heads expected"),
        (["decode", "--head-size", "20"], "a multiple of 8 expected"),
        (["decode", "--kv-heads", "3"], "a divisor of the 8 query heads expected"),
        (["attention", "--length", ""], ""),
    ],
)
def test_wrong_usage(arguments, message):
    done = run(*arguments)
    assert done.returncode == 2, done.stderr
    assert message in done.stderr
