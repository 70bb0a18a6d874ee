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
    options.positional("model", tokenizer, "a model folder, a .gguf file, or a tokenizer file");
    options.positional("text", text, "text; without it and --file: standard input");
    options.section(config::Section::kData);
    options.option("file", file, "file with the text");
    options.option("no-special", no_special,
                   "add no special tokens, and treat those in the text as plain text");
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
  return make_verb<TokenizeSettings>(
      "tokenize", "prints the token ids of a text",
      {{"tempera tokenize MODEL 'a text'", "ids and pieces"},
       {"tempera tokenize tokenizer.json --file book.txt --json", "of a file"}},
      run);
}

}  // namespace tempera::cli
