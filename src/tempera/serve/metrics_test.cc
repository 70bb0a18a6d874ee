#include "tempera/serve/metrics.h"

#include <gtest/gtest.h>

#include "tempera/base/testing.h"

namespace tempera::serve {
namespace {

TEST(Metrics, NameEachTypeOnceForAllModels) {
  Metrics first, second;
  const std::string text = metrics_text({{"a", {.running = 3}, &first}, {"b", {}, &second}});
  for (const char* name : {"vllm:num_requests_running gauge", "vllm:request_success_total counter",
                           "vllm:e2e_request_latency_seconds histogram"}) {
    const std::string line = std::string("# TYPE ") + name + "\n";
    EXPECT_TRUE(says(text, line)) << name;
    EXPECT_EQ(text.find(line), text.rfind(line)) << name;
  }
  EXPECT_TRUE(says(text,
                   "# TYPE vllm:num_requests_running gauge\n"
                   "vllm:num_requests_running{model_name=\"a\"} 3\n"
                   "vllm:num_requests_running{model_name=\"b\"} 0\n"));
}

TEST(Metrics, GiveAllDigits) {
  Metrics metrics;
  metrics.request.add(2'000'000.5);
  metrics.request.add(0.25);
  EXPECT_TRUE(says(metrics_text({{"a", {.cache_used = 0.5}, &metrics}}),
                   "vllm:e2e_request_latency_seconds_sum{model_name=\"a\"} 2000000.75\n"));
}

TEST(Metrics, TellFailuresApart) {
  Metrics metrics;
  EngineState state;
  state.finished["stop"] = 2;
  state.failed["timeout"] = 1;
  const std::string text = metrics_text({{"a", state, &metrics}});
  EXPECT_TRUE(
      says(text, "vllm:request_success_total{model_name=\"a\",finished_reason=\"stop\"} 2"));
  EXPECT_TRUE(
      says(text, "tempera:request_failure_total{model_name=\"a\",finished_reason=\"timeout\"} 1"));
}

}  // namespace
}  // namespace tempera::serve
