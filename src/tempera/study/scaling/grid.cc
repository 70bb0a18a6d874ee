#include "tempera/study/scaling/grid.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

#include "tempera/base/error.h"
#include "tempera/base/files.h"
#include "tempera/base/progress.h"
#include "tempera/base/suggest.h"
#include "tempera/config/settings.h"
#include "tempera/study/methods.h"

namespace tempera::study::scaling {
namespace {

constexpr size_t kMostCells = 10'000;
constexpr uint64_t kLargestGrid = 1 << 20;
// Training has at least so many steps, if need be of fewer tokens.
constexpr int64_t kFewestSteps = 500;
// Layers of a shape that is found for a number of parameters: about one to 64 columns.
constexpr double kColumnsPerLayer = 64;

const std::vector<std::pair<std::string, nn::QkNorm>> kQkNorms = {
    {"none", nn::QkNorm::kNone}, {"plain", nn::QkNorm::kPlain}, {"gain", nn::QkNorm::kGain}};

double real(int64_t value) { return static_cast<double>(value); }

[[noreturn]] void refuse(const std::string& text, const std::string& why) {
  throw UsageError(concat("sizes: '", text, "': ", why));
}

// Columns of a head that suit the kernels: 64, or 32 in narrow models.
std::optional<int64_t> suited_heads(int64_t width) {
  if (width >= 256 && width % 64 == 0) return width / 64;
  if (width % 32 == 0) return width / 32;
  return std::nullopt;
}

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts(1);
  for (const char c : text)
    if (c == at)
      parts.emplace_back();
    else
      parts.back() += c;
  return parts;
}

template <class Number>
std::optional<Number> number(std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) return std::nullopt;
  return value;
}

Shape parse_dimensions(const std::string& text, const std::vector<std::string>& parts) {
  std::vector<int64_t> numbers;
  for (const auto& part : parts) {
    const auto value = number<int64_t>(part);
    if (!value || *value < 1 || *value > 1 << 20)
      refuse(text, concat("'", part, "' is no number of layers, columns or heads"));
    numbers.push_back(*value);
  }
  if (numbers.size() > 3) refuse(text, "LAYERSxWIDTH or LAYERSxWIDTHxHEADS expected");
  Shape shape{.layers = numbers[0], .width = numbers[1]};
  if (numbers.size() == 3) {
    shape.heads = numbers[2];
    if (shape.width % shape.heads != 0)
      refuse(text, concat(shape.heads, " heads do not divide a width of ", shape.width));
    return shape;
  }
  const auto heads = suited_heads(shape.width);
  if (!heads)
    refuse(text, concat("heads of 32 columns do not divide a width of ", shape.width,
                        "; give a multiple of 32, or the heads: ", text, "xHEADS"));
  shape.heads = *heads;
  return shape;
}

// Near the number wanted first, then near the usual ratio of width and depth.
Shape shape_for(double parameters) {
  Shape best;
  double best_score = std::numeric_limits<double>::infinity();
  for (int64_t width = 32; width <= 8192; width += width < 256 ? 32 : 64)
    for (int64_t layers = 1; layers <= 96; ++layers) {
      const Shape shape{.layers = layers, .width = width, .heads = *suited_heads(width)};
      const double off = std::abs(std::log(real(shape.parameters()) / parameters));
      const double lean = std::abs(std::log(real(width) / (kColumnsPerLayer * real(layers))));
      const double score = 4 * off + lean;
      if (score < best_score) {
        best_score = score;
        best = shape;
      }
    }
  return best;
}

Shape parse_count(const std::string& text) {
  std::string digits = text;
  double unit = 1;
  if (!digits.empty()) {
    const char last = digits.back();
    if (last == 'k' || last == 'K') unit = 1e3;
    if (last == 'm' || last == 'M') unit = 1e6;
    if (last == 'b' || last == 'B') unit = 1e9;
    if (unit > 1) digits.pop_back();
  }
  const auto value = number<double>(digits);
  if (!value || !(*value * unit >= 1e4 && *value * unit <= 1e11))
    refuse(text,
           "expected LAYERSxWIDTH such as 6x384, LAYERSxWIDTHxHEADS, or a number of parameters "
           "from 10k to 100B such as 5M");
  return shape_for(*value * unit);
}

// A power of two of tokens, as many as give enough steps, in whole rows.
int64_t suited_step_tokens(int64_t tokens, int64_t most, int64_t context) {
  int64_t step = context;
  while (2 * step <= most && 2 * step * kFewestSteps <= tokens) step *= 2;
  return step;
}

