#include "tempera/study/graph.h"

#include <algorithm>
#include <cmath>

#include "tempera/base/error.h"
#include "tempera/data/random.h"
#include "tempera/ops/torch.h"
#include "tempera/study/toy_layer.h"
#include "tempera/study/toy_study.h"

namespace tempera::study {

Graph make_graph(int64_t nodes, int64_t most, int64_t seed) {
  data::RandomStream random(data::derive_seed(static_cast<uint64_t>(seed), "study/graph"), 0);
  data::DistinctSampler others(static_cast<uint32_t>(nodes - 1));
  Graph graph;
  graph.transition = torch::zeros({nodes, nodes});
  for (int64_t node = 0; node < nodes; ++node) {
    const int64_t degree = node % most + 1;
    graph.degrees.push_back(degree);
    std::vector<uint32_t> neighbours(static_cast<size_t>(degree));
    others.sample(random, neighbours);
    for (const int64_t drawn : neighbours) {
      const int64_t neighbour = drawn < node ? drawn : drawn + 1;  // never the node itself
      graph.transition[node][neighbour] = 1.0 / static_cast<double>(degree);
    }
  }
  return graph;
}

namespace {

constexpr int64_t kGraphCurvePoints = 20;

struct GraphSettings : ToySettings {
  GraphSettings() {
    methods = {"softmax", "head", "focal-learned:axis=token", "ssa:v=false"};
    out = "runs/graph";
  }

  int64_t nodes = 32;
  int64_t neighbours = 8;
  int64_t width = 32;
  int64_t head_size = 16;

  void declare(config::Options& options) {
    ToySettings::declare(options);
    options.option("nodes", nodes, config::range(2, 256), "nodes in the graph");
    options.option("neighbours", neighbours, config::range(1, 255), "most neighbours of a node");
    options.option("width", width, config::range(1, 4096),
                   "dimensions of a node's fixed random vector");
    options.option("head-size", head_size, config::range(8, 256), "size of queries and keys");
  }

  void validate() const {
    if (neighbours >= nodes)
      throw UsageError(concat("--neighbours ", neighbours, " given: a graph of ", nodes,
                              " nodes has room for ", nodes - 1));
    if (head_size % 8 != 0)
      throw UsageError(concat("--head-size ", head_size, " given; a multiple of 8 expected"));
  }
};

// A context shows every node once, and the query asks for the successor of one. The value of a node
// is its own unit vector, so that the output is a distribution over the nodes. The layer has no
// positions and cannot see the order of a context, so that one order stands for all.
class Walker {
 public:
  Walker(const GraphSettings& settings, const NamedMethod& named, int64_t seed)
      : nodes_(settings.nodes),
        method_(make_toy_method(named, {.width = settings.width,
                                        .size = settings.head_size,
                                        .value_size = settings.nodes,
                                        .context = settings.nodes})) {
    auto random = toy_random(seed, "study/graph/weights");
    vectors_ = torch::randn({nodes_, settings.width}, random);
    w_q_ = toy_matrix(settings.head_size, settings.width, random);
    w_k_ = toy_matrix(settings.head_size, settings.width, random);
    check_values(named);
  }

  std::vector<nn::NamedParameter> parameters() {
    return toy_parameters({{"w_q", w_q_}, {"w_k", w_k_}}, *method_);
  }

  // (B, nodes) of the asked nodes (B).
  ToyOutput successors(const torch::Tensor& asked) const {
    const int64_t batch = asked.size(0);
    const auto query = vectors_.index_select(0, asked).unsqueeze(1);
    const auto context = vectors_.expand({batch, -1, -1});
    const auto keys = torch::linear(vectors_, w_k_).expand({batch, 1, -1, -1});
    const auto values = torch::eye(nodes_).expand({batch, 1, -1, -1});
    return toy_attention(*method_,
                         {query, context, torch::linear(query, w_q_).unsqueeze(1), keys, values});
  }

  ToyOutput all_successors() const { return successors(torch::arange(nodes_, torch::kInt64)); }

  // Of W_q W_k^T, as it acts on the vectors of the nodes.
  torch::Tensor product() const { return torch::matmul(w_q_.t(), w_k_); }

 private:
  // Scaled values are no distribution.
  void check_values(const NamedMethod& named) const {
    const torch::NoGradGuard no_grad;
    if (successors(torch::zeros({1}, torch::kInt64)).scales_values)
      throw UsageError(concat("--methods: ", named.label,
                              " scales the values, and here the output is the distribution "
                              "itself; take queries or keys alone, such as ssa:v=false"));
  }

  int64_t nodes_;
  std::shared_ptr<Method> method_;
  torch::Tensor vectors_, w_q_, w_k_;
};

// The sum of the absolute differences, (nodes).
torch::Tensor l1_errors(const torch::Tensor& predicted, const Graph& graph) {
  return (predicted - graph.transition).abs().sum(1);
}

struct NodeResult {
  int64_t neighbours = 0;
  double scale = 0;
  double l1 = 0;

