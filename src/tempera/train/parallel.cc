#include "tempera/train/parallel.h"

#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "tempera/base/error.h"
#include "tempera/data/checksum.h"
#include "tempera/data/random.h"
#include "tempera/ops/memory.h"
#include "tempera/ops/torch.h"
#include "tempera/train/optimizer.h"

namespace tempera::train {
namespace {

// Buckets that are sent at once, where one that is done gives its memory back.
constexpr size_t kUnderWay = 2;

}  // namespace

uint64_t checksum_of(const torch::Tensor& values) {
  const torch::Tensor here = values.detach().to(at::kCPU).contiguous();
  return data::checksum({static_cast<const std::byte*>(here.const_data_ptr()), here.nbytes()});
}

struct Parallel::Bucket {
  BucketPlan plan;
  torch::Tensor values;     // the parameters are views of it
  torch::Tensor part;       // of kAll: the values of this rank's part
  torch::Tensor gradients;  // this rank's, then the sums; in parts: while it is filled
  torch::Tensor own;        // in parts: the sums of this rank's part
  int64_t missing = 0;      // gradients that are still to come in this pass
  std::vector<bool> written;
  bool started = false, finished = false;
  dist::World::Work work;
  enum class Values { kGone, kUnderWay, kThere } state = Values::kThere;
  dist::World::Work gathering;
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

// Numbers the blocks of the passes.
class Parallel::Blocks final : public nn::BlockObserver {
 public:
  Blocks(Parallel& owner, std::vector<const torch::nn::Module*> modules)
      : owner_(owner), modules_(std::move(modules)) {}
  void before(const torch::nn::Module& block) override { owner_.begin_block(number(block)); }
  void after(const torch::nn::Module& block, const torch::Tensor& output) override {
    owner_.end_block(number(block), output);
  }
  int64_t count() const { return std::ssize(modules_); }

 private:
  int64_t number(const torch::nn::Module& block) const {
    return std::ranges::find(modules_, &block) - modules_.begin();
  }

