#include "tempera/data/generator.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "tempera/base/error.h"
#include "tempera/base/suggest.h"

namespace tempera::data {

const std::vector<GeneratorEntry>& generators() {
#define TEMPERA_ENTRY(name) generator_##name(),
  static const std::vector<GeneratorEntry> entries{TEMPERA_GENERATORS(TEMPERA_ENTRY)};
#undef TEMPERA_ENTRY
  return entries;
}

namespace {

// The end of a message on an unknown name: the nearest one, or else all.
template <class Items>
std::string suggest(std::string_view given, const Items& items) {
  std::vector<std::string> names;
  std::string all;
  for (const auto& item : items) {
    names.push_back(item.name);
    all += (all.empty() ? "" : ", ") + item.name;
  }
  const std::string near = did_you_mean(given, names);
  return near.empty() ? "; there are: " + all : near;
}

// The lane of what a whole batch shares; rows have the lanes below.
constexpr uint32_t kBatchLane = std::numeric_limits<uint32_t>::max();

}  // namespace

const GeneratorEntry& find_generator(std::string_view name) {
  for (const auto& entry : generators())
    if (entry.name == name) return entry;
  throw UsageError(concat("there is no built-in data '", name, "'", suggest(name, generators())));
}

std::unique_ptr<Dataset> make_generator(std::string_view name, const GeneratorOptions& given,
                                        uint64_t seed) {
  const GeneratorEntry& entry = find_generator(name);
  GeneratorOptions options;
  for (const auto& declaration : entry.options) options[declaration.name] = declaration.value;
  for (const auto& [key, value] : given) {
    const auto known = std::find_if(entry.options.begin(), entry.options.end(),
                                    [&](const auto& declared) { return declared.name == key; });
    const std::string what = concat("option '", key, "' of the built-in data '", name, "'");
    if (known == entry.options.end())
      throw UsageError(concat("there is no ", what, suggest(key, entry.options)));
    if (!std::holds_alternative<int64_t>(value))
      throw UsageError(concat(what, " is ", config::plain_text(value), "; expected ",
                              config::expectation(config::Kind::kInt, known->domain)));
    config::check_domain(what, value, known->domain);
    options[key] = value;
  }
  return entry.make(options, seed);
}

std::unique_ptr<Dataset> make_generator_of_size(std::string_view name, GeneratorOptions options,
                                                int64_t size) {
  // Held-out sets begin at the largest size of training.
  for (const char* limit : {"train-max", "test-max"}) options[limit] = size;
  const auto& declared = find_generator(name).options;
  const auto least = std::ranges::find(declared, "train-min", &config::Declaration::name);
  if (least != declared.end()) {
    const auto& given = options.try_emplace("train-min", least->value).first->second;
    if (std::holds_alternative<int64_t>(given))
      options["train-min"] = std::min(std::get<int64_t>(given), size);
  }
  return make_generator(name, options, 0);
}

config::Declaration declare(std::string name, int64_t value, int64_t low, int64_t high,
                            std::string help) {
  return {.name = std::move(name),
          .value = value,
          .help = std::move(help),
          .domain = config::range(static_cast<double>(low), static_cast<double>(high))};
}

int64_t option(const GeneratorOptions& options, const std::string& name) {
  const auto found = options.find(name);
  TEMPERA_CHECK(found != options.end() && std::holds_alternative<int64_t>(found->second),
                "option '", name, "' was not declared");
  return std::get<int64_t>(found->second);
}

void check_order(const GeneratorOptions& options, std::initializer_list<const char*> names) {
  for (const auto* low = names.begin(); low + 1 < names.end(); ++low)
    if (const auto* high = low + 1; option(options, *low) > option(options, *high))
      throw UsageError(concat("option '", *low, "' is ", option(options, *low),
                              ", which is above '", *high, "' = ", option(options, *high),
                              "; lower the first or raise the second"));
}

Generator::Generator(std::string name, uint64_t seed)
    : name_(std::move(name)),
      train_seed_(derive_seed(seed, name_ + "/train")),
      held_out_seed_(derive_seed(0, name_ + "/held-out")) {}

void Generator::add_held_out_sets(int64_t first, int64_t last) {
  for (int64_t size = first; size <= last; size *= 2)
    held_out_.push_back({.label = std::to_string(size),
                         .size = size,
                         .rows = size == first ? 64 : 16,
                         .length = held_out_layout(size).length});
}

Batch Generator::train(const BatchRequest& request) const {
  check_request(request);
  TEMPERA_CHECK(request.batch_rows < kBatchLane, "a batch of ", request.batch_rows, " rows");
  RandomStream random(train_seed_, request.step, kBatchLane);
  return make_batch(train_layout(random), RowStreams(train_seed_, request.step, request.first_row),
                    request.rows);
}

Batch Generator::held_out(size_t set, int64_t first_row, int64_t rows) const {
  check_held_out(*this, set, first_row, rows);
  const int64_t size = held_out_[set].size;
  return make_batch(held_out_layout(size),
                    RowStreams(held_out_seed_, static_cast<uint64_t>(size), first_row), rows);
}

Batch Generator::make_batch(const Layout& layout, const RowStreams& streams, int64_t rows) const {
  Batch batch;
  batch.rows = rows;
  batch.length = layout.length;
  batch.questions = layout.questions;
  batch.tokens.resize(static_cast<size_t>(rows * layout.length));
  batch.targets.assign(static_cast<size_t>(rows * layout.length), kIgnored);
  batch.question_positions.resize(static_cast<size_t>(rows * layout.questions));
  batch.answer_positions.resize(static_cast<size_t>(rows * layout.questions));
  fill(layout, streams, batch);
  return batch;
}

}  // namespace tempera::data
