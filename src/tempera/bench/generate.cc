#include "tempera/generate/generate.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <memory>

#include "tempera/base/error.h"
#include "tempera/base/progress.h"
#include "tempera/base/text_table.h"
#include "tempera/bench/attention_pair.h"
#include "tempera/bench/benchmark.h"
#include "tempera/bench/machine.h"
#include "tempera/bench/memory.h"
#include "tempera/bench/peer.h"
#include "tempera/bench/peer_program.h"
#include "tempera/bench/timing.h"
#include "tempera/models/device.h"
#include "tempera/models/load.h"
#include "tempera/ops/blocks.h"
#include "tempera/ops/torch.h"

namespace tempera::bench {
namespace {

using nlohmann::ordered_json;
using Tokens = std::vector<int64_t>;

constexpr int64_t kLeastRounds = 3;
// Greedy tokens that a peer with the same numbers must choose too.
constexpr size_t kCheckedTokens = 8;

// One prompt and the tokens behind it.
struct Turn {
  double prompt_seconds = 0;
  double generate_seconds = 0;  // of the tokens behind the first
  Tokens tokens;
};

struct Facts {
  std::string name;
  bool exact = false;  // float32: its tokens are compared
  double load_seconds = 0;
  int64_t weight_bytes = 0;  // that a token reads; 0: not known
  int64_t peak_bytes = 0;    // of a process with this model alone
};

class Contender {
 public:
  virtual ~Contender() = default;
  virtual Turn run(const Tokens& prompt, int64_t count) = 0;
  const Facts& facts() const { return facts_; }
  void note_peak(int64_t bytes) { facts_.peak_bytes = bytes; }

 protected:
  Facts facts_;
};

// In place of a dtype: a GGUF file's matrices in its own blocks.
constexpr const char* kBlocks = "blocks";
constexpr const char* kAuto = "auto";
const std::map<std::string, config::CacheDtype> kCaches = {{kAuto, config::CacheDtype::kAuto},
                                                           {"fp32", config::CacheDtype::kFloat32},
                                                           {"bf16", config::CacheDtype::kBfloat16},
                                                           {"int8", config::CacheDtype::kInt8}};

int64_t bytes_of(const torch::Tensor& weight) {
  const auto* parts = ops::blocks_of(weight);
  if (!parts) return static_cast<int64_t>(weight.nbytes());
  int64_t bytes = 0;
  for (const auto& part : *parts) bytes += std::ssize(part.bytes);
  return bytes;
}

class Ours final : public Contender {
 public:
  Ours(const std::string& path, const std::string& dtype, const std::string& cache) {
    facts_.name = "tempera " + dtype + (cache == kAuto ? "" : ", cache " + cache);
    facts_.exact = dtype == "fp32" && (cache == kAuto || cache == "fp32");
    models::LoadOptions options;
    if (dtype == kBlocks)
      options.blocks = true;
    else
      options.dtype = type_of(dtype);
    options.cache_type = models::cache_type(kCaches.at(cache), options.dtype);
    facts_.load_seconds = seconds_of([&] { model_ = models::load_model(path, options).model; });
    for (const auto& parameter : model_->parameter_list())
      if (parameter.tensor.is_same(model_->output_weight()) ||
          parameter.kind != nn::ParameterKind::kEmbedding)
        facts_.weight_bytes += bytes_of(parameter.tensor);
  }

  Turn run(const Tokens& prompt, int64_t count) override {
    using Clock = std::chrono::steady_clock;
    const auto start = Clock::now();
    std::vector<double> at;
    const auto answer = generate::generate(
        *model_, {prompt},
        {.max_tokens = count + 1, .stop_tokens = {}, .sampler = {.temperature = 0}},
        [&](size_t, const generate::Token&) {
          at.push_back(std::chrono::duration<double>(Clock::now() - start).count());
          return true;
        });
    return {at.front(), at.back() - at.front(), answer.front().ids()};
  }

  const nn::ModelConfig& config() const { return model_->config(); }
  int64_t parameter_count() const { return model_->parameter_count(); }

 private:
  std::shared_ptr<nn::Model> model_;
};

// bench/peers/transformers_generate.py
class Other final : public Contender {
 public:
  Other(const std::string& name, bool exact, std::vector<std::string> command)
      : peer_(name, std::move(command)) {
    const auto ready = peer_.read();
    facts_ = {.name = name, .exact = exact, .load_seconds = ready.at("load_seconds")};
  }

  Turn run(const Tokens& prompt, int64_t count) override {
    const auto done = peer_.ask(nlohmann::json{{"prompt", prompt}, {"tokens", count}}.dump());
    facts_.peak_bytes = done.at("peak_bytes");
    return {done.at("prompt_seconds"), done.at("generate_seconds"), done.at("tokens")};
  }