  static void fields(auto& self, auto&& field) {
    field("neighbours", self.neighbours);
    field("scale", self.scale);
    field("l1", self.l1);
  }
};

// What one layer did, or a method over its seeds.
template <class Number, class Nodes>
struct GraphNumbers {
  ByName<Number> l1, scale;  // by neighbours of the node
  ByName<Number> total;      // over all nodes
  ByName<Number> curve;      // the mean l1 by step
  Nodes nodes;

  static void fields(auto& self, auto&& field) {
    field("l1", self.l1);
    field("scale", self.scale);
    field("total", self.total);
    field("curve", self.curve);
    field("nodes", self.nodes);
  }
};
using GraphSeed = GraphNumbers<double, std::vector<NodeResult>>;
using GraphMethod = GraphNumbers<Summary, std::vector<std::vector<NodeResult>>>;

struct GraphResults {
  StudyHead head;
  ByName<GraphMethod> methods;

  static void fields(auto& self, auto&& field) {
    StudyHead::fields(self.head, field);
    field("results", self.methods);
  }
};

constexpr const char* kFrobenius = "frobenius";

ByName<double> mean_by_degree(const Graph& graph, const torch::Tensor& values) {
  ByName<double> means;
  std::vector<double> sum(graph.degrees.size() + 1), count(graph.degrees.size() + 1);
  for (size_t node = 0; node < graph.degrees.size(); ++node) {
    const auto degree = static_cast<size_t>(graph.degrees[node]);
    sum[degree] += values[static_cast<int64_t>(node)].item<double>();
    count[degree] += 1;
  }
  for (size_t degree = 1; degree < sum.size(); ++degree)
    if (count[degree] > 0) means.push_back({std::to_string(degree), sum[degree] / count[degree]});
  return means;
}

// Pearson's; 0 where one of them does not vary.
double correlation(const torch::Tensor& a, const torch::Tensor& b) {
  const auto da = a - a.mean(), db = b - b.mean();
  const double norm = (da.norm() * db.norm()).item<double>();
  // Rounding alone moves scales that are equal.
  return norm > 1e-6 ? (da * db).sum().item<double>() / norm : 0;
}

double mean_error(const Walker& walker, const Graph& graph) {
  const torch::NoGradGuard no_grad;
  return l1_errors(walker.all_successors().out, graph).mean().item<double>();
}

GraphSeed measure_graph(const Walker& walker, const Graph& graph) {
  const torch::NoGradGuard no_grad;
  const auto output = walker.all_successors();
  const auto errors = l1_errors(output.out, graph);
  const auto degrees = torch::tensor(graph.degrees).to(torch::kFloat32);
  const auto product = walker.product();
  GraphSeed result{.l1 = mean_by_degree(graph, errors),
                   .scale = mean_by_degree(graph, output.a_q),
                   .total = {{"l1", errors.mean().item<double>()},
                             {kFrobenius, product.norm().item<double>()},
                             {"spectral", torch::linalg_svdvals(product).max().item<double>()},
                             {"correlation", correlation(output.a_q, degrees)}},
                   .curve = {},
                   .nodes = {}};
  for (size_t node = 0; node < graph.degrees.size(); ++node) {
    const auto i = static_cast<int64_t>(node);
    result.nodes.push_back({.neighbours = graph.degrees[node],
                            .scale = output.a_q[i].item<double>(),
                            .l1 = errors[i].item<double>()});
  }
  return result;
}

GraphSeed train_walker(const GraphSettings& settings, const NamedMethod& method, int64_t index,
                       const ReportStep& report) {
  const int64_t seed = settings.seed + index;
  const Graph graph = make_graph(settings.nodes, settings.neighbours, seed);
  Walker walker(settings, method, seed);
  auto random = toy_random(seed, "study/graph/train");
  ByName<double> curve;
  const int64_t every = std::max<int64_t>(1, settings.steps / kGraphCurvePoints);
  const auto loss = [&](int64_t) {
    const auto asked =
        torch::randint(settings.nodes, {settings.batch}, random, torch::dtype(torch::kInt64));
    const auto drawn = torch::multinomial(graph.transition.index_select(0, asked), 1,
                                          /*replacement=*/true, random);
    // The smallest float guards the logarithm of a weight that underflowed.
    return -walker.successors(asked).out.gather(1, drawn).clamp_min(1e-38).log().mean();
  };
  toy_train(settings, walker.parameters(), loss, [&](int64_t step) {
    report(static_cast<double>(step) / static_cast<double>(settings.steps), step);
    if (step % every == 0 || step == settings.steps)
      curve.push_back({std::to_string(step), mean_error(walker, graph)});
  });
  GraphSeed result = measure_graph(walker, graph);
  result.curve = std::move(curve);
  return result;
}

plot::LineChart scale_chart(const GraphResults& results) {
  plot::LineChart chart{.title = "Inverse temperature of each node",
                        .x = {.label = "neighbours of the node"},
                        .y = {.label = "a_q"}};
  for (const auto& [method, result] : results.methods) {
    plot::Series series{.name = method, .line = false, .markers = true};
    for (const NodeResult& node : result.nodes.at(0)) {
      series.x.push_back(static_cast<double>(node.neighbours));
      series.y.push_back(node.scale);
    }
    chart.series.push_back(std::move(series));
  }
  return chart;
}

plot::BarChart norm_chart(const GraphResults& results) {
  plot::BarChart chart{.title = "Norm of W_q W_k^T", .y = {.label = "Frobenius norm"}};
  chart.series.push_back({.name = "norm"});
  for (auto [method, total] : metric_of(results.methods, &GraphMethod::total)) {
    const Summary& norm = entry(total, kFrobenius);
    chart.categories.push_back(method);
    chart.series[0].values.push_back(norm.mean);
    chart.series[0].spread.push_back(norm.ci95);
  }
  return chart;
}

plot::Figure graph_figure(const GraphResults& results) {
  plot::Figure made{.title = "", .panels = {}, .columns = 2};
  made.panels.emplace_back(metric_chart(metric_of(results.methods, &GraphMethod::l1),
                                        {.title = "Error of the transition matrix",
                                         .x = {.label = "neighbours of the node"},
                                         .y = {.label = "L1 distance of a row", .min = 0}}));
  made.panels.emplace_back(scale_chart(results));
  made.panels.emplace_back(metric_chart(metric_of(results.methods, &GraphMethod::curve),
                                        {.title = "Error during training",
                                         .x = {.label = "step"},
                                         .y = {.label = "mean L1 distance", .log = true}}));
  made.panels.emplace_back(norm_chart(results));
  return made;
}

// The mean error, which is the first of the totals.
MethodMetrics first_of_each(MethodMetrics methods) {
  for (auto& [method, metric] : methods) metric.resize(1);
  return methods;
}

plot::HtmlReport graph_page(const GraphResults& results) {
  plot::HtmlReport report("Next node of a graph");
  const auto total = metric_of(results.methods, &GraphMethod::total);
  report.summary(
      {.asked = "One attention layer predicts the next node of a random walk, after nodes with one "
                "neighbour and with many: does a temperature of each query help?",
       .answer = verdict(first_of_each(total), {.what = "the mean error (L1 distance of a row)",
                                                .higher_is_better = false,
                                                .decimals = 3}),
       .not_shown = {"deeper models, which can set sharpness by other means",
                     "real data: the graph is made at random"}});
  report.paragraph(
      "From a node the next one is any of its neighbours, all equally likely, and nodes have from "
      "one neighbour to many. One attention layer reads a context with every node and gives the "
      "distribution of the next: spiky after a node with one neighbour, flat after one with many.");
  report.figure(graph_figure(results),
                "Means over the seeds with 95 % intervals; the inverse temperatures are those of "
                "the first seed, a point a node.");
  report.table(metric_table(results.methods, &GraphMethod::l1,
                            "L1 distance of a row, by neighbours of the node", 3));
  report.table(metric_table(results.methods, &GraphMethod::scale,
                            "Inverse temperature a_q, by neighbours of the node", 2));
  report.table(metric_table(results.methods, &GraphMethod::total,
                            "Over all nodes: mean L1 distance, norms of W_q W_k^T, correlation of "
                            "a_q with the number of neighbours",
                            3));
  say_how_made(report, results.head.tempera, results.head.settings, "tempera study graph");
  return report;
}

class GraphStudy final : public ToyStudy<GraphSettings, GraphSeed, GraphResults> {
  std::string name() const override { return "graph"; }
  void check(const NamedMethod& method) const override { Walker(settings_, method, 0); }
  GraphSeed train(const NamedMethod& method, int64_t seed,
                  const ReportStep& report) const override {
    return train_walker(settings_, method, seed, report);
  }
  GraphMethod over(const std::vector<GraphSeed>& seeds) const override {
    GraphMethod result{.l1 = summarise(seeds, &GraphSeed::l1),
                       .scale = summarise(seeds, &GraphSeed::scale),
                       .total = summarise(seeds, &GraphSeed::total),
                       .curve = summarise(seeds, &GraphSeed::curve),
                       .nodes = {}};
    for (const GraphSeed& seed : seeds) result.nodes.push_back(seed.nodes);
    return result;
  }
  plot::Figure figure(const GraphResults& results) const override { return graph_figure(results); }
  plot::HtmlReport page(const GraphResults& results) const override { return graph_page(results); }
  std::string text(const GraphResults& results) const override {
    const std::string over = over_seeds(settings_.seeds);
    return concat("L1 distance of a row", over, ", by neighbours of the node\n",
                  metric_text(results.methods, &GraphMethod::l1, 3), "\ninverse temperature a_q",
                  over, ", by neighbours of the node\n",
                  metric_text(results.methods, &GraphMethod::scale, 2), "\nover all nodes", over,
                  "; norms of W_q W_k^T; correlation of a_q with the "
                  "number of neighbours\n",
                  metric_text(results.methods, &GraphMethod::total, 3));
  }
};

}  // namespace

std::shared_ptr<Study> make_graph_study() { return std::make_shared<GraphStudy>(); }

}  // namespace tempera::study
