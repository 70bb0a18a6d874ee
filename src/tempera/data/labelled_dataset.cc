#include "tempera/data/labelled_dataset.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "tempera/base/error.h"
#include "tempera/data/text.h"
#include "tempera/io/json.h"

namespace tempera::data {
namespace {

// More are rather a column that is no label.
constexpr int64_t kMostClasses = 1 << 16;
constexpr std::string_view kTextNames[] = {"text", "sentence"};

int64_t parse_label(std::string_view text, const std::string& where) {
  int64_t label = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), label);
  TEMPERA_CHECK(error == std::errc() && end == text.data() + text.size() && label >= 0 &&
                    label < kMostClasses,
                where, ": the label '", text, "'; a whole number from 0 to ", kMostClasses - 1,
                " expected");
  return label;
}

std::vector<std::string_view> columns_of(std::string_view line) {
  std::vector<std::string_view> columns;
  for (;;) {
    const size_t end = line.find('\t');
    columns.push_back(line.substr(0, end));
    if (end == std::string_view::npos) return columns;
    line.remove_prefix(end + 1);
  }
}

// Which columns of a table hold what.
struct TsvColumns {
  size_t text, label;

  TsvColumns(std::string_view header, const std::string& where) {
    const auto names = columns_of(header);
    const auto is_text = [](std::string_view name) {
      return std::ranges::find(kTextNames, name) != std::end(kTextNames);
    };
    text = static_cast<size_t>(std::ranges::find_if(names, is_text) - names.begin());
    label = static_cast<size_t>(std::ranges::find(names, "label") - names.begin());
    TEMPERA_CHECK(std::max(text, label) < names.size(), where, ": the columns are '", header,
                  "'; a first line with the names text (or sentence) and label expected, separated "
                  "by tabs");
  }
  LabelledText read(std::string_view line, const std::string& where) const {
    const auto columns = columns_of(line);
    TEMPERA_CHECK(columns.size() > std::max(text, label), where, ": ", columns.size(),
                  " columns; at least ", std::max(text, label) + 1, " expected");
    return {std::string(columns[text]), parse_label(columns[label], where)};
  }
};

LabelledText read_json(const std::string& line, const std::string& where) {
  const auto json = io::parse_json(line, where);
  constexpr const char* kExpected = "; expected {\"text\": \"...\", \"label\": 0}";
  TEMPERA_CHECK(json.is_object() && json.contains("label"), where, ": no \"label\"", kExpected);
  TEMPERA_CHECK(json["label"].is_number_integer(), where, ": \"label\" is a JSON ",
                json["label"].type_name(), ", not a whole number", kExpected);
  for (const auto name : kTextNames)
    if (const auto found = json.find(name); found != json.end() && found->is_string())
      return {found->get<std::string>(), parse_label(json["label"].dump(), where)};
  throw Error(concat(where, ": no \"text\"", kExpected));
}

// Of the texts, which are cut to the length of a row.
std::vector<int64_t> cut_sizes(std::vector<LabelledExample>& examples, int64_t length) {
  std::vector<int64_t> sizes;
  sizes.reserve(examples.size());
  for (auto& example : examples) {
    text::cut_sequence(example.tokens, length);
    sizes.push_back(static_cast<int64_t>(example.tokens.size()));
  }
  return sizes;
}

}  // namespace

std::vector<LabelledText> read_labelled(std::span<const std::filesystem::path> files) {
  std::vector<LabelledText> texts;
  for (const auto& file : files) {
    const auto lines = read_lines(file);
    const bool json = file.extension() == ".jsonl" || file.extension() == ".ndjson";
    const auto where = [&](size_t line) { return concat("'", file.string(), "' line ", line + 1); };
    const auto take = [&](size_t first, const auto& read) {
      for (size_t i = first; i < lines.size(); ++i)
        if (lines[i].find_first_not_of(" \t") != std::string::npos)
          texts.push_back(read(lines[i], where(i)));
    };
    if (json) {
      take(0, read_json);
    } else {
      const TsvColumns columns(lines[0], where(0));
      take(1, [&](const auto& line, const auto& at) { return columns.read(line, at); });
    }
  }
  return texts;
}

std::vector<LabelledExample> encode_labelled(const std::vector<LabelledText>& texts,
                                             const text::Tokenizer& tokenizer) {
  const text::SequenceTokens ids(tokenizer);
  std::vector<LabelledExample> examples;
  examples.reserve(texts.size());
  for (const auto& [text, label] : texts)
    examples.push_back({text::encode_sequence(tokenizer, ids, text), label});
  return examples;
}

LabelledDataset::LabelledDataset(std::string name, std::vector<LabelledExample> examples,
                                 const text::SequenceTokens& ids, const TextOptions& options)
    : ExampleDataset(std::move(name), cut_sizes(examples, options.length), options),
      examples_(std::move(examples)),
      ids_(ids) {
  for (const auto& example : examples_) classes_ = std::max(classes_, example.label + 1);
}

Batch LabelledDataset::batch_of(std::span<const size_t> examples) const {
  std::vector<std::span<const int64_t>> texts;
  Batch batch;
  for (const size_t example : examples) {
    texts.emplace_back(examples_[example].tokens);
    batch.labels.push_back(examples_[example].label);
  }
  PaddedRows rows = pad_rows(texts, ids_.pad);
  batch.rows = static_cast<int64_t>(examples.size());
  batch.length = rows.length;
  batch.tokens = std::move(rows.tokens);
  batch.lengths = std::move(rows.lengths);
  return batch;
}

}  // namespace tempera::data
