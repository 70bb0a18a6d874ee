#include "tempera/text/decoder.h"

#include <array>
#include <string_view>
#include <utility>

#include "tempera/text/byte_level.h"
#include "tempera/text/normalizer.h"
#include "tempera/text/vocabulary.h"

namespace tempera::text {
namespace {

class ByteLevel final : public Decoder {
 public:
  void apply(std::vector<std::string>& pieces) const override {
    for (auto& piece : pieces)
      if (auto bytes = byte_level_bytes(piece)) piece = std::move(*bytes);
  }
};

class ByteFallback final : public Decoder {
 public:
  void apply(std::vector<std::string>& pieces) const override {
    for (auto& piece : pieces)
      if (const auto byte = byte_of_piece(piece)) piece.assign(1, static_cast<char>(*byte));
  }
};

class Fuse final : public Decoder {
 public:
  void apply(std::vector<std::string>& pieces) const override {
    std::string all;
    for (const auto& piece : pieces) all += piece;
    pieces.clear();
    pieces.push_back(std::move(all));
  }
};

class Strip final : public Decoder {
 public:
  Strip(std::string content, size_t start, size_t stop)
      : content_(std::move(content)), start_(start), stop_(stop) {}
  void apply(std::vector<std::string>& pieces) const override {
    if (content_.empty()) return;
    for (auto& piece : pieces) {
      std::string_view kept = piece;
      for (size_t i = 0; i < start_ && kept.starts_with(content_); ++i)
        kept.remove_prefix(content_.size());
      for (size_t i = 0; i < stop_ && kept.ends_with(content_); ++i)
        kept.remove_suffix(content_.size());
      if (kept.size() != piece.size()) piece = std::string(kept);
    }
  }

 private:
  std::string content_;
  size_t start_, stop_;
};

class Replace final : public Decoder {
 public:
  Replace(Pattern pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}
  void apply(std::vector<std::string>& pieces) const override {
    for (auto& piece : pieces) {
      // After a byte decoder a piece can be a part of a character, which no pattern takes.
      if (is_valid_utf8(piece)) replace_all(pattern_, content_, piece);
    }
  }

 private:
  Pattern pattern_;
  std::string content_;
};

class Metaspace final : public Decoder {
 public:
  Metaspace(std::string replacement, bool prefixed)
      : pattern_(Pattern::literal(std::move(replacement))), prefixed_(prefixed) {}
  void apply(std::vector<std::string>& pieces) const override {
    for (size_t i = 0; i < pieces.size(); ++i)
      replace_all(pattern_, i == 0 && prefixed_ ? "" : " ", pieces[i]);
  }

 private:
  Pattern pattern_;
  bool prefixed_;
};

class WordPiece final : public Decoder {
 public:
  WordPiece(std::string prefix, bool cleanup) : prefix_(std::move(prefix)), cleanup_(cleanup) {}
  void apply(std::vector<std::string>& pieces) const override {
    for (size_t i = 0; i < pieces.size(); ++i) {
      if (i > 0) {
        if (pieces[i].starts_with(prefix_))
          pieces[i].erase(0, prefix_.size());
        else
          pieces[i].insert(0, 1, ' ');
      }
      if (cleanup_) clean(pieces[i]);
    }
  }

 private:
  static void clean(std::string& piece) {
    static const std::array<std::pair<Pattern, std::string>, 11> rules{{
        {Pattern::literal(" ."), "."},
        {Pattern::literal(" ?"), "?"},
        {Pattern::literal(" !"), "!"},
        {Pattern::literal(" ,"), ","},
        {Pattern::literal(" ' "), "'"},
        {Pattern::literal(" n't"), "n't"},
        {Pattern::literal(" 'm"), "'m"},
        {Pattern::literal(" do not"), " don't"},
        {Pattern::literal(" 's"), "'s"},
        {Pattern::literal(" 've"), "'ve"},
        {Pattern::literal(" 're"), "'re"},
    }};
    for (const auto& [pattern, content] : rules) replace_all(pattern, content, piece);
  }

  std::string prefix_;
  bool cleanup_;
};

class BpeSuffix final : public Decoder {
 public:
  explicit BpeSuffix(std::string suffix) : pattern_(Pattern::literal(std::move(suffix))) {}
  void apply(std::vector<std::string>& pieces) const override {
    for (size_t i = 0; i < pieces.size(); ++i)
      replace_all(pattern_, i + 1 < pieces.size() ? " " : "", pieces[i]);
  }

 private:
  Pattern pattern_;
};

class Spaced final : public Decoder {
 public:
  void apply(std::vector<std::string>& pieces) const override {
    for (size_t i = 1; i < pieces.size(); ++i) pieces[i].insert(0, 1, ' ');
  }
};

}  // namespace

std::unique_ptr<Decoder> byte_level_decoder() { return std::make_unique<ByteLevel>(); }
std::unique_ptr<Decoder> byte_fallback_decoder() { return std::make_unique<ByteFallback>(); }
std::unique_ptr<Decoder> fuse_decoder() { return std::make_unique<Fuse>(); }
std::unique_ptr<Decoder> strip_decoder(std::string content, size_t start, size_t stop) {
  return std::make_unique<Strip>(std::move(content), start, stop);
}
std::unique_ptr<Decoder> replace_decoder(Pattern pattern, std::string content) {
  return std::make_unique<Replace>(std::move(pattern), std::move(content));
}
std::unique_ptr<Decoder> metaspace_decoder(std::string replacement, bool prefixed) {
  return std::make_unique<Metaspace>(std::move(replacement), prefixed);
}
std::unique_ptr<Decoder> wordpiece_decoder(std::string prefix, bool cleanup) {
  return std::make_unique<WordPiece>(std::move(prefix), cleanup);
}
std::unique_ptr<Decoder> bpe_decoder(std::string suffix) {
  return std::make_unique<BpeSuffix>(std::move(suffix));
}
std::unique_ptr<Decoder> spaced_decoder() { return std::make_unique<Spaced>(); }

}  // namespace tempera::text
