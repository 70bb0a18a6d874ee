#include "tempera/study/scaling/report.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tempera/base/error.h"
#include "tempera/base/progress.h"
#include "tempera/base/text_table.h"
#include "tempera/study/tables.h"

namespace tempera::study::scaling {
namespace {

std::string with_interval(const Interval& interval, int decimals) {
  const bool known = std::isfinite(interval.low) && std::isfinite(interval.high);
  return fixed(interval.value, decimals) +
         (known ? concat(" (", fixed(interval.low, decimals), " to ",
                         fixed(interval.high, decimals), ")")
                : "");
}

// Of a number that may be of any size.
std::string wide_interval(const Interval& interval) {
  return concat(quantity_text(interval.value), " (", quantity_text(interval.low), " to ",
                quantity_text(interval.high), ")");
}

std::string signed_text(double value, double half_width) {
  const std::string spread = half_width > 0 ? " ± " + fixed(half_width, 4) : "";
  return (value < 0 ? "" : "+") + fixed(value, 4) + spread;
}

std::string slice_name(const Slice& slice) {
  return concat("trained length ", count_text(slice.context), ", ",
                slice.qk_norm == nn::QkNorm::kNone ? "no QK-norm"
                                                   : concat("QK-norm ", name_of(slice.qk_norm)));
}

std::string tokens_text(int64_t tokens) { return quantity_text(static_cast<double>(tokens)); }

// A table that a terminal and a page show alike.
struct Lines {
  std::string caption;
  std::vector<std::vector<std::string>> rows;  // the header first

