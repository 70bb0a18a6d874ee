#include "tempera/adapt/calibrate.h"
#include "tempera/base/error.h"

namespace tempera::adapt {

void CalibrateOptions::declare(config::Options& options) {
  options.positional("model", model, "a folder or a .gguf file; it is never written to");
  options.section(config::Section::kData);
  options.option("text", text, "text to learn from: text or jsonl files, or token shards");
  options.option("eval-text", eval_text,
                 "text to measure on; not given: a held-out part of --text");
  options.option("held-out", held_out, config::range(0, 0.9),
                 "share of --text held out for measuring; without --eval-text");
  options.section(config::Section::kTemperature);
  options.option("learn", learn,
                 "what to learn: temperature methods (NAME, A+B or NAME:OPTION=VALUE), norm (the "
                 "gains of the norms), rope (the RoPE frequencies) and lora; all other weights "
                 "stay frozen");
  options.option("context", context, config::range(0, 1 << 30),
                 "extend the context to this many tokens; 0: the model's own");
  rope.declare(options);
  declare_training(options);
  declare_measuring(options);
}

void CalibrateOptions::declare_training(config::Options& options) {
  options.section(config::Section::kTraining);
  options.option("tokens", tokens, config::range(1, 1e15), "tokens to learn from");
  options.option("length", length, config::range(0, 1 << 30),
                 "window length in tokens; 0: the context length");
  windows.declare(options);
  options.option("step-tokens", step_tokens, config::range(1, 1e12), "tokens per step",
                 {.rare = true});
  options.option("learning-rate", learning_rate, config::above_to(0, 100),
                 "peak learning rate of norm gains", {.rare = true});
  options.option("temperature-rate", temperature_rate, config::range(0, 1e6),
                 "multiplies the learning rate of the temperature parameters", {.rare = true});
  config::seed_option(options, seed);
  config::dtype_option(options, dtype);
  config::device_option(options, device);
  train::TrainOptions::declare_context_ranks(options, context_ranks);
}

void CalibrateOptions::declare_measuring(config::Options& options) {
  options.section(config::Section::kMeasuring);
  options.option("eval-lengths", eval_lengths, config::range(2, 1 << 30),
                 "window lengths to measure at; not given: 512, 1024 and so on, and the trained "
                 "and the new context length");
  options.option("eval-tokens", eval_tokens, config::range(2, 1e15),
                 "tokens to measure per length");
  options.option("passkey-cases", passkey_cases, config::range(0, 1e6),
                 "passkeys per length and depth; 0: none");
  options.option("passkey-text", passkey_text,
                 "text to hide passkeys in; not given: built-in sentences");
  options.option("controls", controls,
                 config::Domain{.choices = {"positions", "norm", "temperature", "lora", "all"}},
                 "also measure the new positions alone, and models that learned from the same "
                 "tokens: norm gains alone, temperatures alone, LoRA");
}

void CalibrateOptions::validate() const {
  if (text.empty())
    throw UsageError(
        concat("no text to learn from; give some that is like the text of use:\n"
               "  tempera calibrate ",
               model, " --text FILE"));
  if (context == 0 && rope != RopeOptions())
    throw UsageError(
        "--rope and the options that begin with it are for --context; give the length that you "
        "want too");
  if (windows.spread > 0 && length > 0)
    throw UsageError(concat("--spread ", windows.spread, " and --length ", length,
                            " both say how long the windows are; give one of them"));
  rope.validate();
  windows.validate();
  parse_learn(learn);
}

}  // namespace tempera::adapt
