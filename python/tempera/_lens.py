"""Looks at a model's attentions without a matrix of all pairs."""

import contextlib
import dataclasses
import math
from typing import Any, Iterator, Optional, Sequence, Union

import torch
from torch import Tensor, nn

from . import _attention


@dataclasses.dataclass(frozen=True)
class LayerView:
    """One attention layer, of one text. Rows that see no key have entropy 0 and maximum -inf."""

    module: str
    entropy: Tensor            # (heads, T): of a row's weights, in nats; its exponential is the effective number of keys
    max_logit: Tensor          # (heads, T)
    a_q: Optional[Tensor]      # (heads, T): inverse temperatures of the queries; None: 1
    a_k: Optional[Tensor]      # (KV heads, T)
    a_v: Optional[Tensor]      # (KV heads, T): scales of the values
    weights: Tensor            # (heads, pairs): the attention of the chosen pairs' rows on their keys


@dataclasses.dataclass(frozen=True)
class View:
    """What `lens` saw."""

    tokens: list[int]
    pieces: Optional[list[str]]
    pairs: list[tuple[int, int]]
    layers: list[LayerView]


@contextlib.contextmanager
def _with_our_attention(model: Any) -> Iterator[None]:
    before, training = model.config._attn_implementation, model.training
    model.set_attn_implementation("tempera")
    model.eval()
    try:
        yield
    finally:
        model.set_attn_implementation(before)
        model.train(training)


def _scales(seen: dict[str, Any]) -> dict[str, Optional[Tensor]]:
    pending = seen["pending"]
    found: dict[str, Optional[Tensor]] = {"q": None, "k": None, "v": None}
    for side in found if pending is not None else ():
        if getattr(pending.scales, side) is not None:
            found[side] = pending.values(side, getattr(pending, f"{side}_raw")).detach()[0]
    return found


def _weights(seen: dict[str, Any], scales: dict[str, Optional[Tensor]], pairs: Sequence[tuple[int, int]]) -> Tensor:
    """(heads, pairs), from q, k and the row's normaliser."""
    words: dict[str, Any] = seen["words"]
    q: Tensor = seen["q"][0].float()
    k: Tensor = seen["k"][0].float()
    lse: Tensor = seen["results"][1][0]
    if not pairs:
        return lse.new_empty(q.shape[0], 0)
    if lse.dim() != 2:
        raise ValueError(f"attention weights are read from the rows' normaliser, which the operator does not give on {q.device.type}; "
                         "move the model to the CPU, or ask for no pairs")
    rows, keys = (torch.tensor(side, device=q.device) for side in zip(*pairs))
    group = q.shape[0] // k.shape[0]
    logit = (q[:, rows] * k[:, keys].repeat_interleave(group, 0)).sum(-1)
    logit = logit * (words["scale"] if words["scale"] is not None else 1 / math.sqrt(q.shape[-1]))
    if scales["q"] is not None:
        logit = logit * scales["q"][:, rows]
    if scales["k"] is not None:
        logit = logit * scales["k"][:, keys].repeat_interleave(group, 0)
    if words.get("bias") is not None:
        logit = logit + words["bias"].expand(1, q.shape[0], -1, -1)[0][:, rows, keys]
    if words["cap"]:
        logit = words["cap"] * torch.tanh(logit / words["cap"])
    weights = torch.exp(logit - lse[:, rows])
    distance = rows - keys
    outside = torch.zeros_like(distance, dtype=torch.bool)
    if words.get("causal"):
        outside |= distance < 0
    if words.get("window") is not None:
        outside |= distance.abs() >= words["window"]
    return weights.masked_fill(outside, 0.0)


def lens(model: Any, text: Union[str, Sequence[int], Tensor], *, tokenizer: Any = None, pairs: Sequence[tuple[int, int]] = ()) -> View:
    """Runs a model of transformers over a text and tells what each attention did, in memory linear in the text's length.

    model: with or without a temperature. text: a string, for which `tokenizer` or that of model.name_or_path is taken, or token ids.
    pairs: (row, key) whose attention weights are wanted.

    >>> view = tempera.lens(tempera.apply(small_model(), "ssmax"), [5, 6, 7, 8], pairs=[(3, 0)])
    >>> tuple(view.layers[0].entropy.shape), tuple(view.layers[0].weights.shape)
    ((4, 4), (4, 1))
    """
    if model.config.is_encoder_decoder:
        raise ValueError("tempera.lens looks at models that read one text; this one reads a source and writes a target")
    pieces = None
    if isinstance(text, str):
        if tokenizer is None:
            from transformers import AutoTokenizer
            tokenizer = AutoTokenizer.from_pretrained(model.name_or_path)
        ids = tokenizer(text)["input_ids"]
    else:
        ids = [int(token) for token in torch.as_tensor(text).flatten()]
    if not ids:
        raise ValueError("the text has no tokens; give at least one")
    for row, key in pairs:
        if not (0 <= row < len(ids) and 0 <= key < len(ids)):
            raise ValueError(f"the pair ({row}, {key}) is outside the text, which has {len(ids)} tokens")
    if tokenizer is not None:
        pieces = tokenizer.convert_ids_to_tokens(ids)
    names = {module: name for name, module in model.named_modules()}
    layers: list[LayerView] = []

    def observe(module: nn.Module, seen: dict[str, Any]) -> None:
        scales = _scales(seen)
        _, _, largest, entropy, _ = seen["results"][:5]
        layers.append(LayerView(names[module], entropy[0], largest[0], scales["q"], scales["k"], scales["v"],
                                _weights(seen, scales, list(pairs))))

    batch = torch.tensor([ids], device=model.device)
    options = {"use_cache": False} if hasattr(model.config, "use_cache") else {}
    with _with_our_attention(model), torch.no_grad(), _attention.observed(observe):
        model.base_model(batch, **options)
    return View(ids, pieces, list(pairs), layers)
