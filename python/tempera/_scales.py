"""The methods' formulas: the program's own, as one operator with gradients that torch.compile and torch.export take."""

import functools
import json
from typing import Any, NamedTuple, Optional

import torch
from torch import Tensor

from . import _library
from ._operators import Recipe

_PARTS = ("rows", "w", "g", "c", "s")
_SIDES = ("q", "k", "v")
_STATE = len(_PARTS) * len(_SIDES)


class Rows(NamedTuple):
    """What the mask says of the rows of a pass, (B, T) each: keys in sight, position in the document (-1: padding), token ids."""

    n: Tensor
    position: Tensor
    tokens: Optional[Tensor] = None


class Source(NamedTuple):
    """Of a cross-attention, what the keys are made of."""

    x: Tensor  # (B, keys, width)
    rows: Rows


class Scale(NamedTuple):
    """The scale of one operand's rows: finished rows (B, heads, T) times a recipe, each optional."""

    rows: Optional[Tensor]
    recipe: Optional[Recipe]

    def values(self, operand: Tensor, n: Tensor) -> Tensor:
        """(B, heads, T), of the raw projection (B, heads, T, size)."""
        computed = None if self.recipe is None else self.recipe.rows(operand, n)
        if self.rows is None or computed is None:
            return self.rows if computed is None else computed  # type: ignore[return-value]
        return self.rows * computed


class Scales(NamedTuple):
    """The scales of queries, keys and values (None: 1), and what the method keeps of each row, (B, T, width)."""

    q: Optional[Scale]
    k: Optional[Scale]
    v: Optional[Scale]
    state: Optional[Tensor]


@functools.lru_cache(maxsize=None)
def facts(description: str) -> dict[str, Any]:
    """What the program says of a method in a layer: names of its numbers, width of its state, the parts it returns."""
    text, _ = _library.ask("method", description)
    return {**json.loads(text), "shape": json.loads(description)["shape"]}


def starts(description: str) -> list[Tensor]:
    return list(_library.ask("method", description)[1])


def _fake_result(place: int, x: Tensor, keys: list[Tensor], known: dict[str, Any]) -> Tensor:
    shape, (batch, rows) = known["shape"], x.shape[:2]
    dtype = torch.float64 if x.dtype == torch.float64 else torch.float32
    if place not in known["results"]:
        return x.new_empty(0)
    if place == _STATE:
        return x.new_empty(batch, rows, known["state_width"], dtype=torch.float64)
    side, part = divmod(place, len(_PARTS))
    if side > 0 and keys:
        rows = keys[0].shape[1]
    heads = shape["heads"] if side == 0 else shape["kv_heads"]
    if part == 0:
        return x.new_empty(batch, heads, rows, dtype=dtype)
    size = shape["v_size"] if side == 2 else shape["qk_size"]
    return x.new_empty((heads, size) if part == 1 else (heads,), dtype=dtype)


def _fake_scales(numbers: list[Tensor], x: Tensor, n: Tensor, position: Tensor, tokens: Optional[Tensor], past: Optional[Tensor],
                 keys: list[Tensor], method: str) -> list[Tensor]:
    known = facts(method)
    return [_fake_result(place, x, keys, known) for place in range(_STATE + 1)]


def _fake_gradients(gradients: list[Tensor], numbers: list[Tensor], x: Tensor, n: Tensor, position: Tensor, tokens: Optional[Tensor],
                    past: Optional[Tensor], keys: list[Tensor], method: str) -> list[Tensor]:
    return [torch.empty_like(tensor, memory_format=torch.contiguous_format) for tensor in (*numbers, x, *keys[:1])]


