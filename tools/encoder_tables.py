#!/usr/bin/env python3
"""Tables of what tools/encoder-study measured, in Markdown: of every measure the mean over the seeds with its 95 % interval,
and the difference to the first method with the 95 % interval of the pairs that have the same seed (Student's t).

    tools/encoder_tables.py results.tgz     or the folder
"""

import json
import math
import pathlib
import statistics
import sys
import tarfile
import tempfile

METHODS = ("softmax", "focal", "focal-learned", "ssa")
# 97.5 % quantiles of Student's t, from 1 degree of freedom on.
STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131)

# A title, and of each column: heading, folder, the key in its documents, decimals, whether more is better.
TABLES = (
    ("Masked tokens", (
        ("held-out loss", "masked-held-out", "loss", 3, False),
        ("accuracy %", "masked-held-out", "accuracy", 2, True),
    )),
    ("SST-2 from that encoder", (
        ("test accuracy %", "tuned-test", "accuracy", 2, True),
        ("F1", "tuned-test", "f1_binary", 2, True),
    )),
    ("SST-2 from nothing", (
        ("test accuracy %", "scratch-test", "accuracy", 2, True),
        ("F1", "scratch-test", "f1_binary", 2, True),
    )),
    ("Multi30k, English to German", (
        ("held-out loss", "pairs", "validation.loss", 3, False),
        ("test BLEU", "pairs-test", "bleu", 2, True),
        ("test chrF", "pairs-test", "chrf", 2, True),
    )),
)


def half_width(values):
    """Of the 95 % interval of the mean; NaN for one value."""
    if len(values) < 2:
        return math.nan
    quantile = STUDENT[min(len(values) - 1, len(STUDENT)) - 1]
    return quantile * statistics.stdev(values) / math.sqrt(len(values))


def read(folder, part, key):
    """{method: {seed: value}} of the documents that are whole."""
    found = {}
    for file in sorted((folder / part).glob("*.json")):
        method, seed = file.stem.rsplit("-", 1)
        try:
            value = json.loads(file.read_text())
            for name in key.split("."):
                value = value[name]
        except (ValueError, KeyError, TypeError):
            continue
        found.setdefault(method, {})[int(seed)] = value
    return found


def known(values):
    """The methods that have values, in the order of the tables."""
    return [method for method in METHODS if method in values] + sorted(set(values) - set(METHODS))


def cells(values, decimals, more_is_better):
    """{method: (mean, difference)} as text; bold where the interval of the difference leaves out 0."""
    methods = known(values)
    result = {}
    for method in methods:
        own = list(values[method].values())
        mean = f"{statistics.mean(own):.{decimals}f} ± {half_width(own):.{decimals}f}"
        seeds = sorted(set(values[method]) & set(values[methods[0]]))
        if method == methods[0] or not seeds:
            result[method] = (mean, "")
            continue
        pairs = [values[method][seed] - values[methods[0]][seed] for seed in seeds]
        difference, half = statistics.mean(pairs), half_width(pairs)
        text = f"{difference:+.{decimals}f} ± {half:.{decimals}f}"
        if abs(difference) > half:
            better = (difference > 0) == more_is_better
            text = f"**{text}, {'better' if better else 'worse'}**"
        result[method] = (mean, text)
    return result


def print_table(folder, title, columns):
    """One table: a row a method, of each measure its mean and the difference."""
    measured = [(heading, cells(read(folder, part, key), decimals, more)) for heading, part, key, decimals, more in columns]
    methods = known({method: 1 for _, values in measured for method in values})
    if not methods:
        return
    print(f"### {title}\n")
    print("| method | " + " | ".join(f"{heading} | against {methods[0]}" for heading, _ in measured) + " |")
    print("|---" * (1 + 2 * len(measured)) + "|")
    for method in methods:
        print(f"| `{method}` | " + " | ".join(" | ".join(values.get(method, ("", ""))) for _, values in measured) + " |")
    print()


def print_runs(folder):
    """How long the runs were, and what failed."""
    for part in ("masked", "tuned", "scratch", "pairs"):
        documents = [json.loads(file.read_text()) for file in sorted((folder / part).glob("*.json")) if file.stat().st_size]
        if documents:
            of = lambda key: sorted({document[key] for document in documents})
            seconds = [document["seconds"] for document in documents]
            print(f"- {part}: {len(documents)} runs, steps {of('steps')}, tokens {of('tokens')[0]} to {of('tokens')[-1]}, parameters "
                  f"{of('parameters')}, {min(seconds):.0f} to {max(seconds):.0f} s")
    for part, key in (("tuned-test", "accuracy_interval"), ("pairs-test", "bleu_interval")):
        widths = [(high - low) / 2 for runs in read(folder, part, key).values() for low, high in runs.values()]
        if widths:
            print(f"- {part}: one run's {key.split('_')[0]} is ± {statistics.mean(widths):.1f} by the choice of test examples alone (95 %, bootstrap)")
    for file in sorted(folder.glob("*/*.err")):
        lines = file.read_text().splitlines()
        if lines and ("exit status" in lines[-1] or "not begun" in lines[-1]):
            print(f"- failed: {file.relative_to(folder)}: {' / '.join(lines[-2:])[:300]}")


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__.strip())
    given = pathlib.Path(sys.argv[1])
    if not given.exists():
        sys.exit(f"'{given}' is not there; the results.tgz that tools/encoder-study wrote, or its folder, is expected")
    with tempfile.TemporaryDirectory() as scratch:
        folder = given
        if given.is_file():
            with tarfile.open(given) as archive:
                archive.extractall(scratch, filter="data")
            folder = pathlib.Path(scratch) / "results"
        print("95 % intervals of the mean over seeds (Student's t); **bold**: the interval of the difference, paired by seed, leaves out 0.\n")
        for title, columns in TABLES:
            print_table(folder, title, columns)
        print_runs(folder)


if __name__ == "__main__":
    main()
