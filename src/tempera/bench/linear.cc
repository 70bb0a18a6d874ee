#include "tempera/ops/linear.h"

#include <torch/version.h>

#include <algorithm>

#include "tempera/base/error.h"
#include "tempera/base/progress.h"
#include "tempera/base/text_table.h"
#include "tempera/bench/attention_pair.h"
#include "tempera/bench/benchmark.h"
#include "tempera/bench/machine.h"
#include "tempera/bench/timing.h"
#include "tempera/ops/torch.h"

namespace tempera::bench {
namespace {

using nlohmann::ordered_json;

constexpr int64_t kLeastLinearRuns = 5;

// Rows times several matrices, used in turn: together they are too large for the processor's
// caches, as those of a model are.
class LinearSets {
 public:
  LinearSets(int64_t rows, int64_t outputs, int64_t inputs, torch::ScalarType type)
      : x_(torch::randn({rows, inputs}).to(type)) {
    const int64_t bytes = outputs * inputs * static_cast<int64_t>(torch::elementSize(type));
    const int64_t count = std::clamp<int64_t>(uncached_bytes() / bytes, 2, 64);
    for (int64_t i = 0; i < count; ++i)
      weights_.push_back(torch::randn({outputs, inputs}).to(type));
  }

  double bytes() const {
    return static_cast<double>(weights_.size()) * static_cast<double>(weights_[0].nbytes());
  }
  double operations() const {
    return 2 * static_cast<double>(weights_.size()) * static_cast<double>(weights_[0].numel()) *
           static_cast<double>(x_.size(0));
  }
  void ours() const {
    for (const auto& weight : weights_) ops::linear(x_, weight);
  }
  void torchs() const {
    for (const auto& weight : weights_) torch::linear(x_, weight);
  }
  double check() const {
    const double error =
        relative_error(ops::linear(x_, weights_[0]), torch::linear(x_, weights_[0]));
    TEMPERA_CHECK(error <= error_limit(x_.scalar_type()), "the product of ", x_.sizes(), " and ",
                  weights_[0].sizes(), " differs from torch's by ", error,
                  " of the largest element; nothing was timed");
    return error;
  }

 private:
  torch::Tensor x_;
  std::vector<torch::Tensor> weights_;
};

class LinearBenchmark final : public Benchmark {
 public:
  void declare(config::Options& options) override {
    options.option("rows", rows_, config::range(1, 4096), "rows of the left matrix");
    options.option("inputs", inputs_, config::range(1, 1 << 20), "input features of the weight");
    options.option("outputs", outputs_, config::range(1, 1 << 20), "output features of the weight");
    run_.declare(options);
  }

  Report run() const override {
    run_.apply();
    const torch::NoGradGuard no_grad;
    Report report{{{"rows", ordered_json::array()}, {"machine", machine_description()}}, {}};
    TextTable table({"dtype", "rows", "weight", "GB/s", "torch", "ratio", "machine reads", "share",
                     "GFLOP/s", "error"});
    ReadSweep sweep;
    sweep.run();
    const auto all = static_cast<int64_t>(run_.dtypes.size() * rows_.size());
    Progress progress("bench", all, "shapes");
    int64_t done = 0;
    for (const auto& dtype : run_.dtypes)
      for (const int64_t rows : rows_) {
        add_row(dtype, rows, sweep, report, table);
        progress.update(++done);
      }
    progress.finish();
    report.text =
        concat("Rows times a weight, over the bytes of the weight; torch: ", TORCH_VERSION,
               "'s linear. A ratio above 1: ours is faster. ", at::get_num_threads(),
               " threads.\n\n", table.text());
    return report;
  }

 private:
  void add_row(const std::string& dtype, int64_t rows, ReadSweep& sweep, Report& report,
               TextTable& table) const {
    const LinearSets sets(rows, outputs_, inputs_, type_of(dtype));
    const double error = sets.check();
    const std::vector<std::function<void()>> contenders = {
        [&] { sets.ours(); }, [&] { sets.torchs(); }, [&] { sweep.run(); }};
    const auto times = time_in_turn(contenders, run_.seconds, kLeastLinearRuns);
    const double ours = sets.bytes() / times[0].median / 1e9;
    const double torchs = sets.bytes() / times[1].median / 1e9;
    const double reads = sweep.gbps(times[2].median);
    const double gflops = sets.operations() / times[0].median / 1e9;
    report.document["rows"].push_back({{"dtype", dtype},
                                       {"rows", rows},
                                       {"outputs", outputs_},
                                       {"inputs", inputs_},
                                       {"gbps", ours},
                                       {"torch_gbps", torchs},
                                       {"ratio", ours / torchs},
                                       {"read_gbps", reads},
                                       {"read_share", ours / reads},
                                       {"gflops", gflops},
                                       {"max_error", error}});
    table.add({dtype, std::to_string(rows), concat(outputs_, " x ", inputs_), fixed(ours, 1),
               fixed(torchs, 1), fixed(ours / torchs, 2) + "x", fixed(reads, 1),
               fixed(100 * ours / reads, 0) + " %", fixed(gflops, 0), scientific(error)});
  }

  std::vector<int64_t> rows_ = {1, 2, 4, 8};
  int64_t inputs_ = 1536, outputs_ = 1536;
  RunSettings run_{.dtypes = {"fp32", "bf16"}, .seconds = 2};
};

}  // namespace

std::shared_ptr<Benchmark> make_linear_benchmark() { return std::make_shared<LinearBenchmark>(); }

}  // namespace tempera::bench
