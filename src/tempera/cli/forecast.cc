#include "tempera/cli/forecast.h"

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>

#include "tempera/base/error.h"
#include "tempera/base/progress.h"
#include "tempera/base/text_table.h"
#include "tempera/train/plan.h"

namespace tempera::cli {
namespace {

using nlohmann::ordered_json;
using train::Bound;
using train::Forecast;
using train::RankMemory;

const char* name_of(Bound bound) {
  return bound == Bound::kCompute ? "compute" : bound == Bound::kLink ? "link" : "memory";
}

const char* name_of(train::Sharding sharding) {
  switch (sharding) {
    case train::Sharding::kNone:
      return "none";
    case train::Sharding::kOptimizer:
      return "optimizer";
    case train::Sharding::kGradients:
      return "gradients";
    case train::Sharding::kAll:
      break;
  }
  return "all";
}

struct Item {
  const char* name;
  double RankMemory::*bytes;
};
constexpr Item kItems[] = {
    {"weights", &RankMemory::weights},         {"copies", &RankMemory::copies},
    {"gradients", &RankMemory::gradients},     {"optimizer", &RankMemory::optimizer},
    {"activations", &RankMemory::activations}, {"outputs", &RankMemory::outputs},
    {"buckets", &RankMemory::buckets}};

struct Plan {
  std::vector<Forecast> all;
  const Forecast* best = nullptr;
  int64_t parameters = 0;
  int64_t step_tokens = 0;
};

std::string options_of(const Forecast& one) {
  return concat("--shard ", name_of(one.sharding), one.recompute ? " --recompute" : "");
}

std::string gigabytes(double bytes) { return fixed(bytes / 1e9, bytes < 0.095e9 ? 3 : 1); }

ordered_json to_json(const Forecast& one) {
  ordered_json memory;
  for (const Item& item : kItems) memory[item.name] = one.memory.*item.bytes;
  memory["total"] = one.memory.total();
  return {{"shard", name_of(one.sharding)},
          {"recompute", one.recompute},
          {"memory", memory},
          {"fits", one.bound != Bound::kMemory},
          {"bytes_sent", one.sent},
          {"compute_seconds", one.compute_seconds},
          {"link_seconds", one.link_seconds},
          {"seconds", one.seconds},
          {"bound", name_of(one.bound)}};
}

ordered_json to_json(const Plan& plan, const train::Cluster& cluster) {
  ordered_json json{{"ranks", cluster.ranks},
                    {"parameters", plan.parameters},
                    {"tokens_per_step", plan.step_tokens},
                    {"memory_gb", cluster.memory},
                    {"tflops", cluster.flops},
                    {"link_gb_per_second", cluster.link},
                    {"plans", ordered_json::array()},
                    {"recommended", nullptr}};
  for (const Forecast& one : plan.all) json["plans"].push_back(to_json(one));
  if (plan.best) json["recommended"] = to_json(*plan.best);
  return json;
}

std::string table(const std::vector<Forecast>& all) {
  std::vector<std::string> head = {"--shard"};
  for (const Item& item : kItems) head.emplace_back(item.name);
  for (const char* name : {"memory", "sent", "seconds", "bound by"}) head.emplace_back(name);
  TextTable rows(head);
  for (const Forecast& one : all) {
    std::vector<std::string> row = {
        concat(name_of(one.sharding), one.recompute ? " --recompute" : "")};
    for (const Item& item : kItems) row.push_back(gigabytes(one.memory.*item.bytes));
    row.push_back(gigabytes(one.memory.total()));
    row.push_back(gigabytes(one.sent));
    row.push_back(fixed(one.seconds, one.seconds < 0.1 ? 4 : 2));
    row.emplace_back(name_of(one.bound));
    rows.add(std::move(row));
  }
  return rows.text();
}

std::string advice(const Plan& plan, const train::Cluster& cluster) {
  if (plan.best)
    return concat(
        "recommended: ", options_of(*plan.best), ", ", gigabytes(plan.best->memory.total()), " of ",
        fixed(cluster.memory, 0), " GB of a rank, ",
        quantity_text(static_cast<double>(plan.step_tokens) / plan.best->seconds), " tokens/s");
  const Forecast& least = *std::ranges::min_element(
      plan.all, {}, [](const Forecast& one) { return one.memory.total(); });
  return concat("nothing fits into ", fixed(cluster.memory, 0), " GB: the least is ",
                gigabytes(least.memory.total()), " GB with ", options_of(least),
                "; take more --ranks, a smaller --micro-batch or shorter rows");
}

}  // namespace

void print_forecast(const nn::ModelConfig& model, const train::TrainOptions& options,
                    const train::Cluster& cluster, bool json) {
  const auto stages = train::plan_stages(options, model);
  train::check_ranks(stages, cluster.ranks, options.context_ranks);
  // Its weights are never read, so the system gives no memory for them.
  const auto shapes = nn::make_empty_model(model);
  Plan plan{.all = train::forecasts(*shapes, options, cluster),
            .parameters = shapes->parameter_count(),
            .step_tokens = stages.back().rows * stages.back().length};
  plan.best = train::recommended(plan.all);
  if (json) {
    std::cout << to_json(plan, cluster).dump(2) << "\n";
    return;
  }
  std::cout << quantity_text(static_cast<double>(plan.parameters)) << " parameters on "
            << cluster.ranks << (cluster.ranks == 1 ? " rank" : " ranks") << ", "
            << count_text(plan.step_tokens) << " tokens a step; GB of a rank, seconds of a step\n\n"
            << table(plan.all) << "\n"
            << advice(plan, cluster) << "\n";
}

}  // namespace tempera::cli
