"""The methods in Python: the program's formulas as an operator that autograd, torch.compile and torch.export take."""

import json

import pytest
import torch

pytest.importorskip("transformers")
try:
    import python_models as models
    import tempera
except ImportError as error:
    pytest.skip(f"libtempera_torch.so is missing: {error}", allow_module_level=True)
from tempera._library import ask_json
from tempera._scales import Rows, Source, Temperature, row_scales

B, T, WIDTH, HEADS, KV, SIZE = 2, 9, 16, 4, 2, 8
SHAPE = {"layers": 2, "layer": 0, "width": WIDTH, "heads": HEADS, "kv_heads": KV, "qk_size": SIZE, "v_size": SIZE, "vocabulary": 20,
         "trained_length": 4, "kind": "causal"}
NAMES = [method["name"] for method in tempera.methods()]
# Every method, and the forms that compute something else.
CASES = [(name, {}) for name in NAMES] + [
    ("ssa", {"f": "mlp", "k": True}), ("ssa", {"f": "feature"}), ("ssa", {"g": "sigmoid"}), ("ssa", {"g": "expexp"}),
    ("focal-learned", {"axis": "token"}), ("head,value", {}), ("ssmax,ssa", {}), ("head,focal-learned", {})]
IDS = [name + "".join(f"-{key}={value}" for key, value in options.items()) for name, options in CASES]
every = pytest.mark.parametrize("method, options", CASES, ids=IDS)


def description(method, options, kind="causal"):
    temperature = ask_json("temperature", json.dumps({"method": method, **options}))
    return json.dumps({"temperature": temperature, "shape": {**SHAPE, "kind": kind}})


def made(method, options, dtype=torch.float64, kind="causal"):
    """A temperature whose numbers are away from their start."""
    temperature = Temperature(description(method, options, kind)).to(dtype)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for number in temperature.numbers():
            number.add_(0.2 * torch.randn(number.shape, generator=generator, dtype=torch.float64).to(number.dtype))
    return temperature


def inputs(dtype=torch.float64):
    x = torch.randn(B, T, WIDTH, generator=torch.Generator().manual_seed(2), dtype=torch.float64).to(dtype)
    position = torch.arange(T).expand(B, T)
    return x, Rows(position + 1, position, torch.arange(B * T).view(B, T) % 20)


def source(dtype=torch.float64, length=5):
    """What the keys of a cross-attention are made of."""
    x = torch.randn(B, length, WIDTH, generator=torch.Generator().manual_seed(5), dtype=torch.float64).to(dtype)
    return Source(x, Rows(torch.full((B, length), length), torch.arange(length).expand(B, length)))


def operands(temperature, x, rows, of=None):
    past = torch.zeros(B, temperature.state_width, dtype=torch.float64) if temperature.keeps_state else None
    keys = [] if of is None else [of.x, of.rows.n, of.rows.position]
    return temperature.numbers(), x, rows.n, rows.position, rows.tokens, past, keys, temperature.description


def finished(scales, q, n):
    return [scale.values(q[:, :heads], n) for scale, heads in zip(scales[:3], (HEADS, KV, KV)) if scale is not None]


def test_all_methods_of_the_program_are_there():
    assert NAMES[:4] == ["softmax", "focal", "focal-learned", "ssa"] and len(set(NAMES)) == len(NAMES) > 10
    ssa = next(method for method in tempera.methods() if method["name"] == "ssa")
    assert {"name": "f", "default": "shared"}.items() <= next(o for o in ssa["options"] if o["name"] == "f").items()


# torch refuses results that are arguments where CI=true, and only warns of them elsewhere.
pytestmark = pytest.mark.filterwarnings("error:[\\s\\S]*may not alias any inputs")


def opcheck(temperature, x, rows, of=None):
    """Of the operator and of its backward pass, whose results must not be its arguments: compilers use their memory again."""
    torch.library.opcheck(torch.ops.tempera.row_scales.default, operands(temperature, x.requires_grad_(), rows, of))
    temperature, x, of = temperature.requires_grad_(False), x.detach(), of and of._replace(x=of.x.detach())
    arguments = operands(temperature, x, rows, of)
    gradients = [torch.ones_like(result) for result in torch.ops.tempera.row_scales(*arguments)]
    torch.library.opcheck(torch.ops.tempera.row_scales_backward.default, (gradients, *arguments))


@every
def test_opcheck(method, options):
    opcheck(made(method, options, torch.float32), *inputs(torch.float32))


