#include "tempera/train/run_view.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <string_view>
#include <utility>

#include "tempera/base/error.h"
#include "tempera/base/output.h"
#include "tempera/base/progress.h"
#include "tempera/base/text_table.h"
#include "tempera/train/loss_chart.h"
#include "tempera/train/run_folder.h"

namespace tempera::train {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 3> kVerbs = {"train", "finetune", "calibrate"};
constexpr size_t kRecent = 50;  // logged steps that tell the speed
constexpr int kChartRows = 10;

std::optional<double> number(const Json& line, const char* key) {
  if (!line.is_object()) return std::nullopt;
  const auto found = line.find(key);
  if (found == line.end() || !found->is_number()) return std::nullopt;
  const auto value = found->get<double>();
  return std::isfinite(value) ? std::optional(value) : std::nullopt;
}

const Json& part(const Json& object, const char* key) {
  static const Json kNone;
  if (!object.is_object()) return kNone;
  const auto found = object.find(key);
  return found == object.end() ? kNone : *found;
}

// A step, or any count.
std::string count_of(double value) {
  return std::abs(value) < 1e15 ? count_text(std::llround(value)) : scientific(value);
}

std::string short_number(const Json& value) {
  if (!value.is_number()) return "-";
  const auto real = value.get<double>();
  const double size = std::abs(real);
  if (size != 0 && (size < 1e-3 || size >= 1e5)) {
    std::array<char, 32> text;
    std::snprintf(text.data(), text.size(), "%.1e", real);
    return text.data();
  }
  return fixed(real, size < 10 ? 3 : size < 1000 ? 1 : 0);
}

// A folder's name, and what a log holds, may have any bytes.
std::string printable(std::string text) {
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  return text;
}

std::string state_text(RunState state) {
  switch (state) {
    case RunState::kWorking:
      return "running";
    case RunState::kFinished:
      return "finished";
    case RunState::kStopped:
      break;
  }
  return "stopped";
}

template <class Number>
Json or_null(const std::optional<Number>& value) {
  return value ? Json(*value) : Json();
}

}  // namespace

RunView::RunView(fs::path folder) : folder_(std::move(folder)), log_(folder_ / "log.jsonl") {
  const fs::path file = folder_ / WorkFolder::kMark;
  const std::string name = "'" + printable(folder_.string()) + "'";
  TEMPERA_CHECK(fs::is_directory(folder_), name, " is not a folder; give that of a run, such as ",
                "the --out of `tempera train`");
  TEMPERA_CHECK(fs::is_regular_file(file), name, " is not the folder of a run: it has no ",
                WorkFolder::kMark, "; give the --out of `tempera train`");
  verb_ = mark_in(file, "").verb;
  TEMPERA_CHECK(std::ranges::count(kVerbs, verb_) > 0 || fs::exists(folder_ / "log.jsonl"), name,
                " holds a run of `tempera ", printable(verb_),
                "`, which logs no steps; train, finetune and calibrate do");
}

void RunView::forget() {
  step_ = validation_ = watched_ = Json();
  losses_.clear();
  validations_.clear();
  marks_.clear();
  best_.reset();
  watch_seconds_ = 0;
}

void RunView::add(const Json& line) {
  const Json& at = part(line, "step");
  if (!at.is_number_integer()) return;
  const auto step = at.get<int64_t>();
  if (const auto loss = number(line, "validation_loss")) {
    validations_.push_back({step, *loss});
    if (!best_ || *loss < best_->loss) best_ = validations_.back();
  }
  if (line.contains("validation_loss")) validation_ = line;
  if (!line.contains("loss")) return;
  step_ = line;
  if (const auto loss = number(line, "loss")) losses_.push_back({step, *loss});
  marks_.push_back({number(line, "progress").value_or(0), number(line, "tokens").value_or(0),
                    number(line, "seconds").value_or(0)});
  if (!part(line, "watched").is_object()) return;
  watched_ = line;
  watch_seconds_ += number(line, "watch_seconds").value_or(0);
}

