#include "tempera/study/denoise.h"

#include <algorithm>

#include "tempera/base/error.h"
#include "tempera/ops/torch.h"
#include "tempera/study/toy_layer.h"
#include "tempera/study/toy_study.h"

namespace tempera::study {
namespace {

constexpr int64_t kHeadSize = 16;
constexpr int64_t kTestContexts = 1024;
constexpr int64_t kDenoiseCurvePoints = 20;

struct DenoiseSettings : ToySettings {
  DenoiseSettings() {
    // Plain, query, value, both; then the same average for all tokens, plain and with values.
    methods = {"softmax", "ssa:v=false",  "ssa:q=false:pos=false",
               "ssa",     "focal:t=1000", "focal+ssa:t=1000:q=false:pos=false"};
    out = "runs/denoise";
  }

  DenoiseTask task;
  int64_t train_noise = 32;
  std::vector<int64_t> test_noise = {0, 4, 8, 16, 32, 64, 128, 256, 512};

  void declare(config::Options& options) {
    ToySettings::declare(options);
    options.option("size", task.size, config::range(1, 256), "dimensions of a token");
    options.option("relevant", task.relevant, config::range(1, 1 << 12),
                   "relevant tokens per context");
    options.option("sigma", task.sigma, config::range(0, 100), "noise of the relevant tokens");
    options.option("mark-noise", task.mark_noise, config::range(0, 100),
                   "noise of the marks, which are 1 and -1");
    options.option("train-noise", train_noise, config::range(0, 1 << 14),
                   "training: most noise tokens per context");
    options.option("test-noise", test_noise, config::range(0, 1 << 14),
                   "test: noise tokens per context");
  }

  void validate() const {
    if (test_noise.empty()) throw UsageError("--test-noise: give at least one number of tokens");
    for (size_t i = 0; i < test_noise.size(); ++i)
      if (i > 0 && test_noise[i] <= test_noise[i - 1])
        throw UsageError("--test-noise: give the numbers in rising order, each once");
  }
};

// The layer that learns the task: its query is the same for every context.
class Denoiser {
 public:
  Denoiser(const DenoiseSettings& settings, const NamedMethod& named, int64_t seed)
      : task_(settings.task),
        method_(make_toy_method(named, {.width = task_.width(),
                                        .size = kHeadSize,
                                        .value_size = kHeadSize,
                                        .context = task_.relevant + settings.train_noise})) {
    auto random = toy_random(seed, "study/denoise/weights");
    w_q_ = toy_matrix(kHeadSize, task_.width(), random);
    w_k_ = toy_matrix(kHeadSize, task_.width(), random);
    w_v_ = toy_matrix(kHeadSize, task_.width(), random);
    w_o_ = toy_matrix(task_.size, kHeadSize, random);
  }

  std::vector<nn::NamedParameter> parameters() {
    return toy_parameters({{"w_q", w_q_}, {"w_k", w_k_}, {"w_v", w_v_}, {"w_o", w_o_}}, *method_);
  }
  Method& method() { return *method_; }

  ToyInputs inputs(const DenoiseBatch& batch) const {
    const int64_t rows = batch.tokens.size(0);
    auto query = torch::zeros({rows, 1, task_.width()});
    query.select(2, task_.width() - 1).fill_(1);
    const auto head = [](const torch::Tensor& x, const torch::Tensor& w) {
      return torch::linear(x, w).unsqueeze(1);
    };
    return {query, batch.tokens, head(query, w_q_), head(batch.tokens, w_k_),
            head(batch.tokens, w_v_)};
  }

  torch::Tensor estimate(const ToyOutput& output) const { return torch::linear(output.out, w_o_); }

 private:
  DenoiseTask task_;
  std::shared_ptr<Method> method_;
  torch::Tensor w_q_, w_k_, w_v_, w_o_;
};

// What one layer did, or a method over its seeds: by noise tokens of a context, the scales of
// values by step of training.
template <class Number>
struct DenoiseNumbers {
  ByName<Number> error, relevant_weight, query_scale;
  ByName<Number> noise_scale, relevant_scale;

  static void fields(auto& self, auto&& field) {
    field("error", self.error);
    field("relevant_weight", self.relevant_weight);
    field("query_scale", self.query_scale);
    field("noise_scale", self.noise_scale);
    field("relevant_scale", self.relevant_scale);
  }
};
using DenoiseSeed = DenoiseNumbers<double>;
using DenoiseMethod = DenoiseNumbers<Summary>;

// The error of an estimator that is known: in closed form, and on the tests.
struct Baseline {
  double closed = 0;
  double measured = 0;

  static void fields(auto& self, auto&& field) {
    field("closed", self.closed);
    field("measured", self.measured);
  }
};

struct DenoiseResults {
  StudyHead head;
  ByName<ByName<Baseline>> baselines;  // by noise tokens
  ByName<DenoiseMethod> methods;

