#include <iomanip>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tempera/base/error.h"
#include "tempera/base/files.h"
#include "tempera/cli/verb.h"
#include "tempera/config/common.h"
#include "tempera/text/load.h"

namespace tempera::cli {
namespace {

struct TokenizeSettings {
  std::string tokenizer;
  std::optional<std::string> text;
  std::optional<std::string> file;
  bool no_special = false;
  bool json = false;

  void declare(config::Options& options) {
    options.positional("model", tokenizer,
                       "folder of a model, .gguf file, or a tokenizer's own file");
    options.positional("text", text, "text; neither it nor --file: standard input");
    options.option("file", file, "a file of text in its place");
    options.option("no-special", no_special,
                   "add no special tokens, and take those that the text spells for text");
    config::json_option(options, json);
  }
};

std::string read_text(const TokenizeSettings& settings) {
  if (settings.text && settings.file)
    throw UsageError("both a text and --file given; give one of them");
  if (settings.text) return *settings.text;
  if (settings.file) return read_file(*settings.file, kLargestText);
  return {std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>()};
}

void run(const TokenizeSettings& settings) {
  const auto tokenizer = text::load_tokenizer(settings.tokenizer);
  std::vector<int32_t> ids;
  tokenizer->encode(read_text(settings), ids,
                    {.add_special = !settings.no_special, .parse_special = !settings.no_special});
  if (settings.json) {
    nlohmann::ordered_json result{{"ids", ids}, {"pieces", nlohmann::ordered_json::array()}};
    for (const int32_t id : ids) result["pieces"].push_back(tokenizer->piece(id));
    std::cout << result.dump() << "\n";
    return;
  }
  // One token a line; JSON's quotes show blanks and line ends.
  for (const int32_t id : ids)
    std::cout << std::setw(7) << id << "  " << nlohmann::json(tokenizer->piece(id)).dump() << "\n";
}

}  // namespace

Verb tokenize_verb() {
  return make_verb<TokenizeSettings>("tokenize", "prints the ids and pieces of a text", run);
}

}  // namespace tempera::cli
