#include "tempera/models/embed.h"

#include <algorithm>
#include <numeric>

#include "tempera/base/error.h"
#include "tempera/base/files.h"
#include "tempera/io/json.h"
#include "tempera/nn/encoder_decoder.h"
#include "tempera/ops/torch.h"

namespace tempera::models {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Ids = std::vector<int32_t>;

// Null where the folder has no such file.
Json read_json(const fs::path& file) {
  if (!fs::exists(file)) return nullptr;
  return io::parse_json(read_file(file, kMostConfig), file.string());
}

nn::Pooling pooling_of(const fs::path& file) {
  const Json json = read_json(file);
  TEMPERA_CHECK(json.is_object(), file.string(), ": an object expected");
  const auto on = [&](const char* key) {
    return json.contains(key) && json[key].is_boolean() && json[key].get<bool>();
  };
  constexpr const char* kMean = "pooling_mode_mean_tokens";
  constexpr const char* kFirst = "pooling_mode_cls_token";
  for (const auto& [key, value] : json.items())
    TEMPERA_CHECK(
        !key.starts_with("pooling_mode_") || key == kMean || key == kFirst || !on(key.c_str()),
        file.string(), ": ", key, " is not supported; known: ", kMean, ", ", kFirst);
  TEMPERA_CHECK(on(kMean) != on(kFirst), file.string(), ": one of ", kMean, " and ", kFirst,
                " expected");
  return on(kMean) ? nn::Pooling::kMean : nn::Pooling::kFirst;
}

// The parts that follow one another, by modules.json.
void read_modules(const fs::path& folder, EmbedOptions& options) {
  const fs::path file = folder / "modules.json";
  const Json modules = read_json(file);
  if (modules.is_null()) return;
  TEMPERA_CHECK(modules.is_array(), file.string(), ": a list expected");
  options.normalise = false;
  for (const Json& module : modules) {
    TEMPERA_CHECK(module.is_object() && module.contains("type") && module["type"].is_string(),
                  file.string(), ": objects with a type expected");
    const std::string type = module["type"].get<std::string>();
    const std::string name = type.substr(type.rfind('.') + 1);
    if (name == "Pooling")
      options.pooling = pooling_of(folder / "1_Pooling" / "config.json");
    else if (name == "Normalize")
      options.normalise = true;
    else
      TEMPERA_CHECK(name == "Transformer", file.string(), ": '", type,
                    "' is not supported; known: Transformer, Pooling, Normalize");
  }
}

// A text's ids with what the tokenizer puts around them; of a text that is too long its begin.
Ids encode(const text::Tokenizer& tokenizer, const std::string& text, int64_t length, bool& cut) {
  Ids plain, whole;
  tokenizer.encode(text, whole, {.add_special = true});
  cut = length > 0 && static_cast<int64_t>(whole.size()) > length;
  if (!cut) return whole;
  tokenizer.encode(text, plain);
  const size_t around = whole.size() - std::min(whole.size(), plain.size());
  size_t before = 0;  // tokens in front of the text
  while (before < around && !std::equal(plain.begin(), plain.end(),
                                        whole.begin() + static_cast<std::ptrdiff_t>(before)))
    ++before;
  const auto behind = static_cast<std::ptrdiff_t>(around - before);
  const auto bound = static_cast<size_t>(length);
  TEMPERA_CHECK(bound > around, "a text of ", length, " tokens has no place beside the ", around,
                " that the tokenizer adds; give a larger length");
  Ids kept(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(bound) - behind);
  kept.insert(kept.end(), whole.end() - behind, whole.end());
  return kept;
}

// Texts [first, last) of `order` as one batch, padded on the right.
nn::Batch batch_of(const std::vector<Ids>& texts, const std::vector<size_t>& order, size_t first,
                   size_t last, int64_t pad) {
  const auto rows = static_cast<int64_t>(last - first);
  int64_t longest = 1;
  for (size_t i = first; i < last; ++i)
    longest = std::max(longest, static_cast<int64_t>(texts[order[i]].size()));
  nn::Batch batch;
  batch.tokens = torch::full({rows, longest}, pad, torch::kInt64);
  batch.key_end = torch::empty({rows}, torch::kInt64);
  auto tokens = batch.tokens.accessor<int64_t, 2>();
  auto ends = batch.key_end.accessor<int64_t, 1>();
  for (int64_t row = 0; row < rows; ++row) {
    const Ids& ids = texts[order[first + static_cast<size_t>(row)]];
    ends[row] = static_cast<int64_t>(ids.size());
    for (int64_t t = 0; t < ends[row]; ++t) tokens[row][t] = ids[static_cast<size_t>(t)];
  }
  return batch;
}

torch::Tensor states(nn::Model& model, const nn::Batch& batch) {
  auto* both = dynamic_cast<nn::EncoderDecoder*>(&model);
  if (!both) return model.hidden(batch);
  nn::Batch source;
  source.source = batch.tokens;
  source.source_end = batch.key_end;
  return both->encode(source).x;
}

}  // namespace

