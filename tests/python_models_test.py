"""Temperatures on models of transformers: the same numbers as the program's, in both directions, and nothing silently lost."""

import copy
import json
import pathlib
import pickle
import shutil
import warnings

import pytest
import torch
from program import LONG, PROGRAM, few, result, run

transformers = pytest.importorskip("transformers")
try:
    import python_models as models
    import tempera
except ImportError as error:
    pytest.skip(f"libtempera_torch.so is missing: {error}", allow_module_level=True)
pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason="build/tempera is missing: run make build")
transformers.utils.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()

METHODS = [("focal", {}), ("focal-learned", {}), ("ssa", {}), ("ssa", {"k": True, "f": "mlp"}), ("ssmax", {}), ("log-n", {"length": 3}),
           ("llama4", {"floor": 2}), ("head,value", {})]
MODEL_TOOL = PROGRAM.parent.parent / "models" / "model_tool"


def opened(folder, family):
    opener = transformers.AutoModelForMaskedLM if family == "bert" else transformers.AutoModelForCausalLM
    return opener.from_pretrained(folder).eval()


def with_temperature(family, method, **options):
    model = models.make(family)
    return models.stir(tempera.apply(model, method, **options))


def logits(model, ids, **options):
    with torch.no_grad():
        return model(ids, **options).logits


@pytest.mark.parametrize("family", models.CONFIGS)
def test_plain_attention_stays_bit_for_bit(family):
    ids = models.tokens()
    for method in ("softmax", "ssa", "ssmax", "focal-learned", "head,value"):
        model = models.make(family)
        before = logits(model, ids)
        assert torch.equal(logits(tempera.apply(model, method), ids), before), method


@pytest.mark.parametrize("family, method, options", few(14, [(f, m, o) for f in models.CONFIGS for m, o in METHODS]))
def test_the_kernel_and_other_attentions_agree(family, method, options):
    ids = models.tokens()
    padded = torch.ones_like(ids)
    padded[0, :4] = 0
    model = with_temperature(family, method, **options)
    plain, left = logits(model, ids), logits(model, ids, attention_mask=padded)
    model.set_attn_implementation("tempera")
    assert torch.allclose(logits(model, ids), plain, atol=1e-5)
    assert torch.allclose(logits(model, ids, attention_mask=padded)[padded.bool()], left[padded.bool()], atol=1e-5)
    # Padding in front changes nothing but the place.
    alone = logits(model, ids[:1, 4:])
    if family not in ("bert", "gpt2"):  # these count positions from the padding on, unless told otherwise
        assert torch.allclose(logits(model, ids, attention_mask=padded)[0, 4:], alone[0], atol=1e-4)
    assert not torch.allclose(plain, logits(models.make(family), ids), atol=1e-3)


@pytest.mark.skipif(not LONG, reason="long: compiles kernels of flex_attention, some ten seconds a family")
@pytest.mark.parametrize("family", ["llama", "mistral", "gemma2", "bert"])
def test_flex_attention_agrees(family):
    ids = models.tokens()
    padded = torch.ones_like(ids)
    padded[0, :4] = 0
    for method in ("ssmax", "ssa", "focal-learned"):
        model = with_temperature(family, method)
        model.set_attn_implementation("eager")
        expected = logits(model, ids, attention_mask=padded)
        model.set_attn_implementation("flex_attention")
        assert torch.allclose(logits(model, ids, attention_mask=padded)[padded.bool()], expected[padded.bool()], atol=1e-5), method


def halves_only(module, query, key, value, attention_mask, scaling=None, dropout=0.0, seen=None, **options):
    """What flash_attention_2 takes: one half type for all, (B, keys) or no mask, and no score but scaling <q, k>."""
    assert query.dtype == key.dtype == value.dtype == torch.bfloat16
    assert attention_mask is None or attention_mask.dim() == 2
    module.got = query, key, value
    causal = torch.ones(query.shape[2], key.shape[2], dtype=torch.bool).tril(key.shape[2] - query.shape[2])[None, None]
    visible = causal if attention_mask is None else causal & attention_mask[:, None, None].bool()
    out = torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=visible, scale=scaling, enable_gqa=True)
    return out.transpose(1, 2), None