  std::string terminal() const {
    TextTable table(rows.front());
    for (size_t i = 1; i < rows.size(); ++i) table.add(rows[i]);
    return concat(caption, "\n", table.text());
  }
  plot::Table page() const {
    plot::Table table{.caption = caption, .header = rows.front()};
    for (size_t i = 1; i < rows.size(); ++i) {
      table.rows.emplace_back();
      for (size_t j = 0; j < rows[i].size(); ++j)
        table.rows.back().push_back({.text = rows[i][j], .number = j > 0});
    }
    return table;
  }
};

Lines law_lines(const Slice& slice, const std::vector<std::string>& methods) {
  Lines lines{.caption = concat("L(N, D) = E + A / N^a + B / D^b, ", slice_name(slice),
                                "; 95 % intervals from ", slice.laws.resamples, " resamples"),
              .rows = {{"method", "E", "A", "a", "B", "b", "residuals, %"}}};
  for (size_t m = 0; m < methods.size(); ++m)
    if (const auto& law = slice.laws.laws[m])
      lines.rows.push_back({methods[m], with_interval(law->e, 3), wide_interval(law->a),
                            with_interval(law->alpha, 3), wide_interval(law->b),
                            with_interval(law->beta, 3), fixed(100 * law->spread, 2)});
  return lines;
}

Lines saving_lines(const Slice& slice, const std::vector<std::string>& methods) {
  Lines lines{.caption = concat("The loss of ", methods[0], " with ",
                                quantity_text(slice.laws.parameters), " parameters and ",
                                quantity_text(slice.laws.tokens), " tokens, ", slice_name(slice)),
              .rows = {{"method", "parameters", "tokens"}}};
  for (size_t m = 1; m < methods.size(); ++m)
    if (const auto& saving = slice.laws.savings[m])
      lines.rows.push_back(
          {methods[m], saving_text(saving->parameters), saving_text(saving->tokens)});
  return lines;
}

std::vector<std::string> kind_columns(const Cell& cell) {
  return {concat(cell.shape.text(), " (", tokens_text(cell.shape.parameters()), ")"),
          tokens_text(cell.tokens), count_text(cell.context), name_of(cell.qk_norm), cell.method};
}

const std::vector<std::string> kKindHeader = {"size", "tokens", "context", "QK-norm", "method"};

Lines difference_lines(const Analysis& analysis) {
  Lines lines{.caption = concat("Held-out loss less that of ", analysis.methods[0],
                                ", over the same seeds; below 0 is better"),
              .rows = {kKindHeader}};
  lines.rows[0].push_back("difference");
  for (const Difference& difference : analysis.differences) {
    lines.rows.push_back(kind_columns(difference.cell));
    lines.rows.back().push_back(signed_text(difference.mean, difference.half_width));
  }
  return lines;
}

Lines length_lines(const Analysis& analysis, bool recall) {
  Lines lines{.caption = recall ? "Random tokens that come again, continued rightly, %, in rows of "
                                  "1, 2, 4 and 8 times the trained length"
                                : "Held-out loss in rows of 1, 2, 4 and 8 times the trained length",
              .rows = {kKindHeader}};
  for (const char* factor : {"1", "2", "4", "8"}) lines.rows[0].push_back(factor);
  for (const ByLength& row : analysis.lengths) {
    lines.rows.push_back(kind_columns(row.cell));
    for (size_t i = 0; i < 4; ++i)
      lines.rows.back().push_back(i >= row.lengths.size() ? "-"
                                  : recall                ? fixed(100 * row.recall[i], 1)
                                                          : fixed(row.losses[i], 4));
  }
  return lines;
}

Lines context_lines(const Analysis& analysis) {
  Lines lines{.caption = concat("Does the difference from ", analysis.methods[0],
                                " grow with the trained length? Nats for each doubling"),
              .rows = {{"size", "tokens", "method", "for each doubling"}}};
  for (const ContextGain& gain : analysis.context_gains)
    lines.rows.push_back({gain.shape.text(), tokens_text(gain.tokens), gain.method,
                          signed_text(gain.slope, gain.half_width)});
  return lines;
}

Lines task_lines(const Analysis& analysis) {
  Lines lines{.caption = "Questions with choices", .rows = {kKindHeader}};
  lines.rows[0].insert(lines.rows[0].end(), {"task", "metric", "mean"});
  for (const TaskMean& task : analysis.tasks) {
    lines.rows.push_back(kind_columns(task.cell));
    lines.rows.back().insert(lines.rows.back().end(),
                             {task.task, task.metric, fixed(task.mean, 4)});
  }
  return lines;
}

// A curve as "0.0015: 4.21, 0.003: 4.11, 0.006: diverged".
std::string trials_text(const RateCurve& curve) {
  std::string text;
  for (const RateTrial& trial : curve.trials)
    text += concat(text.empty() ? "" : ", ", trial.rate, ": ",
                   trial.loss ? fixed(*trial.loss, 4) : name_of(trial.outcome));
  return text;
}

Lines tuning_lines(const TuningState& tuning) {
  Lines lines{.caption = "Learning rates that were tried, and the held-out loss of each",
              .rows = {{"method", "QK-norm", "size", "rate: loss", "best", "the rule's"}}};
  for (const Tuning& method : tuning.tunings) {
    const auto add = [&](const RateCurve& curve, const char* note) {
      lines.rows.push_back({method.method, name_of(method.qk_norm), curve.shape.text() + note,
                            trials_text(curve), concat(curve.best),
                            concat(method.rate_for(curve.shape))});
    };
    for (const RateCurve& curve : method.sweep) add(curve, "");
    if (method.check) add(*method.check, ", check");
  }
  return lines;
}

Lines failure_lines(const Analysis& analysis) {
  Lines lines{.caption = "Models that are left out of every table and fit",
              .rows = {{"model", "outcome", "why"}}};
  for (const JobResult& failure : analysis.failures)
    lines.rows.push_back({failure.job.label(), name_of(failure.outcome), failure.reason});
  return lines;
}

// Every table that has something to say, in the order of a report.
std::vector<Lines> summary_lines(const Shown& study) {
  std::vector<Lines> all;
  for (const Slice& slice : study.analysis.slices) {
    all.push_back(law_lines(slice, study.analysis.methods));
    all.push_back(saving_lines(slice, study.analysis.methods));
  }
  all.push_back(difference_lines(study.analysis));
  all.push_back(context_lines(study.analysis));
  all.push_back(failure_lines(study.analysis));
  std::erase_if(all, [](const Lines& lines) { return lines.rows.size() < 2; });
  return all;
}

std::string entropy_sentence(const Analysis& analysis) {
  if (!analysis.entropy_correlation)
    return "Too few models were measured past their trained length to say whether entropy tells "
           "who extrapolates.";
  const Interval& found = *analysis.entropy_correlation;
  return concat(
      "Entropy of attention at the trained length against the growth of the loss past "
      "it: rank correlation ",
      with_interval(found, 2),
      found.holds(0)    ? ", so none that can be told."
      : found.value > 0 ? ": the flatter the attention, the worse a model "
                          "extrapolates."
                        : ": the flatter the attention, the better a model "
                          "extrapolates.");
}

std::vector<std::string> notes_of(const Shown& study) {
  std::vector<std::string> notes = study.done.notes;
  const double passes = study.analysis.most_passes;
  notes.push_back(concat("the longest training saw the text ", fixed(passes, 2), " times",
                         passes > kMostPasses ? ": more than four, so that it was partly learned "
                                                "by heart; more text would change the law"
                                              : ""));
  if (!study.analysis.failures.empty())
    notes.push_back(concat(study.analysis.failures.size(),
                           " models diverged or failed: they are listed, and no fit has them"));
  for (const Slice& slice : study.analysis.slices)
    if (!slice.laws.laws[0])
      notes.push_back(concat("no law for ", slice_name(slice), ": at least ", kFewestPoints,
                             " different pairs of size and tokens are needed"));
  return notes;
}

// The savings of each method, or the difference at the largest size where no law could be fitted.
std::string answer(const Shown& study) {
  const Analysis& analysis = study.analysis;
  std::string text;
  for (const Slice& slice : analysis.slices) {
    const Lines savings = saving_lines(slice, analysis.methods);
    for (size_t i = 1; i < savings.rows.size(); ++i)
      text += concat(text.empty() ? "" : " ", "At ", slice_name(slice), ", what ",
                     savings.rows[i][0], " needs for the loss of ", analysis.methods[0],
                     ": parameters, ", savings.rows[i][1], "; tokens, ", savings.rows[i][2], ".");
  }
  if (!text.empty()) return text;
  if (analysis.differences.empty()) return "Too little is done to say.";
  const Difference& last = analysis.differences.back();
  return concat("No law could be fitted. At ", last.cell.shape.text(), " and ",
                tokens_text(last.cell.tokens), " tokens the loss of ", last.cell.method,
                " less that of ", analysis.methods[0], " is ",
                signed_text(last.mean, last.half_width), ".");
}

}  // namespace

plot::HtmlReport page(const Shown& study, const nlohmann::ordered_json& document,
                      const std::string& command) {
  plot::HtmlReport report("Does it scale?");
  report.summary(
      {.asked = "Does the gain of a method grow or shrink with size and data? Models of several "
                "sizes, trained on several numbers of tokens with each method: the same text in "
                "the same order, the same first weights, and a learning rate found by the same "
                "rule.",
       .answer = answer(study),
       .not_shown = {
           "sizes far beyond those that were trained: a law is fitted to these, and shares "
           "marked as extrapolated rest on it alone",
           "other text, other shapes of the model, other schedules"}});
  report.list(notes_of(study));
  const bool several = std::ranges::any_of(
      study.analysis.differences, [](const Difference& one) { return one.seeds.size() > 1; });
  report.figure(figure(study),
                several ? "Means over the seeds; the bands are 95 % intervals of the mean."
                        : "One model of each kind: no intervals.");
  for (const Lines& lines : summary_lines(study)) report.table(lines.page());
  report.paragraph(
      "The law is fitted to ln L by Huber's loss. Intervals are the middle 95 % of fits to "
      "resamples of cells and seeds, which all methods share. \"Extrapolated\" is a share that "
      "leads out of the sizes or tokens that were measured.");
  report.paragraph(entropy_sentence(study.analysis));
  for (const Lines& lines :
       {length_lines(study.analysis, false), length_lines(study.analysis, true),
        task_lines(study.analysis), tuning_lines(study.done.tuning)})
    if (lines.rows.size() > 1) report.table(lines.page());
  report.paragraph(
      "The learning rate falls with the root of the width. Its constant is the geometric mean of "
      "the best rates of the two smallest sizes, found for each method and norm with a seed of "
      "its own; at the third size half and twice the rate were tried, too.");
  say_how_made(report, document.at("tempera").get<std::string>(), document.at("settings"), command);
  return report;
}

std::string text(const Shown& study) {
  std::string all;
  for (const Lines& lines : summary_lines(study)) all += lines.terminal() + "\n";
  for (const auto& note : notes_of(study)) all += note + "\n";
  return all;
}

std::string cells_csv(const std::vector<JobResult>& results) {
  std::ostringstream csv;
  csv << "purpose,layers,width,heads,parameters,context,qk_norm,method,tokens,batch_tokens,seed,"
         "learning_rate,outcome,loss,loss_2x,loss_4x,loss_8x,recall,recall_2x,recall_4x,recall_8x,"
         "entropy,passes,steps,seconds,micro_batch,temperature_parameters,build\n";
  csv.precision(9);
  const auto nth = [&](const auto& list, size_t i, auto value) {
    csv << ',';
    if (i < list.size()) csv << value(list[i]);
  };
  for (const JobResult& result : results) {
    const Cell& cell = result.job.cell;
    const auto purpose = to_json(result.job).at("purpose").get<std::string>();
    csv << purpose << ',' << cell.shape.layers << ',' << cell.shape.width << ',' << cell.shape.heads
        << ',' << cell.shape.parameters() << ',' << cell.context << ',' << name_of(cell.qk_norm)
        << ",\"" << cell.method << "\"," << cell.tokens << ',' << cell.step_tokens << ','
        << cell.seed << ',' << result.job.learning_rate << ',' << name_of(result.outcome);
    for (size_t i = 0; i < 4; ++i)
      nth(result.losses, i, [](const LengthLoss& row) { return row.loss; });
    for (size_t i = 0; i < 4; ++i)
      nth(result.recall, i, [](const LengthRecall& row) { return row.accuracy; });
    csv << ',';
    if (result.entropy) csv << *result.entropy;
    csv << ',' << result.passes << ',' << result.steps << ',' << result.seconds << ','
        << result.micro_batch << ',' << result.temperature_parameters << ',' << result.build
        << '\n';
  }
  return csv.str();
}

}  // namespace tempera::study::scaling
