#include "tempera/kernels/cpu/isa.h"

#include "tempera/kernels/cpu/targets.h"
// Highway's targets come after the choice above.
#include <hwy/highway.h>

#include <cstdlib>
#include <mutex>

#include "tempera/base/error.h"

namespace tempera::kernels::cpu {
namespace {

struct Isa {
  const char* name;
  int64_t target;
};

// Best first, as Highway orders its targets.
constexpr Isa kIsas[] = {{"avx512", HWY_AVX3}, {"avx2", HWY_AVX2}, {"baseline", HWY_STATIC_TARGET}};

// By the machine and by this build.
bool is_supported(const Isa& isa) {
  return (hwy::SupportedTargets() & HWY_TARGETS & isa.target) != 0;
}

Isa choose() {
  const char* asked = std::getenv("TEMPERA_ISA");
  for (const Isa& isa : kIsas) {
    if (asked && *asked ? std::string(asked) == isa.name : is_supported(isa)) {
      TEMPERA_CHECK(is_supported(isa), "TEMPERA_ISA=", asked,
                    ": this machine does not have it; unset the variable to use the best it has");
      return isa;
    }
  }
  throw Error(concat("TEMPERA_ISA=", asked ? asked : "",
                     ": not a name of an instruction set; expected baseline, avx2 or avx512"));
}

// Restricts Highway's dispatch to the chosen target and those below it, for sources that are not
// compiled for all, once a process. AVX-512 includes its later extensions where the machine has
// them: a source compiled for those is the better one.
const Isa& selected() {
  static const Isa isa = [] {
    const Isa chosen = choose();
    // A lower bit is a better target.
    int64_t allowed = -chosen.target;
    if (chosen.target == HWY_AVX3) allowed |= HWY_AVX3_DL;
    allowed &= hwy::SupportedTargets();
    hwy::SetSupportedTargetsForTest(allowed);
    hwy::GetChosenTarget().Update(allowed);
    return chosen;
  }();
  return isa;
}

}  // namespace

std::vector<std::string> supported_isas() {
  std::vector<std::string> names;
  for (const Isa& isa : kIsas)
    if (is_supported(isa)) names.emplace_back(isa.name);
  return names;
}

std::string selected_isa() { return selected().name; }

void select_isa() { selected(); }

}  // namespace tempera::kernels::cpu
