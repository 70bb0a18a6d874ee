#pragma once

#include <exception>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tempera/dist/world.h"

// Ranks as threads of one process, for tests.
namespace tempera::dist {

// What each rank's job threw; empty: nothing.
inline std::vector<std::string> run_in_threads(int64_t ranks, const Options& options,
                                               const std::function<void(World&)>& job) {
  Store host({.address = "127.0.0.1", .port = 0, .host = true, .prefix = "host"}, Seconds(60));
  std::vector<std::string> errors(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int64_t rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      try {
        World world({.rank = rank,
                     .size = ranks,
                     .local_rank = rank,
                     .local_size = ranks,
                     .address = "127.0.0.1",
                     .port = host.port(),
                     .hosted = true},
                    options, c10::kCPU);
        world.run([&] { job(world); });
      } catch (const std::exception& error) {
        errors[static_cast<size_t>(rank)] = error.what();
      }
    });
  for (auto& thread : threads) thread.join();
  return errors;
}

}  // namespace tempera::dist
