#include "tempera/serve/model_list.h"

#include <algorithm>

#include "tempera/base/error.h"
#include "tempera/base/suggest.h"
#include "tempera/http/message.h"
#include "tempera/models/load.h"
#include "tempera/temperature/method_text.h"

namespace tempera::serve {
namespace {

constexpr size_t kMostMethodText = 256;

nn::TemperatureConfig read_temperature(const std::string& method) {
  if (method.size() > kMostMethodText)
    throw http::Refusal(400,
                        concat("a temperature of ", method.size(), " characters is named; at most ",
                               kMostMethodText, " are read"),
                        "model");
  const MethodText text = parse_method_text(method, "model", Origin::kLoaded);
  nn::TemperatureConfig temperature;
  temperature.method = text.methods;
  temperature.options = text.options;
  return models::retrofitted(temperature);
}

}  // namespace

ModelList::ModelList(std::vector<Served> loaded, const ModelListOptions& options)
    : loaded_(std::move(loaded)), options_(options) {}

const ModelList::Served* ModelList::find_loaded(const std::string& name) const {
  const auto found = std::ranges::find(loaded_, name, [](const Served& m) { return m->name; });
  return found == loaded_.end() ? nullptr : &*found;
}

void ModelList::refuse_name(const std::string& name) const {
  std::vector<std::string> names;
  for (const auto& served : loaded_) names.push_back(served->name);
  throw http::Refusal(404,
                      concat("there is no model \"", name, "\"", did_you_mean(name, names),
                             "; there is ", listed(names)),
                      "model");
}

ModelList::Served ModelList::find(const std::optional<std::string>& name) {
  if (!name) return loaded_.front();
  if (const Served* served = find_loaded(*name)) return *served;
  const size_t at = name->rfind('@');
  const Served* base = at == std::string::npos ? nullptr : find_loaded(name->substr(0, at));
  if (!base) refuse_name(name->substr(0, at));
  try {
    return variant(**base, *name, name->substr(at + 1));
  } catch (const http::Refusal&) {
    throw;
  } catch (const Error& error) {
    throw http::Refusal(400, error.what(), "model");
  }
}

ModelList::Served ModelList::variant(const ServedModel& base, const std::string& name,
                                     const std::string& method) {
  const auto temperature = read_temperature(method);
  const std::lock_guard lock(mutex_);
  const auto known = std::ranges::find_if(variants_, [&](const Variant& variant) {
    return variant.base == &base && variant.temperature == temperature;
  });
  if (known != variants_.end()) {
    variants_.splice(variants_.begin(), variants_, known);
    return known->served;
  }
  make_room();
  auto model = models::with_temperature(*base.model, temperature);
  model->to(base.model->parameters().front().device());
  auto engine = base.engine ? std::make_unique<Engine>(model, options_.engine) : nullptr;
  auto served = std::make_shared<ServedModel>(ServedModel{.name = name,
                                                          .model = std::move(model),
                                                          .tokenizer = base.tokenizer,
                                                          .chat = base.chat,
                                                          .end_tokens = base.end_tokens,
                                                          .engine = std::move(engine),
                                                          .embed = base.embed,
                                                          .threads = base.threads});
  variants_.push_front({&base, temperature, served});
  return served;
}

// Ends the engine that was used the longest ago and has no request.
void ModelList::make_room() {
  if (options_.temperatures == 0)
    throw http::Refusal(400, "this server has no other temperatures (--temperatures 0)", "model");
  if (std::ssize(variants_) < options_.temperatures) return;
  const auto idle = std::find_if(variants_.rbegin(), variants_.rend(), [](const Variant& variant) {
    return variant.served.use_count() == 1;
  });
  if (idle == variants_.rend())
    throw http::Refusal(429,
                        concat(options_.temperatures,
                               " other temperatures are in use; try again "
                               "later"),
                        "model", {{"Retry-After", "1"}});
  variants_.erase(std::next(idle).base());
}

std::vector<ModelList::Served> ModelList::all() const {
  std::vector<Served> list = loaded_;
  const std::lock_guard lock(mutex_);
  for (const auto& variant : variants_) list.push_back(variant.served);
  return list;
}

}  // namespace tempera::serve
