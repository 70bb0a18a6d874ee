"""Folders of the model type "tempera": AutoModel and its relatives open them."""

import json
from typing import Any

from . import _attention, _library
from ._model import config_class, model_class


def _base_of(tempera: dict[str, Any], folder: Any) -> tuple[dict[str, Any], Any]:
    """The description of a folder, and its weights where only the program reads them."""
    if "base" in tempera:
        return tempera, None
    text, names, tensors = _library.ask("open_folder", str(folder))
    return json.loads(text), dict(zip(names, tensors))


def register() -> None:
    """Makes the model type and the attention implementation known to transformers."""
    import transformers
    from transformers import AutoConfig, PreTrainedConfig
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    # What a model with a temperature can be opened as.
    openers: list[Any] = [transformers.AutoModel, transformers.AutoModelForCausalLM, transformers.AutoModelForMaskedLM,
                          transformers.AutoModelForSequenceClassification, transformers.AutoModelForSeq2SeqLM]

    def with_temperature(base: Any, tempera: dict[str, Any]) -> Any:
        plain = type(base)
        base.__class__ = config_class(plain)
        base.tempera = tempera["temperature"]
        for opener in openers:
            if plain in opener._model_mapping and type(base) not in opener._model_mapping._extra_content:
                found = model_class(opener._model_mapping[plain])
                opener._model_mapping.register(type(base), found, exist_ok=True)
        return base

    class TemperaConfig(PreTrainedConfig):
        """config.json of a folder with a temperature: read, it is that of the model's family, which has the temperature beside it."""

        model_type = "tempera"

        @classmethod
        def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> Any:
            folder = kwargs.get("name_or_path", config_dict.get("_name_or_path", ""))
            tempera, weights = _base_of(config_dict.get("tempera", {}), folder)
            base = CONFIG_MAPPING[tempera["base"]["model_type"]]
            config, unused = base.from_dict(tempera["base"], return_unused_kwargs=True, **{
                name: value for name, value in kwargs.items() if name != "return_unused_kwargs"})
            config = with_temperature(config, tempera)
            config.tempera_weights = weights
            return (config, unused) if kwargs.get("return_unused_kwargs") else config

    AutoConfig.register("tempera", TemperaConfig, exist_ok=True)
    _attention.register()
