"""Temperatures for models of transformers: apply, save, load and fold."""

import contextlib
import copy
import inspect
import itertools
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any, ContextManager, Iterable, Optional, Union

import torch
from torch import Tensor, nn

from . import _library
from ._hooks import Parts, install, model_hook
from ._scales import Temperature, starts

_NUMBERS = "temperature.safetensors"
_DESCRIPTION = "temperature.json"
_PREFIX = "Tempera"
_CLASSES: dict[type, type] = {}


def methods() -> list[dict[str, Any]]:
    """The temperature methods: name, formula, help, what each folds into, and its options.

    >>> [method["name"] for method in tempera.methods()][:4]
    ['softmax', 'focal', 'focal-learned', 'ssa']
    """
    found: list[dict[str, Any]] = _library.ask_json("methods")
    return found


class TemperatureModel:
    """What a model with a temperature can do beside what its own class does."""

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _blank, (model_class, type(self)._tempera_base), self.__getstate__()  # type: ignore[attr-defined]

    def print_trainable_parameters(self) -> None:
        """Prints how many numbers are trained, of how many."""
        parameters = list(self.parameters())  # type: ignore[attr-defined]
        trained = sum(parameter.numel() for parameter in parameters if parameter.requires_grad)
        total = sum(parameter.numel() for parameter in parameters)
        print(f"trainable params: {trained:,} || all params: {total:,} || trainable%: {100 * trained / total:.4f}")

    def set_token_counts(self, counts: Tensor) -> None:
        """How often each token occurs in the corpus, (vocabulary); a method that reads it (ssa with f="feature") needs it."""
        for temperature in temperatures(self):  # type: ignore[arg-type]
            numbers = _library.ask("count_tokens", temperature.description, counts.cpu())
            for number, new in zip(temperature.numbers(), numbers):
                if not isinstance(number, nn.Parameter):
                    number.copy_(new)

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: Any = None, *args: Any, config: Any = None, **kwargs: Any) -> Any:
        """As the model's own class; a folder that the program wrote in its own form is read through the program's reader."""
        weights = getattr(config, "tempera_weights", None)
        if weights is None:
            return super().from_pretrained(pretrained_model_name_or_path, *args, config=config, **kwargs)  # type: ignore[misc]
        config.tempera_weights = None
        model = super().from_pretrained(None, *args, config=config, state_dict=weights, **kwargs)  # type: ignore[misc]
        model.name_or_path = str(pretrained_model_name_or_path)
        return model


def _blank(make: Any, base: type) -> Any:
    """For pickle: an object of a class that has no name in a module, still without its members."""
    made = make(base)
    return made.__new__(made)


def model_class(base: type) -> type:
    """The class of models of a class of transformers that have a temperature."""
    if issubclass(base, TemperatureModel):
        return base
    if base not in _CLASSES:
        def __init__(self: Any, config: Any, *args: Any, **kwargs: Any) -> None:
            base.__init__(self, config, *args, **kwargs)  # type: ignore[call-arg]
            # A model inside of another may have it from a constructor of its own.
            if getattr(config, "tempera", None) is not None and not temperatures(self):
                _install(self, config.tempera)

        # transformers goes by the class's name where files name tensors otherwise than modules do: it stays.
        _CLASSES[base] = type(base.__name__, (TemperatureModel, base), {
            "__init__": __init__, "__module__": base.__module__, "__qualname__": _PREFIX + base.__name__, "_tempera_base": base,
            "_keep_in_fp32_modules_strict": {*(getattr(base, "_keep_in_fp32_modules_strict", None) or ()), "temperature"}})
    return _CLASSES[base]


def config_class(base: type) -> type:
    """The class of configurations of models with a temperature; written, they say so."""
    if getattr(base, "_tempera_base", None) is not None:
        return base
    if base not in _CLASSES:
        _CLASSES[base] = type(_PREFIX + base.__name__, (base,), {
            "to_json_string": _config_text, "__reduce_ex__": _reduce_config, "__module__": __name__, "_tempera_base": base,
            "tempera": None, "tempera_weights": None})
    return _CLASSES[base]


def _reduce_config(self: Any, protocol: Any) -> Any:
    return _blank, (config_class, type(self)._tempera_base), self.__getstate__()


