"""tools/encoder_tables.py on a few documents: means, intervals, and differences by seed."""

import json
import subprocess
import sys

from program import ROOT

SCRIPT = ROOT / "tools" / "encoder_tables.py"


def write(folder, part, values):
    (folder / part).mkdir(parents=True)
    for method, numbers in values.items():
        for seed, number in enumerate(numbers):
            (folder / part / f"{method}-{seed}.json").write_text(json.dumps({"bleu": number, "chrf": -number}))


def test_means_intervals_and_paired_differences(tmp_path):
    write(tmp_path, "pairs-test", {"softmax": [1, 2, 3], "ssa": [2, 3, 4.3], "focal": [3, 1, 2]})
    (tmp_path / "pairs-test" / "ssa-3.json").write_text("")  # a run that failed
    (tmp_path / "pairs-test" / "ssa-3.err").write_text("no memory\nexit status 1: tempera eval\n")
    done = subprocess.run([sys.executable, SCRIPT, tmp_path], capture_output=True, text=True, check=True)
    rows = {line.split("`")[1]: [cell.strip() for cell in line.split("|")[2:-1]]
            for line in done.stdout.splitlines() if line.startswith("| `")}
    assert list(rows) == ["softmax", "focal", "ssa"]
    # Standard deviation 1, three values: 4.303 / sqrt(3).
    assert rows["softmax"][2:4] == ["2.00 ± 2.48", ""]
    # By seed: 1, 1, 1.3 and 2, -1, -1.
    assert rows["ssa"][3] == "**+1.10 ± 0.43, better**"
    assert rows["focal"][3] == "+0.00 ± 4.30"
    assert rows["ssa"][5] == "**-1.10 ± 0.43, worse**"
    assert "failed: pairs-test/ssa-3.err: no memory / exit status 1: tempera eval" in done.stdout
