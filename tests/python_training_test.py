"""Training a temperature with what people train with: Trainer, accelerate with FSDP2, checkpointing, autocast, torch.compile."""

import os
import subprocess
import sys

import pytest
import torch
from program import LONG, PATIENCE

transformers = pytest.importorskip("transformers")
try:
    import python_models as models
    import tempera
except ImportError as error:
    pytest.skip(f"libtempera_torch.so is missing: {error}", allow_module_level=True)
transformers.utils.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()

# Every method in the long tests; what compiles takes seconds a method.
METHODS = ["ssa", "focal-learned", "head,value"] + [
    name for name in (method["name"] for method in tempera.methods()) if LONG and name not in ("ssa", "focal-learned")]
both = pytest.mark.parametrize("attention", ["sdpa", "tempera"])


def made(method, attention="sdpa"):
    """A model whose parameters all learn, as some methods have none of their own."""
    model = models.stir(tempera.apply(models.make("llama"), method, freeze=False)).train()
    model.set_attn_implementation(attention)
    return model


def gradients(model, ids, **changes):
    model.zero_grad()
    model(ids, labels=ids, use_cache=False, **changes).loss.backward()
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters() if parameter.grad is not None}


def assert_same(one, other, tolerance=1e-5):
    assert one.keys() == other.keys() and one
    for name in one:
        assert torch.allclose(one[name], other[name], atol=tolerance, rtol=1e-3), name


@pytest.mark.parametrize("method", METHODS)
def test_gradients_are_those_of_either_attention(method):
    ids = models.tokens()
    assert_same(gradients(made(method), ids), gradients(made(method, "tempera"), ids))


@both
@pytest.mark.parametrize("method", METHODS)
def test_gradient_checkpointing_changes_no_gradient(method, attention):
    ids = models.tokens()
    model = made(method, attention)
    plain = gradients(model, ids)
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    assert_same(gradients(model, ids), plain, 1e-6)


@both
@pytest.mark.parametrize("method", METHODS)
def test_autocast(method, attention):
    ids = models.tokens()
    model = made(method, attention)
    plain = gradients(model, ids)
    with torch.autocast("cpu", torch.bfloat16):
        half = gradients(model, ids)
    for name, gradient in half.items():
        assert gradient.dtype == torch.float32
        assert torch.nn.functional.cosine_similarity(gradient.flatten(), plain[name].flatten(), 0) > 0.9, name


@both
@pytest.mark.parametrize("method", METHODS if LONG else METHODS[:1])
def test_the_whole_step_compiles_without_graph_breaks(method, attention):
    torch._dynamo.reset()
    ids = models.tokens()
    model = made(method, attention)
    plain = gradients(model, ids)
    model.zero_grad()
    torch.compile(model, fullgraph=True, backend="aot_eager")(ids, labels=ids, use_cache=False).loss.backward()
    assert_same({name: p.grad for name, p in model.named_parameters() if p.grad is not None}, plain)


@both
@pytest.mark.skipif(not LONG, reason="compiles for half a minute; set TEMPERA_LONG=1")
@pytest.mark.parametrize("method", METHODS[:3])
def test_the_default_compiler_learns_the_same(method, attention):
    """Inductor uses memory again, which aot_eager does not."""
    torch._dynamo.reset()
    ids = models.tokens()
    model = made(method, attention)
    plain = gradients(model, ids)
    model.zero_grad()
    torch.compile(model, fullgraph=True)(ids, labels=ids, use_cache=False).loss.backward()
    assert_same({name: p.grad for name, p in model.named_parameters() if p.grad is not None}, plain)


@both
@pytest.mark.parametrize("method", METHODS if LONG else METHODS[:1])
def test_the_forward_pass_exports_for_every_batch_and_length(method, attention):
    ids, others = models.tokens(), models.tokens(3, 29)
    model = made(method, attention).eval()

    class Logits(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, ids):
            return self.model(ids, use_cache=False).logits

    with torch.no_grad():
        any_size = {0: torch.export.Dim("batch", min=1, max=64), 1: torch.export.Dim("length", min=2, max=64)}
        exported = torch.export.export(Logits(), (ids,), dynamic_shapes=(any_size,), strict=False)
        assert torch.allclose(exported.module()(others), Logits()(others), atol=1e-5)


def rows(count=8):
    return [{"input_ids": row, "labels": row} for row in models.tokens(count, 12)]


def arguments(folder, **changes):
    return transformers.TrainingArguments(output_dir=str(folder), max_steps=4, per_device_train_batch_size=2, learning_rate=0.05, use_cpu=True,
                                          save_steps=2, report_to=[], disable_tqdm=True, **changes)


