#include "tempera/data/shard.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "tempera/base/error.h"
#include "tempera/data/checksum.h"

namespace tempera::data {
namespace {

static_assert(std::endian::native == std::endian::little, "shards are little-endian files");

constexpr std::array<char, 8> kMagic{'T', 'E', 'M', 'P', 'T', 'O', 'K', '\n'};
constexpr uint32_t kVersion = 1;
constexpr size_t kNameSize = 64;
constexpr int64_t kMostVocabulary = int64_t{1} << 31;

// The file: header, documents + 1 offsets of 8 bytes (in tokens), ids of `width` bytes.
struct Header {
  std::array<char, 8> magic = kMagic;
  uint32_t version = kVersion;
  uint32_t width = 0;
  uint64_t tokens = 0;
  uint64_t documents = 0;
  uint64_t vocabulary = 0;
  std::array<char, kNameSize> tokenizer{};  // filled up with zeros
  uint64_t body_checksum = 0;               // of all behind the header
  uint64_t header_checksum = 0;             // of all before this field
};
static_assert(sizeof(Header) == 120 && std::is_trivially_copyable_v<Header>);

uint64_t checksum_of(const Header& header) {
  return checksum(std::as_bytes(std::span(&header, 1)).first(offsetof(Header, header_checksum)));
}

int width_for(int64_t vocabulary) { return vocabulary <= 1 << 16 ? 2 : 4; }

template <class Id>
bool ids_below(const std::byte* ids, int64_t count, int64_t vocabulary) {
  Id most = 0;
  for (int64_t i = 0; i < count; ++i) {
    Id id;
    std::memcpy(&id, ids + i * static_cast<int64_t>(sizeof(Id)), sizeof(Id));
    most = std::max(most, id);
  }
  return count == 0 || static_cast<int64_t>(most) < vocabulary;
}

template <class Id>
void widen(const std::byte* ids, std::span<int64_t> out) {
  for (size_t i = 0; i < out.size(); ++i) {
    Id id;
    std::memcpy(&id, ids + i * sizeof(Id), sizeof(Id));
    out[i] = static_cast<int64_t>(id);
  }
}

Header read_header(std::span<const std::byte> bytes, const std::string& origin) {
  constexpr const char* kRemake = "; make it again with 'tempera data'";
  TEMPERA_CHECK(bytes.size() >= sizeof(Header), "'", origin,
                "' is too small to be a token shard: ", bytes.size(),
                " bytes, its header alone has ", sizeof(Header), kRemake);
  Header header;
  std::memcpy(&header, bytes.data(), sizeof(Header));
  TEMPERA_CHECK(header.magic == kMagic, "'", origin,
                "' is not a token shard (its first bytes are others)", kRemake);
  TEMPERA_CHECK(header.version == kVersion, "token shard '", origin, "' has format version ",
                header.version, "; this program reads version ", kVersion, kRemake);
  TEMPERA_CHECK(header.header_checksum == checksum_of(header), "token shard '", origin,
                "' is damaged: the checksum of its header does not match", kRemake);
  TEMPERA_CHECK(
      header.vocabulary >= 1 && header.vocabulary <= uint64_t{kMostVocabulary} &&
          header.width == static_cast<uint32_t>(width_for(static_cast<int64_t>(header.vocabulary))),
      "token shard '", origin, "' has ids of ", header.width, " bytes for a vocabulary of ",
      header.vocabulary, kRemake);
  TEMPERA_CHECK(header.tokenizer.back() == '\0', "token shard '", origin,
                "' has a tokenizer name without an end", kRemake);
  // Divisions and not products: a count near 2^64 must not wrap round to the right size.
  const uint64_t body = bytes.size() - sizeof(Header);
  TEMPERA_CHECK(header.documents < body / 8 && header.tokens <= body / header.width &&
                    (header.documents + 1) * 8 + header.tokens * header.width == body,
                "token shard '", origin, "' is torn: its header tells of ", header.tokens,
                " tokens in ", header.documents, " documents, but ", body, " bytes follow it",
                kRemake);
  return header;
}

}  // namespace

TokenShard TokenShard::open(const std::filesystem::path& path) {
  return {MappedFile(path), path.string()};
}

TokenShard TokenShard::parse(std::vector<std::byte> bytes, const std::string& origin) {
  return {std::move(bytes), origin};
}

TokenShard::TokenShard(Storage storage, const std::string& origin) : storage_(std::move(storage)) {
  const auto bytes = std::visit(
      [](const auto& held) -> std::span<const std::byte> {
        if constexpr (std::is_same_v<std::decay_t<decltype(held)>, MappedFile>)
          return held.bytes();
        else
          return held;
      },
      storage_);
  const Header header = read_header(bytes, origin);
  TEMPERA_CHECK(header.body_checksum == checksum(bytes.subspan(sizeof(Header))), "token shard '",
                origin,
                "' is damaged: its checksum does not match; make it again with 'tempera data'");
  tokenizer_ = header.tokenizer.data();
  vocabulary_ = static_cast<int64_t>(header.vocabulary);
  tokens_ = static_cast<int64_t>(header.tokens);
  documents_ = static_cast<int64_t>(header.documents);
  width_ = static_cast<int>(header.width);
  offsets_ = bytes.data() + sizeof(Header);
  ids_ = offsets_ + (documents_ + 1) * 8;

  bool ordered = document_begin(0) == 0 && document_begin(documents_) == tokens_;
  for (int64_t i = 0; i < documents_ && ordered; ++i)
    ordered = document_begin(i) < document_begin(i + 1);
  TEMPERA_CHECK(ordered, "token shard '", origin,
                "' has document boundaries out of order; make it again with 'tempera data'");
  TEMPERA_CHECK(width_ == 2 ? ids_below<uint16_t>(ids_, tokens_, vocabulary_)
                            : ids_below<uint32_t>(ids_, tokens_, vocabulary_),
                "token shard '", origin, "' has a token id at or above its vocabulary of ",
                vocabulary_, "; make it again with 'tempera data'");
}

int64_t TokenShard::document_begin(int64_t i) const {
  uint64_t offset;
  std::memcpy(&offset, offsets_ + i * 8, 8);
  return static_cast<int64_t>(offset);
}

int64_t TokenShard::document_of(int64_t at) const {
  int64_t low = 0;
  int64_t high = documents_;
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    (document_begin(middle) <= at ? low : high) = middle;
  }
  return low;
}