 private:
  Peer peer_;
};

struct Speeds {
  Facts facts;
  Spread prompt, generate;
};

class GenerateBenchmark final : public Benchmark {
 public:
  void declare(config::Options& options) override {
    options.positional("model", model_, "a folder or a .gguf file");
    options.option("prompt-tokens", prompt_, config::range(1, 1 << 24), "tokens of the prompt");
    options.renamed("prompt", "--prompt is a text; the length of the prompt is --prompt-tokens");
    options.option("tokens", tokens_, config::range(1, 1 << 24), "tokens to generate after it");
    options.option("peers", peers_, config::choices({"transformers", "llama.cpp"}),
                   "programs to measure against, in turn; llama.cpp reads .gguf files only");
    options.option("cache-dtype", caches_, config::choices({kAuto, "fp32", "bf16", "int8"}),
                   "precisions of the KV cache to measure; auto: as the computation");
    program_.declare(options);
    run_.declare(options);
  }
  Report run() const override;

 private:
  PeerProgram find_program() const;
  std::vector<std::unique_ptr<Contender>> contenders(const PeerProgram& program,
                                                     Progress& progress) const;
  std::vector<Speeds> measure(std::vector<std::unique_ptr<Contender>>& all, ReadSweep& sweep,
                              double& read_gbps, Progress& progress) const;
  Report report(const std::vector<Speeds>& rows, double read_gbps) const;

