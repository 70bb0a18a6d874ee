"""Temperatures on T5 in Python: encoder, decoder and cross-attentions have the program's numbers, with masks, caches and gradients."""

import json
import subprocess

import pytest
import torch
from program import LONG, PROGRAM, few, run, tool

transformers = pytest.importorskip("transformers")
try:
    import python_models as models
    import tempera
except ImportError as error:
    pytest.skip(f"libtempera_torch.so is missing: {error}", allow_module_level=True)
transformers.utils.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()

METHODS = [("focal", {}), ("focal-learned", {}), ("focal-learned", {"axis": "token"}), ("ssa", {}), ("ssa", {"k": True, "f": "mlp"}),
           ("ssmax", {}), ("log-n", {"length": 3}), ("head,value", {})]
MODEL_TOOL = tool("models", "model_tool")
SOURCE, TARGET = models.tokens(2, 9, seed=5), models.tokens(2, 7)
MASK = torch.ones_like(SOURCE)
MASK[1, 6:] = 0
all_methods = pytest.mark.parametrize("method, options", METHODS)


def tempered(method="ssa", options={}, family="t5", attention="eager", **more):
    model = models.stir(tempera.apply(models.make(family), method, **options, **more))
    model.set_attn_implementation(attention)
    return model


def logits(model, **options):
    with torch.no_grad():
        return model(**{"input_ids": SOURCE, "attention_mask": MASK, "decoder_input_ids": TARGET, "use_cache": False, **options}).logits


@pytest.mark.parametrize("family", models.SEQ2SEQ)
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_plain_attention_stays_bit_for_bit(family, attention):
    for method in ("softmax", "ssa", "ssmax", "focal-learned", "head,value"):
        model = models.make(family, attention=attention)
        before = logits(model)
        assert torch.equal(logits(tempera.apply(model, method)), before), method
        assert len(tempera.temperatures(model)) == 3 + 2 + 2


@all_methods
def test_all_attentions_agree(method, options):
    model = tempered(method, options)
    plain = logits(model)
    for attention in ("sdpa", "tempera"):
        model.set_attn_implementation(attention)
        assert torch.allclose(logits(model), plain, atol=1e-5), attention
    # Padding changes nothing, and every kind of attention has a temperature that does.
    assert torch.allclose(logits(model, input_ids=SOURCE[1:, :6], attention_mask=None, decoder_input_ids=TARGET[1:]), plain[1:], atol=1e-4)
    for half in ("encoder", "decoder.block.0.layer.0", "decoder.block.0.layer.1"):
        part = models.make("t5")
        tempera.apply(part, method, **options)
        with torch.no_grad():
            for name, number in part.named_parameters():
                if ".temperature." in name and name.startswith(half):
                    number.copy_(dict(model.named_parameters())[name])
        if any(True for _ in tempera.temperatures(model)[0].parameters()):
            assert not torch.allclose(logits(part), logits(models.make("t5")), atol=1e-3), half


@pytest.mark.parametrize("attention", ["eager", "sdpa", "tempera"])
def test_generation_with_the_cache_agrees_token_by_token(attention):
    for method, options in [("focal-learned", {}), *few(3, METHODS)]:
        model = tempered(method, options, attention=attention)
        for beams in (1, 3):
            settings = dict(attention_mask=MASK, max_new_tokens=6, min_new_tokens=6, num_beams=beams, do_sample=False)
            assert torch.equal(model.generate(SOURCE, **settings), model.generate(SOURCE, use_cache=False, **settings)), (method, beams)


