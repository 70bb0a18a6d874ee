#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tempera/families/family.h"
#include "tempera/models/load.h"
#include "tempera/models/source.h"

// A model of a family with a temperature beside it, as Python writes it: config.json has
//   "model_type": "tempera", "tempera": {"base": config.json of the family, "temperature": {...}}
// and the weights have the family's names, a temperature's numbers MODULE.temperature.NAME.
namespace tempera::models {

struct DescribedModel {
  nlohmann::json base;
  nn::TemperatureConfig temperature = {};
};

// `json` is the object "tempera"; `where` names the file in messages.
DescribedModel read_description(const nlohmann::json& json, const std::string& where);
nlohmann::json write_description(const DescribedModel& described);

// Throws where a tensor is missing, left over or of another shape. What `options` give takes the
// place of the model's own.
std::shared_ptr<nn::Model> load_described(const DescribedModel& described,
                                          const TensorSource& source, const std::string& where,
                                          const LoadOptions& options = {});

// A tensor's name in such a folder, of the numbers of a temperature.
std::string described_name(const std::vector<families::Rule>& rules, const std::string& ours);

// The weights, and the numbers of the temperature, of a model that a family can express. Throws
// where none can.
struct DescribedState {
  DescribedModel description;
  nn::StateMap weights, numbers;
};
DescribedState describe_model(const LoadedModel& loaded);

}  // namespace tempera::models
