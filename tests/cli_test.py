"""The program from outside: exit codes, messages, help, configuration files, completion."""

import json
import os
import shutil
import subprocess

import pytest
from program import LONG, PATIENCE, PROGRAM, few

pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason="build/tempera is missing: run make build")


def run(*arguments, **options):
    return subprocess.run(
        [PROGRAM, *arguments], capture_output=True, text=True, timeout=PATIENCE, check=False, **options
    )


def verbs():
    """The names in the table of `tempera --help`."""
    table = run("--help").stdout.split("Verbs:\n")[1].split("\n\n")[0]
    return [line.split()[0] for line in table.splitlines()]


def test_help_lists_the_verbs():
    result = run("--help")
    assert result.returncode == 0
    assert result.stderr == ""
    assert result.stdout.startswith("Usage: tempera VERB [options]\n")
    assert "completion" in verbs()
    assert run("-h").stdout == run("help").stdout == result.stdout


def test_version():
    result = run("--version")
    assert (result.returncode, result.stderr) == (0, "")
    name, number = result.stdout.split()
    assert name == "tempera"
    assert all(part.isdigit() for part in number.split("."))
    facts = json.loads(run("--version", "--json").stdout)
    assert facts["version"] == number and facts["torch"].startswith("2.") and facts["isa"] in facts["isas"]
    assert run("--version", "--jsn").returncode == 2


def test_verbs_have_help_and_a_configuration_that_reads_back(tmp_path):
    for verb in verbs() if LONG else ("train", "eval", "export"):
        result = run(verb, "--help")
        assert (result.returncode, result.stderr) == (0, ""), verb
        assert result.stdout.startswith(f"Usage: tempera {verb} "), verb
        assert "--dump-config" in result.stdout and "Examples:" in result.stdout
        everything = run(verb, "--help-all")
        assert (everything.returncode, everything.stderr) == (0, ""), verb
        assert len(everything.stdout) >= len(result.stdout)
        dump = run(verb, "--dump-config")
        assert (dump.returncode, dump.stderr) == (0, ""), verb
        path = tmp_path / f"{verb}.toml"
        path.write_text(dump.stdout)
        again = run(verb, "--config", path, "--dump-config")
        assert (again.returncode, again.stdout) == (0, dump.stdout), verb


def test_the_manual_is_one_that_groff_reads():
    manual = run("man")
    assert (manual.returncode, manual.stderr) == (0, "")
    for verb in verbs():
        assert f"\n.SH {verb}\n" in manual.stdout, verb
    assert "\n.B \\-\\-model.rope.factor X\n" in manual.stdout  # also what --help leaves out
    if shutil.which("groff"):
        read = subprocess.run(["groff", "-man", "-ww", "-Tutf8"], input=manual.stdout, capture_output=True, text=True, check=True)
        assert read.stderr == ""


def test_a_file_sets_options_and_a_flag_wins(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text('shell = "bash"\n')
    result = run("completion", "--config", path)
    assert (result.returncode, result.stderr) == (0, "")
    assert "complete -o filenames" in result.stdout
    path.write_text('shell = "fish"\n')
    assert run("completion", "--config", path).returncode == 2
    result = run("completion", "bash", "--config", path)
    assert result.returncode == 0
    assert "complete -o filenames" in result.stdout


@pytest.mark.parametrize(
    "arguments, message",
    few(5, [
        ([], "a verb is missing"),
        (["completoin"], "unknown verb completoin; did you mean 'completion'?"),
        (["--versoin"], "unknown option --versoin; did you mean '--version'?"),
        (["completion"], "shell is missing"),
        (["completion", "bahs"], '--shell: "bahs" given, one of bash expected; did you mean \'bash\'?'),
        (["completion", "bash", "more"], "unexpected argument 'more'"),
        (["completion", "--shel", "bash"], "unknown option --shel; did you mean '--shell'?"),
        (["completion", "--dump-confg"], "did you mean '--dump-config'?"),
        (["completion", "--config"], "--config needs a value"),
        (["completion", "--config", "/nonexistent.toml"], "No such file"),
        (["completion", b"\xff"], "not valid UTF-8"),
        (["", "bash"], "unknown verb"),
    ]),
)
def test_wrong_usage_exits_with_2(arguments, message):
    result = run(*arguments)
    assert result.returncode == 2
    assert result.stdout == ""
    assert message in result.stderr
    assert "--help` shows the usage" in result.stderr


def test_the_hint_names_a_verb_only_where_there_is_one():
    assert "`tempera --help`" in run("compar").stderr
    assert "`tempera compare --help`" in run("compare", "--nope").stderr


@pytest.mark.parametrize(
    "text, message",
    few(2, [
        ('shel = "bash"', "unknown key shel in {path}; did you mean 'shell'?"),
        ("shell = 3", "key shell in {path}: 3 given, one of bash expected"),
        ("shell = ", "{path}, line 1, column"),
        ("[;a]", "{path}: a key or a value is malformed"),
    ]),
)
def test_a_wrong_file_exits_with_2(tmp_path, text, message):
    path = tmp_path / "run.toml"
    path.write_text(text)
    result = run("completion", "--config", path)
    assert result.returncode == 2
    assert message.format(path=path) in result.stderr


def test_a_full_disk_exits_with_1():
    with open("/dev/full", "w") as full:
        result = subprocess.run(
            [PROGRAM, "--help"], stdout=full, stderr=subprocess.PIPE, text=True, timeout=PATIENCE, check=False
        )
    assert result.returncode == 1
    assert "cannot write the result" in result.stderr


def complete(*words):
    """What bash would offer for the last word, with the script sourced as a user does."""
    quoted = " ".join(f"'{word}'" for word in ("tempera", *words))
    script = (
        "source <(tempera completion bash) && "
        f"COMP_WORDS=({quoted}) COMP_CWORD={len(words)} && _tempera_complete && "
        "printf '%s\\n' \"${COMPREPLY[@]}\""
    )
    path = f"{PROGRAM.parent}:{os.environ['PATH']}"
    result = subprocess.run(
        ["bash", "--norc", "-c", script],
        capture_output=True, text=True, timeout=PATIENCE, check=True, env={**os.environ, "PATH": path},
    )
    assert result.stderr == ""
    return result.stdout.split()


def test_completion():
    assert complete("comple") == ["completion"]
    assert set(complete("")) >= set(verbs())
    assert complete("completion", "") == ["bash"]
    assert complete("completion", "--she") == ["--shell"]
    assert complete("completion", "--shell", "=", "b") == ["bash"]


def test_help_is_quick():
    # The processor's time, not the clock's: other programs may be running.
    best = 10.0
    for _ in range(3):
        before = os.times()
        run("--help")
        after = os.times()
        used = after.children_user - before.children_user + after.children_system - before.children_system
        best = min(best, used)
    assert best < 0.5
