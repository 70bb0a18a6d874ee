#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace tempera::serve {

// How many values lie at or below each bound, as Prometheus counts.
class Histogram {
 public:
  void add(double seconds);
  // The lines of one metric, without that of its type.
  std::string text(const std::string& name, const std::string& labels) const;

 private:
  static constexpr std::array<double, 14> kBounds = {0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
                                                     1,     2.5,  5,     10,   30,  60,   120};
  mutable std::mutex mutex_;
  std::array<int64_t, kBounds.size()> counts_ = {};
  int64_t count_ = 0;
  double sum_ = 0;
};

// What an engine tells of itself at one moment.
struct EngineState {
  int64_t running = 0, waiting = 0;
  double cache_used = 0;                        // share
  int64_t prefix_queries = 0, prefix_hits = 0;  // tokens
  int64_t prompt_tokens = 0, generated_tokens = 0;
  int64_t preemptions = 0;                       // sequences that gave their memory back
  int64_t cache_bytes = 0;                       // of all keys and values
  std::map<std::string, int64_t> finished = {};  // by reason
  std::map<std::string, int64_t> failed = {};    // the same of those without a whole answer
};

struct Metrics {
  Histogram first_token, between_tokens, request;
};

// A model's figures.
struct ModelMetrics {
  std::string model;
  EngineState state;
  const Metrics* metrics;
};

// In Prometheus' text format, with vLLM's names where vLLM has the metric: each with its models.
std::string metrics_text(const std::vector<ModelMetrics>& models);

}  // namespace tempera::serve
