#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "tempera/study/record.h"

namespace tempera::study {

// Called after every step of a model's training; may throw.
using ReportStep = std::function<void(double share, int64_t steps)>;

// One model of a study: trained and measured on one thread, its result kept in a file.
struct Piece {
  std::string label;  // for the progress
  std::filesystem::path file;
  std::function<Json(const ReportStep& report)> make;
};

// Makes the files that are not there, in parallel over `threads` (0: one a core). After a signal it
// throws Interrupted: finished pieces are kept, and the same call goes on.
void run_pieces(const std::string& title, const std::vector<Piece>& pieces, int64_t threads);

// The result in a file; throws where it holds something else.
Json read_json(const std::filesystem::path& file);
template <class Result>
Result read_result(const std::filesystem::path& file) {
  return read_as<Result>(read_json(file), file.string());
}

}  // namespace tempera::study
