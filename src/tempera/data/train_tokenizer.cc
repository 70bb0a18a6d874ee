#include "tempera/data/train_tokenizer.h"

#include "tempera/data/text.h"
#include "tempera/text/bpe_trainer.h"

namespace tempera::data {

std::string train_tokenizer(std::span<const std::filesystem::path> inputs, int64_t vocabulary,
                            FunctionRef<void(int64_t, int64_t)> report) {
  for (const auto& input : inputs) check_readable_file(input);
  text::BpeTrainer trainer;
  int64_t bytes = 0;
  for (const auto& input : inputs)
    for_each_document(input, [&](std::string_view document) {
      trainer.add(document);
      bytes += static_cast<int64_t>(document.size());
      report(bytes, 0);
    });
  const text::BpeTrainerOptions options{.vocabulary = vocabulary,
                                        .special_tokens = {"<|endoftext|>", "<pad>"}};
  return trainer.train(options, [&](int64_t pieces) { report(bytes, pieces); }).tokenizer_json();
}

}  // namespace tempera::data