def test_an_attention_with_the_interface_of_flash_attention_gets_scaled_queries():
    """flash_attention_2 itself needs a GPU; where it is not installed, transformers says so and the model stays as it was."""
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
    transformers.AttentionInterface.register("halves_only", halves_only)
    transformers.AttentionMaskInterface.register("halves_only", ALL_MASK_ATTENTION_FUNCTIONS["flash_attention_2"])
    ids = models.tokens()
    padded = torch.ones_like(ids)
    padded[0, :4] = 0
    model, plain = with_temperature("llama", "ssmax").bfloat16(), models.make("llama").bfloat16()
    assert tempera.temperatures(model)[0].slope.dtype == torch.bfloat16
    for mask in (None, padded):
        for each in (model, plain):
            each.set_attn_implementation("sdpa")
            each.expected = logits(each, ids, attention_mask=mask)
            each.set_attn_implementation("halves_only")
            real = slice(None) if mask is None else padded.bool()
            assert torch.allclose(logits(each, ids, attention_mask=mask)[real].float(), each.expected[real].float(), atol=0.1, rtol=0.05)
        (q, k, v), (plain_q, plain_k, plain_v) = (each.model.layers[0].self_attn.got for each in (model, plain))
        assert torch.equal(k, plain_k) and torch.equal(v, plain_v) and not torch.equal(q, plain_q)
        rows = q[1].float().norm(dim=-1) / plain_q[1].float().norm(dim=-1)
        temperature = tempera.temperatures(model)[0].float()
        n = torch.arange(1, 13).float()
        assert torch.allclose(rows, temperature.slope[:, None] * n.log() + temperature.bias[:, None], rtol=0.02, atol=0.02)
        model.bfloat16()
    with pytest.raises(ImportError, match="flash_attn|FlashAttention2"):
        model.set_attn_implementation("flash_attention_2")
    assert model.config._attn_implementation == "halves_only"


@pytest.mark.parametrize("family", models.DECODERS)
@pytest.mark.parametrize("attention", ["sdpa", "tempera"])
def test_generation_with_the_cache_agrees_token_by_token(family, attention):
    ids = models.tokens(2, 9)
    mask = torch.ones_like(ids)
    mask[1, :3] = 0
    for method, options in few(3, METHODS):
        model = with_temperature(family, method, **options)
        model.set_attn_implementation("eager" if (family, attention) == ("gemma2", "sdpa") else attention)
        settings = dict(attention_mask=mask, max_new_tokens=6, do_sample=False, eos_token_id=None)
        assert torch.equal(model.generate(ids, **settings), model.generate(ids, use_cache=False, **settings)), method


def test_beams_follow_what_a_method_keeps_of_the_rows():
    ids = models.tokens(2, 7)
    model = with_temperature("llama", "focal-learned")
    settings = dict(max_new_tokens=5, num_beams=3, do_sample=False, eos_token_id=None, attention_mask=torch.ones_like(ids))
    assert torch.equal(model.generate(ids, **settings), model.generate(ids, use_cache=False, **settings))


@pytest.mark.parametrize("family, method, options", few(12, [(f, m, o) for f in models.CONFIGS for m, o in METHODS]))
def test_a_model_saved_here_is_the_programs(family, method, options, tmp_path):
    model = with_temperature(family, method, **options)
    model.save_pretrained(tmp_path / "model")
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    assert config["model_type"] == "tempera" and config["tempera"]["base"]["model_type"] == family
    ids = models.tokens(1, 12)
    again = opened(tmp_path / "model", family)
    assert torch.equal(logits(again, ids), logits(model, ids)) and tempera.describe(again) == tempera.describe(model)
    if MODEL_TOOL.exists():
        theirs = program_logits(tmp_path / "model", ids, tmp_path)
        assert (theirs - logits(model, ids)).abs().max() < 1e-4


