#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "tempera/data/dataset.h"
#include "tempera/data/text_dataset.h"
#include "tempera/text/chat.h"
#include "tempera/text/tokenizer.h"

namespace tempera::data {

// A conversation as the model reads it.
struct Conversation {
  std::vector<int32_t> tokens;
  std::vector<bool> answer;  // whether the model has to say the token itself
};

// Conversations out of jsonl files: an object with "messages" on each line, each with "role" and
// "content". Throws, with the number of the line, where one has no answer or is something else.
std::vector<Conversation> read_conversations(std::span<const std::filesystem::path> files,
                                             const text::ChatTemplate& form,
                                             const text::Tokenizer& tokenizer);

// Conversations packed whole into rows, one document each, and scored on the answers alone. One
// that is longer than a row is cut there. The order of training is as in TextDataset.
class ChatDataset final : public Dataset {
 public:
  ChatDataset(std::string name, std::vector<Conversation> conversations, int64_t vocabulary,
              const TextOptions& options);

  std::string name() const override { return name_; }
  int64_t vocabulary() const override { return vocabulary_; }
  int64_t classes() const override { return vocabulary_; }
  int64_t train_length() const override { return length_; }
  Batch train(const BatchRequest& request) const override;
  const std::vector<HeldOutSet>& held_out_sets() const override { return held_out_sets_; }
  Batch held_out(size_t set, int64_t first_row, int64_t rows) const override;

 private:
  using Row = std::vector<size_t>;  // of conversations

  std::vector<Row> packed(std::span<const size_t> conversations) const;
  Batch batch_of(const std::vector<const Row*>& rows) const;

  std::string name_;
  std::vector<Conversation> conversations_;
  int64_t vocabulary_;
  int64_t length_;
  uint64_t order_seed_;
  std::vector<Row> train_, held_out_;
  std::vector<HeldOutSet> held_out_sets_;
};

}  // namespace tempera::data
