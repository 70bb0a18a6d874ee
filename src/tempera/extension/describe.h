#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "tempera/nn/config.h"

// What goes between Python and the operators as text.
namespace tempera::extension {

nlohmann::json shape_json(const LayerShape& shape);
LayerShape shape_of(const nlohmann::json& json);

// The group `temperature` of a model's settings: {"method", "layers", and the method's options}.
// What is not given has the default of a model of that origin.
nn::TemperatureConfig temperature_of(const nlohmann::json& json, Origin origin);
nlohmann::json temperature_json(const nn::TemperatureConfig& temperature);

// All methods, each with its formula, options and what it folds into.
nlohmann::json registry_json();

// What a model by its config.json calls the parts of its attentions, and what their methods are
// told. Throws with the nearest known name where the family is not known.
nlohmann::json attentions_json(const nlohmann::json& config, const nn::TemperatureConfig& given);

}  // namespace tempera::extension
