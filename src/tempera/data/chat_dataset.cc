#include "tempera/data/chat_dataset.h"

#include <algorithm>
#include <numeric>

#include "tempera/base/error.h"
#include "tempera/data/permutation.h"
#include "tempera/data/random.h"
#include "tempera/data/text.h"
#include "tempera/io/json.h"

namespace tempera::data {
namespace {

std::vector<text::ChatMessage> messages_of(const std::string& line, const std::string& where) {
  const auto json = io::parse_ordered_json(line, where);
  TEMPERA_CHECK(json.is_object() && json.contains("messages") && json["messages"].is_array(), where,
                ": an object with a list \"messages\" expected");
  std::vector<text::ChatMessage> messages;
  for (const auto& message : json["messages"])
    messages.push_back(text::ChatMessage::from_json(message, where));
  return messages;
}

// Answers are encoded by themselves, as generation continues a prompt that ends before them.
Conversation encoded(const text::ChatText& chat, const text::Tokenizer& tokenizer) {
  Conversation conversation;
  size_t at = 0;
  const auto add = [&](size_t end, bool answer) {
    tokenizer.encode(std::string_view(chat.text).substr(at, end - at), conversation.tokens,
                     {.add_special = false, .parse_special = true});
    conversation.answer.resize(conversation.tokens.size(), answer);
    at = end;
  };
  for (const auto& span : chat.answers) {
    add(span.begin, false);
    add(span.end, true);
  }
  add(chat.text.size(), false);
  return conversation;
}

}  // namespace

std::vector<Conversation> read_conversations(std::span<const std::filesystem::path> files,
                                             const text::ChatTemplate& form,
                                             const text::Tokenizer& tokenizer) {
  std::vector<Conversation> conversations;
  for (const auto& file : files) {
    int64_t number = 0;
    for (const std::string& line : read_lines(file)) {
      const std::string where = concat(file.string(), ", line ", ++number);
      if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
      const auto messages = messages_of(line, where);
      const auto chat = form.render_with_answers(messages);
      TEMPERA_CHECK(!chat.answers.empty(), where,
                    ": no message of the role \"assistant\", so there is nothing to learn");
      conversations.push_back(encoded(chat, tokenizer));
    }
  }
  return conversations;
}

ChatDataset::ChatDataset(std::string name, std::vector<Conversation> conversations,
                         int64_t vocabulary, const TextOptions& options)
    : name_(std::move(name)),
      conversations_(std::move(conversations)),
      vocabulary_(vocabulary),
      length_(options.length),
      order_seed_(derive_seed(options.seed, "chat/order")) {
  TEMPERA_CHECK(length_ >= 2, "rows of ", length_, " tokens given, at least 2 expected");
  TEMPERA_CHECK(!conversations_.empty(), name_, ": no conversation");
  std::vector<size_t> order(conversations_.size());
  const Permutation permutation(order.size(), derive_seed(0, "chat/held-out"));
  for (size_t i = 0; i < order.size(); ++i) order[i] = permutation(i);
  auto held = static_cast<size_t>(options.held_out * static_cast<double>(order.size()));
  if (options.held_out > 0 && held == 0 && order.size() > 1) held = 1;
  held_out_ = packed(std::span(order).first(held));
  train_ = packed(std::span(order).subspan(held));
  if (!held_out_.empty())
    held_out_sets_.push_back(
        {"held out", length_, static_cast<int64_t>(held_out_.size()), length_});
}

// First fit, in the order given.
std::vector<ChatDataset::Row> ChatDataset::packed(std::span<const size_t> conversations) const {
  constexpr size_t kOpen = 64;  // rows that are looked at for room
  std::vector<Row> rows;
  std::vector<int64_t> room;
  for (const size_t index : conversations) {
    const auto size = std::min(static_cast<int64_t>(conversations_[index].tokens.size()), length_);
    size_t row = rows.size() > kOpen ? rows.size() - kOpen : 0;
    while (row < rows.size() && room[row] < size) ++row;
    if (row == rows.size()) {
      rows.emplace_back();
      room.push_back(length_);
    }
    rows[row].push_back(index);
    room[row] -= size;
  }
  return rows;
}

Batch ChatDataset::batch_of(const std::vector<const Row*>& rows) const {
  Batch batch;
  batch.rows = static_cast<int64_t>(rows.size());
  batch.length = length_;
  const auto cells = rows.size() * static_cast<size_t>(length_);
  batch.tokens.assign(cells, 0);
  batch.targets.assign(cells, kIgnored);
  size_t most = 0;
  for (const Row* row : rows) most = std::max(most, row->size() + 1);  // and what is left
  batch.documents = static_cast<int64_t>(most);
  batch.document_lengths.assign(rows.size() * most, 0);
  for (size_t r = 0; r < rows.size(); ++r) {
    const size_t first = r * static_cast<size_t>(length_);
    size_t at = 0, document = 0;
    for (const size_t index : *rows[r]) {
      const auto& [tokens, answer] = conversations_[index];
      const size_t size = std::min(tokens.size(), static_cast<size_t>(length_));
      for (size_t i = 0; i < size; ++i) {
        batch.tokens[first + at + i] = tokens[i];
        if (i + 1 < size && answer[i + 1]) batch.targets[first + at + i] = tokens[i + 1];
      }
      at += size;
      batch.document_lengths[r * most + document++] = static_cast<int64_t>(size);
    }
    batch.document_lengths[r * most + document] = length_ - static_cast<int64_t>(at);
  }
  return batch;
}

Batch ChatDataset::train(const BatchRequest& request) const {
  check_request(request);
  const uint64_t count = train_.size();
  std::vector<const Row*> rows;
  for (int64_t row = 0; row < request.rows; ++row) {
    const uint64_t sample = request.step * static_cast<uint64_t>(request.batch_rows) +
                            static_cast<uint64_t>(request.first_row + row);
    const Permutation order(count, mix64(order_seed_ + sample / count));
    rows.push_back(&train_[order(sample % count)]);
  }
  return batch_of(rows);
}

Batch ChatDataset::held_out(size_t set, int64_t first_row, int64_t rows) const {
  check_held_out(*this, set, first_row, rows);
  std::vector<const Row*> wanted;
  for (int64_t row = 0; row < rows; ++row)
    wanted.push_back(&held_out_[static_cast<size_t>(first_row + row)]);
  return batch_of(wanted);
}

}  // namespace tempera::data