// Tokens of a shape's trainings, rounded to thousands.
std::vector<int64_t> budgets(const Grid& grid, const Shape& shape) {
  std::vector<int64_t> list = grid.tokens;
  for (const double each : grid.tokens_per_parameter)
    list.push_back(
        std::max<int64_t>(1000, std::llround(each * real(shape.parameters()) / 1e3) * 1000));
  return list;
}

template <class Item>
void require_some(const std::vector<Item>& list, const char* key, const char* example) {
  if (list.empty())
    throw UsageError(
        concat("the grid has no cells: ", key, " is empty; give some, such as ", example));
}

template <class Item>
void add_once(std::vector<Item>& list, const Item& item) {
  if (std::ranges::find(list, item) == list.end()) list.push_back(item);
}

void check_model(const Cell& cell) {
  nn::ModelConfig model = model_of(cell);
  model.vocabulary = 256;
  try {
    model.validate();
  } catch (const Error& error) {
    throw UsageError(concat("sizes: '", cell.shape.text(), "': ", error.what()));
  }
}

Grid read_grid(const std::string& toml, const std::string& origin, const Given& given) {
  Grid grid = config::from_toml<Grid>(toml, origin);
  if (!given.text.empty()) grid.data.text = given.text;
  if (!given.tasks.empty()) grid.data.tasks = given.tasks;
  return grid;
}

// Or one would stand for the other in the results, and methods be compared across them.
void check_alike(const std::vector<Cell>& cells) {
  using Kind = std::tuple<Shape, int64_t, nn::QkNorm, int64_t>;
  std::map<Kind, std::pair<int64_t, config::Dtype>> trained;
  for (const Cell& cell : cells) {
    const std::pair now(cell.step_tokens, cell.dtype);
    const Kind kind(cell.shape, cell.context, cell.qk_norm, cell.tokens);
    if (trained.emplace(kind, now).first->second != now)
      throw UsageError(concat("the files give models of ", cell.shape.text(),
                              " different batch-tokens or dtypes; give them the same, or another "
                              "--out"));
  }
}

// Cells that two files name are trained once.
Plan join(const std::vector<Grid>& grids, const std::vector<std::string>& names) {
  Plan plan{.data = grids.front().data, .cells = {}, .methods = {}};
  for (size_t i = 0; i < grids.size(); ++i) {
    const auto differences =
        config::differences(config::describe(grids[i].data), config::describe(plan.data));
    if (!differences.empty())
      throw UsageError(concat(names[i], " and ", names[0], " are of different studies:\n",
                              config::to_text(differences),
                              "what all models share has to be the same in every file"));
    for (const auto& method : grids[i].methods) add_once(plan.methods, method);
    for (const Cell& cell : grids[i].cells()) add_once(plan.cells, cell);
  }
  check_alike(plan.cells);
  if (plan.data.text.empty())
    throw UsageError("no text given; name files in the grid (text = [\"FILE\"]), or give --text");
  return plan;
}

}  // namespace

const char* const kQuickGrid = R"(
sizes = ["1x32", "1x64", "2x64", "2x96", "3x128"]
methods = ["softmax", "ssa"]
tokens = [200000, 400000, 800000]
contexts = [128]
seeds = 1
batch-tokens = 2048
eval-tokens = 32768
)";

int64_t Shape::parameters() const {
  const nn::ModelConfig model = model_of({.shape = *this, .context = 1});
  return layers * width * (4 * width + 3 * model.size_of_mlp());
}

std::string Shape::text() const { return concat(layers, "x", width, "x", heads); }

Shape parse_shape(const std::string& text) {
  const auto parts = split(text, 'x');
  return parts.size() == 1 ? parse_count(text) : parse_dimensions(text, parts);
}

const char* name_of(nn::QkNorm norm) {
  for (const auto& [name, value] : kQkNorms)
    if (value == norm) return name.c_str();
  throw Error("a norm of queries and keys that has no name here");
}

nn::QkNorm qk_norm_of(const std::string& name) {
  std::vector<std::string> names;
  for (const auto& [known, value] : kQkNorms) {
    if (known == name) return value;
    names.push_back(known);
  }
  throw UsageError(concat("qk-norms: '", name, "' given; none, plain or gain expected",
                          did_you_mean(name, names)));
}

