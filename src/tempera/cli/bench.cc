#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "tempera/bench/benchmark.h"
#include "tempera/cli/verb.h"
#include "tempera/config/common.h"

namespace tempera::cli {
namespace {

// The options behind the benchmark's name are its own.
struct BenchSettings {
  std::string name;
  bool json = false;
  std::shared_ptr<bench::Benchmark> benchmark;

  void declare(config::Options& options) {
    std::vector<std::string> names;
    std::string help = "what to measure (`tempera bench NAME --help` lists its options)";
    for (const auto& entry : bench::benchmarks()) {
      names.push_back(entry.name);
      help += "; " + entry.name + ": " + entry.help;
    }
    options.positional("benchmark", name, config::choices(names), help);
    config::json_option(options, json);
    options.section(config::Section::kMeasuring);
    for (const auto& entry : bench::benchmarks())
      if (entry.name == name) benchmark = entry.make();
    if (benchmark) benchmark->declare(options);
  }
};

void run(const BenchSettings& settings) {
  const bench::Report report = settings.benchmark->run();
  std::cout << (settings.json ? report.document.dump(2) + "\n" : report.text);
}

}  // namespace

Verb bench_verb() {
  return make_verb<BenchSettings>(
      "bench", "measures kernels, training, generation and serving against PyTorch and llama.cpp",
      {{"tempera bench attention", "fused attention against libtorch's"},
       {"tempera bench train --peers eager,compile", "a training step against PyTorch's"},
       {"tempera bench generate MODEL.gguf --peers llama.cpp", "generation against llama.cpp"},
       {"tempera bench serve MODEL.gguf --peers llama.cpp", "16 clients against its server"}},
      run);
}

}  // namespace tempera::cli