EmbedOptions embed_options_of(const LoadedModel& loaded) {
  EmbedOptions options{.length = loaded.model->config().max_length()};
  if (!fs::is_directory(loaded.path)) return options;
  read_modules(loaded.path, options);
  const Json sentences = read_json(loaded.path / "sentence_bert_config.json");
  if (!sentences.is_object() || !sentences.contains("max_seq_length")) return options;
  const Json& most = sentences["max_seq_length"];
  if (most.is_number_integer() && most.get<int64_t>() > 0)
    options.length =
        options.length > 0 ? std::min(options.length, most.get<int64_t>()) : most.get<int64_t>();
  return options;
}

std::vector<torch::Tensor> embed_ids(nn::Model& model, const std::vector<Ids>& ids, int64_t pad,
                                     const EmbedOptions& options) {
  const torch::NoGradGuard no_grad;
  // Texts of like length together: less padding.
  std::vector<size_t> order(ids.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, {}, [&](size_t i) { return ids[i].size(); });
  std::vector<torch::Tensor> result(ids.size());
  const auto device = model.parameters().front().device();
  const auto step = static_cast<size_t>(options.batch);
  for (size_t first = 0; first < order.size(); first += step) {
    const size_t last = std::min(order.size(), first + step);
    auto batch = batch_of(ids, order, first, last, pad);
    batch.tokens = batch.tokens.to(device);
    batch.key_end = batch.key_end.to(device);
    auto vectors = states(model, batch).to(torch::kFloat32);
    if (options.pooling) vectors = nn::pool(vectors, batch, *options.pooling);
    if (options.normalise)
      vectors = vectors / vectors.norm(2, -1, /*keepdim=*/true).clamp_min(1e-12);
    vectors = vectors.to(torch::kCPU);
    for (size_t i = first; i < last; ++i) {
      auto row = vectors[static_cast<int64_t>(i - first)];
      if (!options.pooling) row = row.narrow(0, 0, static_cast<int64_t>(ids[order[i]].size()));
      result[order[i]] = row.contiguous();
    }
  }
  return result;
}

Embeddings embed(nn::Model& model, const text::Tokenizer& tokenizer,
                 const std::vector<std::string>& texts, const EmbedOptions& options) {
  Embeddings result;
  for (const std::string& text : texts) {
    bool cut = false;
    result.ids.push_back(encode(tokenizer, text, options.length, cut));
    TEMPERA_CHECK(!result.ids.back().empty(), "text ", result.ids.size(), " has no tokens: '", text,
                  "'");
    if (cut) ++result.cut;
  }
  result.vectors = embed_ids(model, result.ids, tokenizer.special().pad.value_or(0), options);
  return result;
}

}  // namespace tempera::models
