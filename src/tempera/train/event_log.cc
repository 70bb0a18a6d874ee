#include "tempera/train/event_log.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <optional>
#include <string_view>
#include <system_error>

#include "tempera/base/error.h"

namespace tempera::train {
namespace {

namespace fs = std::filesystem;

// TensorBoard takes the files with this word in their names, in the order of the names.
constexpr std::string_view kEvents = "tfevents";
constexpr std::string_view kPrefix = "events.out.tfevents.";
constexpr std::string_view kOwner = ".tempera-";
constexpr size_t kDigits = 10;

double now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string file_name(int64_t number, const std::string& run) {
  std::string digits = std::to_string(number);
  if (digits.size() < kDigits) digits.insert(0, kDigits - digits.size(), '0');
  return concat(kPrefix, digits, kOwner, run);
}

// Of a file that this run wrote.
std::optional<int64_t> number_of(std::string_view name, const std::string& run) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  if (name.size() < kDigits || name.substr(kDigits) != concat(kOwner, run)) return std::nullopt;
  int64_t number = 0;
  const auto [stop, error] = std::from_chars(name.data(), name.data() + kDigits, number);
  if (error != std::errc() || stop != name.data() + kDigits || number < 0) return std::nullopt;
  return number;
}

struct OwnFile {
  int64_t number = 0;
  fs::path path;
};

// Makes the folder if there is none.
std::vector<OwnFile> open_folder(const fs::path& folder, const std::string& run) {
  std::error_code code;
  fs::create_directories(folder, code);
  fs::directory_iterator entries;
  if (!code) entries = fs::directory_iterator(folder, code);
  TEMPERA_CHECK(!code, "cannot write events to the folder '", folder.string(),
                "': ", code.message(), "; give another one with --tensorboard");
  std::vector<OwnFile> own;
  for (const auto& entry : entries) {
    const std::string name = entry.path().filename().string();
    if (const auto number = number_of(name, run); number && entry.is_regular_file())
      own.push_back({*number, entry.path()});
    else
      TEMPERA_CHECK(name.find(kEvents) == std::string::npos, "'", folder.string(),
                    "' has events of another run (", name,
                    "), and TensorBoard would draw both as one; give another folder with "
                    "--tensorboard");
  }
  return own;
}

void add_number(std::vector<io::EventValue>& values, std::string tag, const Json& number) {
  if (number.is_number()) values.push_back({std::move(tag), number.get<float>()});
}

// A quarter of the heads lies between one quantile and the next.
std::optional<io::EventHistogram> histogram_of(const Json& quantiles, double heads) {
  std::vector<double> at;
  for (const Json& value : quantiles) {
    if (!value.is_number()) return std::nullopt;
    at.push_back(value.get<double>());
  }
  if (at.size() < 2 || !std::ranges::is_sorted(at)) return std::nullopt;
  const double share = heads / static_cast<double>(at.size() - 1);
  io::EventHistogram histogram{.least = at.front(), .largest = at.back()};
  for (size_t i = 1; i < at.size(); ++i) {
    const double middle = (at[i - 1] + at[i]) / 2;
    histogram.sum += share * middle;
    histogram.squares += share * middle * middle;
    if (!histogram.limits.empty() && histogram.limits.back() == at[i]) {
      histogram.counts.back() += share;
    } else {
      histogram.limits.push_back(at[i]);
      histogram.counts.push_back(share);
    }
  }
  return histogram;
}

void add_layers(std::vector<io::EventValue>& values, const Json& watched) {
  const double heads = watched.value("heads", 1.0);
  for (const Json& layer : watched.value("layers", Json::array())) {
    std::string place = "layer_" + layer.value("layer", std::string("?"));
    std::ranges::replace(place, ' ', '_');
    for (const auto& [name, quantiles] : layer.items()) {
      if (!quantiles.is_array() || quantiles.empty()) continue;
      add_number(values, concat(name, "_median/", place), quantiles[quantiles.size() / 2]);
      if (auto histogram = histogram_of(quantiles, heads))
        values.push_back({concat(name, "/", place), std::move(*histogram)});
    }
  }
}

}  // namespace

std::vector<io::EventValue> event_values(const Json& line) {
  static constexpr std::array<std::pair<const char*, const char*>, 6> kTags = {
      {{"loss", "loss/train"},
       {"validation_loss", "loss/validation"},
       {"perplexity", "perplexity/validation"},
       {"learning_rate", "learning_rate"},
       {"gradient_norm", "gradient_norm/all"},
       {"tokens_per_second", "tokens_per_second"}}};
  std::vector<io::EventValue> values;
  for (const auto& [key, tag] : kTags)
    if (line.contains(key)) add_number(values, tag, line[key]);
  if (!line.contains("watched")) return values;
  const Json& watched = line["watched"];
  const Json norms = watched.value("gradient_norms", Json::object());
  for (const auto& [group, norm] : norms.items())
    add_number(values, "gradient_norm/" + group, norm);
  add_layers(values, watched);
  return values;
}

EventLog::EventLog(const fs::path& folder, const std::string& run, const std::vector<Json>& lines) {
  const auto older = open_folder(folder, run);
  int64_t number = 1;
  for (const OwnFile& file : older) number = std::max(number, file.number + 1);
  file_ = std::make_unique<io::EventFile>(folder / file_name(number, run));
  const double wall = now();
  file_->append(io::encode_version(wall));
  // For a reader that knows the older files.
  file_->append(io::encode_restart(wall, 0));
  // The log has the seconds of the training alone; as if it had been without a pause.
  const auto seconds = [](const Json& line, double otherwise) {
    return line.contains("seconds") && line["seconds"].is_number() ? line["seconds"].get<double>()
                                                                   : otherwise;
  };
  double last = 0;
  for (const Json& line : lines) last = seconds(line, last);
  double at = 0;
  for (const Json& line : lines) {
    at = seconds(line, at);
    append(line, wall - (last - at));
  }
  file_->sync();
  for (const OwnFile& file : older) {
    std::error_code ignored;
    fs::remove(file.path, ignored);
  }
}

void EventLog::append(const Json& line) { append(line, now()); }

void EventLog::append(const Json& line, double wall_time) {
  const auto values = event_values(line);
  if (!values.empty())
    file_->append(io::encode_event(wall_time, line.at("step").get<int64_t>(), values));
}

}  // namespace tempera::train
