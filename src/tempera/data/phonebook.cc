#include <algorithm>

#include "tempera/data/generator.h"

// Read a book of names and numbers, then give the number of a name.
//
//   name number name number ... name number | name number name number ...
//   P entries, the names distinct             Q of these names, asked in random order
//
// A number is asked for at the position of the asked name: the number behind it is the next token.
// Attention finds it at the position of the book's number, the one that follows the same name.
// Numbers are the tokens [0, numbers), so that a token is its class; names follow.
namespace tempera::data {
namespace {

class Phonebook final : public Generator {
 public:
  Phonebook(const GeneratorOptions& options, uint64_t seed)
      : Generator("phonebook", seed),
        numbers_(option(options, "numbers")),
        names_(option(options, "names")),
        train_min_(option(options, "train-min")),
        train_max_(option(options, "train-max")),
        train_questions_(option(options, "train-questions")),
        test_questions_(option(options, "test-questions")) {
    check_order(options, {"train-min", "train-max", "test-max", "names"});
    add_held_out_sets(train_max_, option(options, "test-max"));
  }

  int64_t vocabulary() const override { return numbers_ + names_; }
  int64_t classes() const override { return numbers_; }
  int64_t train_length() const override { return layout(train_max_, train_questions_).length; }

 private:
  static Layout layout(int64_t entries, int64_t most_questions) {
    const int64_t questions = std::min(most_questions, entries);
    return {.size = entries, .questions = questions, .length = 2 * (entries + questions)};
  }
  Layout train_layout(RandomStream& random) const override {
    return layout(random.between(train_min_, train_max_), train_questions_);
  }
  Layout held_out_layout(int64_t entries) const override {
    return layout(entries, test_questions_);
  }

  void fill(const Layout& layout, const RowStreams& streams, Batch& batch) const override {
    DistinctSampler name_sampler(static_cast<uint32_t>(names_));
    DistinctSampler entry_sampler(static_cast<uint32_t>(layout.size));
    std::vector<uint32_t> names(static_cast<size_t>(layout.size));
    std::vector<uint32_t> asked(static_cast<size_t>(layout.questions));
    for (int64_t row = 0; row < batch.rows; ++row) {
      RandomStream random = streams(row);
      name_sampler.sample(random, names);
      entry_sampler.sample(random, asked);
      int64_t* tokens = batch.tokens.data() + row * layout.length;
      int64_t* targets = batch.targets.data() + row * layout.length;
      for (size_t entry = 0; entry < names.size(); ++entry) {
        tokens[2 * entry] = numbers_ + names[entry];
        tokens[2 * entry + 1] = random.below(static_cast<uint32_t>(numbers_));
      }
      for (int64_t q = 0; q < layout.questions; ++q) {
        const int64_t entry = asked[static_cast<size_t>(q)];
        const int64_t at = 2 * (layout.size + q);
        tokens[at] = tokens[2 * entry];
        tokens[at + 1] = tokens[2 * entry + 1];
        targets[at] = tokens[2 * entry + 1];
        const auto question = static_cast<size_t>(row * layout.questions + q);
        batch.question_positions[question] = at;
        batch.answer_positions[question] = 2 * entry + 1;
      }
    }
  }

  int64_t numbers_;
  int64_t names_;
  int64_t train_min_;
  int64_t train_max_;
  int64_t train_questions_;
  int64_t test_questions_;
};

}  // namespace

GeneratorEntry generator_phonebook() {
  return {
      .name = "phonebook",
      .help = "read a book of names and numbers, then give the number of a name",
      .options = {declare("numbers", 16, 2, 1 << 20, "different phone numbers (output classes)"),
                  declare("names", 2048, 1, 1 << 24, "different names"),
                  declare("train-min", 8, 1, 1 << 20, "entries of the smallest book in training"),
                  declare("train-max", 32, 1, 1 << 20, "entries of the largest book in training"),
                  declare("train-questions", 16, 1, 1 << 20, "most questions per book in training"),
                  declare("test-max", 1024, 1, 1 << 20, "entries of the largest held-out book"),
                  declare("test-questions", 64, 1, 1 << 20, "most questions per held-out book")},
      .make = make_as<Phonebook>};
}

}  // namespace tempera::data
