// The file format of sentencepiece: a protobuf message, read field by field.
#include <bit>
#include <cstring>

#include "tempera/base/error.h"
#include "tempera/text/sentencepiece.h"

namespace tempera::text {
namespace {

// Walks the fields of a message. A varint, or the bytes of a field with a length or a fixed width.
class Message {
 public:
  Message(std::string_view all, const std::string& where) : left_(all), where_(where) {}

  uint64_t field = 0;
  uint64_t number = 0;
  std::string_view bytes;

  bool next() {
    if (left_.empty()) return false;
    const uint64_t tag = varint();
    field = tag >> 3;
    number = 0;
    bytes = {};
    switch (tag & 7) {
      case 0:
        number = varint();
        break;
      case 1:
        bytes = take(8);
        break;
      case 2:
        bytes = take(varint());
        break;
      case 5:
        bytes = take(4);
        break;
      default:
        throw Error(concat(where_, ": not a sentencepiece model: a field of the kind ", tag & 7));
    }
    return true;
  }

  float real() const {
    float value = 0;
    TEMPERA_CHECK(bytes.size() == sizeof(value), where_, ": a score of ", bytes.size(), " bytes");
    std::memcpy(&value, bytes.data(), sizeof(value));
    return value;
  }
  // Ids may be -1, which stands as a varint of 64 bits.
  int64_t id() const { return std::bit_cast<int64_t>(number); }

 private:
  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<unsigned char>(take(1)[0]);
      value |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    throw Error(concat(where_, ": not a sentencepiece model: a number without an end"));
  }
  std::string_view take(uint64_t size) {
    TEMPERA_CHECK(size <= left_.size(), where_,
                  ": not a sentencepiece model, or cut off: a field of ", size, " bytes, and ",
                  left_.size(), " are left");
    const std::string_view taken = left_.substr(0, size);
    left_.remove_prefix(size);
    return taken;
  }

  std::string_view left_;
  const std::string& where_;
};

SentencePieceModel::Piece read_piece(std::string_view bytes, const std::string& where) {
  SentencePieceModel::Piece piece;
  for (Message message(bytes, where); message.next();) {
    if (message.field == 1) piece.text = message.bytes;
    if (message.field == 2) piece.score = message.real();
    if (message.field == 3) {
      TEMPERA_CHECK(message.number >= 1 && message.number <= 6, where, ": a piece of the type ",
                    message.number, "; 1 to 6 are known");
      piece.type = static_cast<SentencePieceModel::Type>(message.number);
    }
  }
  return piece;
}

void read_trainer(std::string_view bytes, const std::string& where, SentencePieceModel& model) {
  for (Message message(bytes, where); message.next();) {
    switch (message.field) {
      case 3:
        TEMPERA_CHECK(message.number == 1 || message.number == 2, where,
                      ": a sentencepiece model of the type ", message.number,
                      "; unigram (1) and BPE (2) are known");
        model.algorithm = message.number == 1 ? SentencePieceModel::Algorithm::kUnigram
                                              : SentencePieceModel::Algorithm::kBpe;
        break;
      case 24:
        TEMPERA_CHECK(
            message.number == 0, where,
            ": white space at the end of words (treat_whitespace_as_suffix) is not known");
        break;
      case 35:
        model.byte_fallback = message.number != 0;
        break;
      case 41:
        model.begin_id = message.id();
        break;
      case 42:
        model.end_id = message.id();
        break;
      case 43:
        model.pad_id = message.id();
        break;
      default:
        break;  // how the model was trained
    }
  }
}

void read_normalizer(std::string_view bytes, const std::string& where, SentencePieceModel& model) {
  for (Message message(bytes, where); message.next();) {
    switch (message.field) {
      case 2:
        model.charsmap = message.bytes;
        break;
      case 3:
        model.add_dummy_prefix = message.number != 0;
        break;
      case 4:
        model.remove_extra_whitespaces = message.number != 0;
        break;
      case 5:
        TEMPERA_CHECK(message.number != 0, where,
                      ": blanks in pieces (escape_whitespaces off) are "
                      "not known");
        break;
      default:
        break;
    }
  }
}

}  // namespace

SentencePieceModel parse_sentencepiece(std::string_view bytes, const std::string& where) {
  SentencePieceModel model;
  for (Message message(bytes, where); message.next();) {
    if (message.field == 1) model.pieces.push_back(read_piece(message.bytes, where));
    if (message.field == 2) read_trainer(message.bytes, where, model);
    if (message.field == 3) read_normalizer(message.bytes, where, model);
  }
  TEMPERA_CHECK(!model.pieces.empty(), where, ": not a sentencepiece model: it has no pieces");
  const bool unigram = model.algorithm == SentencePieceModel::Algorithm::kUnigram;
  model.add_begin = !unigram && model.begin_id >= 0;
  model.add_end = unigram && model.end_id >= 0;
  return model;
}

}  // namespace tempera::text
