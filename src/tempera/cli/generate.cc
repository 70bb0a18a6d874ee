#include <chrono>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>

#include "tempera/base/error.h"
#include "tempera/base/files.h"
#include "tempera/base/progress.h"
#include "tempera/cli/model.h"
#include "tempera/cli/verb.h"
#include "tempera/config/common.h"
#include "tempera/data/text.h"
#include "tempera/generate/text.h"
#include "tempera/generate/translate.h"
#include "tempera/models/device.h"
#include "tempera/ops/torch.h"

namespace tempera::cli {
namespace {

using nlohmann::ordered_json;

constexpr uint64_t kLargestPrompt = 64U << 20;

struct GenerateSettings {
  std::string model;
  std::optional<std::string> prompt, file, prompts;
  int64_t samples = 1;
  generate::TextOptions text;
  generate::BeamOptions beam;
  models::ComputeOptions compute;
  bool json = false;

  void declare(config::Options& options) {
    options.positional("model", model, "a folder or a .gguf file");
    options.section(config::Section::kText);
    options.option("prompt", prompt, "text to continue or translate; not given: an empty text");
    options.option("file", file, "file with the text to continue");
    options.option(
        "prompts", prompts,
        "file with one prompt per line, generated as one batch; an encoder-decoder translates "
        "it line by line");
    options.option("samples", samples, config::range(1, 4096), "answers per prompt");
    text.declare(options);
    beam.declare(options);
    compute.declare(options);
    config::cache_dtype_option(options, compute.cache_dtype);
    config::json_option(options, json);
  }
};

void check(const GenerateSettings& settings) {
  const int given =
      (settings.prompt ? 1 : 0) + (settings.file ? 1 : 0) + (settings.prompts ? 1 : 0);
  if (given > 1) throw UsageError("give one of --prompt, --file and --prompts");
}

std::vector<std::string> read_prompts(const GenerateSettings& settings) {
  std::vector<std::string> prompts;
  if (settings.prompts) {
    prompts = data::lines_of(read_file(*settings.prompts, kLargestPrompt));
    std::erase(prompts, "");
    if (prompts.empty())
      throw UsageError(concat("--prompts: ", *settings.prompts, " has no line with a prompt"));
  } else if (settings.file) {
    prompts.push_back(read_file(*settings.file, kLargestPrompt));
  } else {
    prompts.push_back(settings.prompt.value_or(""));
  }
  std::vector<std::string> all;
  for (const auto& prompt : prompts)
    all.insert(all.end(), static_cast<size_t>(settings.samples), prompt);
  return all;
}

const char* finish_name(generate::Finish finish) {
  switch (finish) {
    case generate::Finish::kLength:
      return "length";
    case generate::Finish::kEnd:
      return "end";
    case generate::Finish::kStop:
      return "stop";
  }
  return "";
}

ordered_json to_json(const std::vector<std::string>& prompts,
                     const std::vector<generate::TextAnswer>& answers, double seconds) {
  ordered_json list = ordered_json::array();
  int64_t tokens = 0;
  for (size_t i = 0; i < answers.size(); ++i) {
    ordered_json chances = ordered_json::array();
    for (const auto& token : answers[i].tokens.tokens) chances.push_back(token.log_probability);
    tokens += static_cast<int64_t>(answers[i].tokens.tokens.size());
    list.push_back({{"prompt", prompts[i]},
                    {"text", answers[i].text},
                    {"finish", finish_name(answers[i].finish)},
                    {"tokens", answers[i].tokens.ids()},
                    {"log_probabilities", std::move(chances)}});
  }
  return {{"answers", std::move(list)},
          {"seconds", seconds},
          {"tokens_per_second", static_cast<double>(tokens) / std::max(seconds, 1e-9)}};
}

// One line out for each line in, also for empty ones.
void translate(const GenerateSettings& settings, const OpenModel& opened) {
  if (settings.samples > 1 || !settings.text.stop.empty())
    throw UsageError("--samples and --stop are for decoders; the model translates");
  const auto sources =
      settings.prompts ? data::read_lines(*settings.prompts) : read_prompts(settings);
  generate::BeamOptions options = settings.beam;
  if (settings.text.tokens.max_tokens != generate::GenerateOptions{}.max_tokens)
    options.max_tokens = settings.text.tokens.max_tokens;
  Progress progress("translate", static_cast<int64_t>(sources.size()), "sentences");
  const auto translations =
      generate::translate(*opened.model, tokenizer_of(opened), sources, options,
                          [&](int64_t done) { progress.update(done); });
  progress.finish();
  ordered_json list = ordered_json::array();
  for (size_t i = 0; i < sources.size(); ++i) {
    const auto& [text, hypothesis] = translations[i];
    if (!settings.json) {
      std::cout << text << "\n";
      continue;
    }
    list.push_back({{"prompt", sources[i]},
                    {"text", text},
                    {"finish", hypothesis.ended ? "end" : "length"},
                    {"tokens", hypothesis.tokens},
                    {"log_probability", hypothesis.log_probability},
                    {"score", hypothesis.score}});
  }
  if (settings.json)
    std::cout << ordered_json{{"answers", std::move(list)}}.dump(
                     2, ' ', false, ordered_json::error_handler_t::replace)
              << "\n";
}

void run(const GenerateSettings& settings) {
  check(settings);
  const OpenModel opened = open_model(
      models::load_model(settings.model, load_options(settings.compute)), settings.compute.device);
  if (opened.model->config().kind == nn::ModelKind::kEncoderDecoder)
    return translate(settings, opened);
  if (settings.beam.beams > 1)
    throw UsageError("--beams are for encoder-decoders; the model continues texts");
  const auto prompts = read_prompts(settings);
  const auto& tokenizer = tokenizer_of(opened);
  generate::TextOptions options = settings.text;
  options.tokens.stop_tokens = opened.end_tokens;
  // One answer is written as it grows.
  generate::TextCallback stream;
  if (prompts.size() == 1 && !settings.json)
    stream = [](size_t, std::string_view piece) { std::cout << piece << std::flush; };
  const auto start = std::chrono::steady_clock::now();
  const auto answers = generate::generate_text(*opened.model, tokenizer, prompts, options, stream);
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (settings.json) {
    // A model of bytes may end in the middle of a character.
    std::cout << to_json(prompts, answers, seconds)
                     .dump(2, ' ', false, ordered_json::error_handler_t::replace)
              << "\n";
  } else if (stream) {
    std::cout << "\n";
  } else {
    for (size_t i = 0; i < answers.size(); ++i)
      std::cout << (i > 0 ? "\n" : "") << "=== " << i + 1 << ": " << prompts[i] << "\n"
                << answers[i].text << "\n";
  }
}

}  // namespace

Verb generate_verb() {
  return make_verb<GenerateSettings>(
      "generate", "continues a text, or translates it",
      {{"tempera generate MODEL --prompt 'Once upon a time'", "continue a text"},
       {"tempera generate MODEL --prompt 'Once' --sampling-temperature 0.8 --top-p 0.95 --samples "
        "3",
        "three samples"},
       {"tempera generate MODEL --prompts lines.txt --json", "a batch of prompts"}},
      run);
}

}  // namespace tempera::cli
