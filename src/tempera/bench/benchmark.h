#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "tempera/config/options.h"

// The benchmarks of `tempera bench NAME`. Each compares with libtorch's own in one run.
namespace tempera::bench {

struct Report {
  nlohmann::ordered_json document;  // "rows" and "machine"
  std::string text;                 // the same as a table
};

// One benchmark with its own options.
class Benchmark {
 public:
  virtual ~Benchmark() = default;
  virtual void declare(config::Options& options) = 0;
  // Progress goes to standard error. Throws Error where a result is wrong: nothing wrong is timed.
  virtual Report run() const = 0;
};

struct BenchmarkEntry {
  std::string name;
  std::string help;
  std::shared_ptr<Benchmark> (*make)();
};

std::span<const BenchmarkEntry> benchmarks();

std::shared_ptr<Benchmark> make_attention_benchmark();
std::shared_ptr<Benchmark> make_decode_benchmark();
std::shared_ptr<Benchmark> make_generate_benchmark();
std::shared_ptr<Benchmark> make_linear_benchmark();
std::shared_ptr<Benchmark> make_serve_benchmark();
std::shared_ptr<Benchmark> make_train_benchmark();

// The options that all of them have.
struct RunSettings {
  std::vector<std::string> dtypes;  // fp32, bf16
  double seconds = 4;
  int64_t threads = 0;
  int64_t seed = 0;

  void declare(config::Options& options);
  // Sets the number of threads and the seed of this process.
  void apply() const;
};

}  // namespace tempera::bench
