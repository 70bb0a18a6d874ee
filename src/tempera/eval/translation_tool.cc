// translation_tool TRANSLATIONS REFERENCES
// Prints {"bleu": ..., "chrf": ..., "sentences": ...} of two files, a sentence a line.
#include <iostream>
#include <nlohmann/json.hpp>

#include "tempera/base/error.h"
#include "tempera/data/text.h"
#include "tempera/eval/translation.h"

int main(int argc, char** argv) {
  try {
    if (argc != 3) throw tempera::Error("TRANSLATIONS REFERENCES expected");
    const auto scores = tempera::eval::score_translations(tempera::data::read_lines(argv[1]),
                                                          tempera::data::read_lines(argv[2]));
    std::cout << nlohmann::json{{"bleu", scores.bleu},
                                {"chrf", scores.chrf},
                                {"sentences", scores.sentences}}
              << "\n";
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << "\n";
    return 1;
  }
}
