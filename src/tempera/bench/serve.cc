#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <thread>

#include "tempera/base/error.h"
#include "tempera/base/progress.h"
#include "tempera/base/text_table.h"
#include "tempera/bench/benchmark.h"
#include "tempera/bench/machine.h"
#include "tempera/bench/peer_program.h"
#include "tempera/bench/server_process.h"
#include "tempera/bench/timing.h"
#include "tempera/config/common.h"
#include "tempera/models/device.h"
#include "tempera/models/load.h"
#include "tempera/models/tokenizer.h"
#include "tempera/ops/torch.h"

namespace tempera::bench {
namespace {

using nlohmann::ordered_json;

constexpr int64_t kServeRounds = 2;
// Requests of one client alone in a round.
constexpr int64_t kAlone = 3;
// Tokens that a context has beside the prompt and the answer.
constexpr int64_t kSpare = 64;

// Texts of so many tokens each, none like another.
class Prompts {
 public:
  Prompts(std::shared_ptr<const text::Tokenizer> tokenizer, int64_t tokens, int64_t seed)
      : tokenizer_(std::move(tokenizer)), tokens_(tokens), random_(static_cast<uint64_t>(seed)) {
    for (int32_t id = 0; id < tokenizer_->vocabulary(); ++id)
      if (is_word(id)) words_.push_back(id);
    TEMPERA_CHECK(words_.size() >= 100, "the tokenizer has ", words_.size(),
                  " tokens that are words; prompts are made of at least 100");
  }

  // Greedy, and without the tokens that end an answer: all have the same length.
  std::string request(const std::string& model, int64_t answer,
                      const std::vector<int64_t>& end_tokens) {
    std::string prompt;
    for (int64_t i = 0; i < tokens_; ++i) {
      const int32_t id = words_[random_() % words_.size()];
      tokenizer_->decode({&id, 1}, prompt);
    }
    const auto found = static_cast<int64_t>(encoded(prompt).size());
    TEMPERA_CHECK(std::abs(found - tokens_) <= tokens_ / 20, "a prompt of ", tokens_, " words has ",
                  found, " tokens");
    ordered_json bias = ordered_json::object();
    for (const int64_t id : end_tokens) bias[std::to_string(id)] = -100;
    return ordered_json{{"model", model},   {"prompt", prompt}, {"max_tokens", answer},
                        {"temperature", 0}, {"stream", true},   {"logit_bias", bias}}
        .dump();
  }

 private:
  std::vector<int32_t> encoded(const std::string& text) const {
    std::vector<int32_t> ids;
    tokenizer_->encode(text, ids, {.add_special = true});
    return ids;
  }
  // " word": one token again, whatever stands around it.
  bool is_word(int32_t id) const {
    std::string text;
    tokenizer_->decode({&id, 1}, text);
    if (text.size() < 4 || text.front() != ' ') return false;
    const auto is_letter = [](char c) { return c >= 'a' && c <= 'z'; };
    if (!std::ranges::all_of(text.substr(1), is_letter)) return false;
    std::vector<int32_t> ids;
    tokenizer_->encode(text + text, ids);
    return ids == std::vector<int32_t>{id, id};
  }

