
#include "tempera/data/generator.h"

// Repeat a random sequence.
//
//   s1 ... sn COPY s1 ... sn
//
// s1 is asked for at COPY, each next symbol at the one before it. Symbols are the tokens [0,
// symbols); COPY follows.
namespace tempera::data {
namespace {

class Copy final : public Generator {
 public:
  Copy(const GeneratorOptions& options, uint64_t seed)
      : Generator("copy", seed),
        symbols_(option(options, "symbols")),
        train_min_(option(options, "train-min")),
        train_max_(option(options, "train-max")) {
    check_order(options, {"train-min", "train-max", "test-max"});
    add_held_out_sets(train_max_, option(options, "test-max"));
  }

  int64_t vocabulary() const override { return symbols_ + 1; }
  int64_t classes() const override { return symbols_; }
  int64_t train_length() const override { return held_out_layout(train_max_).length; }

 private:
  Layout train_layout(RandomStream& random) const override {
    return held_out_layout(random.between(train_min_, train_max_));
  }
  Layout held_out_layout(int64_t size) const override {
    return {.size = size, .questions = size, .length = 2 * size + 1};
  }

  void fill(const Layout& layout, const RowStreams& streams, Batch& batch) const override {
    const int64_t size = layout.size;
    for (int64_t row = 0; row < batch.rows; ++row) {
      RandomStream random = streams(row);
      int64_t* tokens = batch.tokens.data() + row * layout.length;
      int64_t* targets = batch.targets.data() + row * layout.length;
      tokens[size] = symbols_;
      for (int64_t i = 0; i < size; ++i) {
        tokens[i] = random.below(static_cast<uint32_t>(symbols_));
        tokens[size + 1 + i] = tokens[i];
        targets[size + i] = tokens[i];
        const auto question = static_cast<size_t>(row * size + i);
        batch.question_positions[question] = size + i;
        batch.answer_positions[question] = i;
      }
    }
  }

  int64_t symbols_;
  int64_t train_min_;
  int64_t train_max_;
};

}  // namespace

GeneratorEntry generator_copy() {
  return {.name = "copy",
          .help = "repeat a random sequence of symbols",
          .options = {declare("symbols", 32, 2, 1 << 24, "different symbols: the classes"),
                      declare("train-min", 4, 1, 1 << 24, "symbols of the shortest training row"),
                      declare("train-max", 32, 1, 1 << 24, "symbols of the longest training row"),
                      declare("test-max", 512, 1, 1 << 24, "symbols of the longest held-out row")},
          .make = make_as<Copy>};
}

}  // namespace tempera::data
