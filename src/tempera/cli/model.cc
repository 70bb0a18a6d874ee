#include "tempera/cli/model.h"

#include "tempera/base/error.h"
#include "tempera/models/tokenizer.h"

namespace tempera::cli {

models::LoadOptions load_options(const models::ComputeOptions& compute) {
  models::use_threads(compute.threads);
  const bool on_cpu = models::resolve_device(compute.device).is_cpu();
  const auto dtype = models::scalar_type(compute.dtype);
  return {.dtype = dtype,
          .cache_type = models::cache_type(compute.cache_dtype, dtype),
          .blocks = on_cpu && !compute.unpack};
}

models::LoadOptions load_options(const nn::TemperatureConfig& temperature) {
  models::LoadOptions options;
  if (temperature.method != "softmax") options.temperature = temperature;
  return options;
}

OpenModel open_model(const models::LoadedModel& loaded, config::Device device) {
  loaded.model->to(models::resolve_device(device));
  return {loaded.model, models::tokenizer_of(loaded), models::end_tokens_of(loaded), loaded.path};
}

const text::Tokenizer& tokenizer_of(const OpenModel& opened) {
  TEMPERA_CHECK(
      opened.tokenizer, opened.path.string(),
      ": the model has no tokenizer: it was trained on a built-in task and reads no text");
  return *opened.tokenizer;
}

}  // namespace tempera::cli
