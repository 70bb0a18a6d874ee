#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace tempera::dist {

// Where a process stands among those that work together.
struct Place {
  int64_t rank = 0;
  int64_t size = 1;
  int64_t local_rank = 0;  // on this machine
  int64_t local_size = 1;
  std::string address = {};  // where the ranks meet
  int64_t port = 0;
  bool hosted = false;   // a launcher keeps the meeting point; else rank 0 does
  bool elastic = false;  // and keeps it when it starts the ranks again
};

using Lookup = std::function<const char*(const char* name)>;

// What torchrun says (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, ...), or variables of these names
// that anybody set. Where MASTER_ADDR alone is given, Slurm's own variables say the rest. Unset in
// a process that nobody placed. Throws UsageError where they contradict each other.
std::optional<Place> place_from(const Lookup& lookup);
std::optional<Place> place_from_environment();

// Whether it can only be this machine's.
bool is_loopback(const std::string& address);

}  // namespace tempera::dist