def base_config(config: Any) -> Any:
    """The configuration of the model without its temperature."""
    plain = copy.copy(config)
    plain.__class__ = getattr(type(config), "_tempera_base", type(config))
    for name in ("tempera", "tempera_weights"):
        plain.__dict__.pop(name, None)
    return plain


def _base_json(config: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(base_config(config).to_json_string(use_diff=True))
    return found


def _description(config: Any) -> dict[str, Any]:
    """The object `tempera` of config.json."""
    return {"version": _library.ask("version"), "base": _base_json(config), "temperature": config.tempera}


def _config_text(self: Any, use_diff: bool = True) -> str:
    # No other program runs it without its temperature: the type is our own.
    written = {"model_type": "tempera", "tempera": _description(self)}
    sizes = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "max_position_embeddings")
    written |= {name: getattr(self, name) for name in sizes if hasattr(self, name)}
    return json.dumps(written, indent=2, sort_keys=True) + "\n"


def _find(model: Any, name: str) -> nn.Module:
    """A module by its name in the family's files, which have that of the model with its head."""
    for candidate in (name, name.removeprefix(model.base_model_prefix + ".")):
        try:
            found: nn.Module = model.get_submodule(candidate)
            return found
        except AttributeError:
            continue
    raise ValueError(f"the model has no module {name}, which its family's files name")


def _planned(model: Any, temperature: dict[str, Any]) -> tuple[list[dict[str, Any]], list[Temperature]]:
    """The attentions of a model that get a temperature, in the program's words, and what each of them gets."""
    config = {**_base_json(model.config), "architectures": [type(model).__name__]}
    found = _library.ask_json("attentions", json.dumps(config), json.dumps(temperature))
    chosen = [layer for layer in found["attentions"] if layer["has_temperature"]]
    made = []
    for layer in chosen:
        # All layers have the same text where they have the same shape: what is compiled for one fits the others.
        scales = Temperature(json.dumps({"temperature": temperature, "shape": {**layer["shape"], "layer": 0}}))
        scales.window = layer["window"]
        made.append(scales)
    return chosen, made


def _install(model: Any, temperature: dict[str, Any]) -> None:
    chosen, made = _planned(model, temperature)
    attentions = [_find(model, layer["module"]) for layer in chosen]
    for layer, attention, scales in zip(chosen, attentions, made):
        # What quantised projections have may be no parameter, nor a buffer.
        like = next(itertools.chain(attention.parameters(), attention.buffers(), model.parameters()))
        if like.device.type != "meta":
            scales.to(like.device)
        shape = layer["shape"]
        install(attention, scales, Parts(tuple(layer["projections"]), layer["by_head"], layer["norms"] and tuple(layer["norms"]),
                                         shape["heads"], shape["kv_heads"], shape["qk_size"]))
    base: Any = model.base_model
    halves = [(base.encoder, False), (base.decoder, True)] if model.config.is_encoder_decoder else [
        (base, chosen[0]["shape"]["kind"] == "causal")]
    for half, causal in halves:
        names = list(inspect.signature(half.forward).parameters)
        half.register_forward_pre_hook(model_hook(names, causal), with_kwargs=True)


def _refuse_gguf(path: Union[str, os.PathLike[str]]) -> None:
    if os.fspath(path).endswith(".gguf"):
        raise ValueError(f"'{os.fspath(path)}' is a GGUF file, and a model of transformers is expected; `tempera export "
                         f"{os.fspath(path)} --out FOLDER` makes a folder for it, and tempera.calibrate takes the file as it is")


def temperatures(model: nn.Module) -> list[Temperature]:
    """The temperatures of a model's layers, in order.

    >>> [name for name, _ in tempera.temperatures(tempera.apply(small_model(), "ssmax"))[0].named_parameters()]
    ['slope', 'bias']
    """
    return [module for module in model.modules() if isinstance(module, Temperature)]


def _require_plain(model: Any, method: str) -> None:
    from transformers import PreTrainedModel

    if isinstance(model, (str, os.PathLike)):
        _refuse_gguf(model)
    if not isinstance(model, PreTrainedModel):
        raise TypeError(f"tempera.apply takes a model of transformers, such as AutoModelForCausalLM.from_pretrained gives; "
                        f"{type(model).__name__} was given")
    if isinstance(model, TemperatureModel):
        given = model.config.tempera["method"]
        raise ValueError(f"the model has the temperature '{given}' already; give a product such as '{given},{method}' to the model as it "
                         "was, or fold this one (tempera.fold)")


