#include <torch/version.h>

#include <array>
#include <cstdio>
#include <span>
#include <utility>

#include "tempera/base/error.h"
#include "tempera/base/version.h"
#include "tempera/config/settings.h"
#include "tempera/data/checksum.h"
#include "tempera/data/random.h"
#include "tempera/models/load.h"
#include "tempera/models/tensor_file.h"
#include "tempera/ops/torch.h"
#include "tempera/train/shards.h"
#include "tempera/train/trainer.h"

// How a training is saved and goes on, and how ranks come together.
namespace tempera::train {
namespace {

namespace fs = std::filesystem;

std::string hex(uint64_t sum) {
  std::array<char, 17> text;
  std::snprintf(text.data(), text.size(), "%016llx", static_cast<unsigned long long>(sum));
  return text.data();
}

// What is trained comes from the first rank; frozen weights stay what each rank has read.
std::string frozen_checksum(const nn::Model& model) {
  uint64_t sum = 0;
  for (const auto& parameter : model.parameter_list())
    if (!parameter.tensor.requires_grad()) sum = data::mix64(sum ^ checksum_of(parameter.tensor));
  return hex(sum);
}

}  // namespace

std::string Trainer::last_saved_text() const {
  if (!folder_) return "nothing was saved";
  if (!saved_step_)
    return concat("no checkpoint was written yet in '", folder_->path().string(), "'");
  return concat("the last good checkpoint is '", folder_->checkpoint_path(*saved_step_).string(),
                "'");
}

void Trainer::save() {
  if (!saves_ || saved_step_ == position_.step) return;
  if (parallel_) {
    parallel_->await_values();
    parallel_->check_values();
  }
  nn::StateMap values = parallel_ ? parallel_->whole_state() : model_->state();
  if (!folder_) {
    write_share();
    saved_step_ = position_.step;
    return;
  }
  Checkpoint checkpoint;
  checkpoint.state = {{"step", position_.step},
                      {"tokens", position_.tokens},
                      {"seconds", position_.seconds},
                      {"best", nullptr},
                      {"data", data_checksum()},
                      {"seed", options_.seed},
                      {"threads", at::get_num_threads()},
                      {"ranks", world_->size()},
                      {"program", version()},
                      {"torch", TORCH_VERSION},
                      {"method", model_->config().temperature.method},
                      {"settings", folder_->mark()->settings}};
  std::optional<int64_t> best;
  if (position_.best) {
    best = position_.best->step;
    checkpoint.state["best"] = {{"step", *best}, {"loss", position_.best->loss}};
  }
  checkpoint.files = tokenizer_.files;
  checkpoint.files["config.json"] = models::model_config_json(model_->config(), tokenizer_.name);
  checkpoint.model = std::move(values);
  if (world_->alone() || parallel_->shares_are_whole())
    checkpoint.optimizer = optimizer().state();
  else
    checkpoint.write_shards = [this](const fs::path& path) { return write_shards(path); };
  try {
    if (log_) log_->sync();
    folder_->save(std::move(checkpoint), position_.step, best, options_.keep);
    world_->await_all();
  } catch (const dist::RankFailure&) {
    throw;
  } catch (const Error& error) {
    throw Error(concat("step ", position_.step, " cannot be saved: ", error.what(), "; ",
                       last_saved_text(), "; make room and run the same command again"));
  }
  saved_step_ = position_.step;
}

StretchMap Trainer::optimizer_stretches() {
  StretchMap map = whole(optimizer().state());
  if (!parallel_) return map;
  std::map<std::string, const Share*> shares;
  for (const Share& share : parallel_->shares()) shares[share.parameter.name] = &share;
  for (auto& [name, stretch] : map) {
    const auto found = shares.find(name.substr(0, name.rfind('.')));
    if (found == shares.end()) continue;
    stretch.begin = found->second->begin;
    stretch.shape = found->second->shape;
  }
  return map;
}

void Trainer::write_share() {
  if (!parallel_->shares_are_whole()) {
    world_->await_all();
    const std::string folder = world_->from_first("");
    StretchMap own = optimizer_stretches();
    std::erase_if(own, [](const auto& entry) { return entry.second.values.dim() == 0; });
    const Json written = write_shard(folder, shard_name(), own);
    world_->await_all();
    world_->exchange(written.dump());
  }
  world_->await_all();
}

Json Trainer::write_shards(const fs::path& folder) {
  world_->await_all();
  world_->from_first(folder.string());
  const Json own = write_shard(folder, shard_name(), optimizer_stretches());
  world_->await_all();
  Json all = Json::array();
  for (const auto& text : world_->exchange(own.dump())) all.push_back(Json::parse(text));
  return all;
}

std::string Trainer::shard_name() const {
  std::array<char, 64> name;
  std::snprintf(name.data(), name.size(), "optimizer-%05lld-of-%05lld.safetensors",
                static_cast<long long>(world_->rank() + 1), static_cast<long long>(world_->size()));
  return name.data();
}

std::string Trainer::data_checksum() const {
  uint64_t sum = 0;
  for (const auto& dataset : datasets_) {
    const data::Batch batch = dataset->train(data::whole_batch(0, 1));
    sum = data::mix64(sum ^ data::checksum(std::as_bytes(std::span(batch.tokens))));
    if (!batch.source.empty())
      sum = data::mix64(sum ^ data::checksum(std::as_bytes(std::span(batch.source))));
  }
  return hex(sum);
}

void Trainer::restore(const FoundCheckpoint& checkpoint) {
  const Json& state = checkpoint.state;
  const std::string run = checkpoint.path.parent_path().parent_path().string();
  TEMPERA_CHECK(state.at("data") == data_checksum(),
                "the data is not the same as when the run in '", run,
                "' began; bring the old data back, or give another folder with --out");
  const auto load = [&] { model_->load_state(models::read_tensors(checkpoint.path / kModelFile)); };
  parallel_ ? parallel_->with_values(load) : load();
  read_stretches(checkpoint.path, state, optimizer_stretches());
  position_ = {.step = state.at("step").get<int64_t>(),
               .tokens = state.at("tokens").get<int64_t>(),
               .seconds = state.at("seconds").get<double>(),
               .best = std::nullopt};
  use_base_of(stage_of(std::max<int64_t>(0, position_.step - 1)));
  // A loss that was not finite is written as null.
  if (const Json& best = state.at("best"); best.is_object() && best.at("loss").is_number())
    position_.best = {best.at("step").get<int64_t>(), best.at("loss").get<double>()};
  saved_step_ = position_.step;
  say(concat("continuing the run in '", run, "' from step ", position_.step,
             total_steps_ > 0 ? concat(" of ", total_steps_) : ""));
  const int threads = at::get_num_threads();
  if (state.at("threads") != threads)
    say(concat("the run began with ", state.at("threads").dump(), " threads and goes on with ",
               threads, ": the last digits of sums may differ"));
  if (const int64_t ranks = state.value("ranks", int64_t{1}); ranks != world_->size())
    say(concat("the last checkpoint is of ", ranks, ranks == 1 ? " rank" : " ranks",
               ", and the run goes on with ", world_->size(),
               ": the last digits of sums may differ"));
}

void Trainer::attach(RunFolder& folder, const fs::path& tensorboard) {
  folder_ = &folder;
  saves_ = true;
  folder.keep();
  try {
    const auto found = folder.newest([&](std::string_view line) { say(std::string(line)); });
    const Json place =
        found ? Json{{"path", found->path.string()}, {"state", found->state}} : Json();
    world_->await_all();
    world_->from_first(place.dump());
    if (found) {
      restore(*found);
      const auto& best = position_.best;
      folder.turn_links(position_.step, best ? std::optional(best->step) : std::nullopt);
    }
  } catch (const Json::exception& error) {
    throw Error(concat("the state of the run in '", folder.path().string(),
                       "' is not complete: ", error.what()));
  }
  log_ = std::make_unique<RunLog>(folder.log_path(), position_.step);
  if (!tensorboard.empty()) log_->mirror(tensorboard, folder.mark()->id);
  world_->await_all();
}

void Trainer::attach_to_first() {
  saves_ = true;
  world_->await_all();
  if (const Json place = Json::parse(world_->from_first("")); !place.is_null()) {
    const fs::path path = place.at("path").get<std::string>();
    TEMPERA_CHECK(fs::exists(path), "there is no checkpoint ", path.string(),
                  ", which the first rank has found: all ranks need one file system");
    restore({path, place.at("state")});
  }
  world_->await_all();
}

void Trainer::join(dist::World& world) {
  check_ranks(stages_, world.size(), options_.context_ranks);
  nn::check_context_ranks(model_->config(), /*length=*/0, options_.context_ranks);
  world_ = &world;
  if (world.alone()) return;
  const dist::Properties own = properties();
  world.await_all();
  dist::check_agreement(world, own);
  if (options_.context_ranks > 1)
    context_ = std::make_unique<ContextRanks>(world, *model_, options_.context_ranks);
  parallel_ = std::make_unique<Parallel>(
      world, *model_, parameters_,
      ParallelOptions{.sharding = options_.sharding, .optimizer = options_.optimizer.kind});
}

Optimizer& Trainer::optimizer() {
  if (!optimizer_) optimizer_ = make_optimizer(options_.optimizer, updated_parameters());
  return *optimizer_;
}

std::vector<nn::NamedParameter> Trainer::updated_parameters() const {
  if (!parallel_) return parameters_;
  std::vector<nn::NamedParameter> own;
  for (const Share& share : parallel_->shares()) own.push_back(share.parameter);
  return own;
}

dist::Properties Trainer::properties() const {
  TrainOptions given = options_;
  config::Options settings = config::describe(given);
  given.declare_ranks(settings);
  // Those that say how to run, too: ranks meet where they validate, save and log.
  dist::Properties list = dist::properties_of(settings);
  list.emplace_back("the device", device_.is_cuda() ? "cuda" : "cpu");
  list.emplace_back("data with the checksum", data_checksum());
  list.emplace_back("the model", models::model_config_json(model_->config(), tokenizer_.name));
  list.emplace_back("frozen weights with the checksum", frozen_checksum(*model_));
  return list;
}

}  // namespace tempera::train
