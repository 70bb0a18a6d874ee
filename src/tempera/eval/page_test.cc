#include "tempera/eval/page.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "tempera/base/error.h"
#include "tempera/eval/choices.h"
#include "tempera/eval/examples.h"
#include "tempera/eval/grid.h"
#include "tempera/eval/report.h"
#include "tempera/eval/ruler.h"
#include "tempera/plot/csv.h"
#include "tempera/plot/xml_check.h"

namespace tempera::eval {
namespace {

using Json = nlohmann::ordered_json;

Json with_model(Json document) {
  document["model"] = "runs/<a>";
  return document;
}

const plot::Figure& figure_in(const plot::HtmlReport& page) {
  for (const auto& block : page.blocks())
    if (const auto* picture = std::get_if<plot::Picture>(&block)) return picture->figure;
  throw Error("no figure");
}

// A page of the document has the picture of the scores themselves, and is a page.
void check(const Json& document, const plot::Figure& figure, const std::string& answer) {
  const auto page = page_of(with_model(document));
  EXPECT_EQ(plot::to_csv(figure_in(page)), plot::to_csv(figure));
  EXPECT_EQ(page.first_summary().answer, answer);
  const std::string html = page.html();
  EXPECT_EQ(plot::xml_fault(html), "");
  EXPECT_NE(html.find("runs/&lt;a&gt;"), std::string::npos);
  EXPECT_NE(html.find("<table>"), std::string::npos);
}

TEST(EvalPage, OfText) {
  TextScores scores{.loss = 2,
                    .perplexity = 7.389,
                    .tokens = 1500,
                    .by_position = {{1, 15, 500, 2.5}, {16, 31, 1000, 1.75}}};
  auto figure = to_figure("", scores);
  check(to_json(scores), figure, "The perplexity is 7.39 over 1,500 tokens.");
  scores.blocks = {{.loss = 1000, .tokens = 500}, {.loss = 2000, .tokens = 1000}};
  Json document = to_json(scores);
  EXPECT_DOUBLE_EQ(document["perplexity_interval"][0].get<double>(), std::exp(2.0));
  document["perplexity_interval"] = {7.25, 7.5};
  document["bits_per_byte"] = 1.5;
  document["window"] = 128;
  check(document, figure,
        "The perplexity is 7.39 (95 % interval 7.25 to 7.50) over 1,500 tokens, 1.500 bits a byte, "
        "in windows of 128 tokens.");
}

TEST(EvalPage, OfABuiltInTask) {
  std::vector<SizeScores> list = {
      {.size = 16, .rows = 64, .scores = {.loss = 0.1, .accuracy = 0.995}},
      {.size = 1024, .rows = 64, .scores = {.loss = 2, .accuracy = 0.5}}};
  for (auto& set : list) {
    set.scores.answer_weight = 0.25;
    set.scores.query_scale = {1, 2};
  }
  check({{"task", "phonebook"}, {"sets", to_json(list)}}, to_figure("phonebook", list),
        "It answers 99.5 % rightly at size 16, and 50.0 % at size 1,024.");
}

TEST(EvalPage, OfALongTask) {
  Grid grid = Grid::empty("passkey", {512, 1024}, {0, 1});
  for (auto& cell : grid.cells) cell = {cell.length, cell.depth, cell.length == 512 ? 4 : 2, 4, 4};
  check(to_json(grid), to_figure(grid),
        "At 1,024 tokens it is right in 50.0 (21.5 to 78.5) %, at 512 in 100.0 (67.6 to 100.0) %. "
        "In brackets: the 95 % interval.");
}

TEST(EvalPage, OfRuler) {
  const RulerScores scores{
      .name = "ruler",
      .lengths = {512, 1024},
      .cells = {{.task = "ruler-vt", .length = 512, .new_tokens = 8, .cases = 4, .score = 4},
                {.task = "ruler-vt", .length = 1024, .new_tokens = 8, .cases = 4, .score = 1},
                {.task = "ruler-qa", .length = 512, .new_tokens = 8, .cases = 4, .score = 2.5},
                {.task = "ruler-qa", .length = 1024, .new_tokens = 8, .cases = 4, .score = 3}}};
  check(to_json(scores), to_figure(scores),
        "At 1,024 tokens its answers name 50.0 (21.5 to 78.5) % of what they should, over all "
        "tasks. In brackets: the 95 % interval.");
  Json torn = to_json(scores);
  torn["cells"].erase(3);
  EXPECT_THROW(page_of(torn), Error);
}

TEST(EvalPage, OfChoices) {
  ChoiceScores scores{.task = "lambada",
                      .examples = std::vector<ChoiceExample>(8),
                      .answers = {},
                      .metrics = {{"acc", {}, {0.5, 0.1, 0.3, 0.7}, true},
                                  {"perplexity", {}, {12.5, 1, 10, 15}, false}}};
  check(to_json(scores, false), to_figure(scores),
        "acc 50.0 (30.0 to 70.0) %; perplexity 12.50 (10.00 to 15.00). In brackets: the 95 % "
        "interval.");
}

TEST(EvalPage, OfMeasures) {
  const Json document{{"task", "translation"}, {"sentences", 3},
                      {"bleu", 21.5},          {"bleu_interval", {20.0, 23.0}},
                      {"chrf", 40.0},          {"chrf_interval", {39.0, 41.0}}};
  check(document,
        measures_figure("translation", {{"bleu", {.value = 21.5, .low = 20, .high = 23}},
                                        {"chrf", {.value = 40, .low = 39, .high = 41}}}),
        "bleu 21.50 (20.00 to 23.00); chrf 40.00 (39.00 to 41.00), of 100. In brackets: the 95 % "
        "interval.");
}

TEST(EvalPage, RefusesOtherDocuments) {
  for (const char* text :
       {"[]", "3", "{}", R"({"task": "x"})", R"({"task": 3, "sets": []})",
        R"({"task":"x","sets":[]})", R"({"by_position": 1})",
        R"({"cells": [], "lengths": [1], "task": "x"})",
        R"({"cells": [], "average": [], "task": "x"})", R"({"results": {}})",
        R"({"results": {"a": {}, "b": {}}})", R"({"results": {"a": {}}, "n-samples": {}})"})
    EXPECT_THROW(page_of(Json::parse(text)), Error) << text;
}

}  // namespace
}  // namespace tempera::eval