def program_logits(folder, ids, scratch):
    from safetensors.torch import load_file, save_file
    save_file({"tokens": ids}, str(scratch / "tokens.safetensors"))
    import subprocess
    done = subprocess.run([MODEL_TOOL, "run", folder, scratch / "tokens.safetensors", scratch / "logits.safetensors"],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return load_file(str(scratch / "logits.safetensors"))["logits"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """What the program makes: a model trained with a temperature, and one calibrated."""
    folder = tmp_path_factory.mktemp("trained")
    (folder / "text.txt").write_text("the quick brown fox jumps over the lazy dog. " * 60)
    done = run("train", "--text", folder / "text.txt", "--out", folder / "ssa", "--temperature", "ssa", "--layers", 2, "--width", 32,
               "--heads", 2, "--context", 16, "--batch", 4, "--steps", 20, "--learning-rate", 0.01, "--device", "cpu")
    assert done.returncode == 0, done.stderr
    models.make("llama").save_pretrained(folder / "llama")
    return folder


def test_a_model_that_the_program_trained_opens_here(trained, tmp_path):
    model = transformers.AutoModelForCausalLM.from_pretrained(trained / "ssa" / "last").eval()
    assert tempera.describe(model)["method"] == "ssa"
    ids = models.tokens(1, 12)
    assert any(number.abs().max() > 1e-3 for number in tempera.temperatures(model)[0].numbers())
    assert (program_logits(trained / "ssa" / "last", ids, tmp_path) - logits(model, ids)).abs().max() < 1e-4


def test_numbers_alone_go_on_the_model_they_were_learned_for(tmp_path):
    model = with_temperature("llama", "ssa")
    tempera.save(model, tmp_path / "temps")
    assert sum(path.stat().st_size for path in (tmp_path / "temps").iterdir()) < 10_000
    again = tempera.load(models.make("llama"), tmp_path / "temps")
    ids = models.tokens()
    assert torch.equal(logits(again, ids), logits(model, ids))
    with pytest.raises(FileExistsError, match="nothing is overwritten"):
        tempera.save(model, tmp_path / "temps")
    other = models.make("llama", num_attention_heads=8, num_key_value_heads=4)
    before = logits(other, ids)
    with pytest.raises(ValueError, match="of another model"):
        tempera.load(other, tmp_path / "temps")
    assert tempera.describe(other) is None and not tempera.temperatures(other) and torch.equal(logits(other, ids), before)
    with pytest.raises(FileNotFoundError, match="no folder of tempera.save"):
        tempera.load(models.make("llama"), tmp_path)


@pytest.mark.parametrize("attention", ["eager", "tempera"])
@pytest.mark.parametrize("family", ["llama", "qwen3", "gpt2", "gpt_neox", "bert"])
def test_a_copy_has_a_temperature_of_its_own(family, attention):
    ids = models.tokens()
    model = with_temperature(family, "ssmax")
    model.set_attn_implementation(attention)
    before, copied = logits(model, ids), copy.deepcopy(model)
    pickled = pickle.loads(pickle.dumps(model))
    models.stir(model, seed=2)
    assert not torch.allclose(logits(model, ids), before, atol=1e-3)
    for other in (copied, pickled):
        assert torch.equal(logits(other, ids), before) and tempera.describe(other) == tempera.describe(model)


def test_a_copied_cache_has_rows_of_its_own():
    ids = models.tokens()
    model, cache = with_temperature("llama", "focal-learned"), transformers.DynamicCache()
    logits(model, ids, past_key_values=cache)
    copied = copy.deepcopy(cache)
    copied.reorder_cache(torch.tensor([1, 1]))
    kept, moved = logits(model, ids[:, :1], past_key_values=cache), logits(model, ids[:, :1], past_key_values=copied)
    whole = logits(model, torch.cat([ids, ids[:, :1]], 1))[:, -1:]
    assert torch.allclose(kept, whole, atol=1e-4)
    assert torch.allclose(moved, logits(model, torch.cat([ids[[1, 1]], ids[:, :1]], 1))[:, -1:], atol=1e-4)


@pytest.mark.parametrize("family", ["llama", "bert"])
def test_a_classifier_opens_again(family, tmp_path):
    opener = transformers.AutoModelForSequenceClassification
    model = opener.from_config(transformers.AutoConfig.for_model(family, **models.CONFIGS[family])).eval()
    models.stir(tempera.apply(model, "ssa")).save_pretrained(tmp_path / "model")
    ids = models.tokens()
    with torch.no_grad():
        before, after = (each(ids, return_dict=False)[0] for each in (model, opener.from_pretrained(tmp_path / "model").eval()))
    assert torch.equal(before, after)


@pytest.mark.parametrize("family", ["llama", "gpt2", "gpt_neox", "olmo2", "bert"])
def test_constant_temperatures_fold_into_an_ordinary_model(family):
    ids = models.tokens()
    model = with_temperature(family, "head,value")
    plain = tempera.fold(model)
    assert type(plain) is type(models.make(family)) and not tempera.temperatures(plain)
    assert torch.allclose(logits(plain, ids), logits(model, ids), atol=1e-5)
    assert type(plain.config).__name__ == type(models.make(family).config).__name__


def test_what_does_not_fold_is_refused_with_the_reason():
    with pytest.raises(ValueError, match="depends on the token or its position"):
        tempera.fold(with_temperature("llama", "ssa"))
    with pytest.raises(ValueError, match="QK-norm"):
        tempera.fold(with_temperature("qwen3", "head"))
    with pytest.raises(ValueError, match="has no temperature to fold"):
        tempera.fold(models.make("llama"))


def test_wrong_use_is_explained():
    model = models.make("llama")
    with pytest.raises(ValueError, match="did you mean 'ssmax'|did you mean 'ssa'"):
        tempera.apply(model, "ssam")
    with pytest.raises(ValueError, match="'slop0'.*did you mean 'slope0'|slope0"):
        tempera.apply(model, "ssa", slop0=1.0)
    with pytest.raises(TypeError, match="a model of transformers"):
        tempera.apply(torch.nn.Linear(2, 2), "ssa")
    tempera.apply(model, "head")
    with pytest.raises(ValueError, match="has the temperature 'head' already"):
        tempera.apply(model, "ssa")
    unknown = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model("olmo", **models.SHARED))
    with pytest.raises(ValueError, match="model_type 'olmo' is not supported.*did you mean 'olmo2'"):
        tempera.apply(unknown, "ssa")
    assert type(unknown).__name__ == "OlmoForCausalLM"


def test_only_new_numbers_are_trained(capsys):
    model = tempera.apply(models.make("llama"), "ssa", layers="1")
    names = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert names and all(name.startswith("model.layers.1.self_attn.temperature.") for name in names)
    model.print_trainable_parameters()
    assert capsys.readouterr().out.startswith("trainable params: 54 || all params: 21,718")
    whole = tempera.apply(models.make("llama"), "ssa", freeze=False)
    assert all(parameter.requires_grad for parameter in whole.parameters())


def test_token_frequencies_are_the_programs(tmp_path):
    model = tempera.apply(models.make("llama"), "ssa", f="feature")
    with pytest.raises(RuntimeError, match="no token frequencies"):
        model(models.tokens())
    model.set_token_counts(torch.arange(96))
    models.stir(model)
    assert torch.isfinite(logits(model, models.tokens())).all()


def test_packed_documents_do_not_see_each_other():
    for method, options in METHODS:
        model = with_temperature("llama", method, **options)
        ids = models.tokens(1, 12)
        positions = torch.cat([torch.arange(5), torch.arange(7)])[None]
        for attention in ("sdpa", "tempera"):
            model.set_attn_implementation(attention)
            packed = logits(model, ids, position_ids=positions, use_cache=False)
            apart = torch.cat([logits(model, ids[:, :5]), logits(model, ids[:, 5:])], 1)
            assert torch.allclose(packed, apart, atol=1e-4), (method, attention)


def test_no_write_permission(tmp_path):
    import os
    if os.geteuid() == 0:
        (tmp_path / "file").write_text("")
        target = tmp_path / "file" / "temps"
    else:
        tmp_path.chmod(0o500)
        target = tmp_path / "temps"
    with pytest.raises(OSError):
        tempera.save(with_temperature("llama", "head"), target)
