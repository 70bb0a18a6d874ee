#include "tempera/base/error.h"
#include "tempera/base/interrupt.h"
#include "tempera/families/gguf.h"
#include "tempera/families/rope_factors.h"
#include "tempera/io/gguf_blocks.h"
#include "tempera/models/export.h"
#include "tempera/models/fold.h"
#include "tempera/models/tokenizer.h"
#include "tempera/models/weights.h"
#include "tempera/ops/torch.h"
#include "tempera/text/gguf_from_files.h"

namespace tempera::models {
namespace {

bool fills_rows(const torch::Tensor& tensor, io::GgmlType type) {
  return tensor.size(-1) % static_cast<int64_t>(io::info_of(type).block_elements) == 0;
}

// The nearest type with blocks of 32, as llama.cpp chooses it, for rows that are no whole number
// of blocks of 256.
io::GgmlType with_small_blocks(io::GgmlType type) {
  switch (type) {
    case io::GgmlType::kQ4_K:
      return io::GgmlType::kQ5_0;
    case io::GgmlType::kQ5_K:
      return io::GgmlType::kQ5_1;
    case io::GgmlType::kQ6_K:
      return io::GgmlType::kQ8_0;
    default:
      return type;
  }
}

// Vectors stay as they are, as other writers of the format have it; so do rows that are no whole
// number of blocks of any size.
io::GgmlType stored_type(const torch::Tensor& tensor, io::GgmlType wanted) {
  if (tensor.dim() < 2) return io::GgmlType::kF32;
  for (const auto type : {wanted, with_small_blocks(wanted)})
    if (fills_rows(tensor, type)) return type;
  return io::GgmlType::kF32;
}

// What llama.cpp calls a file with most of its matrices of a type.
uint32_t file_type(io::GgmlType type) {
  switch (type) {
    case io::GgmlType::kF16:
      return 1;
    case io::GgmlType::kQ4_0:
      return 2;
    case io::GgmlType::kQ4_1:
      return 3;
    case io::GgmlType::kQ8_0:
      return 7;
    case io::GgmlType::kQ5_0:
      return 8;
    case io::GgmlType::kQ5_1:
      return 9;
    case io::GgmlType::kQ4_K:
      return 14;
    case io::GgmlType::kQ5_K:
      return 16;
    case io::GgmlType::kQ6_K:
      return 18;
    case io::GgmlType::kBF16:
      return 32;
    default:
      return 0;
  }
}

const families::Family& gguf_writer_family(const nn::ModelConfig& config, const std::string& own) {
  for (const auto& family : families::all_families())
    if (family.name == own) return family;
  const auto* family = families::family_of(config);
  TEMPERA_CHECK(family, "GGUF has no architecture for a model of this shape");
  return *family;
}

io::GgufMetadata metadata_of(const LoadedModel& loaded, const nn::ModelConfig& config,
                             const families::Family& family, io::GgmlType type) {
  io::GgufMetadata metadata = families::gguf_metadata(family, config);
  metadata.add("general.name", loaded.path.stem().string());
  metadata.add("general.file_type", file_type(type));
  metadata.add("general.quantization_version", uint32_t{2});
  return metadata;
}

// As the original has it; false where there is none.
bool add_tokenizer(const LoadedModel& loaded, int64_t rows, io::GgufMetadata& metadata) {
  if (loaded.path.extension() == ".gguf") {
    const io::Gguf original(loaded.path);
    for (const auto& [key, value] : original.metadata().entries())
      if (key.starts_with("tokenizer.")) metadata.add(key, value);
    return original.metadata().find("tokenizer.ggml.model") != nullptr;
  }
  if (!has_tokenizer_files(loaded.path)) return false;
  text::write_gguf_tokenizer(text::gguf_tokenizer_of(loaded.path, rows), metadata);
  if (const auto chat = text::ChatTemplate::find(loaded.path))
    metadata.add("tokenizer.chat_template", chat->source());
  return true;
}

}  // namespace

bool export_gguf(const LoadedModel& loaded, NewOutput& out, bool folds, io::GgmlType type) {
  // Without a temperature there is nothing to fold; with one, the format has no words for it.
  TEMPERA_CHECK(folds || !needs_fold(*loaded.model),
                "GGUF has no words for a temperature or adapters; give --fold");
  FoldedModel model = fold(*loaded.model);
  fold_rotary_amplitude(model);
  const auto& family = gguf_writer_family(model.config, loaded.family);
  TEMPERA_CHECK(!family.gguf.empty(), "models of the family ", family.name,
                " are not written as GGUF; export a Hugging Face folder");
  auto state = file_tensors(model.config, model.state, families::gguf_rules(family));
  if (families::is_a_rope_tensor(model.config.rope.scaling))
    state[families::kRopeFactors] =
        torch::tensor(families::rope_factors(model.config.rope, model.config.rotary_size()));
  std::vector<io::GgufTensor> tensors;
  std::vector<const torch::Tensor*> values;
  for (const auto& [name, tensor] : state) {
    tensors.push_back({.name = name,
                       .type = stored_type(tensor, type),
                       .shape = tensor.sizes().vec(),
                       .bytes = {}});
    values.push_back(&tensor);
  }
  auto metadata = metadata_of(loaded, model.config, family, type);
  const bool tokenizer = add_tokenizer(loaded, model.config.vocabulary, metadata);
  std::vector<std::byte> bytes;
  io::write_gguf(out.part(), metadata, tensors, [&](size_t index) -> std::span<const std::byte> {
    stop_if_interrupted("interrupted: nothing was written; run the same command again");
    const auto& info = tensors[index];
    const auto plain = values[index]->to(torch::kFloat32).contiguous();
    bytes.resize(io::ggml_bytes(info.type, info.shape, info.name));
    io::quantize(info.type, {plain.const_data_ptr<float>(), static_cast<size_t>(plain.numel())},
                 bytes);
    return bytes;
  });
  out.finish();
  return tokenizer;
}

}  // namespace tempera::models
