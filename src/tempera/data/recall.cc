#include <algorithm>
#include <numeric>

#include "tempera/data/generator.h"

// Multi-query associative recall among distractors.
//
//   key value, distractor, distractor, key value, ... | key value key value ...
//   P pairs with distinct keys and D distractors,       Q of these keys, asked in random order
//   shuffled
//
// A value is asked for at the position of the asked key. Values are the tokens [0, values), then
// come keys, then distractors. Held-out sets grow by the number of distractors, at the largest
// number of pairs of training.
namespace tempera::data {
namespace {

class Recall final : public Generator {
 public:
  Recall(const GeneratorOptions& options, uint64_t seed)
      : Generator("recall", seed),
        values_(option(options, "values")),
        keys_(option(options, "keys")),
        distractors_(option(options, "distractors")),
        pairs_min_(option(options, "pairs-min")),
        pairs_max_(option(options, "pairs-max")),
        noise_max_(option(options, "train-max")),
        questions_(option(options, "questions")) {
    check_order(options, {"pairs-min", "pairs-max", "keys"});
    check_order(options, {"train-max", "test-max"});
    add_held_out_sets(noise_max_, option(options, "test-max"));
  }

  int64_t vocabulary() const override { return values_ + keys_ + distractors_; }
  int64_t classes() const override { return values_; }
  int64_t train_length() const override { return layout(pairs_max_, noise_max_).length; }

 private:
  Layout layout(int64_t pairs, int64_t noise) const {
    const int64_t questions = std::min(questions_, pairs);
    return {.size = pairs,
            .noise = noise,
            .questions = questions,
            .length = 2 * (pairs + questions) + noise};
  }
  Layout train_layout(RandomStream& random) const override {
    const int64_t pairs = random.between(pairs_min_, pairs_max_);
    return layout(pairs, random.between(0, noise_max_));
  }
  Layout held_out_layout(int64_t noise) const override { return layout(pairs_max_, noise); }

  void fill(const Layout& layout, const RowStreams& streams, Batch& batch) const override {
    DistinctSampler key_sampler(static_cast<uint32_t>(keys_));
    DistinctSampler pair_sampler(static_cast<uint32_t>(layout.size));
    std::vector<uint32_t> keys(static_cast<size_t>(layout.size));
    std::vector<uint32_t> asked(static_cast<size_t>(layout.questions));
    std::vector<int64_t> value_at(keys.size());
    std::vector<uint32_t> order(static_cast<size_t>(layout.size + layout.noise));
    for (int64_t row = 0; row < batch.rows; ++row) {
      RandomStream random = streams(row);
      key_sampler.sample(random, keys);
      pair_sampler.sample(random, asked);
      std::iota(order.begin(), order.end(), 0U);
      random.shuffle(std::span(order));
      int64_t* tokens = batch.tokens.data() + row * layout.length;
      int64_t* targets = batch.targets.data() + row * layout.length;
      int64_t at = 0;
      for (const uint32_t item :
           order) {  // below the number of pairs: that pair, else a distractor
        if (item < keys.size()) {
          tokens[at++] = values_ + keys[item];
          value_at[item] = at;
          tokens[at++] = random.below(static_cast<uint32_t>(values_));
        } else {
          tokens[at++] = values_ + keys_ + random.below(static_cast<uint32_t>(distractors_));
        }
      }
      for (size_t q = 0; q < asked.size(); ++q, at += 2) {
        const int64_t source = value_at[asked[q]];
        tokens[at] = tokens[source - 1];
        tokens[at + 1] = tokens[source];
        targets[at] = tokens[source];
        const size_t question = static_cast<size_t>(row) * asked.size() + q;
        batch.question_positions[question] = at;
        batch.answer_positions[question] = source;
      }
    }
  }

  int64_t values_;
  int64_t keys_;
  int64_t distractors_;
  int64_t pairs_min_;
  int64_t pairs_max_;
  int64_t noise_max_;
  int64_t questions_;
};

}  // namespace

GeneratorEntry generator_recall() {
  return {.name = "recall",
          .help = "give the value of a key that was shown among distractors, many keys a row",
          .options = {declare("values", 64, 2, 1 << 20, "different values: the classes"),
                      declare("keys", 512, 1, 1 << 24, "different keys"),
                      declare("distractors", 512, 1, 1 << 24, "different distractors"),
                      declare("pairs-min", 4, 1, 1 << 20, "fewest pairs of a training row"),
                      declare("pairs-max", 16, 1, 1 << 20, "most pairs of a row"),
                      declare("questions", 16, 1, 1 << 20, "keys asked in a row, at most"),
                      declare("train-max", 64, 1, 1 << 20, "most distractors in a training row"),
                      declare("test-max", 1024, 1, 1 << 20, "most distractors in a held-out row")},
          .make = make_as<Recall>};
}

}  // namespace tempera::data
