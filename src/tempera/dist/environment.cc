#include "tempera/dist/environment.h"

#include <charconv>
#include <cstdlib>
#include <string_view>

#include "tempera/base/error.h"

namespace tempera::dist {
namespace {

constexpr int64_t kUsualPort = 29500;

class Variables {
 public:
  explicit Variables(const Lookup& lookup) : lookup_(lookup) {}

  std::optional<std::string> text(const char* name) const {
    const char* value = lookup_(name);
    if (!value || !*value) return std::nullopt;
    return value;
  }

  std::optional<int64_t> number(const char* name, int64_t least, int64_t most) const {
    const auto given = text(name);
    if (!given) return std::nullopt;
    int64_t value = 0;
    const char* end = given->data() + given->size();
    const auto [stop, error] = std::from_chars(given->data(), end, value);
    if (error != std::errc() || stop != end || value < least || value > most)
      throw UsageError(concat("the environment variable ", name, " is '", *given,
                              "'; expected a number from ", least, " to ", most));
    return value;
  }

 private:
  const Lookup& lookup_;
};

constexpr int64_t kMostRanks = 1'000'000;

// RANK for those who set the variables themselves, else what Slurm calls it.
std::optional<int64_t> either(const Variables& variables, const char* usual, const char* slurm,
                              int64_t least) {
  const auto given = variables.number(usual, least, kMostRanks);
  return given ? given : variables.number(slurm, least, kMostRanks);
}

int64_t needed(const std::optional<int64_t>& value, const char* name) {
  if (value) return *value;
  throw UsageError(concat("the environment variable ", name,
                          " is missing: ranks that are started by hand need RANK, WORLD_SIZE, "
                          "MASTER_ADDR and MASTER_PORT; torchrun and --ranks set all of them"));
}

}  // namespace

bool is_loopback(const std::string& address) {
  return address.starts_with("127.") || address == "localhost" || address == "::1";
}

std::optional<Place> place_from(const Lookup& lookup) {
  const Variables variables(lookup);
  const auto address = variables.text("MASTER_ADDR");
  const bool placed = variables.text("RANK") || variables.text("WORLD_SIZE");
  if (!placed && !(address && variables.text("SLURM_PROCID"))) return std::nullopt;
  Place place;
  place.rank = needed(either(variables, "RANK", "SLURM_PROCID", 0), "RANK");
  place.size = needed(either(variables, "WORLD_SIZE", "SLURM_NTASKS", 1), "WORLD_SIZE");
  place.local_rank = either(variables, "LOCAL_RANK", "SLURM_LOCALID", 0).value_or(place.rank);
  // Who does not know where the others are must not look for them on this machine.
  place.local_size = either(variables, "LOCAL_WORLD_SIZE", "SLURM_NTASKS_PER_NODE", 1)
                         .value_or(address && is_loopback(*address) ? place.size : 1);
  place.port = variables.number("MASTER_PORT", 1, 65535).value_or(kUsualPort);
  place.hosted = variables.text("TORCHELASTIC_USE_AGENT_STORE").value_or("") == "True";
  place.elastic = place.hosted && variables.text("TORCHELASTIC_RUN_ID");
  if (place.rank >= place.size)
    throw UsageError(concat("the environment says rank ", place.rank, " of ", place.size,
                            "; ranks count from 0"));
  if (place.size > 1 && !address)
    throw UsageError(concat("the environment says rank ", place.rank, " of ", place.size,
                            ", and MASTER_ADDR is missing: the address where the ranks meet"));
  place.address = address.value_or("");
  return place;
}

std::optional<Place> place_from_environment() {
  return place_from([](const char* name) { return std::getenv(name); });
}

}  // namespace tempera::dist
