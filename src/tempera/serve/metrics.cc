#include "tempera/serve/metrics.h"

#include <charconv>

#include "tempera/base/error.h"

namespace tempera::serve {
namespace {

std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '\\' || c == '"') result += '\\';
    result += c == '\n' ? ' ' : c;
  }
  return result;
}

// All digits of a number: rates come from differences of large sums.
template <class Number>
std::string digits(Number value) {
  std::array<char, 32> text;
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  return {text.data(), end};
}

}  // namespace

void Histogram::add(double seconds) {
  const std::lock_guard lock(mutex_);
  for (size_t i = 0; i < kBounds.size(); ++i)
    if (seconds <= kBounds[i]) ++counts_[i];
  ++count_;
  sum_ += seconds;
}

std::string Histogram::text(const std::string& name, const std::string& labels) const {
  const std::lock_guard lock(mutex_);
  std::string lines;
  for (size_t i = 0; i < kBounds.size(); ++i)
    lines += concat(name, "_bucket{", labels, ",le=\"", kBounds[i], "\"} ", counts_[i], "\n");
  return lines + concat(name, "_bucket{", labels, ",le=\"+Inf\"} ", count_, "\n", name, "_sum{",
                        labels, "} ", digits(sum_), "\n", name, "_count{", labels, "} ", count_,
                        "\n");
}

std::string metrics_text(const std::vector<ModelMetrics>& models) {
  std::string lines;
  const auto add = [&](const std::string& name, const char* type, const auto& lines_of) {
    lines += concat("# TYPE ", name, " ", type, "\n");
    for (const auto& model : models)
      lines += lines_of(model, name, "model_name=\"" + escaped(model.model) + "\"");
  };
  const auto add_value = [&](const char* name, const char* type, auto EngineState::*value) {
    add(name, type, [&](const auto& model, const auto& full, const auto& labels) {
      return concat(full, "{", labels, "} ", digits(model.state.*value), "\n");
    });
  };
  const auto add_counts = [&](const char* name, auto EngineState::*counts) {
    add(name, "counter", [&](const auto& model, const auto& full, const auto& labels) {
      std::string all;
      for (const auto& [reason, count] : model.state.*counts)
        all += concat(full, "{", labels, ",finished_reason=\"", reason, "\"} ", count, "\n");
      return all;
    });
  };
  const auto add_histogram = [&](const char* name, Histogram Metrics::*histogram) {
    add(name, "histogram", [&](const auto& model, const auto& full, const auto& labels) {
      return (model.metrics->*histogram).text(full, labels);
    });
  };
  add_value("vllm:num_requests_running", "gauge", &EngineState::running);
  add_value("vllm:num_requests_waiting", "gauge", &EngineState::waiting);
  add_value("vllm:kv_cache_usage_perc", "gauge", &EngineState::cache_used);
  add_value("tempera:kv_cache_bytes", "gauge", &EngineState::cache_bytes);
  add_value("vllm:prefix_cache_queries_total", "counter", &EngineState::prefix_queries);
  add_value("vllm:prefix_cache_hits_total", "counter", &EngineState::prefix_hits);
  add_value("vllm:prompt_tokens_total", "counter", &EngineState::prompt_tokens);
  add_value("vllm:generation_tokens_total", "counter", &EngineState::generated_tokens);
  add_value("vllm:num_preemptions_total", "counter", &EngineState::preemptions);
  add_counts("vllm:request_success_total", &EngineState::finished);
  add_counts("tempera:request_failure_total", &EngineState::failed);
  add_histogram("vllm:time_to_first_token_seconds", &Metrics::first_token);
  add_histogram("vllm:inter_token_latency_seconds", &Metrics::between_tokens);
  add_histogram("vllm:e2e_request_latency_seconds", &Metrics::request);
  return lines;
}

}  // namespace tempera::serve
