#include "tempera/cli/model.h"

#include "tempera/base/error.h"
#include "tempera/models/tokenizer.h"

namespace tempera::cli {

OpenModel open_model(const std::string& path) {
  const auto loaded = models::load_model(path);
  return {loaded.model, models::tokenizer_of(loaded), loaded.path};
}

const text::Tokenizer& tokenizer_of(const OpenModel& opened) {
  TEMPERA_CHECK(
      opened.tokenizer, opened.path.string(),
      ": the model has no tokenizer: it was trained on a built-in task and reads no text");
  return *opened.tokenizer;
}

}  // namespace tempera::cli