void TokenShard::read(int64_t begin, std::span<int64_t> out) const {
  const auto count = static_cast<int64_t>(out.size());
  TEMPERA_CHECK(begin >= 0 && count <= tokens_ && begin <= tokens_ - count, "tokens ", begin,
                " to ", begin + count, " of a shard of ", tokens_);
  const std::byte* ids = ids_ + begin * width_;
  width_ == 2 ? widen<uint16_t>(ids, out) : widen<uint32_t>(ids, out);
}

ShardBuilder::ShardBuilder(std::string tokenizer, int64_t vocabulary)
    : tokenizer_(std::move(tokenizer)), vocabulary_(vocabulary), width_(width_for(vocabulary)) {
  TEMPERA_CHECK(tokenizer_.size() < kNameSize && tokenizer_.find('\0') == std::string::npos,
                "the tokenizer's name '", tokenizer_, "' is too long for a shard: at most ",
                kNameSize - 1, " bytes");
  TEMPERA_CHECK(vocabulary >= 1 && vocabulary <= kMostVocabulary, "a vocabulary of ", vocabulary,
                "; expected 1 to 2^31");
}

void ShardBuilder::append(std::span<const int32_t> ids) {
  for (const int32_t id : ids)
    TEMPERA_CHECK(id >= 0 && id < vocabulary_, "the tokenizer '", tokenizer_, "' gave the id ", id,
                  ", which is outside its vocabulary of ", vocabulary_);
  const size_t begin = ids_.size();
  const auto width = static_cast<size_t>(width_);
  ids_.resize(begin + ids.size() * width);
  std::byte* out = ids_.data() + begin;
  for (size_t i = 0; i < ids.size(); ++i) std::memcpy(out + i * width, &ids[i], width);
}

void ShardBuilder::end_document() {
  const auto end = static_cast<uint64_t>(tokens());
  if (end > offsets_.back()) offsets_.push_back(end);
}

std::vector<std::byte> ShardBuilder::finish() {
  end_document();
  Header header;
  header.width = static_cast<uint32_t>(width_);
  header.tokens = offsets_.back();
  header.documents = offsets_.size() - 1;
  header.vocabulary = static_cast<uint64_t>(vocabulary_);
  std::copy(tokenizer_.begin(), tokenizer_.end(), header.tokenizer.begin());
  const auto offsets = std::as_bytes(std::span(offsets_));
  std::vector<std::byte> file(sizeof(Header));
  file.reserve(sizeof(Header) + offsets.size() + ids_.size());
  file.insert(file.end(), offsets.begin(), offsets.end());
  file.insert(file.end(), ids_.begin(), ids_.end());
  header.body_checksum = checksum(std::span<const std::byte>(file).subspan(sizeof(Header)));
  header.header_checksum = checksum_of(header);
  std::memcpy(file.data(), &header, sizeof(Header));
  offsets_.assign(1, 0);
  ids_.clear();
  return file;
}

}  // namespace tempera::data
