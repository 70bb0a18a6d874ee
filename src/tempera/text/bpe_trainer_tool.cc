// bpe_trainer_tool SIZE MIN_FREQUENCY SPECIAL,SPECIAL... FILE > tokenizer.json
// Takes the file for one document.
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "tempera/base/error.h"
#include "tempera/base/files.h"
#include "tempera/text/bpe_trainer.h"

int main(int argc, char** argv) {
  try {
    if (argc != 5) throw tempera::Error("SIZE MIN_FREQUENCY SPECIAL,SPECIAL... FILE expected");
    tempera::text::BpeTrainerOptions options{.vocabulary = std::stoll(argv[1]),
                                             .min_frequency = std::stoll(argv[2]),
                                             .special_tokens = {}};
    std::istringstream names(argv[3]);
    for (std::string name; std::getline(names, name, ',');) options.special_tokens.push_back(name);
    tempera::text::BpeTrainer trainer;
    trainer.add(tempera::read_file(argv[4], uint64_t{1} << 32));
    std::cout << trainer.train(options, [](int64_t) {}).tokenizer_json();
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << "\n";
    return 1;
  }
}
