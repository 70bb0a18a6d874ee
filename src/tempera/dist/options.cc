#include "tempera/dist/options.h"

namespace tempera::dist {

void Options::declare(config::Options& options) {
  static const config::EnumChoices<BackendChoice> kNames{{{"auto", BackendChoice::kAuto},
                                                          {"gloo", BackendChoice::kGloo},
                                                          {"nccl", BackendChoice::kNccl}}};
  const config::Attributes local{.local = true, .section = config::Section::kComputing};
  config::Attributes rare = local;
  rare.rare = true;
  options.option("ranks", ranks, config::range(0, 4096),
                 "processes that train together on this machine; 0: as torchrun says, or one",
                 local);
  options.option("backend", backend, kNames,
                 "how ranks talk to each other; auto: nccl between GPUs, gloo between CPUs", rare);
  options.option("rank-timeout", timeout, config::range(1, 1e6),
                 "seconds that ranks wait for one that is missing or hangs", rare);
  options.option("log-ranks", log_ranks, "messages of all ranks, not of the first alone", rare);
}

}  // namespace tempera::dist
