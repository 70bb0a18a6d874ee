#include "tempera/models/described.h"

#include <set>

#include "tempera/base/error.h"
#include "tempera/base/version.h"
#include "tempera/config/settings.h"
#include "tempera/models/weights.h"
#include "tempera/ops/torch.h"

namespace tempera::models {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kMark = ".temperature.";

// The group `temperature` by itself.
struct TemperatureGroup {
  nn::TemperatureConfig temperature = {};

  void declare(config::Options& options) { temperature.declare(options); }
};

// A source without the numbers of temperatures, which no family has a place for.
class WeightsOf final : public TensorSource {
 public:
  explicit WeightsOf(const TensorSource& all) : all_(all) {}

  std::vector<std::string> names() const override {
    std::vector<std::string> names = all_.names();
    std::erase_if(names, nn::is_temperature);
    return names;
  }
  bool has(const std::string& name) const override { return all_.has(name); }
  std::vector<int64_t> shape(const std::string& name) const override { return all_.shape(name); }
  torch::Tensor read(const std::string& name, torch::ScalarType wanted) const override {
    return all_.read(name, wanted);
  }
  void release(const std::string& name) const override { all_.release(name); }

 private:
  const TensorSource& all_;
};

// The part of a name in front of its last `count` components.
std::string without_last(std::string name, int count) {
  for (; count > 0; --count) name.resize(name.rfind('.'));
  return name;
}

void load_numbers(nn::Model& model, const std::vector<families::Rule>& rules,
                  const TensorSource& source, const std::string& where) {
  std::set<std::string> left;
  for (const std::string& name : source.names())
    if (nn::is_temperature(name)) left.insert(name);
  nn::StateMap state = model.state();
  for (auto& [ours, tensor] : state) {
    if (!nn::is_temperature(ours)) continue;
    const std::string name = described_name(rules, ours);
    TEMPERA_CHECK(left.erase(name) == 1, where, ": the weights lack ", name,
                  ", a number of the temperature");
    tensor = source.read(name, torch::kFloat32);
  }
  TEMPERA_CHECK(left.empty(), where, ": the weights have ", *left.begin(),
                ", which the temperature of the configuration has not");
  model.load_state(state);
}

}  // namespace

DescribedModel read_description(const Json& json, const std::string& where) {
  TEMPERA_CHECK(json.is_object() && json.contains("base") && json["base"].is_object(), where,
                ": the object 'tempera' has no 'base', the config.json of a family");
  DescribedModel described{.base = json["base"]};
  if (json.contains("temperature")) {
    const Json group{{"temperature", json["temperature"]}};
    described.temperature = config::from_json<TemperatureGroup>(group, where).temperature;
  }
  return described;
}

Json write_description(const DescribedModel& described) {
  const auto group = config::to_json(config::describe(TemperatureGroup{described.temperature}));
  return {{"version", version()}, {"base", described.base}, {"temperature", group["temperature"]}};
}

std::shared_ptr<nn::Model> load_described(const DescribedModel& described,
                                          const TensorSource& source, const std::string& where,
                                          const LoadOptions& options) {
  TEMPERA_CHECK(described.base.contains("model_type") && described.base["model_type"].is_string(),
                where, ": the field model_type is missing");
  const auto& family =
      families::find_family(described.base["model_type"].get<std::string>(), where);
  const WeightsOf weights(source);
  const NameOptions names{family.prefix, family.unused};
  auto config = families::read_config(family, described.base, where);
  check_numbers(config, weights, where);
  settle(config, family.rules(config), weights, names);
  config.temperature = described.temperature;
  auto model = empty_model(config, options);
  load_weights(*model, family.rules(config), weights, names);
  if (!options.temperature) load_numbers(*model, family.rules(config), source, where);
  return model;
}

std::string described_name(const std::vector<families::Rule>& rules, const std::string& ours) {
  const size_t mark = ours.find(kMark);
  const std::string attention = ours.substr(0, mark);
  for (const char* projection : {".qkv.weight", ".q.weight"})
    if (const auto theirs = family_name(rules, attention + projection))
      return without_last(*theirs, 2) + ours.substr(mark);
  throw Error(concat("the family has no attention '", attention, "'"));
}

}  // namespace tempera::models