@pytest.mark.skipif(not PROGRAM.exists() or not MODEL_TOOL.exists(), reason="build/tempera is missing: run make build")
@pytest.mark.parametrize("family", models.SEQ2SEQ)
@pytest.mark.parametrize("method, options", few(4, METHODS))
def test_a_model_saved_here_is_the_programs(family, method, options, tmp_path):
    from safetensors.torch import load_file, save_file
    model = tempered(method, options, family)
    model.save_pretrained(tmp_path / "model")
    assert json.loads((tmp_path / "model" / "config.json").read_text())["tempera"]["base"]["model_type"] == "t5"
    again = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "model").eval()
    again.set_attn_implementation("eager")
    assert torch.allclose(logits(again), logits(model), atol=1e-5) and tempera.describe(again) == tempera.describe(model)
    save_file({"tokens": TARGET, "source": SOURCE, "source_end": MASK.sum(1)}, str(tmp_path / "in.safetensors"))
    done = subprocess.run([MODEL_TOOL, "run", tmp_path / "model", tmp_path / "in.safetensors", tmp_path / "out.safetensors"],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    theirs = load_file(str(tmp_path / "out.safetensors"))
    for name, mask in (("logits", None), ("padded", MASK), ("cached", MASK)):
        assert (theirs[name] - logits(model, attention_mask=mask)).abs().max() < 1e-4, name


def test_numbers_alone_and_folding(tmp_path):
    model = tempered("head,value")
    tempera.save(model, tmp_path / "temps")
    again = tempera.load(models.make("t5", attention="eager"), tmp_path / "temps")
    assert torch.equal(logits(again), logits(model))
    plain = tempera.fold(model)
    assert type(plain) is type(models.make("t5")) and not tempera.temperatures(plain)
    assert torch.allclose(logits(plain), logits(model), atol=1e-5)
    headless = tempera.load(transformers.T5Model(models.make("t5").config), tmp_path / "temps")
    assert len(tempera.temperatures(headless)) == 7


def gradients(model, **changes):
    model.train().zero_grad()
    model(input_ids=SOURCE, attention_mask=MASK, labels=TARGET, **changes).loss.backward()
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters() if parameter.grad is not None}


@all_methods
def test_gradients_are_those_of_either_attention_and_of_checkpointing(method, options):
    expected = gradients(tempered(method, options, freeze=False))
    assert any(".temperature." in name for name in expected) or method in ("focal", "log-n")
    checkpointed = tempered(method, options, freeze=False)
    checkpointed.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    for found in (gradients(tempered(method, options, attention="tempera", freeze=False)), gradients(checkpointed, use_cache=False)):
        assert found.keys() == expected.keys()
        for name in found:
            assert torch.allclose(found[name], expected[name], atol=1e-5, rtol=1e-3), name


def test_only_new_numbers_are_trained():
    model = tempera.apply(models.make("t5"), "ssa").train()
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = model(input_ids=SOURCE, attention_mask=MASK, labels=TARGET).loss
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    moved = {name for name, parameter in model.named_parameters() if not torch.equal(parameter, before[name])}
    assert losses[-1] < losses[0] and all(".temperature." in name for name in moved)
    assert {name.split(".temperature.")[0].rsplit(".", 1)[1] for name in moved} == {"SelfAttention", "EncDecAttention"}
    assert any(name.startswith("encoder.") for name in moved)


@pytest.mark.parametrize("attention", ["sdpa", "tempera"] if LONG else ["tempera"])
def test_the_step_compiles_without_graph_breaks(attention):
    torch._dynamo.reset()
    model = models.stir(tempera.apply(models.make("t5", num_layers=1, num_decoder_layers=1), "ssa")).train()
    model.set_attn_implementation(attention)
    expected = gradients(model)
    model.zero_grad()
    torch.compile(model, fullgraph=True, backend="aot_eager")(input_ids=SOURCE, attention_mask=MASK, labels=TARGET, use_cache=False).loss.backward()
    for name, gradient in expected.items():
        assert torch.allclose(dict(model.named_parameters())[name].grad, gradient, atol=1e-5, rtol=1e-3), name


def test_what_does_not_go_is_refused():
    with pytest.raises(ValueError, match="reads tokens.*of the source"):
        tempera.apply(models.make("t5"), "ssa", f="feature")
    assert not tempera.temperatures(models.make("t5"))
    with pytest.raises(ValueError, match="reads a source and writes a target"):
        tempera.lens(tempered(), [3, 4])
    with pytest.raises(ValueError, match="T5 does not support Flash Attention|does not support Flash Attention"):
        tempered().set_attn_implementation("flash_attention_2")


@pytest.mark.skipif(not PROGRAM.exists(), reason="build/tempera is missing: run make build")
def test_cross_attentions_with_a_temperature_of_their_own_are_refused(tmp_path):
    (tmp_path / "a.txt").write_text("red fox\nold map\n" * 20)
    done = run("train", "--source", tmp_path / "a.txt", "--target", tmp_path / "a.txt", "--temperature", "ssa", "--cross-temperature",
               "ssmax", "--out", tmp_path / "run", "--layers", 1, "--width", 32, "--heads", 2, "--context", 16, "--batch", 2, "--steps", 1,
               "--device", "cpu", "--threads", 1)
    assert done.returncode == 0, done.stderr
    with pytest.raises(ValueError, match=r"a temperature of their own \('ssmax'\)"):
        transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "run" / "last")
