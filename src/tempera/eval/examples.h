#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "tempera/eval/bootstrap.h"
#include "tempera/eval/held_out.h"
#include "tempera/eval/text_task.h"
#include "tempera/eval/translation.h"

// What encoders and encoder-decoders are measured by: the loss of hidden tokens, classes of texts,
// translations.
namespace tempera::eval {

// A metric of 100.
struct Measured {
  std::string name;
  Estimate estimate;
};
// Those that a result's document has, and their picture.
std::vector<Measured> measures_of(const nlohmann::ordered_json& document);
plot::Figure measures_figure(const std::string& title, const std::vector<Measured>& measures);

// Loss and accuracy of the targets of some rows, and the F1 of classes where rows have one each.
// `name` says of what.
TextTaskResult example_result(const std::string& name, const Scores& scores, int64_t classes);

// All rows of labelled texts. Longer ones than the model's context are cut.
Scores score_labelled(nn::Model& model, const text::Tokenizer& tokenizer,
                      std::span<const std::filesystem::path> files);

// All rows of texts, of `length` tokens each, with tokens hidden as for the model's kind in
// training.
Scores score_hidden(nn::Model& model, const text::Tokenizer& tokenizer,
                    std::span<const std::filesystem::path> files, int64_t length);

// BLEU and chrF with intervals by resampling sentences.
TextTaskResult translation_result(const TranslationScores& scores, int64_t seed);

}  // namespace tempera::eval
