#include <ATen/autocast_mode.h>
#include <torch/library.h>

#include <algorithm>
#include <map>
#include <string>

#include "tempera/base/error.h"
#include "tempera/extension/described_method.h"
#include "tempera/ops/torch.h"

// tempera::row_scales and its backward pass: a method's formula as one operator, whatever it
// computes inside. Python adds what torch.compile needs to know of it.
namespace tempera::extension {
namespace {

using Tensors = std::vector<torch::Tensor>;

// A method with the numbers of one call, which it gives back: kept references would keep memory,
// and a sharded model's numbers are its own only while a layer runs.
class Borrowed {
 public:
  Borrowed(const std::string& description, const Tensors& numbers)
      : described_(find(description)), own_(described_.numbers().size()) {
    for (size_t i = 0; i < own_.size(); ++i) own_[i] = described_.numbers()[i].detach();
    described_.set_numbers(numbers);
  }
  ~Borrowed() { described_.set_numbers(own_); }
  Borrowed(const Borrowed&) = delete;
  Borrowed& operator=(const Borrowed&) = delete;

  DescribedMethod& operator*() { return described_; }

 private:
  static DescribedMethod& find(const std::string& description) {
    thread_local std::map<std::string, DescribedMethod> known;
    return known.try_emplace(description, description).first->second;
  }

  DescribedMethod& described_;
  Tensors own_;
};

RowInputs inputs_of(const torch::Tensor& x, const torch::Tensor& n, const torch::Tensor& position,
                    const std::optional<torch::Tensor>& tokens,
                    const std::optional<torch::Tensor>& past, const Tensors& keys) {
  return {x, n, position, tokens.value_or(torch::Tensor()), past.value_or(torch::Tensor()), keys};
}

// A gradient as the result of an operator: neither an argument's memory nor another result's, which
// torch.compile would use again. Where a number is itself a result, its gradient is an argument.
torch::Tensor as_result(const torch::Tensor& gradient, const Tensors& taken) {
  const bool own = std::ranges::none_of(
      taken, [&](const auto& other) { return other.defined() && gradient.is_alias_of(other); });
  return own && gradient.is_contiguous() ? gradient : gradient.clone(at::MemoryFormat::Contiguous);
}

// The formulas say themselves in what type they compute.
const c10::DispatchKeySet kAutocast = c10::autocast_dispatch_keyset;

Tensors forward(const Tensors& numbers, const torch::Tensor& x, const torch::Tensor& n,
                const torch::Tensor& position, const std::optional<torch::Tensor>& tokens,
                const std::optional<torch::Tensor>& past, const Tensors& keys,
                const std::string& method) {
  const torch::NoGradGuard no_grad;
  const c10::impl::ExcludeDispatchKeyGuard plain(kAutocast);
  Borrowed borrowed(method, numbers);
  Tensors results = row_scales((*borrowed).method(), inputs_of(x, n, position, tokens, past, keys));
  // An operator's results are new tensors, and absent ones are empty.
  for (torch::Tensor& result : results)
    result = result.defined() ? result.clone(at::MemoryFormat::Contiguous) : x.new_empty({0});
  return results;
}

Tensors backward(const Tensors& gradients, const Tensors& numbers, const torch::Tensor& x,
                 const torch::Tensor& n, const torch::Tensor& position,
                 const std::optional<torch::Tensor>& tokens,
                 const std::optional<torch::Tensor>& past, const Tensors& keys,
                 const std::string& method) {
  // The pass is computed again, now with gradients, which the dispatcher has turned off for the
  // inside of an operator.
  const c10::impl::LocalDispatchKeySet outside = c10::impl::tls_local_dispatch_key_set();
  const c10::impl::ForceDispatchKeyGuard with_autograd(
      outside.included_, (outside.excluded_ | kAutocast) - c10::autograd_dispatch_keyset);
  const torch::AutoGradMode with_gradients(true);
  Borrowed borrowed(method, numbers);
  // The rows that gradients go to: x, and in a cross-attention those of the keys.
  Tensors rows = {x.detach().requires_grad_()}, sources = keys;
  if (!sources.empty()) rows.push_back(sources[0] = keys[0].detach().requires_grad_());
  const Tensors results =
      row_scales((*borrowed).method(), inputs_of(rows[0], n, position, tokens, past, sources));
  Tensors outputs, seeds;
  for (size_t i = 0; i < kState; ++i) {
    if (!results[i].defined() || !results[i].requires_grad() || !gradients[i].defined() ||
        gradients[i].sizes() != results[i].sizes())
      continue;
    outputs.push_back(results[i]);
    seeds.push_back(gradients[i].to(results[i].scalar_type()));
  }
  Tensors leaves((*borrowed).numbers());
  leaves.resize((*borrowed).parameter_count());
  leaves.insert(leaves.end(), rows.begin(), rows.end());
  Tensors found(leaves.size());
  if (!outputs.empty())
    found = torch::autograd::grad(outputs, leaves, seeds, /*retain_graph=*/false,
                                  /*create_graph=*/false, /*allow_unused=*/true);
  const auto buffers = numbers.size() - (*borrowed).parameter_count();
  found.insert(found.end() - static_cast<ptrdiff_t>(rows.size()), buffers, torch::Tensor());
  Tensors like = numbers;
  like.insert(like.end(), rows.begin(), rows.end());
  Tensors taken = gradients;
  taken.insert(taken.end(), numbers.begin(), numbers.end());
  taken.insert(taken.end(), keys.begin(), keys.end());
  taken.push_back(x);
  for (size_t i = 0; i < found.size(); ++i) {
    found[i] = found[i].defined() ? as_result(found[i], taken) : torch::zeros_like(like[i]);
    taken.push_back(found[i]);
  }
  return found;
}

const char* const kArguments =
    "Tensor[] numbers, Tensor x, Tensor n, Tensor position, Tensor? tokens, Tensor? past, "
    "Tensor[] keys, str method";

}  // namespace

TORCH_LIBRARY_FRAGMENT(tempera, library) {
  const std::vector<at::Tag> tags = {at::Tag::pt2_compliant_tag};
  library.def(concat("row_scales(", kArguments, ") -> Tensor[]").c_str(), tags);
  library.def(
      concat("row_scales_backward(Tensor[] gradients, ", kArguments, ") -> Tensor[]").c_str(),
      tags);
}

TORCH_LIBRARY_IMPL(tempera, CPU, library) {
  library.impl("row_scales", &forward);
  library.impl("row_scales_backward", &backward);
}

TORCH_LIBRARY_IMPL(tempera, CUDA, library) {
  library.impl("row_scales", &forward);
  library.impl("row_scales_backward", &backward);
}

}  // namespace tempera::extension