@every
def test_gradients(method, options):
    temperature = made(method, options)
    x, rows = inputs()
    q = torch.randn(B, HEADS, T, SIZE, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    parameters = list(temperature.parameters())
    past = operands(temperature, x, rows)[5]

    def scales(x, *_):
        return tuple(finished(temperature(x, rows, past), q, rows.n))

    found = scales(x.requires_grad_(), *parameters)
    if found and any(value.requires_grad for value in found):
        assert torch.autograd.gradcheck(lambda *args: tuple(v for v in scales(*args) if v.requires_grad), (x, *parameters))


crossing = pytest.mark.parametrize("method, options", [case for case in CASES if case[1].get("f") != "feature"])


@crossing
def test_a_cross_attention_has_scales_for_the_rows_of_either_side(method, options):
    temperature = made(method, options, torch.float32, "cross")
    x, rows = inputs(torch.float32)
    of = source(torch.float32)
    opcheck(temperature, x, rows, of)
    past = operands(temperature, x, rows)[5]
    scales = temperature(x, rows, past, of)
    for scale, count in zip(scales[:3], (T, 5, 5)):
        assert scale is None or scale.rows is None or scale.rows.shape[2] == count
    # A cache that has the keys gets the same scales of queries without them.
    none = Source(of.x[:, :0], Rows(of.rows.n[:, :0], of.rows.position[:, :0]))
    again = temperature(x, rows, past, none)
    q = torch.randn(B, HEADS, T, SIZE, generator=torch.Generator().manual_seed(3))
    assert scales.q is None or torch.equal(scales.q.values(q, rows.n), again.q.values(q, rows.n))


@crossing
def test_gradients_of_a_cross_attention(method, options):
    temperature = made(method, options, kind="cross")
    x, rows = inputs()
    of = source()
    past = operands(temperature, x, rows)[5]
    q, k = (torch.randn(B, heads, length, SIZE, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
            for heads, length in ((HEADS, T), (KV, 5)))

    def values(x, keys, *_):
        scales = temperature(x, rows, past, Source(keys, of.rows))
        found = [scale.values(raw, n) for scale, raw, n in zip(scales[:3], (q, k, k), (rows.n, of.rows.n, of.rows.n)) if scale is not None]
        return tuple(value for value in found if value.requires_grad)

    leaves = (x.requires_grad_(), of.x.requires_grad_(), *temperature.parameters())
    if values(*leaves):
        assert torch.autograd.gradcheck(values, leaves)


def test_keys_are_refused_where_they_do_not_belong():
    x, rows = inputs()
    with pytest.raises(RuntimeError, match="cross-attention has rows of its own"):
        made("ssa", {})(x, rows, None, source())
    with pytest.raises(RuntimeError, match="cross-attention has rows of its own"):
        made("ssa", {}, kind="cross")(x, rows)
    with pytest.raises(ValueError, match="reads tokens"):
        made("ssa", {"f": "feature"}, kind="cross")


@every
def test_a_temperature_compiles_without_graph_breaks(method, options):
    torch._dynamo.reset()
    temperature = made(method, options, torch.float32)
    x, rows = inputs(torch.float32)
    q = torch.randn(B, HEADS, T, SIZE, generator=torch.Generator().manual_seed(3))
    past = operands(temperature, x, rows)[5]

    def total(x, q, rows):
        parts = finished(temperature(x, rows, past), q, rows.n)
        return sum((part.sum() for part in parts), x.sum())

    assert torch.allclose(torch.compile(total, fullgraph=True, backend="aot_eager")(x, q, rows), total(x, q, rows))


def test_the_recipe_is_the_kernels():
    generator = torch.Generator().manual_seed(4)
    make = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)
    q, k, v = make(B, HEADS, T, SIZE), make(B, KV, T, SIZE), make(B, KV, T, SIZE)
    recipe = tempera.Recipe(w=make(HEADS, SIZE), g=make(HEADS), c=make(HEADS), s=make(HEADS))
    n = torch.arange(1, T + 1).expand(B, T)
    inside = tempera.attention(q, k, v, causal=True, q_recipe=recipe)
    outside = tempera.attention(q, k, v, causal=True, a_q=recipe.rows(q, n))
    assert torch.allclose(inside, outside, atol=1e-12)


def test_numbers_of_another_shape_are_refused():
    temperature = made("head", {})
    x, rows = inputs()
    with pytest.raises(RuntimeError, match="another model"):
        row_scales(temperature.description, temperature.known, [torch.zeros(3)], x, rows)


def test_a_product_reads_the_rows_of_either_side():
    x, rows = inputs()
    q = torch.randn(B, HEADS, T, SIZE, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    one, other = made("ssmax,ssa", {"bias": True}), made("ssa,ssmax", {"bias": True})
    for path, number in zip(one._paths, one.numbers()):
        with torch.no_grad():
            dict(zip(map(tuple, other._paths), other.numbers()))[tuple(path)].copy_(number)
    for a, b in zip(finished(one(x, rows), q, rows.n), finished(other(x, rows), q, rows.n)):
        assert torch.allclose(a, b, atol=1e-12)
