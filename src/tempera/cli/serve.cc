#include <algorithm>
#include <chrono>
#include <filesystem>
#include <iostream>
#include <optional>
#include <thread>

#include "tempera/base/error.h"
#include "tempera/base/files.h"
#include "tempera/base/interrupt.h"
#include "tempera/cli/model.h"
#include "tempera/cli/verb.h"
#include "tempera/config/common.h"
#include "tempera/data/text.h"
#include "tempera/http/server.h"
#include "tempera/models/device.h"
#include "tempera/models/embed.h"
#include "tempera/models/tokenizer.h"
#include "tempera/ops/torch.h"
#include "tempera/serve/api.h"

namespace tempera::cli {
namespace {

constexpr uint64_t kLargestKeys = 1U << 20;

struct ServeSettings {
  std::vector<std::string> models;
  std::string host = "127.0.0.1";
  int64_t port = 8080;
  std::optional<std::string> keys;
  std::optional<std::string> tls_certificate, tls_key;
  std::vector<std::string> origins, hosts;
  double timeout = 600, drain = 30;
  int64_t temperatures = 4;
  serve::EngineOptions engine;
  models::ComputeOptions compute;

  void declare(config::Options& options) {
    options.positional("models", models, "folders or .gguf files; a request names one of them");
    options.section(config::Section::kServer);
    options.option("host", host,
                   "address to listen on; 0.0.0.0: all addresses, for other machines too");
    options.option("port", port, config::range(0, 65535), "port; 0: any free one");
    options.option("api-keys", keys, "file with one API key per line; a request needs one");
    options.option(
        "tls-certificate", tls_certificate,
        "PEM file with the server's certificate, then any intermediate certificates; turns "
        "TLS on");
    options.option("tls-key", tls_key, "PEM file with the certificate's private key");
    options.option("cors", origins, "origins of web pages that may use the server; *: all");
    options.option("server-names", hosts,
                   "accepted Host names; not given: this machine's on 127.0.0.1, otherwise any");
    options.option("timeout", timeout, config::range(0.1, 1e6),
                   "longest time of a request, in seconds");
    options.option("drain", drain, config::range(0, 1e6),
                   "seconds for running requests to finish at shutdown");
    options.section(config::Section::kComputing);
    options.option("max-batch", engine.max_batch, config::range(1, 1024),
                   "texts generated at once; others wait");
    options.option("max-queue", engine.max_queue, config::range(1, 1e6),
                   "requests that may wait; further ones get status 429");
    options.option("context", engine.context, config::range(0, 1e9),
                   "most tokens of a prompt and its answer; 0: the model's context");
    options.option("cache-tokens", engine.cache_rows, config::range(0, 1e12),
                   "KV cache size in tokens, all texts together; 0: 512 MiB, at least one context");
    options.option(
        "temperatures", temperatures, config::range(0, 1024),
        "attention temperatures requested as MODEL@METHOD:OPTION=VALUE to keep at once; each "
        "has its own KV cache");
    compute.declare(options);
    config::cache_dtype_option(options, compute.cache_dtype);
  }
};

std::vector<std::string> read_keys(const ServeSettings& settings) {
  if (!settings.keys) return {};
  auto keys = data::lines_of(read_file(*settings.keys, kLargestKeys));
  std::erase(keys, "");
  TEMPERA_CHECK(!keys.empty(), *settings.keys, " has no key; one a line is expected");
  return keys;
}

std::shared_ptr<const http::TlsContext> tls_of(const ServeSettings& settings) {
  if (settings.tls_certificate.has_value() != settings.tls_key.has_value())
    throw UsageError("give both of --tls-certificate and --tls-key, or none");
  if (!settings.tls_key) return nullptr;
  return std::make_shared<http::TlsContext>(*settings.tls_certificate, *settings.tls_key);
}

using Models = std::vector<serve::ModelList::Served>;

std::string name_of(const std::string& path, const Models& others) {
  std::filesystem::path given(path);
  if (!given.has_filename()) given = given.parent_path();
  const std::string stem =
      given.extension() == ".gguf" ? given.stem().string() : given.filename().string();
  std::string name = stem;
  const auto is_taken = [&] {
    return std::ranges::any_of(others, [&](const auto& other) { return other->name == name; });
  };
  for (int i = 2; is_taken(); ++i) name = concat(stem, "-", i);
  return name;
}

serve::EngineOptions engine_options(const ServeSettings& settings) {
  serve::EngineOptions options = settings.engine;
  options.threads = settings.compute.threads;
  return options;
}

serve::ModelList::Served open(const std::string& path, const ServeSettings& settings,
                              const Models& others) {
  const auto loaded = models::load_model(path, load_options(settings.compute));
  const OpenModel opened = open_model(loaded, settings.compute.device);
  serve::ServedModel served{.name = name_of(path, others),
                            .model = opened.model,
                            .tokenizer = opened.tokenizer,
                            .chat = models::chat_template_of(loaded),
                            .end_tokens = opened.end_tokens,
                            .engine = nullptr,
                            .embed = {},
                            .threads = settings.compute.threads};
  const auto end = tokenizer_of(opened).special().end_of_text;
  if (end) served.end_tokens.push_back(*end);
  if (opened.model->config().kind == nn::ModelKind::kDecoder)
    served.engine = std::make_unique<serve::Engine>(opened.model, engine_options(settings));
  else
    served.embed = models::embed_options_of(loaded);
  return std::make_shared<serve::ServedModel>(std::move(served));
}

void run(const ServeSettings& settings) {
  if (settings.models.empty()) throw UsageError("MODEL is missing: a folder or a .gguf file");
  const auto keys = read_keys(settings);
  const auto tls = tls_of(settings);
  Models served;
  for (const auto& path : settings.models) served.push_back(open(path, settings, served));
  serve::ModelList models(
      served, {.engine = engine_options(settings), .temperatures = settings.temperatures});
  serve::Api api(models, {.keys = keys, .seconds = settings.timeout});
  const InterruptGuard guard;
  http::Server server({.address = settings.host,
                       .port = static_cast<uint16_t>(settings.port),
                       .access = {.origins = settings.origins, .hosts = settings.hosts},
                       .tls = tls,
                       .on_failure = [](const std::string& what) { std::cerr << what + "\n"; }},
                      api.routes());
  for (const auto& model : served) std::cout << "model " << model->name << "\n";
  // A colon of the address is none of the port.
  const bool brackets = settings.host.find(':') != std::string::npos;
  std::cout << (tls ? "https://" : "http://")
            << (brackets ? "[" + settings.host + "]" : settings.host) << ":" << server.port()
            << std::endl;
  while (InterruptGuard::signal() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  std::cerr << "ending what is under way; once more to stop at once\n";
  server.stop(settings.drain);
}

}  // namespace

Verb serve_verb() {
  return make_verb<ServeSettings>(
      "serve", "answers requests over HTTP, as OpenAI's servers do",
      {{"tempera serve MODEL", "a server at http://127.0.0.1:8080, with a page to chat"},
       {"tempera serve MODEL OTHER --port 9000 --max-batch 32",
        "two models, up to 32 texts at once"},
       {"tempera serve MODEL --host 0.0.0.0 --api-keys keys.txt", "for other machines, with keys"}},
      run);
}

}  // namespace tempera::cli
