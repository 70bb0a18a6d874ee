#include "tempera/lens/live.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <utility>

#include "tempera/base/error.h"
#include "tempera/lens/page.h"
#include "tempera/lens/page_data.h"
#include "tempera/lens/weights.h"
#include "tempera/ops/torch.h"

namespace tempera::lens {
namespace {

using http::Refusal;
using nlohmann::ordered_json;

constexpr int64_t kMostCellsAsked = 1 << 20;
constexpr int64_t kTopKeysOfHead = 3;
// Of the longest text a map of so large cells has 64 a side; a cell is computed whole.
constexpr int64_t kMostCell = 1024;

// A whole number of the query in [least, most].
int64_t number(const http::Request& request, const std::string& name, int64_t least, int64_t most) {
  const std::string* text = request.query_value(name);
  if (!text) throw Refusal(400, name + " is missing", name);
  int64_t value = 0;
  const char* const end = text->data() + text->size();
  const auto [read, error] = std::from_chars(text->data(), end, value);
  if (error != std::errc() || read != end || value < least || value > most)
    throw Refusal(400, concat(name, ": a whole number from ", least, " to ", most, " expected"),
                  name);
  return value;
}

const Subject& subject_of(const http::Request& request, const std::vector<Subject>& all) {
  return all[static_cast<size_t>(number(request, "model", 0, std::ssize(all) - 1))];
}

const Attention& attention_of(const http::Request& request, const Subject& subject) {
  const auto& all = subject.view.attentions;
  return all[static_cast<size_t>(number(request, "attention", 0, std::ssize(all) - 1))];
}

Span span_of(const http::Request& request, const std::string& first, const std::string& count,
             int64_t all) {
  const int64_t from = number(request, first, 0, all - 1);
  return {from, number(request, count, 1, all - from)};
}

http::Response answer(std::string type, std::string body) {
  return {.type = std::move(type),
          .body = std::move(body),
          .headers = {{"Cache-Control", "no-store"},
                      {"X-Content-Type-Options", "nosniff"},
                      {"Referrer-Policy", "no-referrer"}}};
}

http::Response json_answer(const ordered_json& json) {
  return answer("application/json",
                json.dump(-1, ' ', false, ordered_json::error_handler_t::replace));
}

Factors read_factors(const std::string& body, const Subject& subject) {
  const auto json = nlohmann::json::parse(body, nullptr, /*allow_exceptions=*/false);
  const auto& attentions = subject.view.attentions;
  const auto refuse = [] {
    throw Refusal(400, concat("expected {\"factors\": [[...], ...]}: for each layer a list with a "
                              "number from ",
                              kLeastFactor, " to ", kMostFactor, " for each head"));
  };
  const auto list = json.is_object() ? json.find("factors") : json.end();
  if (!json.is_object() || list == json.end() || !list->is_array() ||
      list->size() != attentions.size())
    refuse();
  Factors factors;
  for (size_t i = 0; i < attentions.size(); ++i) {
    const auto& heads = (*list)[i];
    if (!heads.is_array() || std::ssize(heads) != attentions[i].heads()) refuse();
    auto& own = factors.emplace_back();
    for (const auto& factor : heads) {
      if (!factor.is_number()) refuse();
      own.push_back(factor.get<double>());
      if (!(own.back() >= kLeastFactor && own.back() <= kMostFactor)) refuse();
    }
  }
  return factors;
}

// What cannot be done is the client's to know.
http::Response refusing(const std::function<http::Response()>& make) {
  try {
    return make();
  } catch (const Refusal&) {
    throw;
  } catch (const Error& error) {
    throw Refusal(409, error.what());
  }
}

}  // namespace

LiveLens::LiveLens(std::vector<Subject> subjects, LiveModel& model)
    : path_("/" + random_name() + "/"),
      model_(model),
      started_(std::make_shared<const std::vector<Subject>>(std::move(subjects))),
      subjects_(started_) {
  const auto add = [this](const char* method, const char* name,
                          http::Response (LiveLens::*make)(const http::Request&)) {
    router_.add(method, path_ + name,
                [this, make](const http::Request& request, http::Reply& reply) {
                  reply.send(refusing([&] { return (this->*make)(request); }));
                });
  };
  add("GET", "", &LiveLens::page);
  add("GET", "map", &LiveLens::map);
  add("GET", "top", &LiveLens::top);
  add("GET", "losses", &LiveLens::losses);
  add("POST", "what-if", &LiveLens::what_if);
  add("POST", "write", &LiveLens::write);
  add("POST", "read", &LiveLens::read);
  add("POST", "grow", &LiveLens::grow);
}

LiveLens::Subjects LiveLens::subjects() const {
  const std::lock_guard lock(mutex_);
  return subjects_;
}

// A page that has not seen what another one did would show numbers of another text.
LiveLens::Subjects LiveLens::subjects_of(const http::Request& request) const {
  const std::lock_guard lock(mutex_);
  const std::string* seen = request.query_value("shown");
  if (seen && *seen != std::to_string(shown_))
    throw Refusal(409, "the program shows something else by now; reload the page", "shown");
  return subjects_;
}

http::Response LiveLens::page(const http::Request& /*request*/) {
  const auto [all, shown] = [this] {
    const std::lock_guard lock(mutex_);
    return std::pair(subjects_, shown_);
  }();
  return answer("text/html; charset=utf-8", live_page(live_data(*all, model_.offers(), shown),
                                                      "Attention of " + all->front().name));
}

// Cells of a part of a head, row by row, 16 bits each.
http::Response LiveLens::map(const http::Request& request) {
  const auto all = subjects_of(request);
  const Attention& attention = attention_of(request, subject_of(request, *all));
  const int64_t head = number(request, "head", 0, attention.heads() - 1);
  const Span rows = span_of(request, "row", "rows", attention.rows());
  const Span keys = span_of(request, "key", "keys", attention.keys());
  const int64_t cell = number(request, "cell", 1, kMostCell);
  const auto cells = [&](const Span& span) { return (span.count + cell - 1) / cell; };
  if (cells(rows) * cells(keys) > kMostCellsAsked)
    throw Refusal(400, concat("cell: so small a cell makes more than ", kMostCellsAsked, " cells"),
                  "cell");
  const auto bits = in_16_bits(maxima(attention, head, rows, keys, cell));
  return answer("application/octet-stream",
                {reinterpret_cast<const char*>(bits.data()), bits.size() * sizeof(bits[0])});
}

// The heaviest keys of a row of a text, of every head.
http::Response LiveLens::top(const http::Request& request) {
  const auto all = subjects_of(request);
  const Subject& subject = subject_of(request, *all);
  const Attention& chosen = attention_of(request, subject);
  const int64_t row = number(request, "row", 0, chosen.rows() - 1);
  ordered_json list = ordered_json::array();
  for (size_t i = 0; i < subject.view.attentions.size(); ++i) {
    const Attention& attention = subject.view.attentions[i];
    if (subject.row_text(attention) != subject.row_text(chosen)) continue;
    for (int64_t head = 0; head < attention.heads(); ++head) {
      const auto found = weights(attention, head, {row, 1}, {0, attention.keys()})[0];
      const auto [weight, key] = found.topk(std::min(kTopKeysOfHead, attention.keys()));
      for (int64_t k = 0; k < key.size(0); ++k)
        list.push_back({i, head, key[k].item<int64_t>(), weight[k].item<double>()});
    }
  }
  return json_answer(list);
}

http::Response LiveLens::show(Subjects now) {
  int64_t shown = 0;
  {
    const std::lock_guard lock(mutex_);
    subjects_ = now;
    shown = ++shown_;
  }
  return json_answer(live_data(*now, model_.offers(), shown));
}

http::Response LiveLens::show(std::vector<Subject> now) {
  return show(std::make_shared<const std::vector<Subject>>(std::move(now)));
}

// Of every token, 32 bits each; computed where they were left for later.
http::Response LiveLens::losses(const http::Request& request) {
  const std::lock_guard one_at_a_time(computing_);
  const auto all = subjects_of(request);
  Subject subject = subject_of(request, *all);
  if (subject.view.output.defined()) {
    model_.add_losses(subject);
    auto now = *all;
    now[static_cast<size_t>(number(request, "model", 0, std::ssize(now) - 1))] = subject;
    const auto more = std::make_shared<const std::vector<Subject>>(std::move(now));
    const std::lock_guard lock(mutex_);
    subjects_ = more;
  }
  const auto losses = losses_of(subject);
  return answer("application/octet-stream",
                {reinterpret_cast<const char*>(losses.data()), losses.size() * sizeof(losses[0])});
}

// The model with other temperatures is what the first one is then compared with.
http::Response LiveLens::what_if(const http::Request& request) {
  const std::lock_guard one_at_a_time(computing_);
  const auto as_it_is = subjects()->front();
  const Factors factors = read_factors(request.body, as_it_is);
  const bool none = std::ranges::all_of(factors, [](const auto& heads) {
    return std::ranges::all_of(heads, [](double factor) { return factor == 1; });
  });
  const auto& first = started_->front();
  if (none && started_->size() > 1 && first.texts.back().ids == as_it_is.texts.back().ids)
    return show(started_);
  return show({as_it_is, model_.changed(as_it_is, factors)});
}

http::Response LiveLens::write(const http::Request& request) {
  const std::lock_guard one_at_a_time(computing_);
  return json_answer({{"folder", model_.write(read_factors(request.body, subjects()->front()))}});
}

// Another text, which grow() then continues.
http::Response LiveLens::read(const http::Request& request) {
  const auto json = nlohmann::json::parse(request.body, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("text") || !json["text"].is_string())
    throw Refusal(400, "expected {\"text\": \"...\"}: the text that the model is to read", "text");
  const std::lock_guard one_at_a_time(computing_);
  return show({model_.read(json["text"].get<std::string>())});
}

http::Response LiveLens::grow(const http::Request& /*request*/) {
  const std::lock_guard one_at_a_time(computing_);
  return show({model_.continued(subjects()->front())});
}

}  // namespace tempera::lens
