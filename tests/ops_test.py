"""The operators as PyTorch sees them: opcheck, gradcheck in double precision, and plain torch as a second opinion."""

import math
import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))
try:
    import tempera
except ImportError as error:
    pytest.skip(f"libtempera_torch.so is missing: {error}", allow_module_level=True)

B, H, HKV, T, D, DV = 2, 4, 2, 7, 8, 6


def numbers(*sizes, seed=0, dtype=torch.float64, grad=True):
    generator = torch.Generator().manual_seed(seed + 1000 * len(sizes) + sum(sizes))
    tensor = torch.randn(*sizes, generator=generator, dtype=torch.float64).to(dtype)
    return tensor.requires_grad_(grad)


def operands(dtype=torch.float64, rows=T, keys=T, size=D, value=DV, grad=True):
    make = lambda *sizes, seed: numbers(*sizes, seed=seed, dtype=dtype, grad=grad)
    return make(B, H, rows, size, seed=1), make(B, HKV, keys, size, seed=2), make(B, HKV, keys, value, seed=3)


def recipe(prefix, heads, size, source=None):
    named = {"w": numbers(heads, size, seed=4), "g": numbers(heads, seed=5), "c": numbers(heads, seed=6),
             "s": numbers(heads, seed=7)}
    if source is not None:
        named["source"] = source
    return {f"{prefix}_{name}": tensor for name, tensor in named.items()}


CASES = {
    "plain": {},
    "causal": dict(causal=True),
    "scales": dict(causal=True, a_q=numbers(B, H, T), a_k=numbers(1, HKV, T), a_v=numbers(HKV, 1)),
    "recipes": dict(causal=True, **recipe("q", H, 5, numbers(B, H, T, 5)), **recipe("k", HKV, D),
                    **recipe("v", HKV, DV)),
    "recipe and scale": dict(a_q=numbers(B, H, T), **recipe("q", H, D)),
    "bias": dict(bias=numbers(1, H, T, T)),
    "bias of a sequence": dict(bias=numbers(B, 1, T, T), causal=True),
    "sinks": dict(sinks=numbers(H), causal=True),
    "post": dict(post=numbers(B, H, T), causal=True),
    "cap": dict(cap=1.5, post=numbers(1, 1, T), bias=numbers(1, 1, T, T)),
    "documents": dict(causal=True, documents=torch.tensor([[3, 4, 0], [1, 5, 1]]), **recipe("v", HKV, DV)),
    "window": dict(causal=True, window=3, a_q=numbers(B, H, T), **recipe("q", H, D)),
    "window of both sides": dict(window=2),
    "padding": dict(key_start=torch.tensor([2, 0]), key_end=torch.tensor([7, 4]), causal=True, sinks=numbers(H),
                    **recipe("q", H, D)),
    "dropout": dict(dropout=0.3, seed=11, causal=True, a_v=numbers(B, HKV, T)),
    "scale": dict(scale=0.7, window=4),
}


def flat(q, k, v, options):
    """The differentiable inputs as a list, and the operator as a function of them."""
    names = [name for name, value in options.items() if isinstance(value, torch.Tensor) and value.is_floating_point()]
    tensors = [q, k, v, *(options[name] for name in names)]

    def call(*inputs):
        given = {**options, **dict(zip(names, inputs[3:]))}
        return torch.ops.tempera.attention(*inputs[:3], **given)

    return tensors, call


def visible(options, rows, keys):
    """(B, 1, rows, keys) booleans, written out pair by pair."""
    offset = options.get("query_offset", keys - rows if options.get("causal") else 0)
    start = options.get("key_start", torch.zeros(B, dtype=torch.long))
    end = options.get("key_end", torch.full((B,), keys))
    seen = torch.zeros(B, 1, rows, keys, dtype=torch.bool)
    for b in range(B):
        lengths = options["documents"][b] if "documents" in options else torch.tensor([keys])
        document = torch.repeat_interleave(torch.arange(len(lengths)), lengths)
        for i in range(rows):
            for j in range(keys):
                position = offset + i
                seen[b, 0, i, j] = (start[b] <= j < end[b]
                                    and ("documents" not in options or document[i] == document[j])
                                    and (not options.get("causal") or j <= position)
                                    and abs(position - j) < options.get("window", math.inf))
    return seen


