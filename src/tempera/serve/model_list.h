#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "tempera/serve/served_model.h"

namespace tempera::serve {

struct ModelListOptions {
  EngineOptions engine = {};
  int64_t temperatures = 4;  // asked for by name that are kept at once
};

// The models that requests ask for: "NAME", or "NAME@METHOD:OPTION=VALUE" for the same weights with
// another temperature of the attention. Any thread may ask.
class ModelList {
 public:
  using Served = std::shared_ptr<ServedModel>;

  ModelList(std::vector<Served> loaded, const ModelListOptions& options);

  const ServedModel& first() const { return *loaded_.front(); }
  // No name: the first. Throws Refusal where there is none of that name, or no room for another
  // temperature. What is found stays as long as someone holds it.
  Served find(const std::optional<std::string>& name);
  std::vector<Served> all() const;

 private:
  struct Variant {
    const ServedModel* base;
    nn::TemperatureConfig temperature;  // with all its options
    Served served;
  };

  const Served* find_loaded(const std::string& name) const;
  [[noreturn]] void refuse_name(const std::string& name) const;
  Served variant(const ServedModel& base, const std::string& name, const std::string& method);
  void make_room();

  const std::vector<Served> loaded_;
  const ModelListOptions options_;
  mutable std::mutex mutex_;
  std::list<Variant> variants_;  // the last one used is first
};

}  // namespace tempera::serve
