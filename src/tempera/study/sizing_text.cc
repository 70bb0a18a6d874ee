#include <algorithm>
#include <cmath>

#include "tempera/base/error.h"
#include "tempera/base/progress.h"
#include "tempera/base/text_table.h"
#include "tempera/study/record.h"
#include "tempera/study/sizing.h"
#include "tempera/study/statistics.h"
#include "tempera/study/tables.h"

namespace tempera::study {
namespace {

// Standard deviation over the seeds of the difference between two methods' losses, as measured on
// models of the lower rungs at the trained length.
constexpr double kUsualSpread = 0.02;
constexpr double kMoreTime = 6;

double as_real(int64_t value) { return static_cast<double>(value); }

std::string model_text(const Size& size) {
  return concat(size.layers, " layers of width ", size.width, ", ", size.heads, " heads");
}

std::string training_text(const Plan& plan, const Comparison& comparison) {
  const std::string passes =
      fixed(as_real(plan.tokens) / std::max(1.0, as_real(comparison.train_tokens)), 1);
  return concat(plan.size.steps > 0 ? count_text(plan.size.steps) + " steps of " : "steps of ",
                count_text(plan.size.step_tokens()),
                " tokens: ", quantity_text(as_real(plan.tokens)), " tokens a model, ", passes,
                " passes over the text");
}

std::string measured_text(const Plan& plan, const Comparison& comparison) {
  const auto lengths = measured_lengths(comparison, plan.size.context);
  std::string text =
      concat("measured: the loss on ",
             count_text(std::min(comparison.eval_tokens, comparison.held_out_tokens)),
             " held-out tokens, in rows of ", count_text(lengths[0]), " tokens, as trained");
  for (size_t i = 1; i < lengths.size(); ++i)
    text += concat(i == 1 ? ", and of " : " and ", count_text(lengths[i]));
  if (lengths.size() > 1) text += ", past the trained length, where a temperature shows most";
  if (lengths.size() < 3 && comparison.past_trained)
    text += "; the held-out text is too short for longer rows: give more text";
  return text;
}

std::string shown_text(const Size& size) {
  if (size.seeds < 2)
    return "can show: nothing for certain; one seed has no spread to test against: give --seeds 3";
  const double smallest =
      critical_t(as_real(size.seeds - 1)) * kUsualSpread / std::sqrt(size.seeds);
  return concat("can show: differences in loss of about ", fixed(smallest, 3), " and more (",
                size.seeds, " seeds; models of this size usually spread by ",
                fixed(kUsualSpread, 3), " at the trained length, and several times that past it)");
}

std::string more_time_text(const Plan& plan, const Comparison& comparison) {
  const double seconds = kMoreTime * std::max(plan.seconds, comparison.seconds);
  const Plan more = fit_like(plan, comparison, seconds);
  if (more.size == plan.size)
    return "more time would change nothing: the command or the text sets the size; more text "
           "allows larger models";
  return concat("more time: --seconds ", std::llround(seconds), " gives ", model_text(more.size),
                "; ", training_text(more, comparison), "; ", more.size.seeds, " seeds");
}

}  // namespace

std::vector<std::string> explain(const Plan& plan, const Comparison& comparison) {
  const int64_t models = comparison.methods * plan.size.seeds;
  return {
      concat(about_text(plan.seconds), ": ", models, " models (", comparison.methods, " methods, ",
             plan.size.seeds, " seeds), ", std::min(models, comparison.workers), " at a time"),
      concat("model: ", model_text(plan.size), ", ",
             quantity_text(parameter_estimate(plan.size, comparison.vocabulary)),
             " parameters, rows of ", count_text(plan.size.context), " tokens"),
      concat("training: ", training_text(plan, comparison)),
      measured_text(plan, comparison),
      shown_text(plan.size),
      "cannot show: what larger models, longer training or other text would give",
      more_time_text(plan, comparison)};
}

Sizing sizing_of(const Plan& plan, const Comparison& comparison) {
  return {.size = plan.size,
          .seconds = plan.seconds,
          .seconds_per_token = plan.seconds_per_token,
          .says = explain(plan, comparison)};
}

void check_chosen(const Size& chosen, const GivenSize& given, const std::string& out) {
  const Json sizes = as_json(chosen);
  Size::fields(given, [&](const char* name, const auto& value) {
    if (value && Json(*value) != sizes.at(name))
      throw UsageError(concat("--", name, ": ", *value, " given, '", out,
                              "' holds a comparison with ", sizes.at(name).dump(),
                              "; leave it away to go on, or give another folder with --out"));
  });
}

}  // namespace tempera::study