  std::shared_ptr<const text::Tokenizer> tokenizer_;
  int64_t tokens_;
  std::mt19937_64 random_;
  std::vector<int32_t> words_;
};

// Seconds to the first token of each request of many clients.
struct FirstTokens {
  std::vector<double> at_once;  // where all clients come at the same time
  std::vector<double> later;    // where a client comes while the others read and write
};

// What a server did in all rounds.
struct Served {
  std::vector<double> alone;  // seconds to the first token of one client
  FirstTokens first;
  std::vector<double> rounds;  // seconds of all clients
  int64_t own_bytes = 0, cache_bytes = 0;
};

HttpAnswer ask(const ServerProcess& server, const std::string& request) {
  HttpAnswer answer = http_post(server.port(), "/v1/completions", request);
  TEMPERA_CHECK(answer.status == 200, server.name(), " answered with status ", answer.status, ": ",
                answer.body.substr(0, 300));
  const bool whole = answer.body.find("\"finish_reason\":\"length\"") != std::string::npos ||
                     answer.body.find("\"finish_reason\": \"length\"") != std::string::npos;
  TEMPERA_CHECK(whole, server.name(), " ended an answer before all its tokens: ",
                answer.body.substr(answer.body.size() - std::min<size_t>(answer.body.size(), 300)));
  return answer;
}

// Every client has a thread, and asks one request after another; all begin at once.
FirstTokens ask_together(const ServerProcess& server,
                         const std::vector<std::vector<std::string>>& clients) {
  FirstTokens first;
  std::mutex mutex;
  std::string failure;
  const auto ask_all = [&](const std::vector<std::string>& requests) {
    for (size_t i = 0; i < requests.size(); ++i) {
      const double seconds = ask(server, requests[i]).first_seconds;
      const std::lock_guard lock(mutex);
      (i == 0 ? first.at_once : first.later).push_back(seconds);
    }
  };
  {
    std::vector<std::jthread> threads;
    for (const auto& requests : clients)
      threads.emplace_back([&] {
        try {
          ask_all(requests);
        } catch (const std::exception& error) {
          const std::lock_guard lock(mutex);
          failure = error.what();
        }
      });
  }
  if (!failure.empty()) throw Error(failure);
  return first;
}

// Of the keys and values, which only our server tells; else 0.
int64_t cache_bytes(const ServerProcess& server) {
  const HttpAnswer metrics = http_get(server.port(), "/metrics");
  constexpr std::string_view kName = "\ntempera:kv_cache_bytes{";
  const size_t at = metrics.status == 200 ? metrics.body.find(kName) : std::string::npos;
  if (at == std::string::npos) return 0;
  const size_t begin = metrics.body.find("} ", at) + 2;
  int64_t bytes = 0;
  std::from_chars(metrics.body.data() + begin, metrics.body.data() + metrics.body.size(), bytes);
  return bytes;
}

void append(std::vector<double>& list, const std::vector<double>& more) {
  list.insert(list.end(), more.begin(), more.end());
}

// Of no numbers it is none.
std::optional<double> p95(std::vector<double> seconds) {
  if (seconds.empty()) return std::nullopt;
  std::ranges::sort(seconds);
  return quantile(seconds, 0.95);
}

class ServeBenchmark final : public Benchmark {
 public:
  void declare(config::Options& options) override {
    options.positional("model", model_, "a folder or a .gguf file");
    options.option("clients", clients_, config::range(1, 256), "clients at once");
    options.option("requests", requests_, config::range(1, 256),
                   "requests of each client in a round, one after the other");
    options.option("prompt-tokens", prompt_, config::range(1, 1 << 20), "tokens of each prompt");
    options.option("tokens", tokens_, config::range(1, 1 << 20), "tokens of each answer");
    options.option("peers", peers_, config::choices({"llama.cpp"}),
                   "servers to measure against, in turn; llama.cpp (llama-cpp-python[server]) "
                   "reads .gguf files only");
    options.option("seconds", seconds_, config::range(0, 3600),
                   "seconds of the requests; every server has at least two rounds");
    options.option("python", python_,
                   "Python with the peers' packages; not given: the one whose torch this program "
                   "uses, or python3");
    config::threads_option(options, threads_);
    config::seed_option(options, seed_);
  }
  Report run() const override;

 private:
  std::vector<std::unique_ptr<ServerProcess>> start_servers(const std::string& python) const;
  std::vector<Served> measure(const std::vector<std::unique_ptr<ServerProcess>>& servers,
                              Prompts& prompts, const std::vector<int64_t>& end_tokens,
                              Progress& progress) const;
  Report report(const std::vector<std::unique_ptr<ServerProcess>>& servers,
                const std::vector<Served>& all) const;
  // As the server calls it.
  std::string model_name() const {
    const std::filesystem::path path(model_);
    return (path.extension() == ".gguf" ? path.stem() : path.filename()).string();
  }

