"""BLEU and chrF against sacrebleu, on lines that are hard to cut into words."""

import json
import random
import subprocess

import pytest
from program import tool

SCORER = tool("eval", "translation_tool")

pytestmark = pytest.mark.skipif(not SCORER.exists(), reason=f"{SCORER} is not built (cmake --build build/release --target tests)")


def test_scores_equal_sacrebleu(tmp_path):
    sacrebleu = pytest.importorskip("sacrebleu")
    draw = random.Random(1)
    words = ["a", "the", "dog,", "3.5", "10-12", "(x)", "&amp;", "it's", "naïve", "日本", "…", "“q”", "<skipped>", "$5,000.", "-", "b/c",
             "\u00a0", "\u3000x", "e\u0301", "😀", "...", "-x-", "9,a", ",,"]
    for size in (1, 2, 40, 200):
        line = lambda most: " ".join(draw.choice(words) for _ in range(draw.randint(0, most)))
        references = [line(12) for _ in range(size)]
        hypotheses = ["x", *(" ".join(w for w in text.split(" ") if draw.random() < 0.8) + draw.choice(["", " ", " dog"])
                             for text in references[1:])]
        (tmp_path / "h").write_text("".join(text + "\n" for text in hypotheses))
        (tmp_path / "r").write_text("".join(text + "\n" for text in references))
        ours = json.loads(subprocess.run([SCORER, tmp_path / "h", tmp_path / "r"], capture_output=True, check=True).stdout)
        assert ours["bleu"] == pytest.approx(sacrebleu.corpus_bleu(hypotheses, [references]).score, abs=1e-9)
        assert ours["chrf"] == pytest.approx(sacrebleu.corpus_chrf(hypotheses, [references]).score, abs=1e-9)
