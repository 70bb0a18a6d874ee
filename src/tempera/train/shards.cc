#include "tempera/train/shards.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <utility>

#include "tempera/base/error.h"
#include "tempera/models/tensor_file.h"
#include "tempera/ops/torch.h"

namespace tempera::train {
namespace {

namespace fs = std::filesystem;

int64_t count(const std::vector<int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies());
}

// A stretch in a file.
struct Stored {
  const io::TensorView* view;
  int64_t begin;
  std::vector<int64_t> shape;
  int64_t length() const { return count(view->shape); }
};

// Everything that the files of a checkpoint have of the optimizer's state.
class Files {
 public:
  Files(const fs::path& checkpoint, const Json& state) : checkpoint_(checkpoint) {
    if (!state.contains("shards")) {
      for (const auto& view : open(kOptimizerFile))
        stored_[view.name].push_back({&view, 0, view.shape});
      return;
    }
    for (const Json& shard : state.at("shards")) add(shard);
  }

  void fill(const std::string& name, const Stretch& wanted) const {
    const auto found = stored_.find(name);
    TEMPERA_CHECK(found != stored_.end(), "the state of the optimizer in ", checkpoint_.string(),
                  " lacks '", name, "'");
    const torch::Tensor values = wanted.values.to(at::kCPU).contiguous();
    const auto size = static_cast<int64_t>(values.element_size());
    auto* bytes = static_cast<std::byte*>(values.mutable_data_ptr());
    int64_t filled = 0;
    for (const Stored& one : found->second) {
      TEMPERA_CHECK(
          one.shape == wanted.shape && models::torch_type(*one.view) == values.scalar_type(),
          "the state of the optimizer in ", checkpoint_.string(), ": the tensor '", name, "' is ",
          io::dtype_name(one.view->dtype), " ", at::IntArrayRef(one.shape), "; expected ",
          values.toString(), " ", at::IntArrayRef(wanted.shape));
      const int64_t from = std::max(one.begin, wanted.begin);
      const int64_t to = std::min(one.begin + one.length(), wanted.begin + values.numel());
      if (from >= to) continue;
      std::memcpy(bytes + (from - wanted.begin) * size,
                  one.view->bytes.data() + (from - one.begin) * size,
                  static_cast<size_t>((to - from) * size));
      filled += to - from;
    }
    TEMPERA_CHECK(filled == values.numel(), "the state of the optimizer in ", checkpoint_.string(),
                  ": of the tensor '", name, "' ", values.numel() - filled, " of ", values.numel(),
                  " numbers are missing");
    if (!values.is_same(wanted.values)) wanted.values.copy_(values);
  }

 private:
  std::span<const io::TensorView> open(const std::string& name) {
    files_.push_back(std::make_unique<io::Safetensors>(checkpoint_ / name));
    return files_.back()->tensors();
  }

  void add(const Json& shard) {
    open(shard.at("file").get<std::string>());
    for (const auto& [name, place] : shard.at("tensors").items()) {
      const io::TensorView& view = files_.back()->at(name);
      Stored one{&view, place.at("begin").get<int64_t>(),
                 place.at("shape").get<std::vector<int64_t>>()};
      TEMPERA_CHECK(one.begin >= 0 && one.begin + one.length() <= count(one.shape), "the tensor '",
                    name, "' in ", checkpoint_.string(), " ends behind its end");
      stored_[name].push_back(std::move(one));
    }
  }

  fs::path checkpoint_;
  std::vector<std::unique_ptr<io::Safetensors>> files_;
  std::map<std::string, std::vector<Stored>> stored_;
};

}  // namespace

StretchMap whole(const nn::StateMap& tensors) {
  StretchMap map;
  for (const auto& [name, tensor] : tensors) map[name] = {tensor, 0, tensor.sizes().vec()};
  return map;
}

Json write_shard(const fs::path& folder, const std::string& name, const StretchMap& stretches) {
  nn::StateMap tensors;
  Json places = Json::object();
  for (const auto& [tensor, stretch] : stretches) {
    tensors[tensor] = stretch.values;
    places[tensor] = {{"begin", stretch.begin}, {"shape", stretch.shape}};
  }
  models::write_tensors(folder / name, tensors);
  Json shard = describe_file(folder / name);
  shard["file"] = name;
  shard["tensors"] = std::move(places);
  return shard;
}

void read_stretches(const fs::path& checkpoint, const Json& state, const StretchMap& wanted) {
  const at::NoGradGuard no_grad;
  const Files files(checkpoint, state);
  for (const auto& [name, stretch] : wanted) files.fill(name, stretch);
}

}  // namespace tempera::train