  std::string model_, python_;
  int64_t clients_ = 16, requests_ = 3, prompt_ = 512, tokens_ = 64, threads_ = 0, seed_ = 0;
  double seconds_ = 60;
  std::vector<std::string> peers_;
};

std::vector<std::unique_ptr<ServerProcess>> ServeBenchmark::start_servers(
    const std::string& python) const {
  const std::string threads = std::to_string(at::get_num_threads());
  const std::string context = std::to_string(prompt_ + tokens_ + kSpare);
  std::vector<std::unique_ptr<ServerProcess>> servers;
  const uint16_t port = free_port();
  servers.push_back(std::make_unique<ServerProcess>(
      "tempera",
      std::vector<std::string>{std::filesystem::read_symlink("/proc/self/exe").string(), "serve",
                               model_, "--port", std::to_string(port), "--threads", threads,
                               "--context", context, "--max-batch", std::to_string(clients_)},
      port));
  for (const auto& peer : peers_) {
    const uint16_t other = free_port();
    servers.push_back(std::make_unique<ServerProcess>(
        peer,
        std::vector<std::string>{python, "-m", "llama_cpp.server", "--model", model_, "--host",
                                 "127.0.0.1", "--port", std::to_string(other), "--n_ctx", context,
                                 "--n_threads", threads, "--n_threads_batch", threads,
                                 // Else a request ends where another comes.
                                 "--interrupt_requests", "False", "--verbose", "False"},
        other));
  }
  return servers;
}

std::vector<Served> ServeBenchmark::measure(
    const std::vector<std::unique_ptr<ServerProcess>>& servers, Prompts& prompts,
    const std::vector<int64_t>& end_tokens, Progress& progress) const {
  const auto next = [&] { return prompts.request(model_name(), tokens_, end_tokens); };
  for (const auto& server : servers) ask(*server, next());  // warms up
  std::vector<Served> all(servers.size());
  double used = 0;
  for (int64_t round = 0; round < kServeRounds || used < seconds_; ++round) {
    for (size_t i = 0; i < servers.size(); ++i) {
      progress.update(round, servers[i]->name());
      for (int64_t j = 0; j < kAlone; ++j)
        all[i].alone.push_back(ask(*servers[i], next()).first_seconds);
      std::vector<std::vector<std::string>> clients(static_cast<size_t>(clients_));
      for (auto& requests : clients)
        for (int64_t j = 0; j < requests_; ++j) requests.push_back(next());
      FirstTokens first;
      all[i].rounds.push_back(seconds_of([&] { first = ask_together(*servers[i], clients); }));
      append(all[i].first.at_once, first.at_once);
      append(all[i].first.later, first.later);
      all[i].own_bytes = std::max(all[i].own_bytes, servers[i]->own_bytes());
      used += all[i].rounds.back();
    }
  }
  for (size_t i = 0; i < servers.size(); ++i) all[i].cache_bytes = cache_bytes(*servers[i]);
  return all;
}

Report ServeBenchmark::report(const std::vector<std::unique_ptr<ServerProcess>>& servers,
                              const std::vector<Served>& all) const {
  Report report{{{"rows", ordered_json::array()}, {"machine", machine_description()}}, {}};
  TextTable table({"", "generated tokens/s", "all tokens/s", "first token, one client",
                   "p95, all at once", "/ one", "p95, later", "/ one", "own memory",
                   "of it cache"});
  const auto seconds_text = [](std::optional<double> seconds) {
    return seconds ? fixed(*seconds, 2) + " s" : "";
  };
  const int64_t requests = clients_ * requests_;
  for (size_t i = 0; i < servers.size(); ++i) {
    const double seconds = spread_of(all[i].rounds).median;
    const double alone = spread_of(all[i].alone).median;
    const auto at_once = p95(all[i].first.at_once), later = p95(all[i].first.later);
    const auto ratio = [&](std::optional<double> first) {
      return first ? fixed(*first / alone, 1) : "";
    };
    const auto number = [](std::optional<double> value) {
      return value ? ordered_json(*value) : ordered_json();
    };
    const double generated = static_cast<double>(requests * tokens_) / seconds;
    const double tokens = static_cast<double>(requests * (prompt_ + tokens_)) / seconds;
    report.document["rows"].push_back({{"name", servers[i]->name()},
                                       {"generated_tokens_per_second", generated},
                                       {"tokens_per_second", tokens},
                                       {"first_token_seconds_alone", alone},
                                       {"first_token_seconds_p95_at_once", number(at_once)},
                                       {"first_token_seconds_p95_later", number(later)},
                                       {"rounds", all[i].rounds.size()},
                                       {"own_bytes", all[i].own_bytes},
                                       {"cache_bytes", all[i].cache_bytes}});
    table.add({servers[i]->name(), fixed(generated, 1), fixed(tokens, 0), seconds_text(alone),
               seconds_text(at_once), ratio(at_once), seconds_text(later), ratio(later),
               megabytes(all[i].own_bytes),
               all[i].cache_bytes > 0 ? megabytes(all[i].cache_bytes) : ""});
  }
  report.text = concat(
      model_, ": ", clients_, " clients, each ", requests_, " prompts of ", prompt_,
      " tokens one after the other and ", tokens_, " tokens after each, ", at::get_num_threads(),
      " threads.\nIn turn; medians. First tokens: of the clients' first requests, which come at "
      "once, and of those\nthat come later. Own memory: of the server, without files that it has "
      "mapped.\n\n",
      table.text());
  return report;
}

Report ServeBenchmark::run() const {
  if (!peers_.empty() && !model_.ends_with(".gguf"))
    throw UsageError(concat("--peers llama.cpp: '", model_, "' is no .gguf file"));
  const std::string python =
      peers_.empty() ? "" : find_python(python_, {"llama_cpp", "uvicorn", "fastapi"});
  models::use_threads(threads_);
  // For the tokenizer: the servers load the model themselves.
  const auto loaded = models::load_model(model_, {.blocks = true});
  const auto tokenizer = models::tokenizer_of(loaded);
  TEMPERA_CHECK(tokenizer, model_, ": the model has no tokenizer, and reads no text");
  auto end_tokens = models::end_tokens_of(loaded);
  if (const auto end = tokenizer->special().end_of_text) end_tokens.push_back(*end);
  Prompts prompts(tokenizer, prompt_, seed_);
  Progress progress("bench", 0, "rounds");
  progress.update(0, "starting the servers");
  const auto servers = start_servers(python);
  const auto all = measure(servers, prompts, end_tokens, progress);
  progress.finish();
  return report(servers, all);
}

}  // namespace

std::shared_ptr<Benchmark> make_serve_benchmark() { return std::make_shared<ServeBenchmark>(); }

}  // namespace tempera::bench