std::vector<Json> RunView::update() {
  // First the lock: a process that is gone logs nothing more.
  const bool working = is_worked_in(folder_);
  LogReader::News news = log_.read();
  if (news.anew) forget();
  for (const Json& line : news.lines) add(line);
  const bool done = !marks_.empty() && marks_.back().progress >= 1;
  state_ = working ? RunState::kWorking : done ? RunState::kFinished : RunState::kStopped;
  return std::move(news.lines);
}

std::optional<double> RunView::tokens_per_second() const {
  if (marks_.empty()) return std::nullopt;
  const Mark& last = marks_.back();
  const Mark& first = marks_[marks_.size() - std::min(marks_.size(), kRecent)];
  if (last.seconds <= first.seconds) return number(step_, "tokens_per_second");
  return (last.tokens - first.tokens) / (last.seconds - first.seconds);
}

std::optional<double> RunView::seconds_left() const {
  if (state_ != RunState::kWorking || marks_.empty()) return std::nullopt;
  const Mark& last = marks_.back();
  Mark first = marks_[marks_.size() - std::min(marks_.size(), kRecent)];
  if (marks_.size() == 1) first = {};
  const double rate = (last.progress - first.progress) / (last.seconds - first.seconds);
  if (!std::isfinite(rate) || rate <= 0) return std::nullopt;
  return std::max(0.0, (1 - last.progress) / rate);
}

std::optional<double> RunView::watch_share() const {
  if (marks_.empty() || marks_.back().seconds <= 0 || watched_.is_null()) return std::nullopt;
  return watch_seconds_ / marks_.back().seconds;
}

Json RunView::json() const {
  const auto points = [](const std::vector<Point>& list) {
    Json steps = Json::array(), values = Json::array();
    for (const Point& point : list) {
      steps.push_back(point.step);
      values.push_back(point.loss);
    }
    return Json{{"step", std::move(steps)}, {"loss", std::move(values)}};
  };
  Json best;
  if (best_) best = {{"step", best_->step}, {"validation_loss", best_->loss}};
  return {{"run", folder_.string()},
          {"verb", verb_},
          {"state", state_text(state_)},
          {"last", step_},
          {"validation", validation_},
          {"best", std::move(best)},
          {"tokens_per_second", or_null(tokens_per_second())},
          {"seconds_left", or_null(seconds_left())},
          {"watched", watched_.is_null() ? Json() : part(watched_, "watched")},
          {"watched_step", part(watched_, "step")},
          {"watch_share", or_null(watch_share())},
          {"losses", points(losses_)},
          {"validations", points(validations_)}};
}

std::string RunView::line_text(const Json& line) const {
  std::string text = "step " + count_of(number(line, "step").value_or(0));
  if (const auto steps = number(line, "steps")) text += " of " + count_of(*steps);
  const auto add = [&](const char* name, const char* key) {
    if (line.contains(key)) text += concat("  ", name, " ", short_number(line[key]));
  };
  add("loss", "loss");
  add("validation", "validation_loss");
  add("perplexity", "perplexity");
  if (!line.contains("loss")) return text;
  if (const auto speed = tokens_per_second())
    text += concat("  ", quantity_text(*speed), " tokens/s");
  if (const auto left = seconds_left()) text += concat("  ", duration_text(*left), " left");
  return text;
}

std::string RunView::title() const {
  return concat(printable(verb_), ", ", state_text(state_), "  ", printable(folder_.string()));
}

