// Ids of documents, for tests and measurements.
//   tokenizer_tool encode TOKENIZER FILE [special]
//       one line of ids a document; "special": adds and parses special tokens
//   tokenizer_tool decode TOKENIZER FILE
//       the text of each line of ids, as a line of JSON
//   tokenizer_tool trip TOKENIZER FILE
//       fails, naming the document, unless every text comes back
//   tokenizer_tool bench TOKENIZER FILE
//       megabytes a second of processor time on one thread, best of three
//   tokenizer_tool files GGUF FOLDER
//       the tokenizer as files of a folder, which is there
//   tokenizer_tool gguf FOLDER FILE ROWS
//       the tokenizer as a GGUF file without tensors, for a model of so many rows
// A FILE of documents holds one JSON string a line.
#include <algorithm>
#include <ctime>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tempera/base/error.h"
#include "tempera/base/files.h"
#include "tempera/io/gguf.h"
#include "tempera/text/gguf_from_files.h"
#include "tempera/text/gguf_to_files.h"
#include "tempera/text/load.h"

namespace tempera::text {
namespace {

std::vector<std::string> read_lines(const std::string& path) {
  std::ifstream file(path);
  TEMPERA_CHECK(file.good(), "no file '", path, "'");
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

std::vector<std::string> read_documents(const std::string& path) {
  auto documents = read_lines(path);
  for (auto& document : documents) document = nlohmann::json::parse(document).get<std::string>();
  return documents;
}

void encode(const Tokenizer& tokenizer, const std::string& path, bool special) {
  std::vector<int32_t> ids;
  for (const auto& document : read_documents(path)) {
    ids.clear();
    tokenizer.encode(document, ids, {.add_special = special, .parse_special = special});
    std::string line;
    for (const int32_t id : ids) line += (line.empty() ? "" : " ") + std::to_string(id);
    std::cout << line << "\n";
  }
}

void decode(const Tokenizer& tokenizer, const std::string& path) {
  for (const auto& line : read_lines(path)) {
    std::istringstream fields(line);
    std::vector<int32_t> ids;
    for (int32_t id = 0; fields >> id;) ids.push_back(id);
    std::string text;
    tokenizer.decode(ids, text);
    const nlohmann::json json = text;
    std::cout << json.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace) << "\n";
  }
}

void round_trip(const Tokenizer& tokenizer, const std::string& path) {
  for (const auto& document : read_documents(path)) {
    std::vector<int32_t> ids;
    std::string text;
    tokenizer.encode(document, ids);
    tokenizer.decode(ids, text);
    TEMPERA_CHECK(text == document, "'", document, "' came back as '", text, "'");
  }
}

void bench(const Tokenizer& tokenizer, const std::string& path) {
  const auto documents = read_documents(path);
  size_t bytes = 0, tokens = 0;
  for (const auto& document : documents) bytes += document.size();
  double best = 0;
  std::vector<int32_t> ids;
  for (int run = 0; run < 3; ++run) {
    tokens = 0;
    const std::clock_t start = std::clock();
    for (const auto& document : documents) {
      ids.clear();
      tokenizer.encode(document, ids);
      tokens += ids.size();
    }
    const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
    best = std::max(best, static_cast<double>(bytes) / 1e6 / seconds);
  }
  std::cout << "{\"megabytes_per_second\": " << best << ", \"bytes\": " << bytes
            << ", \"tokens\": " << tokens << "}\n";
}

void to_files(const std::string& path, const std::filesystem::path& folder) {
  const auto files = tokenizer_files(read_gguf_tokenizer(io::Gguf(path).metadata()));
  write_file(folder / "tokenizer.json", files.tokenizer_json);
  write_file(folder / "tokenizer_config.json", files.config.dump(2) + "\n");
}

void to_gguf(const std::string& folder, const std::string& path, const std::string& rows) {
  io::GgufMetadata metadata;
  metadata.add("general.architecture", "llama");
  write_gguf_tokenizer(gguf_tokenizer_of(folder, std::stoll(rows)), metadata);
  io::write_gguf(path, metadata, {});
}

int run(const std::vector<std::string>& arguments) {
  if (arguments.size() < 3) {
    std::cerr << "usage: tokenizer_tool encode|decode|trip|bench|files|gguf ...\n";
    return 2;
  }
  if (arguments[0] == "files") return to_files(arguments[1], arguments[2]), 0;
  if (arguments[0] == "gguf") return to_gguf(arguments[1], arguments[2], arguments.at(3)), 0;
  const auto tokenizer = load_tokenizer(arguments[1]);
  if (arguments[0] == "encode") encode(*tokenizer, arguments[2], arguments.size() > 3);
  if (arguments[0] == "decode") decode(*tokenizer, arguments[2]);
  if (arguments[0] == "trip") round_trip(*tokenizer, arguments[2]);
  if (arguments[0] == "bench") bench(*tokenizer, arguments[2]);
  return 0;
}

}  // namespace
}  // namespace tempera::text

int main(int argc, char** argv) {
  try {
    return tempera::text::run(std::vector<std::string>(argv + 1, argv + argc));
  } catch (const std::exception& error) {
    std::cerr << "tokenizer_tool: " << error.what() << "\n";
    return 1;
  }
}
