#include "tempera/cli/model.h"

#include "tempera/base/error.h"
#include "tempera/train/model_file.h"

namespace tempera::cli {

OpenModel open_model(const std::string& path) {
  auto loaded = train::load_model(path);
  OpenModel opened{std::move(loaded.model), nullptr, std::move(loaded.path)};
  if (loaded.tokenizer.empty()) return opened;
  auto bytes = std::make_shared<text::ByteTokenizer>();
  TEMPERA_CHECK(loaded.tokenizer == bytes->name(), path, ": the model reads the tokens of '",
                loaded.tokenizer, "', a tokenizer that is not there; known: ", bytes->name());
  opened.tokenizer = std::move(bytes);
  return opened;
}

const text::Tokenizer& tokenizer_of(const OpenModel& opened) {
  TEMPERA_CHECK(
      opened.tokenizer, opened.path.string(),
      ": the model has no tokenizer: it was trained on a built-in task and reads no text");
  return *opened.tokenizer;
}

}  // namespace tempera::cli