  std::string model_;
  int64_t prompt_ = 512, tokens_ = 32;
  std::vector<std::string> peers_, caches_ = {kAuto};
  PeerProgram program_;
  RunSettings run_{.dtypes = {"fp32", "bf16"}, .seconds = 30};
};

PeerProgram GenerateBenchmark::find_program() const {
  if (peers_.empty()) return {};
  std::vector<std::string> modules;
  for (const auto& peer : peers_) {
    if (peer == "llama.cpp" && !model_.ends_with(".gguf"))
      throw UsageError(concat("--peers llama.cpp: '", model_, "' is no .gguf file"));
    modules.emplace_back(peer == "llama.cpp" ? "llama_cpp" : "transformers");
  }
  return find_peer(program_, "transformers_generate.py", modules);
}

// Random, as long as it is valid: the time does not depend on what the text says.
Tokens random_prompt(int64_t vocabulary, int64_t length) {
  const auto drawn = torch::randint(vocabulary, {length}, torch::kInt64);
  const auto* first = drawn.const_data_ptr<int64_t>();
  return {first, first + length};
}

std::vector<std::unique_ptr<Contender>> GenerateBenchmark::contenders(const PeerProgram& program,
                                                                      Progress& progress) const {
  std::vector<std::unique_ptr<Contender>> all;
  const int64_t empty = resident_bytes();
  auto own = run_.dtypes;
  if (model_.ends_with(".gguf")) own.insert(own.begin(), kBlocks);
  for (const auto& dtype : own)
    for (const auto& cache : caches_) {
      progress.update(0, "loading " + dtype);
      const int64_t before = resident_bytes();
      const ResidentPeak peak;
      auto ours = std::make_unique<Ours>(model_, dtype, cache);
      ours->run(random_prompt(ours->config().vocabulary, prompt_), tokens_);
      ours->note_peak(empty + peak.bytes() - before);
      all.push_back(std::move(ours));
    }
  const auto start = [&](const std::string& peer, const std::string& dtype) {
    const std::string name = dtype.empty() ? peer : peer + " " + dtype;
    progress.update(0, "starting " + name);
    all.push_back(std::make_unique<Other>(
        name, dtype == "fp32",
        std::vector<std::string>{program.python, program.script, model_, "--program", peer,
                                 "--dtype", dtype.empty() ? "fp32" : dtype, "--threads",
                                 std::to_string(at::get_num_threads()), "--room",
                                 std::to_string(prompt_ + tokens_ + 1)}));
  };
  for (const auto& peer : peers_) {
    if (peer == "llama.cpp") {
      start(peer, "");
    } else {
      for (const auto& dtype : run_.dtypes) start(peer, dtype);
    }
  }
  return all;
}

// Programs with the same numbers choose the same tokens.
void check_tokens(const std::vector<Turn>& turns,
                  const std::vector<std::unique_ptr<Contender>>& all) {
  const auto head = [](const Turn& turn) {
    return Tokens(
        turn.tokens.begin(),
        turn.tokens.begin() + static_cast<int64_t>(std::min(turn.tokens.size(), kCheckedTokens)));
  };
  for (size_t i = 1; i < all.size(); ++i)
    TEMPERA_CHECK(
        !all[0]->facts().exact || !all[i]->facts().exact || head(turns[0]) == head(turns[i]),
        all[i]->facts().name, " continues the prompt with other tokens than ", all[0]->facts().name,
        ": they do not run the same model");
}

std::vector<Speeds> GenerateBenchmark::measure(std::vector<std::unique_ptr<Contender>>& all,
                                               ReadSweep& sweep, double& read_gbps,
                                               Progress& progress) const {
  const auto& first = dynamic_cast<const Ours&>(*all.front());
  const Tokens prompt = random_prompt(first.config().vocabulary, prompt_);
  std::vector<Turn> turns;
  for (auto& contender : all) turns.push_back(contender->run(prompt, tokens_));  // warms up
  check_tokens(turns, all);
  std::vector<std::vector<double>> prompts(all.size()), tokens(all.size());
  std::vector<double> reads;
  double used = 0;
  for (int64_t round = 0; round < kLeastRounds || used < run_.seconds; ++round) {
    progress.update(round, "rounds");
    for (size_t i = 0; i < all.size(); ++i) {
      const Turn turn = all[i]->run(prompt, tokens_);
      prompts[i].push_back(turn.prompt_seconds);
      tokens[i].push_back(turn.generate_seconds);
      used += turn.prompt_seconds + turn.generate_seconds;
    }
    reads.push_back(seconds_of([&] { sweep.run(); }));
  }
  read_gbps = sweep.gbps(spread_of(reads).median);
  std::vector<Speeds> rows;
  for (size_t i = 0; i < all.size(); ++i)
    rows.push_back({all[i]->facts(), spread_of(prompts[i]), spread_of(tokens[i])});
  return rows;
}

Report GenerateBenchmark::report(const std::vector<Speeds>& rows, double read_gbps) const {
  Report report{{{"rows", ordered_json::array()}, {"machine", machine_description()}}, {}};
  TextTable table({"", "load s", "prompt tokens/s", "quartiles", "generated tokens/s", "quartiles",
                   "GB/s", "of reads", "weights", "peak"});
  const auto speed = [](int64_t count, double seconds) {
    return static_cast<double>(count) / seconds;
  };
  for (const auto& row : rows) {
    const double rate = speed(tokens_, row.generate.median);
    const double gbps = static_cast<double>(row.facts.weight_bytes) * rate / 1e9;
    const auto quartiles = [&](int64_t count, const Spread& spread) {
      return concat(fixed(speed(count, spread.upper), 1), "-",
                    fixed(speed(count, spread.lower), 1));
    };
    ordered_json json{{"name", row.facts.name},
                      {"load_seconds", row.facts.load_seconds},
                      {"prompt_tokens_per_second", speed(prompt_, row.prompt.median)},
                      {"generated_tokens_per_second", rate},
                      {"rounds", row.generate.runs},
                      {"peak_bytes", row.facts.peak_bytes}};
    const bool known = row.facts.weight_bytes > 0;
    if (known)
      json.update({{"weight_bytes", row.facts.weight_bytes},
                   {"gbps", gbps},
                   {"read_share", gbps / read_gbps}});
    report.document["rows"].push_back(std::move(json));
    table.add({row.facts.name, fixed(row.facts.load_seconds, 2),
               fixed(speed(prompt_, row.prompt.median), 0), quartiles(prompt_, row.prompt),
               fixed(rate, 1), quartiles(tokens_, row.generate), known ? fixed(gbps, 1) : "",
               known ? fixed(100 * gbps / read_gbps, 0) + " %" : "",
               known ? megabytes(row.facts.weight_bytes) : "", megabytes(row.facts.peak_bytes)});
  }
  report.document["machine"]["read_gbps"] = read_gbps;
  report.text = concat(model_, ": a prompt of ", prompt_, " tokens and ", tokens_,
                       " behind it, one sequence, ", at::get_num_threads(),
                       " threads. In turn; medians.\nGB/s: of the weights that a token reads; ",
                       "the machine reads ", fixed(read_gbps, 1),
                       ". Peak: of a process with this model alone.\n\n", table.text());
  return report;
}

Report GenerateBenchmark::run() const {
  const auto program = find_program();
  if (run_.dtypes.empty() && !model_.ends_with(".gguf"))
    throw UsageError("--dtype: there is nothing to measure");
  if (caches_.empty()) throw UsageError("--cache-dtype: there is nothing to measure");
  run_.apply();
  Progress progress("bench", 0, "rounds");
  auto all = contenders(program, progress);
  ReadSweep sweep;
  sweep.run();
  double read_gbps = 0;
  const auto rows = measure(all, sweep, read_gbps, progress);
  progress.finish();
  return report(rows, read_gbps);
}

}  // namespace

std::shared_ptr<Benchmark> make_generate_benchmark() {
  return std::make_shared<GenerateBenchmark>();
}

}  // namespace tempera::bench