nn::ModelConfig model_of(const Cell& cell) {
  nn::ModelConfig model;
  model.layers = cell.shape.layers;
  model.width = cell.shape.width;
  model.heads = cell.shape.heads;
  model.context = cell.context;
  model.qk_norm = cell.qk_norm;
  if (!cell.method.empty()) model.temperature = parse_method(cell.method).temperature;
  return model;
}

void StudyData::declare(config::Options& options) {
  options.section(config::Section::kData);
  options.option("text", text, "text and jsonl files, token shards, or folders of shards");
  options.option("tokenizer", tokenizer,
                 "tokenizer file or folder for plain text; not given: bytes");
  options.option("held-out", held_out, config::above_to(0, 0.9),
                 "share of the text held out for the measurements");
  options.section(config::Section::kMeasuring);
  options.option("eval-tokens", eval_tokens, config::range(256, 1e12),
                 "held-out tokens to measure per length");
  options.option("tasks", tasks, "questions with choices, each NAME=FILE, as in `tempera eval`");
  options.option("task-limit", task_limit, config::range(0, 1e9),
                 "most examples of a task; 0: all");
  options.section(config::Section::kTraining);
  options.option("learning-rate", rate.fixed, config::range(0, 1e6),
                 "of every model, at a width of 128; 0: tuned for each method");
  options.option("rates", rate.sweep, config::above_to(0, 1000),
                 "rates that the tuning begins with, as multiples of 3e-3 at a width of 128");
}

void Grid::declare(config::Options& options) {
  data.declare(options);
  options.section(config::Section::kModel);
  options.option("sizes", sizes,
                 "LAYERSxWIDTH, LAYERSxWIDTHxHEADS, or parameters such as 5M (embeddings apart)");
  options.option("contexts", contexts, config::range(8, 1 << 24), "trained lengths, in tokens");
  options.option("qk-norms", qk_norms, "norms of queries and keys: none, plain, gain");
  options.section(config::Section::kTemperature);
  options.option("methods", methods,
                 "NAME, A+B for a product, or NAME:OPTION=VALUE; the first is the baseline");
  options.section(config::Section::kTraining);
  options.option("tokens", tokens, config::range(1, 1e15), "tokens that a model is trained on");
  options.option("tokens-per-parameter", tokens_per_parameter, config::above_to(0, 1e6),
                 "the same, as multiples of a model's parameters");
  options.option("seeds", seeds, config::range(1, 1000), "models of each kind");
  options.option("batch-tokens", step_tokens, config::range(8, 1e9),
                 "tokens of a step, at most: fewer where there would be less than 500 steps");
  config::dtype_option(options, dtype);
}

std::vector<Cell> Grid::cells() const {
  require_some(sizes, "sizes", "sizes = [\"4x256\", \"6x384\"]");
  require_some(contexts, "contexts", "contexts = [512]");
  require_some(qk_norms, "qk-norms", "qk-norms = [\"none\"]");
  parse_methods(methods);
  if (tokens.empty()) require_some(tokens_per_parameter, "tokens-per-parameter", "[10, 20]");
  const size_t count = sizes.size() * contexts.size() * qk_norms.size() * methods.size() *
                       (tokens.size() + tokens_per_parameter.size()) * static_cast<size_t>(seeds);
  if (count > kMostCells)
    throw UsageError(concat("the grid has ", count_text(static_cast<int64_t>(count)),
                            " cells; at most ", count_text(kMostCells),
                            " are taken: shorten its lists"));
  std::vector<Cell> list;
  for (const auto& size : sizes) {
    const Shape shape = parse_shape(size);
    for (const int64_t budget : budgets(*this, shape))
      for (const int64_t context : contexts)
        for (const auto& norm : qk_norms)
          for (int64_t seed = 0; seed < seeds; ++seed)
            for (const auto& method : methods) {
              const Cell cell{.shape = shape,
                              .context = context,
                              .qk_norm = qk_norm_of(norm),
                              .method = method,
                              .tokens = budget,
                              .step_tokens = suited_step_tokens(budget, step_tokens, context),
                              .dtype = dtype,
                              .seed = seed};
              if (seed == 0) check_model(cell);
              add_once(list, cell);
            }
  }
  return list;
}

Plan read_plan(const std::vector<std::string>& files, const Given& given) {
  std::vector<Grid> grids;
  for (const auto& file : files)
    grids.push_back(read_grid(read_file(file, kLargestGrid), file, given));
  return join(grids, files);
}

Plan make_plan(const std::string& toml, const std::string& origin, const Given& given) {
  return join({read_grid(toml, origin, given)}, {origin});
}

}  // namespace tempera::study::scaling