  static void fields(auto& self, auto&& field) {
    StudyHead::fields(self.head, field);
    field("baselines", self.baselines);
    field("results", self.methods);
  }
};

double squared_error(const torch::Tensor& estimate, const torch::Tensor& target) {
  return (estimate - target).square().mean().item<double>();
}

// The same contexts for every method and seed.
DenoiseBatch test_batch(const DenoiseSettings& settings, int64_t noise) {
  auto random = toy_random(noise, "study/denoise/test");
  return make_denoise_batch(settings.task, kTestContexts, noise, random);
}

void measure_denoise(const DenoiseSettings& settings, Denoiser& layer, DenoiseSeed& result) {
  const torch::NoGradGuard no_grad;
  const int64_t relevant = settings.task.relevant;
  for (const int64_t noise : settings.test_noise) {
    const auto batch = test_batch(settings, noise);
    const auto inputs = layer.inputs(batch);
    const auto output = toy_attention(layer.method(), inputs);
    auto chosen = torch::zeros({relevant + noise});
    chosen.narrow(0, 0, relevant).fill_(1);
    const std::string key = std::to_string(noise);
    result.error.push_back({key, squared_error(layer.estimate(output), batch.target)});
    result.relevant_weight.push_back(
        {key, toy_weight_on(layer.method(), inputs, chosen).mean().item<double>()});
    result.query_scale.push_back({key, output.a_q.mean().item<double>()});
  }
}

// The mean scale of the values of each kind of token, at this step of training.
void note_scales(Denoiser& layer, const DenoiseBatch& batch, int64_t relevant, int64_t step,
                 DenoiseSeed& result) {
  const torch::NoGradGuard no_grad;
  const auto a_v = toy_attention(layer.method(), layer.inputs(batch)).a_v;
  const auto part = [&](int64_t first, int64_t count) {
    return a_v.narrow(1, first, count).mean().item<double>();
  };
  const std::string key = std::to_string(step);
  result.relevant_scale.push_back({key, part(0, relevant)});
  result.noise_scale.push_back({key, part(relevant, a_v.size(1) - relevant)});
}

DenoiseSeed train_denoiser(const DenoiseSettings& settings, const NamedMethod& method,
                           int64_t index, const ReportStep& report) {
  const int64_t seed = settings.seed + index;
  Denoiser layer(settings, method, seed);
  auto random = toy_random(seed, "study/denoise/train");
  DenoiseSeed result;
  const auto watched = test_batch(settings, std::max<int64_t>(settings.train_noise, 1));
  const int64_t every = std::max<int64_t>(1, settings.steps / kDenoiseCurvePoints);
  const auto loss = [&](int64_t) {
    const int64_t noise =
        torch::randint(settings.train_noise + 1, {1}, random, torch::dtype(torch::kInt64))
            .item<int64_t>();
    const auto batch = make_denoise_batch(settings.task, settings.batch, noise, random);
    const auto output = toy_attention(layer.method(), layer.inputs(batch));
    return torch::mse_loss(layer.estimate(output), batch.target);
  };
  toy_train(settings, layer.parameters(), loss, [&](int64_t step) {
    report(static_cast<double>(step) / static_cast<double>(settings.steps), step);
    if (step % every == 0 || step == settings.steps)
      note_scales(layer, watched, settings.task.relevant, step, result);
  });
  measure_denoise(settings, layer, result);
  return result;
}

ByName<ByName<Baseline>> baselines_of(const DenoiseSettings& settings) {
  ByName<Baseline> naive, optimum;
  for (const int64_t noise : settings.test_noise) {
    const auto batch = test_batch(settings, noise);
    const std::string key = std::to_string(noise);
    const auto error = [&](const torch::Tensor& estimate) {
      return squared_error(estimate, batch.target);
    };
    naive.push_back({key,
                     {.closed = naive_error(settings.task, noise),
                      .measured = error(naive_estimate(settings.task, batch))}});
    optimum.push_back({key,
                       {.closed = optimal_error(settings.task),
                        .measured = error(optimal_estimate(settings.task, batch))}});
  }
  return {{"naive average", std::move(naive)}, {"optimum", std::move(optimum)}};
}

// By noise tokens on a logarithmic axis, where contexts without any stand at one half.
plot::LineChart on_log_axis(plot::LineChart chart) {
  chart.x = {.label = "noise tokens of a context", .log = true};
  for (auto& series : chart.series)
    for (double& x : series.x) x = std::max(x, 0.5);
  return chart;
}

plot::LineChart error_chart(const DenoiseResults& results) {
  auto chart =
      metric_chart(metric_of(results.methods, &DenoiseMethod::error),
                   {.title = "Mean squared error", .y = {.label = "error a number", .log = true}});
  for (const auto& [name, baselines] : results.baselines) {
    plot::Series series{.name = name, .dashed = true};
    for (const auto& [noise, baseline] : baselines) {
      series.x.push_back(std::stod(noise));
      series.y.push_back(baseline.closed);
    }
    chart.series.push_back(std::move(series));
  }
  return on_log_axis(std::move(chart));
}

plot::Figure denoise_figure(const DenoiseResults& results) {
  plot::Figure made{.title = "", .panels = {}, .columns = 2};
  made.panels.emplace_back(error_chart(results));
  made.panels.emplace_back(
      on_log_axis(metric_chart(metric_of(results.methods, &DenoiseMethod::relevant_weight),
                               {.title = "Attention weight on the relevant tokens",
                                .y = {.label = "weight", .min = 0, .max = 1}})));
  const auto add_scales = [&](Metric DenoiseMethod::*scale, const char* title) {
    made.panels.emplace_back(metric_chart(
        metric_of(results.methods, scale),
        {.title = title, .x = {.label = "step of training"}, .y = {.label = "mean of a_v"}}));
  };
  add_scales(&DenoiseMethod::noise_scale, "Value temperature of noise tokens");
  add_scales(&DenoiseMethod::relevant_scale, "Value temperature of relevant tokens");
  return made;
}

// Of the methods and the baselines.
MethodMetrics all_errors(const DenoiseResults& results) {
  MethodMetrics rows = metric_of(results.methods, &DenoiseMethod::error);
  for (const auto& [name, baselines] : results.baselines) {
    Metric& row = entry(rows, name);
    for (const auto& [noise, baseline] : baselines)
      entry(row, noise) = summarise({baseline.closed});
  }
  return rows;
}

plot::HtmlReport denoise_page(const DenoiseResults& results) {
  plot::HtmlReport report("A vector from relevant and noise tokens");
  report.summary(
      {.asked = "One attention layer recovers a vector from relevant tokens among tokens of noise: "
                "do temperatures of queries and values help as the noise grows?",
       .answer =
           verdict(metric_of(results.methods, &DenoiseMethod::error), {.what = "the squared error",
                                                                       .size = "noise tokens",
                                                                       .higher_is_better = false,
                                                                       .decimals = 4}),
       .not_shown = {"tasks where nothing marks what is relevant", "deeper models and real data"}});
  report.paragraph(
      "A context holds relevant tokens, each the wanted vector with noise, and tokens of noise "
      "alone. A mark tells which is which. One attention layer reads the context and gives the "
      "vector; the methods differ in its temperatures. Beyond the largest number of noise tokens "
      "of training, no method has seen such contexts.");
  report.figure(denoise_figure(results),
                "Means over the seeds; the bands are 95 % intervals of the mean. Contexts without "
                "noise tokens are drawn at one half.");
  report.table(metric_table(all_errors(results),
                            "Mean squared error a number, by noise tokens of a context", 4));
  report.table(metric_table(results.methods, &DenoiseMethod::relevant_weight,
                            "Attention weight on the relevant tokens", 3));
  say_how_made(report, results.head.tempera, results.head.settings, "tempera study denoise");
  return report;
}

class DenoiseStudy final : public ToyStudy<DenoiseSettings, DenoiseSeed, DenoiseResults> {
  std::string name() const override { return "denoise"; }
  void check(const NamedMethod& method) const override { Denoiser(settings_, method, 0); }
  DenoiseSeed train(const NamedMethod& method, int64_t seed,
                    const ReportStep& report) const override {
    return train_denoiser(settings_, method, seed, report);
  }
  void add_baselines(DenoiseResults& results) const override {
    results.baselines = baselines_of(settings_);
  }
  DenoiseMethod over(const std::vector<DenoiseSeed>& seeds) const override {
    return {.error = summarise(seeds, &DenoiseSeed::error),
            .relevant_weight = summarise(seeds, &DenoiseSeed::relevant_weight),
            .query_scale = summarise(seeds, &DenoiseSeed::query_scale),
            .noise_scale = summarise(seeds, &DenoiseSeed::noise_scale),
            .relevant_scale = summarise(seeds, &DenoiseSeed::relevant_scale)};
  }
  plot::Figure figure(const DenoiseResults& results) const override {
    return denoise_figure(results);
  }
  plot::HtmlReport page(const DenoiseResults& results) const override {
    return denoise_page(results);
  }
  std::string text(const DenoiseResults& results) const override {
    const std::string over = concat(over_seeds(settings_.seeds), ", by noise tokens\n");
    return concat("mean squared error", over, metric_text(all_errors(results), 4),
                  "\nweight on the relevant tokens", over,
                  metric_text(results.methods, &DenoiseMethod::relevant_weight, 3));
  }
};

}  // namespace

std::shared_ptr<Study> make_denoise_study() { return std::make_shared<DenoiseStudy>(); }

}  // namespace tempera::study
