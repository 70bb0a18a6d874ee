#include "tempera/eval/examples.h"

#include <cmath>
#include <iomanip>
#include <memory>
#include <numeric>
#include <sstream>
#include <utility>
#include <vector>

#include "tempera/base/error.h"
#include "tempera/data/corpus.h"
#include "tempera/data/labelled_dataset.h"
#include "tempera/data/masked_dataset.h"
#include "tempera/data/text_dataset.h"
#include "tempera/eval/bootstrap.h"
#include "tempera/eval/classification.h"

namespace tempera::eval {
namespace {

using Json = nlohmann::ordered_json;

std::string measures_text(const std::vector<Measured>& measures) {
  std::ostringstream text;
  text << std::fixed << std::setprecision(2);
  for (const auto& [name, estimate] : measures)
    text << std::left << std::setw(14) << name << std::right << std::setw(7) << estimate.value
         << "  (" << estimate.low << " to " << estimate.high << ")\n";
  return text.str();
}

void add_json(Json& document, const std::vector<Measured>& measures) {
  for (const auto& [name, estimate] : measures) {
    document[name] = estimate.value;
    document[name + "_interval"] = {estimate.low, estimate.high};
  }
}

// Examples by their numbers, for statistics of more than a mean.
std::vector<double> numbers(size_t count) {
  std::vector<double> list(count);
  std::iota(list.begin(), list.end(), 0.0);
  return list;
}

template <class Counts>
Estimate bootstrap_counts(const std::vector<Counts>& sentences, int64_t seed) {
  return bootstrap(
      numbers(sentences.size()),
      [&](std::span<const double> chosen) {
        Counts sum;
        for (const double i : chosen) sum += sentences[static_cast<size_t>(i)];
        return sum.score();
      },
      seed);
}

std::vector<Measured> class_measures(const Scores& scores, int64_t classes) {
  const auto measure = [&](const std::string& name, double (*value)(const ClassScores&)) {
    return Measured{name,
                    bootstrap(numbers(scores.labels.size()), [&](std::span<const double> some) {
                      std::vector<int64_t> answers, labels;
                      for (const double i : some) {
                        answers.push_back(scores.answers[static_cast<size_t>(i)]);
                        labels.push_back(scores.labels[static_cast<size_t>(i)]);
                      }
                      return 100 * value(score_classes(answers, labels, classes));
                    })};
  };
  std::vector<Measured> list = {
      measure("accuracy", [](const ClassScores& s) { return s.accuracy; }),
      measure("f1_macro", [](const ClassScores& s) { return s.f1_macro; })};
  if (classes == 2)
    list.push_back(measure("f1_binary", [](const ClassScores& s) { return s.f1_binary(); }));
  return list;
}

}  // namespace

std::vector<Measured> measures_of(const Json& document) {
  std::vector<Measured> measures;
  for (const char* name : {"accuracy", "f1_macro", "f1_binary", "bleu", "chrf"}) {
    if (!document.contains(name)) continue;
    const auto value = document[name].get<double>();
    Measured measure{name, {.value = value, .low = value, .high = value}};
    if (const auto interval = document.find(concat(name, "_interval"));
        interval != document.end()) {
      measure.estimate.low = interval->at(0);
      measure.estimate.high = interval->at(1);
    }
    measures.push_back(std::move(measure));
  }
  return measures;
}

plot::Figure measures_figure(const std::string& title, const std::vector<Measured>& measures) {
  plot::BarChart chart{.title = "", .y = {.label = "of 100", .min = 0, .max = 100}};
  plot::BarSeries bars{.name = title};
  for (const auto& [name, estimate] : measures) {
    chart.categories.push_back(name);
    bars.values.push_back(estimate.value);
    bars.spread.push_back((estimate.high - estimate.low) / 2);
  }
  chart.series.push_back(std::move(bars));
  plot::Figure figure{.title = title};
  figure.panels.emplace_back(std::move(chart));
  return figure;
}

TextTaskResult example_result(const std::string& name, const Scores& scores, int64_t classes) {
  std::ostringstream text;
  text << std::fixed << std::setprecision(4) << std::left << std::setw(14) << "loss" << std::right
       << std::setw(7) << scores.loss << "  of " << scores.targets << " targets\n";
  Json document{{"task", name}, {"loss", scores.loss}, {"targets", scores.targets}};
  std::vector<Measured> measures;
  if (scores.labels.empty()) {
    const double accuracy = 100 * scores.accuracy;
    document["accuracy"] = accuracy;
    document["perplexity"] = std::exp(scores.loss);
    text << std::setprecision(2) << std::left << std::setw(14) << "accuracy" << std::right
         << std::setw(7) << accuracy << " %\n";
    measures = {{"accuracy", {.value = accuracy, .low = accuracy, .high = accuracy}}};
  } else {
    measures = class_measures(scores, classes);
    add_json(document, measures);
    text << measures_text(measures);
  }
  return {std::move(document), text.str(), measures_figure(name, measures)};
}

Scores score_labelled(nn::Model& model, const text::Tokenizer& tokenizer,
                      std::span<const std::filesystem::path> files) {
  TEMPERA_CHECK(model.config().head == nn::HeadKind::kSequence,
                "the model scores tokens and no sequences; fine-tune an encoder on labelled texts "
                "first (tempera finetune MODEL --labelled FILE)");
  const text::SequenceTokens ids(tokenizer);
  const int64_t length = model.config().context;
  const data::LabelledDataset dataset(files.front().string(),
                                      data::encode_labelled(data::read_labelled(files), tokenizer),
                                      ids, {.length = length, .seed = 0, .held_out = 0});
  data::check_fits(dataset, {.vocabulary = model.config().vocabulary,
                             .classes = model.config().output_count(),
                             .max_length = model.config().max_length()});
  return score_rows(model, dataset.train_examples(), length,
                    [&](int64_t first, int64_t rows) { return dataset.in_order(first, rows); });
}

Scores score_hidden(nn::Model& model, const text::Tokenizer& tokenizer,
                    std::span<const std::filesystem::path> files, int64_t length) {
  const auto corpus = std::make_shared<const data::Corpus>(data::Corpus::open(files, &tokenizer));
  const auto text = std::make_shared<const data::TextDataset>(
      corpus, data::TextOptions{.length = length, .seed = 0, .held_out = 0});
  const text::SequenceTokens ids(tokenizer);
  std::unique_ptr<data::Dataset> dataset;
  if (model.config().kind == nn::ModelKind::kEncoder)
    dataset = std::make_unique<data::MaskedDataset>(text, ids, 0);
  else
    dataset = std::make_unique<data::SpanDataset>(text, ids, 0);
  // One step with all rows of an epoch.
  return score_rows(model, text->train_rows(), length, [&](int64_t first, int64_t rows) {
    return dataset->train(
        {.step = 0, .batch_rows = text->train_rows(), .first_row = first, .rows = rows});
  });
}

TextTaskResult translation_result(const TranslationScores& scores, int64_t seed) {
  const std::vector<Measured> measures = {{"bleu", bootstrap_counts(scores.bleu_counts, seed)},
                                          {"chrf", bootstrap_counts(scores.chrf_counts, seed)}};
  Json document{{"task", "translation"}, {"sentences", scores.sentences}};
  add_json(document, measures);
  return {std::move(document), measures_text(measures), measures_figure("translation", measures)};
}

}  // namespace tempera::eval
