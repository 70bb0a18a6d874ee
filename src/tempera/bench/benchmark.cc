#include "tempera/bench/benchmark.h"

#include "tempera/config/common.h"
#include "tempera/models/device.h"
#include "tempera/ops/torch.h"

namespace tempera::bench {

std::span<const BenchmarkEntry> benchmarks() {
  static const std::vector<BenchmarkEntry> list = {
      {"attention", "forward and step of causal attention", make_attention_benchmark},
      {"decode", "one new row against a cache of keys and values", make_decode_benchmark},
      {"generate", "prompts and generated tokens of a model, in turn with other programs",
       make_generate_benchmark},
      {"linear", "few rows times a weight, as in a step of generation", make_linear_benchmark},
      {"serve", "many clients of a server, in turn with other servers", make_serve_benchmark},
      {"train", "a training step of a decoder, in turn with PyTorch's", make_train_benchmark}};
  return list;
}

void RunSettings::declare(config::Options& options) {
  options.option("dtype", dtypes, config::choices({"fp32", "bf16"}), "precisions to measure",
                 {.section = config::Section::kComputing});
  options.option("seconds", seconds, config::range(0, 3600),
                 "seconds per row of the table; every contender runs at least three times");
  config::threads_option(options, threads);
  config::seed_option(options, seed);
}

void RunSettings::apply() const {
  models::use_threads(threads);
  torch::manual_seed(static_cast<uint64_t>(seed));
}

}  // namespace tempera::bench
