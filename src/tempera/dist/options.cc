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
                 "processes to start on this machine; 0: one, or those that torchrun started",
                 local);
  options.option("backend", backend, kNames,
                 "how ranks talk to each other; auto: nccl between GPUs, gloo between CPUs", rare);
  options.option("rank-timeout", timeout, config::range(1, 1e6),
                 "seconds that ranks wait for one that is missing or hangs", rare);
  options.option("log-ranks", log_ranks, "show the messages of all ranks, not only of the first",
                 rare);
}

}  // namespace tempera::dist