def scale_of(options, name, operand, log_n):
    given = {part: options.get(f"{name}_{part}") for part in ("source", "w", "g", "c", "s")}
    a = options.get(f"a_{name}", torch.tensor(1.0, dtype=operand.dtype))
    if given["w"] is None:
        return a
    source = operand if given["source"] is None else given["source"]
    head = lambda part: given[part][None, :, None]
    token = torch.tanh(torch.einsum("bhtd,hd->bht", torch.nn.functional.gelu(source), given["w"]))
    return a * head("s") * (head("c") + token + head("g") * log_n[:, None, :])


def composed(q, k, v, options):
    """out and lse in plain torch, with the matrix written out; no dropout."""
    seen = visible(options, q.shape[2], k.shape[2])
    log_n = seen.sum(-1).clamp_min(1)[:, 0].to(q.dtype).log()
    q = q * scale_of(options, "q", q, log_n)[..., None]
    k = k * scale_of(options, "k", k, log_n)[..., None]
    v = v * scale_of(options, "v", v, log_n)[..., None]
    k, v = (tensor.repeat_interleave(H // HKV, 1) for tensor in (k, v))
    logits = q @ k.transpose(2, 3) * options.get("scale", 1 / math.sqrt(q.shape[3])) + options.get("bias", 0)
    if options.get("cap"):
        logits = options["cap"] * torch.tanh(logits / options["cap"])
    logits = logits * options.get("post", torch.ones((), dtype=q.dtype))[..., None]
    logits = logits.masked_fill(~seen, -1e300)
    lse = logits.logsumexp(-1)
    weights = torch.exp(logits - lse[..., None]) * seen
    if "sinks" in options:
        weights = weights * torch.sigmoid(lse - options["sinks"][None, :, None])[..., None]
    return weights @ v, lse.masked_fill(~seen.any(-1), -math.inf)


@pytest.mark.parametrize("name", CASES)
def test_gradcheck(name):
    tensors, call = flat(*operands(), CASES[name])

    def differentiable(*inputs):
        out, lse, *_ = call(*inputs)
        return out, lse.masked_fill(lse.isinf(), 0)

    assert torch.autograd.gradcheck(differentiable, tensors, fast_mode=True)


@pytest.mark.parametrize("name", [name for name in CASES if name != "dropout"])
def test_agrees_with_plain_torch(name):
    options = CASES[name]
    tensors, call = flat(*operands(), options)
    out, lse, *_ = call(*tensors)
    expected, expected_lse = composed(*tensors[:3], options)
    torch.testing.assert_close(out, expected, rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(lse, expected_lse, rtol=1e-9, atol=1e-11)
    weight = torch.randn_like(out)
    given = torch.autograd.grad((out * weight).sum(), tensors)
    wanted = torch.autograd.grad((expected * weight).sum(), tensors)
    for ours, theirs in zip(given, wanted):
        torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("dtype, tolerance", [(torch.float32, 2e-4), (torch.bfloat16, 3e-2)])
@pytest.mark.parametrize("name", [name for name in CASES if name not in ("dropout", "recipes", "recipe and scale")])
def test_fast_kernels_agree_with_plain_torch(name, dtype, tolerance):
    q, k, v = operands(dtype, size=16, value=24, grad=False)
    rng = torch.Generator().manual_seed(1)
    options = dict(CASES[name])
    for key in [key for key in options if key.endswith("_w")]:
        size = 16 if key != "v_w" else 24
        options[key] = torch.randn(options[key].shape[0], size, generator=rng, dtype=torch.float64)
    out = torch.ops.tempera.attention(q, k, v, **options)[0]
    expected, _ = composed(q.double(), k.double(), v.double(), options)
    assert out.dtype == dtype
    assert (out.double() - expected).abs().max() <= tolerance * max(1, expected.abs().max())


@pytest.mark.parametrize("name", CASES)
def test_opcheck(name):
    torch.library.opcheck(torch.ops.tempera.attention.default, operands(), CASES[name])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_opcheck_of_the_fast_kernels(dtype):
    q, k, v = operands(dtype, size=16, value=24)
    options = dict(CASES["recipes"], q_source=numbers(B, H, T, 5, dtype=dtype), k_w=numbers(HKV, 16),
                   v_w=numbers(HKV, 24), bias=numbers(1, H, T, T), sinks=numbers(H, dtype=dtype), cap=2.0)
    torch.library.opcheck(torch.ops.tempera.attention.default, (q, k, v), options)


def test_opcheck_with_every_output_and_without_gradients():
    q, k, v = operands(torch.float32, size=16, value=16, grad=False)
    wants = dict(want_max=True, want_entropy=True, want_head_max=True)
    torch.library.opcheck(torch.ops.tempera.attention.default, (q, k, v), wants)
    strided = q.transpose(1, 2).contiguous().transpose(1, 2)
    torch.library.opcheck(torch.ops.tempera.attention.default, (strided.requires_grad_(), k, v), wants)


def test_opcheck_of_the_backward_operator():
    q, k, v = operands(torch.float32, size=16, value=16, grad=False)
    a_q = numbers(1, H, 1, dtype=torch.float64, grad=False)
    out, lse, *_ = torch.ops.tempera.attention(q, k, v, a_q=a_q)
    wanted = [True, False, True, True] + [False] * 20
    torch.library.opcheck(torch.ops.tempera.attention_backward.default, (torch.ones_like(out), None, out, lse, q, k, v),
                          dict(a_q=a_q, wanted=wanted))


def test_opcheck_of_decode():
    q, k, v = operands(torch.float64, rows=2, keys=12, grad=False)
    lengths = torch.tensor([12, 5], dtype=torch.int32)
    torch.library.opcheck(torch.ops.tempera.decode.default, (q, k, v, lengths), dict(window=4, want_entropy=True))


def test_second_derivatives_are_refused():
    q, k, v = operands()
    gradient, = torch.autograd.grad(torch.ops.tempera.attention(q, k, v)[0].sum(), q, create_graph=True)
    with pytest.raises(RuntimeError, match="not implemented"):
        gradient.sum().backward()


def test_compiles():
    q, k, v = operands(torch.float32, size=16, value=16)
    compiled = torch.compile(lambda q, k, v: tempera.attention(q * 2, k, v, causal=True) + 1, backend="aot_eager",
                             fullgraph=True)
    torch.testing.assert_close(compiled(q, k, v), tempera.attention(q * 2, k, v, causal=True) + 1)
    compiled(q, k, v).sum().backward()
    assert q.grad is not None


def test_package():
    q, k, v = operands()
    own = tempera.Recipe(source=q, w=numbers(H, D), c=torch.ones(H))
    result = tempera.attention(q, k, v, q_recipe=own, want=("lse", "entropy"))
    assert result.max is None and result.head_max is None
    assert result.lse.shape == result.entropy.shape == (B, H, T)
    named = torch.ops.tempera.attention(q, k, v, q_source=q.clone(), q_w=own.w, q_c=own.c)
    torch.testing.assert_close(result.out, named[0])
    given, = torch.autograd.grad(result.out.square().sum(), q)
    expected, = torch.autograd.grad(named[0].square().sum(), q)
    torch.testing.assert_close(given, expected)
    with pytest.raises(ValueError, match="want"):
        tempera.attention(q, k, v, want=("mean",))
    with pytest.raises(RuntimeError, match="window: 0 given"):
        tempera.attention(q, k, v, window=0)