def apply(model: Any, method: str, *, layers: str = "all", freeze: bool = True, **options: Any) -> Any:
    """Gives a model of transformers a temperature, in place, and returns it.

    method: one of `tempera.methods()`, or a product such as "head,value". layers: "all", "4-" or "0-3,6". options: those of the
    method; their defaults are those of a model trained without it, with which most methods start as plain attention, to the bit.
    freeze: only the temperature's numbers keep requires_grad.

    >>> model = tempera.apply(small_model(), "head,value")
    >>> model.print_trainable_parameters()
    trainable params: 12 || all params: 21,676 || trainable%: 0.0554
    """
    _require_plain(model, method)
    temperature = _library.ask_json("temperature", json.dumps({"method": method, "layers": layers, **options}))
    base = type(model)
    _install(model, temperature)
    model.config.architectures = [base.__name__]
    model.config.__class__ = config_class(type(model.config))
    model.config.tempera = temperature
    model.__class__ = model_class(base)
    if freeze:
        own = {id(parameter) for scales in temperatures(model) for parameter in scales.parameters()}
        for parameter in model.parameters():
            parameter.requires_grad_(id(parameter) in own)
    return model


def _unwrapped(model: Any) -> Any:
    """The model in what DistributedDataParallel, DeepSpeed and torch.compile put around it."""
    while not isinstance(model, TemperatureModel):
        inner = getattr(model, "module", getattr(model, "_orig_mod", None))
        if not isinstance(inner, nn.Module):
            break
        model = inner
    return model


def _require(model: Any, what: str) -> Any:
    found = _unwrapped(model)
    if not isinstance(found, TemperatureModel):
        raise ValueError(f"the model has no temperature to {what}; tempera.apply gives it one")
    return found


def _state(model: Any) -> dict[str, Any]:
    """The model's tensors by the names that they have where none of its modules is compiled."""
    return {name.replace("_orig_mod.", ""): tensor for name, tensor in model.state_dict().items()}


def _numbers(model: Any) -> dict[str, Tensor]:
    """The temperatures' tensors, by the names of the model with its head."""
    is_base = model.base_model is model and not model.config.is_encoder_decoder  # the head of those is beside the two halves
    prefix = model.base_model_prefix + "." if is_base else ""
    return {prefix + name: tensor for name, tensor in _state(model).items() if ".temperature." in name}


def _gathered(parameters: Iterable[Tensor]) -> ContextManager[Any]:
    """While it lasts, parameters that DeepSpeed's ZeRO-3 shares out between ranks are whole (every rank calls it)."""
    shared = [parameter for parameter in parameters if hasattr(parameter, "ds_id")]
    if not shared:
        return contextlib.nullcontext()
    import deepspeed
    whole: ContextManager[Any] = deepspeed.zero.GatheredParameters(shared)
    return whole


def _whole(tensor: Tensor) -> Tensor:
    """A sharded tensor gathered (every rank calls it)."""
    tensor = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
    return tensor.detach().cpu().contiguous()


def _check_whole(scales: Temperature) -> None:
    for number, start in zip(scales.numbers(), starts(scales.description)):
        if number.shape != start.shape:
            raise ValueError(f"a temperature's numbers have the shape {tuple(number.shape)} here and {tuple(start.shape)} as a whole: this "
                             "rank has a part of them; gather them, or share the model by FSDP2 or ZeRO-3, whose parts are gathered here")


def save(model: Any, folder: Union[str, os.PathLike[str]]) -> None:
    """Writes the temperature alone: a few kilobytes that `tempera.load` puts on the model it was learned for.

    The folder must not be there: nothing is overwritten. Of a sharded model every rank calls it, and the first one writes.

    >>> tempera.save(tempera.apply(small_model(), "head"), folder / "temps")
    >>> sorted(file.name for file in (folder / "temps").iterdir())
    ['temperature.json', 'temperature.safetensors']
    """
    from safetensors.torch import save_file

    model = _require(model, "save")
    target = Path(folder)
    with _gathered(parameter for scales in temperatures(model) for parameter in scales.parameters()):
        for scales in temperatures(model):
            _check_whole(scales)
        tensors = {name: _whole(tensor).clone() for name, tensor in _numbers(model).items()}
    if torch.distributed.is_available() and torch.distributed.is_initialized() and torch.distributed.get_rank() != 0:
        return
    if target.exists():
        raise FileExistsError(f"'{target}' is there already, and nothing is overwritten; give a new folder")
    target.parent.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        save_file(tensors, str(part / _NUMBERS), metadata={"format": "pt"})
        (part / _DESCRIPTION).write_text(json.dumps(_description(model.config), indent=2, sort_keys=True) + "\n", encoding="utf-8")
        part.chmod(0o755)
        part.rename(target)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise


