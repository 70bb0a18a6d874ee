#include <torch/version.h>

#include <algorithm>

#include "tempera/base/error.h"
#include "tempera/base/progress.h"
#include "tempera/base/text_table.h"
#include "tempera/bench/attention_pair.h"
#include "tempera/bench/benchmark.h"
#include "tempera/bench/machine.h"
#include "tempera/bench/timing.h"
#include "tempera/ops/attention.h"
#include "tempera/ops/torch.h"

namespace tempera::bench {
namespace {

using nlohmann::ordered_json;

constexpr int64_t kLeastDecodeRuns = 5;

// One query row a sequence against several caches of the same length, used in turn: together they
// are too large for the processor's caches, as those of a model's layers are.
class DecodeSets {
 public:
  explicit DecodeSets(const AttentionShape& shape) : shape_(shape) {
    const int64_t sets = std::clamp<int64_t>(uncached_bytes() / bytes() / 2, 2, 64);
    const auto random = [&](int64_t heads, int64_t rows) {
      return torch::randn({shape.batch, heads, rows, shape.size}).to(shape.type);
    };
    q_ = random(shape.heads, 1);
    for (int64_t set = 0; set < sets; ++set)
      caches_.emplace_back(random(shape.kv_heads, shape.length),
                           random(shape.kv_heads, shape.length));
    lengths_ = torch::full({shape.batch}, shape.length, torch::kInt32);
  }

  // Of the keys and values that one call reads.
  int64_t bytes() const {
    return 2 * shape_.batch * shape_.kv_heads * shape_.length * shape_.size *
           static_cast<int64_t>(torch::elementSize(shape_.type));
  }

  torch::Tensor run(Side side) {
    next_ = (next_ + 1) % caches_.size();
    return run(side, next_);
  }

  double check() {
    double worst = 0;
    for (size_t set = 0; set < caches_.size(); ++set)
      worst = std::max(worst, relative_error(run(Side::kOurs, set), run(Side::kTorch, set)));
    TEMPERA_CHECK(worst <= error_limit(shape_.type), "decode at ", shape_.text(),
                  " differs from torch's attention by ", worst, " of the largest element, at most ",
                  error_limit(shape_.type), " expected; nothing was timed");
    return worst;
  }

 private:
  torch::Tensor run(Side side, size_t set) const {
    const auto& [k, v] = caches_[set];
    if (side == Side::kTorch)
      return at::scaled_dot_product_attention(
          q_, k, v, /*attn_mask=*/std::nullopt, /*dropout_p=*/0, /*is_causal=*/false,
          /*scale=*/std::nullopt, /*enable_gqa=*/shape_.heads != shape_.kv_heads);
    ops::DecodeArgs args;
    args.q = q_;
    args.k = k;
    args.v = v;
    args.lengths = lengths_;
    return ops::decode(args).out;
  }

  AttentionShape shape_;
  torch::Tensor q_, lengths_;
  std::vector<std::pair<torch::Tensor, torch::Tensor>> caches_;
  size_t next_ = 0;
};

struct DecodeMeasurement {
  AttentionShape shape;
  int64_t bytes = 0;
  double error = 0;
  Spread ours, torch;
  double read_gbps = 0;

  double gbps(const Spread& spread) const {
    return static_cast<double>(bytes) / spread.median / 1e9;
  }
  double read_share() const { return gbps(ours) / read_gbps; }
  double ratio() const { return torch.median / ours.median; }
};

class DecodeBenchmark final : public Benchmark {
 public:
  void declare(config::Options& options) override {
    options.option("length", lengths_, config::range(1, 1 << 24), "keys in the cache");
    options.option("head-size", sizes_, config::range(16, 256), "head sizes D");
    options.option("heads", heads_, config::range(1, 4096), "attention heads H");
    options.option("kv-heads", kv_heads_, config::range(0, 4096),
                   "key-value heads; 0: as many as heads");
    options.option("batch", batch_, config::range(1, 65536), "sequences in the batch");
    run_.declare(options);
  }
  Report run() const override;

 private:
  std::vector<AttentionShape> shapes() const;

