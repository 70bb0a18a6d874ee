"""`tempera methods` from outside: the table, the JSON, products, wrong names."""

import json
import pathlib
import re
import subprocess

import pytest
from program import PATIENCE, PROGRAM, ROOT

pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason="build/tempera is missing: run make build")


def run(*arguments):
    return subprocess.run(
        [PROGRAM, "methods", *arguments], capture_output=True, text=True, timeout=PATIENCE, check=False
    )


def methods(*arguments):
    result = run("--json", *arguments)
    assert (result.returncode, result.stderr) == (0, "")
    return {method["name"]: method for method in json.loads(result.stdout)["methods"]}


def test_every_method_is_listed():
    sources = (ROOT / "src" / "tempera" / "temperature").glob("*.cc")
    made = re.findall(r"^MethodEntry method_(\w+)\(\) \{", "\n".join(map(pathlib.Path.read_text, sources)), re.MULTILINE)
    found = methods()
    assert {name.replace("_", "-") for name in made} == set(found)  # a file whose word is missing is not in the program
    assert len(made) == len(found) > 10
    assert next(iter(found)) == "softmax"
    table = run().stdout
    for name, method in found.items():
        assert method["formula"] and method["help"]
        assert f"\n{name} " in table
        assert method["formula"] in table


def test_options_have_default_range_and_help():
    options = {option["name"]: option for option in methods("focal-learned")["focal-learned"]["options"]}
    assert options["t0"]["default"] == 0.4
    assert options["t0"]["min"] > 0
    assert options["axis"]["choices"] == ["auto", "prefix", "token", "sequence"]
    assert all(option["help"] for option in options.values())


def test_parameters_follow_the_shape():
    smollm = ["--layers", "30", "--width", "576", "--heads", "9", "--kv-heads", "3"]
    found = methods("ssa", "head,value", "softmax", *smollm, "--parameters", "134515008")
    assert found["softmax"]["parameters"] == 0
    assert found["head,value"]["parameters"] == 30 * (9 + 3)
    assert found["head,value"]["folds"] == "W_q, W_v"
    assert found["ssa"]["parameters"] == 30 * (9 + 3) * 65
    assert found["ssa"]["share"] == found["ssa"]["parameters"] / 134515008 < 0.005


def test_wrong_names_and_shapes():
    result = run("focl")
    assert result.returncode == 2
    assert "did you mean 'focal'?" in result.stderr
    assert run("head,head").returncode == 2
    assert run("--heads", "7").returncode == 2
    assert run("--kv-heads", "5").returncode == 2
    assert run("--layers", "0").returncode == 2