def _keep(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    numbers, x, n, position, tokens, past, keys, method = inputs
    ctx.method, ctx.count, ctx.has_tokens, ctx.has_past = method, len(numbers), tokens is not None, past is not None
    ctx.save_for_backward(*numbers, x, n, position, *(t for t in (tokens, past) if t is not None), *keys)
    ctx.mark_non_differentiable(output[_STATE])


def _gradients(ctx: Any, gradients: list[Optional[Tensor]]) -> tuple[Any, ...]:
    saved = list(ctx.saved_tensors)
    numbers, (x, n, position), rest = saved[:ctx.count], saved[ctx.count:ctx.count + 3], saved[ctx.count + 3:]
    tokens = rest.pop(0) if ctx.has_tokens else None
    past = rest.pop(0) if ctx.has_past else None
    given = [x.new_empty(0) if gradient is None else gradient.contiguous() for gradient in gradients]
    found = torch.ops.tempera.row_scales_backward(given, numbers, x, n, position, tokens, past, rest, ctx.method)
    of_keys = [found[ctx.count + 1], None, None] if rest else []
    return found[:ctx.count], found[ctx.count], None, None, None, None, of_keys, None


torch.library.register_fake("tempera::row_scales", _fake_scales)
torch.library.register_fake("tempera::row_scales_backward", _fake_gradients)
torch.library.register_autograd("tempera::row_scales", _gradients, setup_context=_keep)


def row_scales(description: str, known: dict[str, Any], numbers: list[Tensor], x: Tensor, rows: Rows,
               past: Optional[Tensor] = None, source: Optional[Source] = None) -> Scales:
    """The scales of a method in a layer, from the layer's input x (B, T, width) and the method's numbers; known: its facts()."""
    keys = [] if source is None else [source.x, source.rows.n, source.rows.position]
    tokens = rows.tokens if known["reads_tokens"] else None
    results = torch.ops.tempera.row_scales(numbers, x, rows.n, rows.position, tokens, past, keys, description)
    present = set(known["results"])
    sides: list[Optional[Scale]] = []
    for side in range(len(_SIDES)):
        first = side * len(_PARTS)
        parts = {name: results[first + part] if first + part in present else None for part, name in enumerate(_PARTS)}
        finished = parts.pop("rows")
        recipe = Recipe(**parts) if any(part is not None for part in parts.values()) else None
        sides.append(None if finished is None and recipe is None else Scale(finished, recipe))
    q, k, v = sides
    return Scales(q, k, v, results[_STATE] if _STATE in present else None)


class Temperature(torch.nn.Module):
    """The numbers of one layer's temperature, and what they make of its input. Named as in the program's checkpoints."""

    def __init__(self, description: str) -> None:
        super().__init__()
        self.description = description
        self.known = known = facts(description)
        self._paths = [name.split(".") for name in known["names"]]
        for index, (path, start) in enumerate(zip(self._paths, starts(description))):
            owner: torch.nn.Module = self
            for name in path[:-1]:
                if name not in owner._modules:
                    owner.add_module(name, torch.nn.Module())
                owner = owner._modules[name]  # type: ignore[assignment]
            if index < known["parameters"]:
                owner.register_parameter(path[-1], torch.nn.Parameter(start))
            else:
                owner.register_buffer(path[-1], start)
        self.state_width: int = known["state_width"]
        self.keeps_state = self.state_width > 0
        self.crosses: bool = known["shape"]["kind"] == "cross"
        self.window: Optional[int] = None
        self.pending: Any = None  # of the pass through this layer that is under way

    def numbers(self) -> list[Tensor]:
        found = []
        for path in self._paths:
            owner: Any = self
            for name in path:
                owner = getattr(owner, name)
            found.append(owner)
        return found

    def forward(self, x: Tensor, rows: Rows, past: Optional[Tensor] = None, source: Optional[Source] = None) -> Scales:
        if self.window is not None:
            rows = rows._replace(n=rows.n.clamp_max(self.window))
        return row_scales(self.description, self.known, self.numbers(), x, rows, past, source)

    def extra_repr(self) -> str:
        return str(json.loads(self.description)["temperature"]["method"])