  std::vector<int64_t> lengths_ = {4096, 32768}, sizes_ = {128};
  int64_t heads_ = 8, kv_heads_ = 0, batch_ = 1;
  RunSettings run_{.dtypes = {"fp32", "bf16"}, .seconds = 2};
};

std::vector<AttentionShape> DecodeBenchmark::shapes() const {
  const int64_t kv_heads = kv_heads_ > 0 ? kv_heads_ : heads_;
  std::vector<AttentionShape> list;
  for (const auto& dtype : run_.dtypes)
    for (const int64_t size : sizes_)
      for (const int64_t length : lengths_)
        list.push_back({.batch = batch_,
                        .heads = heads_,
                        .kv_heads = kv_heads,
                        .length = length,
                        .size = size,
                        .type = type_of(dtype)});
  for (const auto& shape : list) shape.check();
  if (list.empty()) throw UsageError("there is nothing to measure: a list of shapes is empty");
  return list;
}

DecodeMeasurement measure(const AttentionShape& shape, double seconds, ReadSweep& sweep) {
  DecodeSets sets(shape);
  DecodeMeasurement row;
  row.shape = shape;
  row.bytes = sets.bytes();
  row.error = sets.check();
  // The sweep between the two also clears the caches.
  const std::vector<std::function<void()>> contenders = {
      [&] { sets.run(Side::kOurs); }, [&] { sets.run(Side::kTorch); }, [&] { sweep.run(); }};
  const auto times = time_in_turn(contenders, seconds, kLeastDecodeRuns);
  row.ours = times[0];
  row.torch = times[1];
  row.read_gbps = sweep.gbps(times[2].median);
  return row;
}

ordered_json row_json(const DecodeMeasurement& row) {
  return {{"dtype", type_name(row.shape.type)},
          {"B", row.shape.batch},
          {"H", row.shape.heads},
          {"kv_heads", row.shape.kv_heads},
          {"T", row.shape.length},
          {"D", row.shape.size},
          {"decode_ms", 1e3 * row.ours.median},
          {"lower_ms", 1e3 * row.ours.lower},
          {"upper_ms", 1e3 * row.ours.upper},
          {"runs", row.ours.runs},
          {"torch_ms", 1e3 * row.torch.median},
          {"ratio", row.ratio()},
          {"gbps", row.gbps(row.ours)},
          {"torch_gbps", row.gbps(row.torch)},
          {"read_gbps", row.read_gbps},
          {"read_share", row.read_share()},
          {"max_error", row.error}};
}

Report report_of(const std::vector<DecodeMeasurement>& rows) {
  TextTable table({"dtype", "B", "H", "keys", "D", "ms", "quartiles", "torch", "ratio", "GB/s",
                   "machine reads", "share", "error"});
  std::vector<double> rates;
  Report report{{{"rows", ordered_json::array()}, {"machine", machine_description()}}, {}};
  for (const auto& row : rows) {
    rates.push_back(row.read_gbps);
    report.document["rows"].push_back(row_json(row));
    table.add({type_name(row.shape.type), std::to_string(row.shape.batch),
               std::to_string(row.shape.heads), std::to_string(row.shape.length),
               std::to_string(row.shape.size), fixed(1e3 * row.ours.median, 2),
               concat(fixed(1e3 * row.ours.lower, 2), "-", fixed(1e3 * row.ours.upper, 2)),
               fixed(1e3 * row.torch.median, 2), fixed(row.ratio(), 2) + "x",
               fixed(row.gbps(row.ours), 1), fixed(row.read_gbps, 1),
               fixed(100 * row.read_share(), 0) + " %", scientific(row.error)});
  }
  report.document["machine"]["read_gbps"] = spread_of(rates).median;
  report.text = concat(
      "One new row against a cache, over the bytes of keys and values; torch: ", TORCH_VERSION,
      "'s scaled_dot_product_attention.\nA ratio above 1: ours is faster. ", at::get_num_threads(),
      " threads.\n\n", table.text());
  return report;
}

Report DecodeBenchmark::run() const {
  run_.apply();
  const auto all = shapes();
  const torch::NoGradGuard no_grad;
  ReadSweep sweep;
  sweep.run();
  std::vector<DecodeMeasurement> rows;
  Progress progress("bench", static_cast<int64_t>(all.size()), "shapes");
  for (size_t i = 0; i < all.size(); ++i) {
    progress.update(static_cast<int64_t>(i), all[i].text());
    rows.push_back(measure(all[i], run_.seconds, sweep));
  }
  progress.update(static_cast<int64_t>(all.size()));
  progress.finish();
  return report_of(rows);
}

}  // namespace

std::shared_ptr<Benchmark> make_decode_benchmark() { return std::make_shared<DecodeBenchmark>(); }

}  // namespace tempera::bench
