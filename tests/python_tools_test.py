"""tempera.calibrate drives the program; tempera.lens looks at attentions; the examples in the documentation strings run."""

import doctest
import importlib
import inspect

import pytest
import torch
from program import PROGRAM, few, run

transformers = pytest.importorskip("transformers")
try:
    import python_models as models
    import tempera
except ImportError as error:
    pytest.skip(f"libtempera_torch.so is missing: {error}", allow_module_level=True)
pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason="build/tempera is missing: run make build")
transformers.utils.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()


@pytest.mark.parametrize("module", ["_model", "_lens", "_operators"])
def test_examples_of_the_documentation_run(module, tmp_path):
    names = {"tempera": tempera, "small_model": lambda: models.make("llama"), "folder": tmp_path}
    found = doctest.testmod(importlib.import_module(f"tempera.{module}"), extraglobs=names)
    assert found.attempted and not found.failed


def test_every_function_has_an_example_that_runs():
    """But for those that need the program, a model's folder and minutes."""
    functions = [getattr(tempera, name) for name in tempera.__all__ if inspect.isfunction(getattr(tempera, name))]
    without = {function.__name__ for function in functions if ">>>" not in function.__doc__}
    assert without == {"calibrate", "find_library", "find_program"}


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


def test_a_model_calibrated_from_a_gguf_file_opens(tmp_path):
    from gguf import GGUFReader
    (tmp_path / "text.txt").write_text("the quick brown fox jumps over the lazy dog. " * 80)
    models.make("llama", vocab_size=256).save_pretrained(tmp_path / "model")
    byte_level(tmp_path / "model")
    file = tmp_path / "model.gguf"
    done = run("export", tmp_path / "model", "--as", "gguf", "--dtype", "q8_0", "--out", file)
    assert done.returncode == 0, done.stderr
    assert any(tensor.tensor_type.name == "Q8_0" for tensor in GGUFReader(file).tensors)
    found = tempera.calibrate(file, text=tmp_path / "text.txt", out=tmp_path / "out", learn="head,value", tokens=512, step_tokens=128, length=32,
                              eval_lengths=[32], eval_tokens=128, passkey_cases=0, device="cpu", threads=1, progress=False)
    model = found.load()
    assert tempera.describe(model)["method"] == "head,value" and type(model).__name__ == "LlamaForCausalLM"
    done = run("export", file, "--out", tmp_path / "back")
    assert done.returncode == 0, done.stderr
    # The weights are those of the file; the temperatures alone are new.
    ids = models.tokens(1, 12)
    plain = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "back")
    tempera.save(model, tmp_path / "temps")
    with torch.no_grad():
        again = tempera.load(plain, tmp_path / "temps")(ids).logits
        assert torch.allclose(model(ids).logits, again, atol=1e-4)
    for wrong in (lambda: tempera.apply(file, "ssa"), lambda: tempera.load(str(file), tmp_path / "temps")):
        with pytest.raises(ValueError, match=r"is a GGUF file.*tempera export .*model.gguf --out FOLDER"):
            wrong()


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_quantised_projections_take_a_temperature_and_do_not_fold(tmp_path):
    quantised = torch.ao.quantization.quantize_dynamic(models.make("llama"), {torch.nn.Linear}, torch.qint8)
    ids = models.tokens()
    with torch.no_grad():
        before = quantised(ids).logits
        assert torch.equal(tempera.apply(quantised, "head,value")(ids).logits, before)
        full = models.stir(tempera.apply(models.make("llama"), "head,value"))
        change = full(ids).logits - models.make("llama")(ids).logits
        moved = models.stir(quantised)(ids).logits - before
    assert torch.nn.functional.cosine_similarity(moved.flatten(), change.flatten(), 0) > 0.9
    with pytest.raises(ValueError, match="weights are quantised.*tempera.load"):
        tempera.fold(quantised)
    tempera.save(quantised, tmp_path / "temps")
    assert tempera.fold(tempera.load(models.make("llama"), tmp_path / "temps"))


def test_what_the_program_refuses_is_an_error_with_its_words(tmp_path):
    with pytest.raises(ValueError, match="unknown option --tokns, did you mean --tokens|tokns"):
        tempera.calibrate(tmp_path, text="text.txt", tokns=3, progress=False)
    with pytest.raises(RuntimeError, match="is no model"):
        tempera.calibrate(tmp_path, text=__file__, out=tmp_path / "out", progress=False)
