"""The documentation names only what exists: links, files, verbs, options, layers; every command in it parses."""

import importlib.util
import pathlib
import re
import shlex

import pytest

from program import few, run

ROOT = pathlib.Path(__file__).resolve().parents[1]
# Notes are a record of what was tried, with the options of their time.
PAGES = sorted(page for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
               if "notes" not in page.relative_to(ROOT).parts)
FOLDERS_OF_THE_TREE = ("src/", "docs/", "tests/", "tools/", "scripts/", "bench/", "examples/", "python/", "cmake/")
PLACEHOLDERS = {"RATE": "1e-4", "SEED": "1", "WHAT": "head", "N": "8", "T": "8"}


def page_id(page):
    return str(page.relative_to(ROOT))


def prose(text):
    """The page without its code blocks."""
    return re.sub(r"^```.*?^```|^ {4}[^\n]*$", "", text, flags=re.MULTILINE | re.DOTALL)


def code(text):
    """The lines of the page's code blocks, each command on one line."""
    text = text.replace("\\\n", " ")
    fenced = "\n".join(re.findall(r"^```\w*\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL))
    return [line.strip() for line in fenced.splitlines() + re.findall(r"^ {4}(.*)$", text, flags=re.MULTILINE)]


def anchors(page):
    """What GitHub makes of the headings."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def commands(page):
    """Every call of the program, without comment, redirection and the brackets of optional parts."""
    found = []
    for line in code(page.read_text()):
        match = re.match(r"(?:\$ )?(?:build/)?tempera (\w.*)", line)
        if match:
            words = re.sub(r"\s#.*| [<>|].*", "", match[1]).replace("[", "").replace("]", "").replace("...", "")
            found.append(" ".join(words.split()))
    return found


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_links_resolve(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page.read_text())):
        if target.startswith(("http:", "https:")):
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        assert there.exists(), f"{target} does not exist"
        if anchor:
            assert anchor in anchors(there), f"{target}: no heading gives this anchor"


@pytest.mark.parametrize("page", [*PAGES, *(ROOT / "docs" / "notes").glob("*.md")], ids=page_id)
def test_prose_has_short_lines(page):
    assert [line for line in prose(page.read_text()).splitlines() if len(line) > 120 and not line.lstrip().startswith("|")] == []


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_named_files_exist(page):
    for name in re.findall(r"`([\w./\-]+)`", page.read_text()):
        if name.startswith(FOLDERS_OF_THE_TREE) and not re.search("NAME|my_", name):
            assert (ROOT / name).exists(), f"`{name}` does not exist"


@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)], ids=page_id)
def test_commands_parse(page, tmp_path):
    (tmp_path / "run.toml").touch()
    for command in few(3, commands(page)):
        words = [PLACEHOLDERS.get(word, word) for word in shlex.split(command)]
        result = run(*words, "--dump-config", cwd=tmp_path)
        assert result.returncode == 0, f"tempera {command}\n{result.stderr}"


def test_the_table_of_layers_is_the_rule():
    spec = importlib.util.spec_from_file_location("check_layers", ROOT / "tools" / "check_layers.py")
    rule = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(rule)
    rows = re.findall(r"^\| `(\w+)` \| .* \| (.*) \|$", (ROOT / "docs" / "architecture.md").read_text(), flags=re.MULTILINE)
    told = {layer: set(re.findall(r"`(\w+)`", names)) for layer, names in rows}
    assert told == {layer: names - {layer} if layer != "cli" else set() for layer, names in rule.ALLOWED.items()}
    assert set(told) == {path.name for path in (ROOT / "src" / "tempera").iterdir() if path.is_dir()}
