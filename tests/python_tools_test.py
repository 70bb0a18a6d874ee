"""tempera.calibrate drives the program; tempera.lens looks at attentions; the examples in the documentation strings run."""

import doctest
import importlib

import pytest
import torch
from program import PROGRAM, few

transformers = pytest.importorskip("transformers")
try:
    import python_models as models
    import tempera
except ImportError as error:
    pytest.skip(f"libtempera_torch.so is missing: {error}", allow_module_level=True)
pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason="build/tempera is missing: run make build")
transformers.utils.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()


@pytest.mark.parametrize("module", ["_model", "_lens"])
def test_examples_of_the_documentation_run(module):
    small = lambda: models.make("llama")
    found = doctest.testmod(importlib.import_module(f"tempera.{module}"), extraglobs={"tempera": tempera, "small_model": small})
    assert found.attempted and not found.failed


def weights_by_hand(model, ids):
    """All weights of every layer by the eager implementation."""
    model.set_attn_implementation("eager")
    with torch.no_grad():
        return [layer[0] for layer in model(ids[None], output_attentions=True, use_cache=False).attentions]


@pytest.mark.parametrize("family, method", few(6, [(f, m) for f in ("llama", "mistral", "gemma2", "gpt2", "qwen3", "bert")
                                                   for m in ("ssa", "head", "focal-learned")]))
def test_the_lens_sees_what_the_matrix_of_all_pairs_has(family, method):
    model, ids = models.stir(tempera.apply(models.make(family), method)), models.tokens(1, 11)[0]
    before = model.config._attn_implementation
    pairs = [(10, 0), (10, 7), (10, 10), (4, 1), (2, 5)]
    view = tempera.lens(model, ids, pairs=pairs)
    assert model.config._attn_implementation == before and len(view.layers) == 2 and view.tokens == ids.tolist()
    for layer, weights in zip(view.layers, weights_by_hand(model, ids)):
        for index, (row, key) in enumerate(pairs):
            assert torch.allclose(layer.weights[:, index], weights[:, row, key], atol=1e-5), (row, key)
        entropy = -(weights * weights.clamp_min(1e-30).log()).sum(-1)
        assert torch.allclose(layer.entropy, entropy, atol=1e-4)
        assert layer.a_q.shape == (4, 11) and "." in layer.module


def test_the_lens_takes_a_plain_model_and_refuses_pairs_outside():
    view = tempera.lens(models.make("llama"), [4, 5, 6])
    assert view.layers[0].a_q is None and view.layers[0].weights.shape == (4, 0)
    with pytest.raises(ValueError, match=r"the pair \(3, 0\) is outside the text, which has 3 tokens"):
        tempera.lens(models.make("llama"), [4, 5, 6], pairs=[(3, 0)])
    with pytest.raises(ValueError, match="no tokens"):
        tempera.lens(models.make("llama"), [])


def byte_level(folder):
    """A tokenizer of the 256 bytes, as files of transformers."""
    from tokenizers import Tokenizer, decoders, models as kinds, pre_tokenizers
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(kinds.BPE({letter: index for index, letter in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(folder)


def test_calibration_gives_typed_results_and_a_model_that_opens(tmp_path, capfd):
    text = tmp_path / "text.txt"
    text.write_text("the quick brown fox jumps over the lazy dog. " * 80)
    models.make("llama", vocab_size=256).save_pretrained(tmp_path / "model")
    byte_level(tmp_path / "model")
    options = dict(text=text, out=tmp_path / "out", learn="head,value", tokens=512, step_tokens=128, length=32, eval_lengths=[32],
                   eval_tokens=128, passkey_cases=0, device="cpu", threads=1)
    found = tempera.calibrate(tmp_path / "model", **options)
    assert capfd.readouterr().err
    assert found.learned == "head,value" and found.numbers == 2 * (4 + 2) and found.out == tmp_path / "out"
    assert len(found.temperatures) == 2 and len(found.temperatures[0].q) == 4
    assert found.perplexity("after", 32) > 1
    with pytest.raises(ValueError, match="windows of 64 tokens were not measured; measured: 32"):
        found.perplexity("after", 64)
    assert tempera.describe(found.load())["method"] == "head,value"
    from_memory = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    again = tempera.calibrate(from_memory, **{**options, "out": tmp_path / "again"}, progress=False)
    assert again.perplexity("before", 32) == found.perplexity("before", 32)
    assert capfd.readouterr().err == ""


def test_what_the_program_refuses_is_an_error_with_its_words(tmp_path):
    with pytest.raises(ValueError, match="unknown option --tokns, did you mean --tokens|tokns"):
        tempera.calibrate(tmp_path, text="text.txt", tokns=3, progress=False)
    with pytest.raises(RuntimeError, match="is no model"):
        tempera.calibrate(tmp_path, text=__file__, out=tmp_path / "out", progress=False)
