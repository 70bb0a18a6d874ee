#include "tempera/models/export.h"

#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "tempera/base/error.h"
#include "tempera/base/interrupt.h"
#include "tempera/base/output.h"
#include "tempera/cli/model.h"
#include "tempera/cli/verb.h"
#include "tempera/config/common.h"

namespace tempera::cli {
namespace {

constexpr const char* kGguf = "gguf";

struct ExportSettings {
  std::string model;
  std::string out;
  nn::TemperatureConfig temperature;
  bool fold = false;
  std::string as;
  std::string dtype = "auto";
  double shard_gb = 5;
  bool json = false;

  void declare(config::Options& options) {
    options.positional("model", model, "a folder or a .gguf file");
    temperature.declare(options, Origin::kLoaded);
    options.section(config::Section::kOutput);
    options.option("out", out, "a new folder, or with --as gguf a new .gguf file");
    options.option("fold", fold,
                   "fold the temperatures into the weights, so that other programs run the model");
    options.option("as", as, "model family to write (as transformers names it), or gguf");
    options.option("dtype", dtype,
                   config::Domain{.choices = {"auto", "fp32", "bf16", "fp16", "q8_0", "q6_k",
                                              "q5_k", "q5_1", "q5_0", "q4_k", "q4_1", "q4_0"}},
                   "number format; auto: that of the model; q8_0 to q4_0: GGUF only");
    options.option("shard-gb", shard_gb, config::above_to(0, 1e6),
                   "largest size of one safetensors file, in GB");
    config::json_option(options, json);
  }
};

torch::ScalarType folder_type(const ExportSettings& settings, const models::LoadedModel& loaded) {
  if (settings.dtype == "auto" && loaded.config.is_object()) {
    const auto stored = loaded.config.value("dtype", loaded.config.value("torch_dtype", ""));
    if (stored == "bfloat16") return torch::kBFloat16;
    if (stored == "float16") return torch::kHalf;
  }
  if (settings.dtype == "bf16") return torch::kBFloat16;
  if (settings.dtype == "fp16") return torch::kHalf;
  if (settings.dtype.starts_with('q'))
    throw UsageError(
        concat("--dtype ", settings.dtype, " is for --as gguf; give it, or another type"));
  return torch::kFloat32;
}

io::GgmlType file_type(const std::string& dtype) {
  static const std::map<std::string, io::GgmlType> kTypes = {
      {"bf16", io::GgmlType::kBF16}, {"fp16", io::GgmlType::kF16},  {"q8_0", io::GgmlType::kQ8_0},
      {"q6_k", io::GgmlType::kQ6_K}, {"q5_k", io::GgmlType::kQ5_K}, {"q5_1", io::GgmlType::kQ5_1},
      {"q5_0", io::GgmlType::kQ5_0}, {"q4_k", io::GgmlType::kQ4_K}, {"q4_1", io::GgmlType::kQ4_1},
      {"q4_0", io::GgmlType::kQ4_0}};
  const auto found = kTypes.find(dtype);
  return found == kTypes.end() ? io::GgmlType::kF32 : found->second;
}

void run(const ExportSettings& settings) {
  if (settings.out.empty())
    throw UsageError("--out: nothing given; name the folder or the .gguf file to write");
  const InterruptGuard guard;
  const bool gguf = settings.as == kGguf;
  NewOutput out(settings.out, gguf ? NewOutput::Kind::kFile : NewOutput::Kind::kFolder);
  const auto loaded = models::load_model(settings.model, load_options(settings.temperature));
  if (settings.temperature.method != "softmax")
    std::cerr << "the model was not trained with the temperature '" << settings.temperature.method
              << "': measure what it does (tempera eval), or learn it (tempera calibrate)\n";
  std::string written = kGguf;
  if (gguf) {
    if (!models::export_gguf(loaded, out, settings.fold, file_type(settings.dtype)))
      std::cerr << "no tokenizer in " << settings.model
                << ": the file has none, and programs that run it need token ids\n";
  } else {
    written = models::export_folder(
        loaded, out,
        {.fold = settings.fold,
         .as = settings.as,
         .dtype = folder_type(settings, loaded),
         .shard_bytes = static_cast<uint64_t>(settings.shard_gb * (uint64_t{1} << 30))});
  }
  if (settings.json) {
    std::cout << nlohmann::ordered_json{{"out", settings.out}, {"model_type", written}}.dump()
              << "\n";
  } else {
    std::cout << "wrote " << settings.out << " (" << written << ")\n";
  }
}

}  // namespace

Verb export_verb() {
  return make_verb<ExportSettings>(
      "export", "writes a model for other programs",
      {{"tempera export run --fold --out folded",
        "a Hugging Face folder with the temperatures in the weights"},
       {"tempera export run --fold --as gguf --out model.gguf", "for llama.cpp"},
       {"tempera export MODEL --as gguf --dtype q4_k --out small.gguf",
        "the same in 4-bit blocks"}},
      run);
}

}  // namespace tempera::cli
