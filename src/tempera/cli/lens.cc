#include <malloc.h>

#include <chrono>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "tempera/base/error.h"
#include "tempera/base/files.h"
#include "tempera/base/interrupt.h"
#include "tempera/base/output.h"
#include "tempera/base/progress.h"
#include "tempera/cli/lens_model.h"
#include "tempera/cli/verb.h"
#include "tempera/config/common.h"
#include "tempera/data/text.h"
#include "tempera/http/server.h"
#include "tempera/lens/live.h"
#include "tempera/lens/page.h"
#include "tempera/lens/page_data.h"
#include "tempera/lens/pictures.h"
#include "tempera/lens/subject.h"
#include "tempera/ops/torch.h"

namespace tempera::cli {
namespace {

using nlohmann::ordered_json;

struct LensSettings {
  std::string model;
  std::string text;
  std::optional<std::string> target, against;
  int64_t tokens = 0;
  int64_t passkey = 0;
  double depth = 0.5;
  int64_t seed = 0;
  std::optional<std::string> out, png, svg, exported;
  std::vector<std::string> heads;
  int64_t port = 0;
  LensComputing computing;
  bool json = false;

  void declare(config::Options& options) {
    options.positional("model", model, "a folder or a .gguf file");
    options.section(config::Section::kData);
    options.option("text", text, "file with the text to look at");
    options.option("target", target, "encoder-decoder: file with the model's output for --text");
    options.option("tokens", tokens, config::range(0, lens::kMostTokens),
                   "look at the first N tokens; 0: all");
    options.option("passkey", passkey, config::range(0, lens::kMostTokens),
                   "in place of --text, a text of N tokens that hides a number and asks for it, as "
                   "tempera eval --task passkey does; 0: none");
    options.option("depth", depth, config::range(0, 1),
                   "with --passkey: position of the number, from 0 (start) to 1 (end)");
    options.option("seed", seed, config::range(0, 1e15),
                   "with --passkey: random seed of the text and the number");
    options.section(config::Section::kModel);
    options.option("against", against, "a second model, which reads the same text");
    options.section(config::Section::kOutput);
    options.option("out", out, "write the page to this file, self-contained");
    options.option("png", png, "new folder for pictures");
    options.option("svg", svg, "new folder for pictures as SVG");
    options.option("export", exported,
                   "new folder where the page may save the model with the temperatures set on it");
    options.option("draw", heads, "heads to draw, as LAYER.HEAD, both from 0: 2.5,3.0");
    config::json_option(options, json);
    options.option("port", port, config::range(0, 65535),
                   "port of the live page; 0: any free port");
    options.section(config::Section::kComputing);
    config::dtype_option(options, computing.dtype);
    config::threads_option(options, computing.threads);
    options.option(
        "unpack", computing.unpack,
        "unpack a GGUF file's quantised weights into --dtype (more memory); otherwise they are "
        "used directly");
  }
};

// A page that is asked for nowhere else is shown by this process.
bool serves(const LensSettings& settings) {
  return !settings.out && !settings.png && !settings.svg && !settings.json;
}

void check(const LensSettings& settings) {
  if (settings.text.empty() && settings.passkey == 0)
    throw UsageError("give the text to look at with --text FILE, or --passkey N for one");
  if (settings.passkey > 0 && (!settings.text.empty() || settings.target || settings.tokens > 0))
    throw UsageError("--passkey makes its own text: leave out --text, --target and --tokens");
  if (settings.exported && !serves(settings))
    throw UsageError(
        "--export is for the page that this program shows; leave out --out, --png, "
        "--svg and --json");
  if (!settings.heads.empty() && !settings.png && !settings.svg)
    throw UsageError("--draw is for the pictures of --png DIR or --svg DIR; give one of them");
  if (settings.out || serves(settings)) lens::require_page();
}

// The first document of the file.
std::string read_text(const std::string& file) {
  std::string first;
  int64_t documents = 0;
  data::for_each_document(file, [&](std::string_view document) {
    if (documents++ == 0) first = document;
  });
  if (documents > 1)
    std::cerr << "note: '" << file << "' has " << count_text(documents)
              << " documents; the first one is looked at\n";
  return first;
}

LensTexts texts_of(const LensSettings& settings) {
  LensTexts texts{.text = {},
                  .origin = settings.text,
                  .target = {},
                  .most = settings.tokens,
                  .passkey = settings.passkey,
                  .depth = settings.depth,
                  .seed = settings.seed};
  if (settings.passkey > 0) return texts;
  texts.text = read_text(settings.text);
  if (settings.target) texts.target = read_text(*settings.target);
  return texts;
}

ordered_json to_json(const std::vector<lens::Subject>& subjects) {
  ordered_json models = ordered_json::array();
  for (const auto& subject : subjects) {
    ordered_json attentions = ordered_json::array();
    for (const auto& attention : subject.view.attentions)
      attentions.push_back({{"role", lens::role_name(attention.role)},
                            {"layer", attention.layer},
                            {"heads", lens::metrics_json(attention)}});
    ordered_json tokens = ordered_json::array();
    for (const auto& text : subject.texts) tokens.push_back(text.ids.size());
    models.push_back({{"model", subject.name},
                      {"method", subject.method},
                      {"tokens", std::move(tokens)},
                      {"rounded", subject.view.rounded},
                      {"loss", lens::loss_json(subject)},
                      {"attentions", std::move(attentions)},
                      {"next", lens::next_json(subject)}});
    if (subject.passkey)
      models.back()["passkey"] = {{"wanted", subject.passkey->wanted},
                                  {"given", subject.passkey->given},
                                  {"right", subject.passkey->right()}};
  }
  return {{"models", std::move(models)}};
}

void write_page(const std::vector<lens::Subject>& subjects, NewOutput& place) {
  int64_t all = 0;
  for (const auto& subject : subjects) all += std::ssize(subject.view.attentions);
  Progress progress("page", all, "layers");
  const auto data =
      lens::page_data(subjects, lens::kPageBytes, [&](int64_t done) { progress.update(done); });
  progress.finish();
  write_file(place.part(), lens::offline_page(data, "Attention of " + subjects[0].name));
  place.finish();
}

void write_pictures(const std::vector<lens::Subject>& subjects,
                    const std::vector<std::string>& names, NewOutput& place, const char* ending) {
  std::vector<lens::HeadName> heads;
  for (const auto& name : names) {
    heads.push_back(lens::parse_head(name, subjects[0]));
    lens::parse_head(name, subjects.back());
  }
  for (const auto& [name, figure] : lens::pictures(subjects, heads))
    plot::save(figure, place.part() / (name + ending));
  place.finish();
}

// Until somebody ends the program.
void serve(std::vector<lens::Subject> subjects, LensModel& model, const LensSettings& settings) {
  lens::LiveLens live(std::move(subjects), model);
  const InterruptGuard guard;
  http::Server server(
      {.port = static_cast<uint16_t>(settings.port)},
      [&](const http::Request& request, http::Reply& reply) { live(request, reply); });
  std::cout << "open http://127.0.0.1:" << server.port() << live.path()
            << " in a browser; Ctrl-C ends the program" << std::endl;
  while (InterruptGuard::signal() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(100));
  server.stop(1);
}

std::unique_ptr<NewOutput> new_output(const std::optional<std::string>& path,
                                      NewOutput::Kind kind) {
  return path ? std::make_unique<NewOutput>(*path, kind) : nullptr;
}

// What is kept of a layer would lie between what the layer has freed, and memory with such holes
// takes half as much again. Large tensors get pages of their own, which go back when they are
// freed.
void map_large_tensors() {
#ifdef __GLIBC__
  ::mallopt(M_MMAP_THRESHOLD, 8 << 20);
#endif
}

void run(const LensSettings& settings) {
  check(settings);
  map_large_tensors();
  const auto page = new_output(settings.out, NewOutput::Kind::kFile);
  const auto png = new_output(settings.png, NewOutput::Kind::kFolder);
  const auto svg = new_output(settings.svg, NewOutput::Kind::kFolder);
  if (settings.exported) NewOutput(*settings.exported, NewOutput::Kind::kFolder);
  const LensTexts texts = texts_of(settings);
  LensComputing computing = settings.computing;
  computing.live = serves(settings);
  LensModel model(settings.model, texts, computing, settings.exported.value_or(""));
  std::vector<lens::Subject> subjects = {model.look()};
  if (settings.against) {
    LensModel other(*settings.against, texts, settings.computing);
    subjects.push_back(other.look_at(subjects[0]));
    lens::check_comparable(subjects[0], subjects[1]);
  }
  if (png) write_pictures(subjects, settings.heads, *png, ".png");
  if (svg) write_pictures(subjects, settings.heads, *svg, ".svg");
  if (page) write_page(subjects, *page);
  if (settings.json)
    std::cout << to_json(subjects).dump(2, ' ', false, ordered_json::error_handler_t::replace)
              << "\n";
  else
    for (const auto& written : {settings.png, settings.svg, settings.out})
      if (written) std::cout << "wrote " << *written << "\n";
  if (serves(settings)) serve(std::move(subjects), model, settings);
}

}  // namespace

Verb lens_verb() {
  return make_verb<LensSettings>(
      "lens", "shows where the attention of a model goes",
      {{"tempera lens MODEL --text book.txt", "a page that this program shows to your browser"},
       {"tempera lens MODEL --text book.txt --out page.html", "the page as a file"},
       {"tempera lens MODEL --text book.txt --against MODEL2 --out page.html",
        "two models side by side"},
       {"tempera lens MODEL --passkey 2048", "where it looks for a number that a text hides"},
       {"tempera lens MODEL --text book.txt --png pictures --draw 2.5,3.0", "pictures"}},
      run);
}

}  // namespace tempera::cli
