
#include "tempera/data/generator.h"

// Find a key of a few digits in a long noise, and repeat it at the end.
//
//   noise ... noise KEY d1 ... dk noise ... noise ASK d1 ... dk
//
// The first digit is asked for at ASK, each next one at the digit before it. The key stands at a
// uniform depth. Digits are the tokens [0, 10), KEY is 10, ASK is 11, noise follows. Rows count by
// the tokens of noise.
namespace tempera::data {
namespace {

constexpr int64_t kDigits = 10;
constexpr int64_t kKey = 10;
constexpr int64_t kAsk = 11;
constexpr int64_t kNoise = 12;

class Passkey final : public Generator {
 public:
  Passkey(const GeneratorOptions& options, uint64_t seed)
      : Generator("passkey", seed),
        digits_(option(options, "digits")),
        noise_kinds_(option(options, "noise")),
        train_min_(option(options, "train-min")),
        train_max_(option(options, "train-max")) {
    check_order(options, {"train-min", "train-max", "test-max"});
    add_held_out_sets(train_max_, option(options, "test-max"));
  }

  int64_t vocabulary() const override { return kNoise + noise_kinds_; }
  int64_t classes() const override { return kDigits; }
  int64_t train_length() const override { return held_out_layout(train_max_).length; }

 private:
  Layout train_layout(RandomStream& random) const override {
    return held_out_layout(random.between(train_min_, train_max_));
  }
  Layout held_out_layout(int64_t noise) const override {
    return {.size = noise, .questions = digits_, .length = noise + 2 * (digits_ + 1)};
  }

  void fill(const Layout& layout, const RowStreams& streams, Batch& batch) const override {
    for (int64_t row = 0; row < batch.rows; ++row) {
      RandomStream random = streams(row);
      int64_t* tokens = batch.tokens.data() + row * layout.length;
      int64_t* targets = batch.targets.data() + row * layout.length;
      const int64_t depth = random.between(0, layout.size);
      const int64_t ask = layout.length - digits_ - 1;
      for (int64_t t = 0; t < ask; ++t)
        tokens[t] = kNoise + random.below(static_cast<uint32_t>(noise_kinds_));
      tokens[depth] = kKey;
      tokens[ask] = kAsk;
      for (int64_t d = 0; d < digits_; ++d) {
        const int64_t digit = random.below(kDigits);
        tokens[depth + 1 + d] = digit;
        tokens[ask + 1 + d] = digit;
        targets[ask + d] = digit;
        const auto question = static_cast<size_t>(row * digits_ + d);
        batch.question_positions[question] = ask + d;
        batch.answer_positions[question] = depth + 1 + d;
      }
    }
  }

  int64_t digits_;
  int64_t noise_kinds_;
  int64_t train_min_;
  int64_t train_max_;
};

}  // namespace

GeneratorEntry generator_passkey() {
  return {
      .name = "passkey",
      .help = "find a key of a few digits in a long noise, and repeat it",
      .options =
          {declare("digits", 5, 1, 1 << 10, "digits of the key"),
           declare("noise", 64, 1, 1 << 24, "different tokens of noise"),
           declare("train-min", 16, 0, 1 << 24, "tokens of noise in the shortest training row"),
           declare("train-max", 128, 1, 1 << 24, "tokens of noise in the longest training row"),
           declare("test-max", 2048, 1, 1 << 24, "tokens of noise in the longest held-out row")},
      .make = make_as<Passkey>};
}

}  // namespace tempera::data
