#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tempera/dist/world.h"
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

// Makes the files that are not there: the ranks take one piece after the other, and each has as
// many threads as workers(). The first rank shows the progress of all. After a signal it throws
// Interrupted in every rank: finished pieces are kept, and the same call goes on.
void run_pieces(const std::string& title, const std::vector<Piece>& pieces, int64_t threads,
                dist::World& world);

// A thread that computes by itself alone, on the GPU of the thread that starts it: others begin at
// the first of the machine.
std::thread start_worker(std::function<void()> work);

// How many models this rank trains side by side; threads: as given, 0: one a core of its own.
int64_t workers(int64_t threads, const dist::World& world);

// The result in a file; throws where it holds something else.
Json read_json(const std::filesystem::path& file);
template <class Result>
Result read_result(const std::filesystem::path& file) {
  return read_as<Result>(read_json(file), file.string());
}

}  // namespace tempera::study