std::vector<std::string> RunView::head_lines() const {
  std::vector<std::string> lines = {title()};
  const auto line = [&](std::string name, const std::string& text) {
    name.resize(12, ' ');
    lines.push_back(name + text);
  };
  if (step_.is_null()) {
    line("step", state_ == RunState::kWorking ? "none is logged yet" : "none was logged");
    return lines;
  }
  const auto steps = number(step_, "steps");
  const auto left = seconds_left();
  line("step",
       concat(count_of(number(step_, "step").value_or(0)), steps ? " of " + count_of(*steps) : "",
              ", ", fixed(100 * marks_.back().progress, 1), " %",
              left ? ", " + duration_text(*left) + " left" : ""));
  line("loss", concat(short_number(part(step_, "loss")), "  learning rate ",
                      short_number(part(step_, "learning_rate")), "  gradient norm ",
                      short_number(part(step_, "gradient_norm"))));
  if (!validation_.is_null())
    line("validation", concat(short_number(part(validation_, "validation_loss")), "  perplexity ",
                              short_number(part(validation_, "perplexity")), "  at step ",
                              count_of(number(validation_, "step").value_or(0)),
                              best_ ? concat("  best ", short_number(Json(best_->loss)),
                                             " at step ", count_text(best_->step))
                                    : std::string()));
  const auto speed = tokens_per_second();
  line("speed", concat(speed ? quantity_text(*speed) : "-", " tokens/s, ",
                       quantity_text(marks_.back().tokens), " tokens in ",
                       duration_text(marks_.back().seconds)));
  return lines;
}

std::vector<std::string> RunView::chart_lines(size_t columns) const {
  LossChart chart(columns, kChartRows);
  for (const Point& point : losses_) chart.add('*', static_cast<double>(point.step), point.loss);
  for (const Point& point : validations_)
    chart.add('o', static_cast<double>(point.step), point.loss);
  auto lines = chart.lines();
  if (!lines.empty())
    lines.insert(lines.begin(), validations_.empty() ? "* loss" : "* loss   o validation");
  return lines;
}

std::string RunView::watched_text() const {
  if (watched_.is_null()) return "";
  const auto share = watch_share();
  const Json& watched = part(watched_, "watched");
  std::string text =
      concat("watched at step ", count_of(number(watched_, "step").value_or(0)),
             share ? concat(", ", fixed(100 * *share, 2), " % of the time so far") : std::string());
  static constexpr std::array<std::pair<const char*, const char*>, 5> kColumns = {
      {{"entropy", "entropy"},
       {"largest_logit", "largest logit"},
       {"temperature", "temperature"},
       {"key_scale", "key scale"},
       {"value_scale", "value scale"}}};
  std::vector<std::pair<const char*, const char*>> shown;
  const Json& layers = part(watched, "layers");
  for (const auto& column : kColumns)
    if (std::ranges::any_of(
            layers, [&](const Json& layer) { return part(layer, column.first).is_array(); }))
      shown.push_back(column);
  std::vector<std::string> head = {"layer"};
  for (const auto& column : shown) head.emplace_back(column.second);
  TextTable table(head);
  for (const Json& layer : layers) {
    const Json& name = part(layer, "layer");
    std::vector<std::string> row = {name.is_string() ? printable(name.get<std::string>()) : "-"};
    for (const auto& column : shown) {
      const Json& five = part(layer, column.first);
      row.push_back(five.is_array() && five.size() == 5
                        ? concat(short_number(five[0]), " / ", short_number(five[2]), " / ",
                                 short_number(five[4]))
                        : "-");
    }
    table.add(std::move(row));
  }
  // Ranks that share rows watch the gradients alone.
  text += shown.empty() ? "\n" : "; least / median / largest over the heads\n" + table.text();
  std::string norms;
  for (const auto& [group, norm] : part(watched, "gradient_norms").items())
    norms += concat("  ", printable(group), " ", short_number(norm));
  return norms.empty() ? text : text + "gradient norms" + norms + "\n";
}

std::string RunView::text(size_t columns) const {
  std::string text;
  for (const auto& line : head_lines()) text += line + "\n";
  for (const auto& line : chart_lines(columns)) text += line + "\n";
  return text + watched_text();
}

}  // namespace tempera::train
