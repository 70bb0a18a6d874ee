#include "tempera/adapt/windows.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "tempera/base/error.h"
#include "tempera/base/progress.h"
#include "tempera/data/echoed_text.h"
#include "tempera/data/short_windows.h"
#include "tempera/data/spread_windows.h"

namespace tempera::adapt {
namespace {

// A window has room for some echoes and for distances between them, and a part for some text.
constexpr int64_t kEchoesInWindow = 4, kTokensOfPart = 8;

int64_t steps_with_echo(const WindowOptions& options, int64_t steps) {
  return std::llround(options.echo_until * static_cast<double>(steps));
}

}  // namespace

void WindowOptions::declare(config::Options& options) {
  options.option("short-share", short_share, config::range(0, 0.9),
                 "share of the steps whose windows are cut into pieces of 2048 tokens");
  options.option(
      "echo", echo, config::range(0, 0.5),
      "share of tokens replaced by repeats of earlier text, to teach retrieval; 0: none");
  options.option("echo-length", echo_length, config::range(8, 1 << 20),
                 "with --echo: tokens of a repeated span", {.rare = true});
  options.option("echo-weight", echo_weight, config::above_to(0, 1e4),
                 "with --echo: how much the loss of a repeated token counts", {.rare = true});
  options.option("echo-until", echo_until, config::above_to(0, 1),
                 "with --echo: share of the learning that has repeated spans; the rest is plain "
                 "text",
                 {.rare = true});
  options.option(
      "spread", spread, config::range(0, 1 << 30),
      "train on windows of N tokens with positions spread over the context; 0: windows of "
      "--length");
  options.option("spread-parts", spread_parts, config::range(2, 1 << 20),
                 "with --spread: parts of a window that are shifted independently", {.rare = true});
  options.option(
      "spread-correction", spread_correction, config::range(0, 1),
      "with --spread: strength of the logit correction for keys missing from short windows; "
      "0: none",
      {.rare = true});
}

void WindowOptions::validate() const {
  const WindowOptions plain;
  const bool of_echo = echo_length != plain.echo_length || echo_weight != plain.echo_weight ||
                       echo_until != plain.echo_until;
  if (echo == 0 && of_echo)
    throw UsageError(
        "--echo-length, --echo-weight and --echo-until are for --echo; give the share of the "
        "tokens that are to be repeated too, such as --echo 0.03");
  const bool of_spread =
      spread_parts != plain.spread_parts || spread_correction != plain.spread_correction;
  if (spread == 0 && of_spread)
    throw UsageError(
        "--spread-parts and --spread-correction are for --spread; give the length of the windows "
        "too, such as --spread 2048");
}

void WindowOptions::check_fits(const nn::ModelConfig& model, int64_t length,
                               int64_t context) const {
  if (short_share > 0 && spread == 0 && length <= kShortLength)
    throw UsageError(concat("--short-share: windows of ", length,
                            " tokens are learned from, which are as short as its pieces (",
                            kShortLength, ")"));
  if (echo > 0 && length < kEchoesInWindow * echo_length)
    throw UsageError(concat("--echo-length: spans of ", echo_length, " tokens in windows of ",
                            length, "; at most a quarter of a window expected"));
  if (spread == 0) return;
  if (model.position != nn::PositionKind::kRope)
    throw UsageError("--spread: the model has no rotary positions, so they cannot be spread");
  if (model.window > 0)
    throw UsageError(concat("--spread: layers of the model see a window of ", model.window,
                            " tokens, which spread positions would tear; learn at whole windows "
                            "(--length)"));
  if (spread >= context)
    throw UsageError(concat("--spread: windows of ", spread, " tokens given, the context is ",
                            context, "; fewer tokens expected"));
  if (spread < 2 * kTokensOfPart)
    throw UsageError(concat("--spread: windows of ", spread, " tokens given, at least ",
                            2 * kTokensOfPart, " expected"));
  if (spread < kTokensOfPart * spread_parts)
    throw UsageError(concat("--spread-parts: ", spread_parts, " parts of windows of ", spread,
                            " tokens given; at most ", spread / kTokensOfPart, " expected"));
}

std::shared_ptr<const data::Dataset> learning_windows(std::shared_ptr<const data::Dataset> text,
                                                      const WindowOptions& options,
                                                      const WindowPlan& plan) {
  auto windows = text;
  if (options.echo > 0)
    windows = std::make_shared<data::EchoedText>(
        windows,
        data::EchoOptions{.share = options.echo,
                          .length = options.echo_length,
                          .weight = options.echo_weight,
                          .until = static_cast<uint64_t>(steps_with_echo(options, plan.steps)),
                          .seed = plan.seed});
  if (options.spread > 0)
    windows = std::make_shared<data::SpreadWindows>(
        windows, data::SpreadOptions{.context = plan.context,
                                     .parts = options.spread_parts,
                                     .correction = options.spread_correction,
                                     .seed = plan.seed});
  if (options.short_share > 0)
    windows =
        std::make_shared<data::ShortWindows>(windows, text, options.short_share, kShortLength);
  return windows;
}

std::vector<std::string> window_lines(const WindowOptions& options, int64_t length,
                                      const WindowPlan& plan) {
  std::vector<std::string> lines;
  if (options.echo > 0) {
    const int64_t last = steps_with_echo(options, plan.steps);
    const double spans =
        options.echo * static_cast<double>(length) / static_cast<double>(options.echo_length);
    lines.push_back(concat(
        "echo: in windows of ", length, " tokens, ", spans, " spans of ", options.echo_length,
        " repeat earlier text of their document, from up to the whole window back; their tokens "
        "from the ",
        data::EchoedText::lead(options.echo_length) + 1, "th on count ", options.echo_weight,
        " times; ", last < plan.steps ? concat("steps 1 to ", last, " of ", plan.steps) : "all ",
        last < plan.steps ? "" : concat(plan.steps, " steps")));
  }
  if (options.spread > 0)
    lines.push_back(
        concat("spread: windows of ", length, " tokens in ", options.spread_parts,
               " parts, at positions up to ", plan.context, "; ",
               options.spread_correction > 0
                   ? concat("logits times (log keys / log position)^", options.spread_correction)
                   : "logits as they are",
               " where keys are missing"));
  return lines;
}

nlohmann::ordered_json to_json(const WindowOptions& options) {
  nlohmann::ordered_json json;
  if (options.short_share > 0) json["short_share"] = options.short_share;
  if (options.echo > 0)
    json["echo"] = {{"share", options.echo},
                    {"length", options.echo_length},
                    {"weight", options.echo_weight},
                    {"until", options.echo_until}};
  if (options.spread > 0)
    json["spread"] = {{"window", options.spread},
                      {"parts", options.spread_parts},
                      {"correction", options.spread_correction}};
  return json;
}

}  // namespace tempera::adapt
