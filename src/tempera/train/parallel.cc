#include "tempera/train/parallel.h"

#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "tempera/base/error.h"
#include "tempera/data/checksum.h"
#include "tempera/data/random.h"
#include "tempera/ops/torch.h"
#include "tempera/train/optimizer.h"

namespace tempera::train {
namespace {

// Buckets that are sent at once, where one that is done gives its memory back.
constexpr size_t kUnderWay = 2;

}  // namespace

struct Parallel::Bucket {
  BucketPlan plan;
  torch::Tensor values;     // the parameters are views of it
  torch::Tensor gradients;  // this rank's, then the sums; of kGradients while it is filled
  torch::Tensor own;        // of kGradients: the sums of this rank's part
  int64_t missing = 0;      // gradients that are still to come in this pass
  std::vector<bool> written;
  bool started = false, finished = false;
  dist::World::Work work;
};

// Autograd calls it when a parameter has its gradient of a pass.
class Parallel::Hook final : public torch::autograd::PostAccumulateGradHook {
 public:
  Hook(Parallel& owner, size_t parameter) : owner_(owner), parameter_(parameter) {}
  void operator()(const torch::autograd::Variable& tensor) override {
    if (!owner_.listening_) return;
    owner_.arrived(parameter_, tensor.grad());
    tensor.mutable_grad() = torch::Tensor();
  }