  Parallel& owner_;
  std::vector<const torch::nn::Module*> modules_;
};

Parallel::Parallel(dist::World& world, nn::Model& model, std::vector<nn::NamedParameter> parameters,
                   const ParallelOptions& options)
    : world_(world),
      model_(model),
      parameters_(std::move(parameters)),
      options_(options),
      targets_(parameters_.size()),
      touched_(parameters_.size()) {
  const torch::NoGradGuard no_grad;
  if (shares_values()) {
    blocks_ = std::make_unique<Blocks>(*this, blocks_of(model, parameters_).modules);
    model.set_block_observer(blocks_.get());
  }
  for (const BucketPlan& plan : plan_buckets(
           parameters_,
           bucket_options(model, parameters_, options.sharding, world.size(), options.optimizer)))
    add_bucket(plan);
  for (size_t i = 0; i < parameters_.size(); ++i)
    torch::autograd::impl::set_post_acc_grad_hooks(parameters_[i].tensor,
                                                   std::make_unique<Hook>(*this, i));
}

Parallel::~Parallel() {
  if (blocks_) model_.set_block_observer(nullptr);
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
  if (shares_gradients())
    bucket->own = at::zeros_like(world_.part(bucket->values));
  else
    bucket->gradients = at::zeros_like(bucket->values);
  if (shares_values()) {
    bucket->part = world_.part(bucket->values).clone();
    release(*bucket);
  }
  add_shares(*bucket);
  buckets_.push_back(std::move(bucket));
}

void Parallel::add_shares(Bucket& bucket) {
  const bool all = options_.sharding == Sharding::kNone;
  const int64_t length = all ? bucket.plan.length : bucket.plan.length / world_.size();
  const int64_t begin = all ? 0 : world_.rank() * length;
  const torch::Tensor gradients =
      bucket.own.defined() ? bucket.own : bucket.gradients.narrow(0, begin, length);
  const torch::Tensor values =
      bucket.part.defined() ? bucket.part : bucket.values.narrow(0, begin, length);
  for (const Place& place : bucket.plan.places) {
    const int64_t from = std::max(place.begin, begin);
    const int64_t to = std::min(place.begin + place.length, begin + length);
    if (from >= to) continue;
    Share share{.parameter = parameters_[place.parameter],
                .begin = from - place.begin,
                .shape = parameters_[place.parameter].tensor.sizes().vec()};
    torch::Tensor gradient = gradients.narrow(0, from - begin, to - from);
    share.parameter.tensor = values.narrow(0, from - begin, to - from);
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
  last_ = last || shares_gradients();
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
  // A rank may lack a gradient that another has: between the exchanges of the values, which go on
  // meanwhile, the sums begin where all ranks have come equally far (begin_backward).
  if (last_ && !shares_values()) start_ready();
}

// In the order of the buckets: all ranks must send them in the same.
void Parallel::start_ready() {
  while (next_ < buckets_.size() && buckets_[next_]->missing <= 0) {
    start(*buckets_[next_++]);
    // Sums that are kept in parts give their memory back while the pass goes on.
    if (shares_gradients() && next_ > kUnderWay) finish(*buckets_[next_ - 1 - kUnderWay]);
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
  if (shares_values())
    for (int64_t block = 0; block < blocks_->count(); ++block)
      for (Bucket* bucket : of_block(block)) release(*bucket);
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
  if (options_.sharding == Sharding::kNone || shares_values()) return;
  for (auto& bucket : buckets_) values_.push_back(world_.start_gather_parts(bucket->values));
}

void Parallel::await_values() {
  for (auto& work : values_) wait(work);
  values_.clear();
  if (!shares_values()) return;
  for (Bucket* bucket : of_block(-1)) gather(*bucket);
  for (Bucket* bucket : of_block(-1)) await(*bucket);
  reading_ = true;
}

void Parallel::release_values() {
  reading_ = false;
  if (shares_values())
    for (auto& bucket : buckets_) release(*bucket);
}

void Parallel::gather(Bucket& bucket) {
  if (bucket.state != Bucket::Values::kGone) return;
  const torch::NoGradGuard no_grad;
  ops::take_memory(bucket.values);
  world_.part(bucket.values).copy_(bucket.part);
  bucket.gathering = world_.start_gather_parts(bucket.values);
  bucket.state = Bucket::Values::kUnderWay;
}

void Parallel::await(Bucket& bucket) {
  if (bucket.state == Bucket::Values::kUnderWay) wait(bucket.gathering);
  bucket.state = Bucket::Values::kThere;
}

void Parallel::release(Bucket& bucket) {
  if (bucket.state == Bucket::Values::kGone) return;
  await(bucket);
  ops::release_memory(bucket.values);
  bucket.state = Bucket::Values::kGone;
}

std::vector<Parallel::Bucket*> Parallel::of_block(int64_t block) {
  std::vector<Bucket*> found;
  for (const auto& bucket : buckets_)
    if (bucket->plan.block == block) found.push_back(bucket.get());
  return found;
}

void Parallel::begin_block(int64_t block) {
  if (!reading_) return;
  for (Bucket* bucket : of_block(block)) gather(*bucket);
  for (Bucket* bucket : of_block(block)) await(*bucket);
  if (block + 1 < blocks_->count())
    for (Bucket* next : of_block(block + 1)) gather(*next);
}

void Parallel::end_block(int64_t block, const torch::Tensor& output) {
  if (!reading_) return;
  const bool returns = output.requires_grad();
  // The way back begins with the last one.
  if (!returns || block + 1 < blocks_->count())
    for (Bucket* bucket : of_block(block)) release(*bucket);
  if (!returns) return;
  output.register_hook([this, block](const torch::Tensor&) { begin_backward(block); });
}

void Parallel::begin_backward(int64_t block) {
  if (!reading_) return;
  const torch::NoGradGuard no_grad;
  for (Bucket* bucket : of_block(block)) gather(*bucket);
  for (Bucket* bucket : of_block(block)) await(*bucket);
  if (block + 1 < blocks_->count())
    for (Bucket* done : of_block(block + 1)) release(*done);
  if (block > 0)
    for (Bucket* next : of_block(block - 1)) gather(*next);
  if (!listening_) return;
  // Everything behind this block has its gradients.
  for (; next_ < buckets_.size() && buckets_[next_]->plan.block > block; ++next_) {
    start(*buckets_[next_]);
    if (next_ >= kUnderWay) finish(*buckets_[next_ - kUnderWay]);
  }
}

void Parallel::each_whole(const std::function<void(const Bucket& bucket)>& work) {
  const torch::NoGradGuard no_grad;
  for (auto& bucket : buckets_) {
    if (shares_values()) {
      gather(*bucket);
      await(*bucket);
    }
    work(*bucket);
    if (shares_values()) release(*bucket);
  }
}

void Parallel::with_values(const std::function<void()>& work) {
  await_values();
  reading_ = false;
  if (!shares_values()) return work();
  for (auto& bucket : buckets_) gather(*bucket);
  for (auto& bucket : buckets_) await(*bucket);
  work();
  const torch::NoGradGuard no_grad;
  for (auto& bucket : buckets_) {
    bucket->part.copy_(world_.part(bucket->values));
    release(*bucket);
  }
}

nn::StateMap Parallel::whole_state() {
  nn::StateMap state = model_.state();
  if (!shares_values()) return state;
  each_whole([&](const Bucket& bucket) {
    if (!world_.is_first()) return;
    for (const Place& place : bucket.plan.places) {
      const nn::NamedParameter& parameter = parameters_[place.parameter];
      state.at(parameter.name) = parameter.tensor.detach().to(
          at::kCPU, parameter.tensor.scalar_type(), /*non_blocking=*/false, /*copy=*/true);
    }
  });
  return state;
}

int64_t Parallel::held_bytes() const {
  size_t bytes = 0;
  for (const auto& bucket : buckets_)
    for (const auto& tensor : {bucket->values, bucket->part, bucket->gradients, bucket->own})
      if (tensor.defined()) bytes += tensor.storage().nbytes();
  return static_cast<int64_t>(bytes);
}

void Parallel::check_values() {
  uint64_t sum = 0;
  each_whole([&](const Bucket& bucket) { sum = data::mix64(sum ^ checksum_of(bucket.values)); });
  const auto sums = world_.exchange(std::to_string(sum));
  for (size_t rank = 1; rank < sums.size(); ++rank)
    TEMPERA_CHECK(sums[rank] == sums[0], "rank ", rank,
                  " has other parameters than rank 0, although both computed the same: its machine "
                  "or network makes errors; leave it out and go on from the last checkpoint");
}

}  // namespace tempera::train