def load(model: Any, folder: Union[str, os.PathLike[str]], *, freeze: bool = True) -> Any:
    """Puts a temperature that `tempera.save` wrote on a model, in place, and returns it.

    model: one of transformers, or what AutoModelForCausalLM.from_pretrained takes.

    >>> tempera.save(tempera.apply(small_model(), "head"), folder / "head")
    >>> tempera.describe(tempera.load(small_model(), folder / "head"))["method"]
    'head'
    """
    from safetensors.torch import load_file

    source = Path(folder)
    if not (source / _DESCRIPTION).is_file():
        raise FileNotFoundError(f"'{source}' is no folder of tempera.save: {_DESCRIPTION} is missing")
    if isinstance(model, (str, os.PathLike)):
        _refuse_gguf(model)
        from transformers import AutoModelForCausalLM
        model = AutoModelForCausalLM.from_pretrained(model)
    temperature = dict(json.loads((source / _DESCRIPTION).read_text(encoding="utf-8"))["temperature"])
    given = load_file(str(source / _NUMBERS))
    _require_plain(model, temperature["method"])
    expected = {f"{layer['module']}.temperature.{name}": number for layer, scales in zip(*_planned(model, temperature))
                for name, number in scales.state_dict().items()}
    for name in sorted(expected.keys() | given.keys()):
        here, there = (tuple(tensors[name].shape) if name in tensors else None for tensors in (expected, given))
        if here != there:
            raise ValueError(f"{source / _NUMBERS}: {name} has the shape {there}, and the model wants {here}: the numbers are of another "
                             "model")
    apply(model, temperature.pop("method"), layers=temperature.pop("layers"), freeze=freeze, **temperature)
    with torch.no_grad():
        for name, tensor in _numbers(model).items():
            tensor.copy_(given[name])
    return model


def fold(model: Any) -> Any:
    """An ordinary model of the same class with the temperature multiplied into its weights; the given one stays as it is.

    A temperature that is one number a head folds. One of the token or its position does not, and is refused with the reason.

    >>> plain = tempera.fold(tempera.apply(small_model(), "head,value"))
    >>> type(plain).__name__, tempera.temperatures(plain)
    ('LlamaForCausalLM', [])
    """
    model = _require(model, "fold")
    with _gathered(model.parameters()):
        return _folded(model, _state(model))


def _folded(model: Any, given: dict[str, Any]) -> Any:
    quantised = next((name for name, tensor in given.items() if not isinstance(tensor, Tensor) or not tensor.is_floating_point()), None)
    if quantised is not None or getattr(model.config, "quantization_config", None) is not None:
        raise ValueError(f"the model's weights are quantised{f' ({quantised})' if quantised else ''}, and a temperature is not folded into "
                         "such; put it on the model that they were made from (tempera.save, tempera.load), and fold that")
    from transformers.core_model_loading import revert_weight_conversion

    base: Any = type(model)._tempera_base
    # The names of files, which are not always those of modules.
    state = {name: _whole(tensor) for name, tensor in revert_weight_conversion(model, given).items()}
    names, tensors = _library.ask("fold", json.dumps(_description(model.config)), list(state), list(state.values()))
    config = base_config(model.config)
    plain = base.from_pretrained(None, config=config, state_dict=dict(zip(names, tensors)), dtype=model.dtype,
                                 attn_implementation=model.config._attn_implementation)
    return plain.to(model.device).train(model.training)


def describe(model: Any) -> Optional[dict[str, Any]]:
    """The method of a model with all its options; None where it has no temperature.

    >>> tempera.describe(small_model()), tempera.describe(tempera.apply(small_model(), "softmax"))
    (None, {'layers': 'all', 'method': 'softmax'})
    """
    found = _unwrapped(model)
    return dict(found.config.tempera) if isinstance(found, TemperatureModel) else None  # type: ignore[attr-defined]