 private:
  Parallel& owner_;
  size_t parameter_;
};

Parallel::Parallel(dist::World& world, std::vector<nn::NamedParameter> parameters,
                   const ParallelOptions& options)
    : world_(world),
      parameters_(std::move(parameters)),
      options_(options),
      targets_(parameters_.size()),
      touched_(parameters_.size()) {
  const torch::NoGradGuard no_grad;
  for (const BucketPlan& plan :
       plan_buckets(parameters_,
                    {.ranks = world.size(),
                    .whole_matrices = options.whole_matrices && options.sharding != Sharding::kNone,
                    .elements = options.bucket_elements}))
    add_bucket(plan);
  for (size_t i = 0; i < parameters_.size(); ++i)
    torch::autograd::impl::set_post_acc_grad_hooks(parameters_[i].tensor,
                                                   std::make_unique<Hook>(*this, i));
}

Parallel::~Parallel() {
  for (const auto& parameter : parameters_)
    torch::autograd::impl::set_post_acc_grad_hooks(parameter.tensor, nullptr);
}

void Parallel::add_bucket(const BucketPlan& plan) {
  auto bucket = std::make_unique<Bucket>();
  bucket->plan = plan;
  bucket->written.resize(plan.places.size());
  const auto& first = parameters_[plan.places.front().parameter].tensor;
  bucket->values = at::zeros({plan.length}, first.options().requires_grad(false));
  for (const Place& place : plan.places) {
    torch::Tensor tensor = parameters_[place.parameter].tensor;
    TEMPERA_CHECK(tensor.scalar_type() == first.scalar_type(), "parameters of the types ",
                  c10::toString(tensor.scalar_type()), " and ", c10::toString(first.scalar_type()),
                  " given; several ranks train those of one type");
    const torch::Tensor view =
        bucket->values.narrow(0, place.begin, place.length).view(tensor.sizes());
    view.copy_(tensor.detach());
    tensor.set_data(view);
    targets_[place.parameter] = {buckets_.size(), place};
  }
  world_.broadcast(bucket->values);
  if (options_.sharding == Sharding::kGradients)
    bucket->own = at::zeros_like(world_.part(bucket->values));
  else
    bucket->gradients = at::zeros_like(bucket->values);
  add_shares(*bucket);
  buckets_.push_back(std::move(bucket));
}

void Parallel::add_shares(Bucket& bucket) {
  const bool all = options_.sharding == Sharding::kNone;
  const int64_t length = all ? bucket.plan.length : bucket.plan.length / world_.size();
  const int64_t begin = all ? 0 : world_.rank() * length;
  const torch::Tensor gradients =
      bucket.own.defined() ? bucket.own : bucket.gradients.narrow(0, begin, length);
  for (const Place& place : bucket.plan.places) {
    const int64_t from = std::max(place.begin, begin);
    const int64_t to = std::min(place.begin + place.length, begin + length);
    if (from >= to) continue;
    Share share{.parameter = parameters_[place.parameter],
                .begin = from - place.begin,
                .shape = parameters_[place.parameter].tensor.sizes().vec()};
    torch::Tensor gradient = gradients.narrow(0, from - begin, to - from);
    share.parameter.tensor = bucket.values.narrow(0, from, to - from);
    if (to - from == place.length) {
      share.parameter.tensor = share.parameter.tensor.view(share.shape);
      gradient = gradient.view(share.shape);
    }
    shares_.push_back(std::move(share));
    share_gradients_.push_back(std::move(gradient));
    parameter_of_share_.push_back(place.parameter);
  }
}

void Parallel::wait(dist::World::Work& work) {
  const auto start = std::chrono::steady_clock::now();
  work.wait();
  waited_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void Parallel::begin_gradients() {
  std::ranges::fill(touched_, 0);
  for (auto& bucket : buckets_) {
    std::fill(bucket->written.begin(), bucket->written.end(), false);
    if (bucket->own.defined()) bucket->own.zero_();
  }
}

void Parallel::begin_pass(bool last) {
  // Gradients that are kept in parts are summed after every pass.
  last_ = last || options_.sharding == Sharding::kGradients;
  next_ = 0;
  for (auto& bucket : buckets_) {
    bucket->missing = std::ssize(bucket->plan.places);
    bucket->started = bucket->finished = false;
  }
  listening_ = true;
}

void Parallel::arrived(size_t parameter, const torch::Tensor& gradient) {
  const torch::NoGradGuard no_grad;
  const auto& [number, place] = targets_[parameter];
  Bucket& bucket = *buckets_[number];
  TEMPERA_CHECK(!bucket.started, "the gradient of ", parameters_[parameter].name,
                " came twice in one pass");
  if (!bucket.gradients.defined()) bucket.gradients = at::empty_like(bucket.values);
  const auto index =
      static_cast<size_t>(std::ranges::find(bucket.plan.places, parameter, &Place::parameter) -
                          bucket.plan.places.begin());
  torch::Tensor target = bucket.gradients.narrow(0, place.begin, place.length).view_as(gradient);
  if (bucket.written[index])
    target.add_(gradient);
  else
    target.copy_(gradient);
  bucket.written[index] = true;
  touched_[parameter] = 1;
  bucket.missing -= 1;
  if (last_) start_ready();
}

// In the order of the buckets: all ranks must send them in the same.
void Parallel::start_ready() {
  while (next_ < buckets_.size() && buckets_[next_]->missing <= 0) {
    start(*buckets_[next_++]);
    // Sums that are kept in parts give their memory back while the pass goes on.
    if (options_.sharding == Sharding::kGradients && next_ > kUnderWay)
      finish(*buckets_[next_ - 1 - kUnderWay]);
  }
}

void Parallel::start(Bucket& bucket) {
  if (!bucket.gradients.defined()) bucket.gradients = at::empty_like(bucket.values);
  for (size_t i = 0; i < bucket.written.size(); ++i) {
    const Place& place = bucket.plan.places[i];
    if (!bucket.written[i]) bucket.gradients.narrow(0, place.begin, place.length).zero_();
  }
  bucket.started = true;
  bucket.work = options_.sharding == Sharding::kNone ? world_.start_sum(bucket.gradients)
                                                     : world_.start_sum_parts(bucket.gradients);
}

void Parallel::finish(Bucket& bucket) {
  if (bucket.finished) return;
  bucket.finished = true;
  wait(bucket.work);
  if (!bucket.own.defined()) return;
  bucket.own.add_(world_.part(bucket.gradients));
  bucket.gradients = torch::Tensor();
  std::fill(bucket.written.begin(), bucket.written.end(), false);
}

void Parallel::end_pass() {
  const torch::NoGradGuard no_grad;
  listening_ = false;
  if (!last_) return;
  while (next_ < buckets_.size()) start(*buckets_[next_++]);
  for (auto& bucket : buckets_) finish(*bucket);
}

Parallel::Sums Parallel::finish_gradients(double loss) {
  const torch::NoGradGuard no_grad;
  std::vector<nn::NamedParameter> own;
  for (size_t i = 0; i < shares_.size(); ++i) {
    own.push_back(shares_[i].parameter);
    own.back().tensor.mutable_grad() = share_gradients_[i];
  }
  const double norm = gradient_norm(own);
  // Where every rank has all of it, each gives its part.
  const double parts = shares_are_whole() ? static_cast<double>(world_.size()) : 1;
  std::vector<double> values = {loss, norm * norm / parts};
  values.insert(values.end(), touched_.begin(), touched_.end());
  const auto start = std::chrono::steady_clock::now();
  values = world_.sums(std::move(values));
  waited_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  // As in a run of one rank: what nothing depends on is not updated.
  for (size_t i = 0; i < shares_.size(); ++i)
    if (values[2 + parameter_of_share_[i]] == 0) own[i].tensor.mutable_grad() = torch::Tensor();
  return {values[0], values[1]};
}

void Parallel::start_values() {
  if (options_.sharding == Sharding::kNone) return;
  for (auto& bucket : buckets_) values_.push_back(world_.start_gather_parts(bucket->values));
}

void Parallel::await_values() {
  for (auto& work : values_) wait(work);
  values_.clear();
}

void Parallel::check_values() {
  uint64_t sum = 0;
  for (const auto& bucket : buckets_) {
    const torch::Tensor values = bucket->values.to(at::kCPU);
    sum = data::mix64(sum ^ data::checksum({static_cast<const std::byte*>(values.const_data_ptr()),
                                            values.nbytes()}));
  }
  const auto sums = world_.exchange(std::to_string(sum));
  for (size_t rank = 1; rank < sums.size(); ++rank)
    TEMPERA_CHECK(sums[rank] == sums[0], "rank ", rank,
                  " has other parameters than rank 0, although both computed the same: its machine "
                  "or network makes errors; leave it out and go on from the last checkpoint");
}

}  // namespace tempera::train
