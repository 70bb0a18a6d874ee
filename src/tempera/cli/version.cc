#include "tempera/cli/version.h"

#include <torch/version.h>

#include <nlohmann/json.hpp>

#include "tempera/base/build_id.h"
#include "tempera/base/version.h"
#include "tempera/kernels/cpu/isa.h"
#include "tempera/ops/cuda/cuda.h"
#include "tempera/ops/torch.h"

namespace tempera::cli {

std::string version_json() {
  const auto isas = kernels::cpu::supported_isas();  // before one of them is selected
  const bool gpu = torch::cuda::is_available();
  const nlohmann::ordered_json json{
      {"version", version()},
      {"build", build_id()},
      {"torch", TORCH_VERSION},
      {"gpu", gpu},
      {"gpu_kernels", gpu && ops::cuda::has_kernels(torch::Device(torch::kCUDA, 0))},
      {"isa", kernels::cpu::selected_isa()},
      {"isas", isas}};
  return json.dump(2);
}

}  // namespace tempera::cli
