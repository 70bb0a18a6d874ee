#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

// How large a comparison on text can be in the time that there is.
namespace tempera::study {

// What decides how long a comparison takes.
struct Size {
  int64_t layers = 0, width = 0, heads = 0, context = 0;
  int64_t batch = 0, steps = 0, warmup = 0, seeds = 0;
  double learning_rate = 0;

  int64_t step_tokens() const { return batch * context; }
  bool operator==(const Size&) const = default;

  // By the names of their options; of a GivenSize too.
  static void fields(auto& self, auto&& field) {
    field("layers", self.layers);
    field("width", self.width);
    field("heads", self.heads);
    field("context", self.context);
    field("batch", self.batch);
    field("steps", self.steps);
    field("warmup", self.warmup);
    field("seeds", self.seeds);
    field("learning-rate", self.learning_rate);
  }
};

// What the command says about the size; the rest is fitted.
struct GivenSize {
  std::optional<int64_t> layers, width, heads, context, batch, steps, warmup, seeds;
  std::optional<double> learning_rate;
};

struct Comparison {
  double seconds = 0;   // that the whole may take
  int64_t methods = 1;  // each with every seed
  int64_t workers = 1;  // models that are trained side by side
  int64_t vocabulary = 0;
  int64_t train_tokens = 0, held_out_tokens = 0;  // of the text
  int64_t eval_tokens = 0;                        // measured at each length, at most
  bool past_trained = true;                       // also measured beyond the trained length
  int64_t model_tokens = 0;  // of one model's training, where the command says it in tokens
  GivenSize given = {};
};

// Seconds a trained token of a model of this shape takes: the mean over the methods, while all
// workers are busy.
using Speed = std::function<double(const Size&)>;

struct Plan {
  Size size;
  double seconds_per_token = 0;
  double seconds = 0;  // that the whole will take
  int64_t tokens = 0;  // of one model's training
};

// The largest model of a fixed ladder that sees enough tokens in the time, with what is given kept.
// Asks for the speed of one shape after the other, from the smallest, and of none that the time
// cannot pay for.
Plan fit(const Comparison& comparison, const Speed& speed);

// The plan for another time, with the speed worked out from that of a plan.
Plan fit_like(const Plan& plan, Comparison comparison, double seconds);

// A shape to begin with where nothing is fitted yet.
Size default_size();

// The rows in which the held-out text is measured: of the trained length, twice and four times it,
// as far as the text goes.
std::vector<int64_t> measured_lengths(const Comparison& comparison, int64_t context);

// Multiply-adds of a forward pass of one token, in rows of `length`.
double forward_cost(const Size& size, int64_t vocabulary, int64_t length);
double parameter_estimate(const Size& size, int64_t vocabulary);

// What was chosen, how long it takes, what it can and cannot show and what more time would buy; a
// sentence each.
std::vector<std::string> explain(const Plan& plan, const Comparison& comparison);

// What the results keep of a plan.
struct Sizing {
  Size size;
  double seconds = 0;
  double seconds_per_token = 0;
  std::vector<std::string> says;  // explain()

  static void fields(auto& self, auto&& field) {
    field("size", self.size);
    field("seconds", self.seconds);
    field("seconds_per_token", self.seconds_per_token);
    field("says", self.says);
  }
};
Sizing sizing_of(const Plan& plan, const Comparison& comparison);

// Throws UsageError where the command gives another size than was chosen. `out` is named in the
// message.
void check_chosen(const Size& chosen, const GivenSize& given, const std::string& out);

}  // namespace tempera::study