def test_trainer_learns_the_new_numbers_alone_and_resumes(tmp_path):
    pytest.importorskip("accelerate")
    model = tempera.apply(models.make("llama"), "ssa").train()
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    transformers.Trainer(model, arguments(tmp_path), train_dataset=rows()).train()
    moved = {name for name, parameter in model.named_parameters() if not torch.equal(parameter, before[name])}
    assert moved and all(".temperature." in name for name in moved)
    kept = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "checkpoint-4")
    assert torch.equal(kept(models.tokens()).logits, model.eval()(models.tokens()).logits)
    again = tempera.apply(models.make("llama"), "ssa").train()
    transformers.Trainer(again, arguments(tmp_path), train_dataset=rows()).train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    for name, parameter in model.named_parameters():
        assert torch.allclose(parameter, dict(again.named_parameters())[name], atol=1e-6), name


def run_ranks(way, out, methods):
    done = subprocess.run([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2",
                           os.path.join(os.path.dirname(__file__), "python_ranks.py"), way, str(out), *methods],
                          capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.skipif(not LONG, reason="starts two more Pythons with torch; set TEMPERA_LONG=1")
@pytest.mark.parametrize("way", ["fully_shard", "accelerate", "accelerate_fsdp2", "trainer_fsdp2", "deepspeed"])
def test_two_ranks_make_the_steps_of_one(way, tmp_path):
    package = "deepspeed" if way == "deepspeed" else "accelerate"
    pytest.importorskip(package, reason=f"{package} is not installed")
    run_ranks(way, tmp_path, METHODS)
    for method, freeze in [*((method, False) for method in METHODS), ("ssa", True)]:
        name = f"{method}{'-frozen' if freeze else ''}"
        model = models.stir(tempera.apply(models.make("llama"), method, freeze=freeze)).train()
        learned = [parameter for parameter in model.parameters() if parameter.requires_grad]
        optimizer, ids, losses = torch.optim.SGD(learned, lr=0.1), models.tokens(2, 12), []
        for _ in range(2):
            optimizer.zero_grad()
            loss = model(ids, labels=ids, use_cache=False).loss
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        shared = torch.load(tmp_path / f"{name}.pt")
        assert torch.allclose(shared["losses"], torch.stack(losses), atol=1e-4), name
        for key, value in model.state_dict().items():
            assert torch.allclose(shared["state"][key], value, atol=1e-4, rtol=1e-3), (name, key)
        for key, value in tempera.fold(model).state_dict().items() if shared["folded"] else ():
            assert torch.allclose(shared["folded"][key], value, atol=1e-4, rtol=1e-3), (name, key)
        kept = [tempera.load(models.make("llama"), tmp_path / f"{name}.temps")]
        if way == "trainer_fsdp2":
            kept.append(transformers.AutoModelForCausalLM.from_pretrained(tmp_path / f"{name}.trainer" / "checkpoint-2"))
        for saved in kept:
            for ours, theirs in zip(tempera.temperatures(saved), tempera.temperatures(model), strict=True):
                assert all(torch.allclose(a, b, atol=1e-4, rtol=1e-3) for a, b in zip(ours.numbers(), theirs.numbers(), strict=True)), name


def test_what_wraps_a_model_is_seen_through(tmp_path):
    """As accelerate, DeepSpeed and torch.compile leave it to those who trained it."""
    model = models.stir(tempera.apply(models.make("llama"), "head,value"))

    class Engine(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.module = torch.compile(model)

    wrapped = Engine()
    model.model.layers[0] = torch.compile(model.model.layers[0])  # as accelerate compiles, a layer at a time
    assert tempera.describe(wrapped) == tempera.describe(model)
    tempera.save(wrapped, tmp_path / "temps")
    ids = models.tokens()
    expected = models.stir(tempera.apply(models.make("llama"), "head,value"))(ids).logits
    assert torch.equal(tempera.load(models.make("llama"), tmp_path / "temps")(ids).logits, expected)
    assert torch.allclose(tempera.fold(wrapped)(ids).logits, expected, atol=1e-5)
    with pytest.raises(ValueError, match="has no temperature to save"):
        tempera.save(torch.compile(models.make("llama")), tmp_path / "none")


def test_a_part_of_the_numbers_is_not_saved(tmp_path):
    model = tempera.apply(models.make("llama"), "ssa")
    number = tempera.temperatures(model)[1].q_w
    number.data = number.data[:2]
    with pytest.raises(ValueError, match=r"shape \(2, 8\) here and \(4, 8\) as a whole"):
        tempera.save(model, tmp_path / "temps")
    assert not list(tmp_path.iterdir())
