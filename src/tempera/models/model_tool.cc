// Runs a model on given tokens, for tests/families_test.py, which compares with transformers.
//
// model_tool run MODEL IN OUT     tokens (B, T), of an encoder-decoder source (B, S), and where
// given
//                                   targets -> loss, and its gradients by the file's names
//                                   types (B, T) of an encoder
//                                   key_start (B) -> padded, and cached: a part of the rows at once
//                                   and the others one by one; encoders have key_end (B) and no
//                                   cache, and encoder-decoders source_end (B)
//                                 -> logits, or hidden where the model has no head
// model_tool temper MODEL METHOD OUT   the same model with a temperature whose parameters are far
//                                      from their start, as a folder of our own

#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "tempera/base/error.h"
#include "tempera/families/family.h"
#include "tempera/models/export.h"
#include "tempera/models/tensor_file.h"
#include "tempera/models/weights.h"
#include "tempera/ops/torch.h"

namespace {

using namespace tempera;

nn::Batch batch_of(const nn::StateMap& given) {
  const auto find = [&](const char* name) {
    const auto found = given.find(name);
    return found == given.end() ? torch::Tensor() : found->second;
  };
  nn::Batch batch;
  batch.tokens = find("tokens");
  batch.targets = find("targets");
  batch.key_start = find("key_start");
  batch.key_end = find("key_end");
  batch.types = find("types");
  batch.source = find("source");
  batch.source_end = find("source_end");
  return batch;
}

// A prompt in two pieces, then one row after the other.
torch::Tensor cached_logits(nn::Model& model, const nn::Batch& batch) {
  const int64_t length = batch.tokens.size(1);
  auto cache = batch.source.defined()
                   ? model.read_source(batch, length)
                   : model.make_cache(batch.tokens.size(0), length, batch.key_start);
  const int64_t prompt = length / 2;
  cache.set_prompt_rows(prompt);
  std::vector<torch::Tensor> logits;
  for (const auto& piece : batch.tokens.narrow(1, 0, prompt).split(prompt * 2 / 3, 1))
    logits.push_back(model.project(model.extend(piece, cache)));
  for (int64_t row = prompt; row < length; ++row)
    logits.push_back(model.project(model.extend(batch.tokens.narrow(1, row, 1), cache)));
  return torch::cat(logits, 1);
}

nn::StateMap by_file_names(const models::LoadedModel& loaded, const nn::StateMap& state) {
  const auto& family = families::find_family(loaded.family, "");
  const auto& config = loaded.model->config();
  return models::file_tensors(config, state, family.rules(config));
}

// What the file holds of a gain may be the gain less 1; that does not show in a gradient.
nn::StateMap gradients(const models::LoadedModel& loaded, const nn::Batch& batch) {
  const auto loss = loaded.model->loss(batch);
  loss.backward();
  nn::StateMap found, zeros;
  for (const auto& parameter : loaded.model->parameter_list()) {
    found[parameter.name] = parameter.tensor.grad();
    zeros[parameter.name] = torch::zeros_like(parameter.tensor);
  }
  found = by_file_names(loaded, found);
  for (const auto& [name, shift] : by_file_names(loaded, zeros)) found[name] = found[name] - shift;
  found["loss"] = loss.detach();
  return found;
}

torch::Tensor results(nn::Model& model, const nn::Batch& batch) {
  return model.config().head == nn::HeadKind::kNone ? model.hidden(batch) : model.logits(batch);
}

nn::StateMap run_all(const models::LoadedModel& loaded, nn::Batch batch) {
  nn::Model& model = *loaded.model;
  nn::StateMap out;
  const nn::Batch padded = batch;
  batch.key_start.reset();
  batch.key_end.reset();
  batch.source_end.reset();
  if (batch.targets.defined()) out = gradients(loaded, batch);
  const torch::NoGradGuard no_grad;
  out[model.config().head == nn::HeadKind::kNone ? "hidden" : "logits"] = results(model, batch);
  const bool any =
      padded.key_start.defined() || padded.key_end.defined() || padded.source_end.defined();
  if (!any) return out;
  out["padded"] = results(model, padded);
  if (model.config().kind != nn::ModelKind::kEncoder) out["cached"] = cached_logits(model, padded);
  return out;
}

void temper(const std::string& path, const std::string& method, const std::string& out) {
  const nn::TemperatureConfig temperature{.method = method};
  const auto loaded = models::load_model(path, {.temperature = temperature});
  const torch::NoGradGuard no_grad;
  double phase = 0;
  for (const auto& parameter : loaded.model->parameter_list())
    if (parameter.kind == nn::ParameterKind::kTemperature) {
      const auto index = torch::arange(parameter.tensor.numel(), torch::kFloat64);
      parameter.tensor.add_(((index * 12.9898 + ++phase).sin() * 0.3).view_as(parameter.tensor));
    }
  NewOutput folder(out, NewOutput::Kind::kFolder);
  models::export_folder(loaded, folder, {});
}

int run(const std::vector<std::string>& arguments) {
  if (arguments.at(0) == "temper") {
    temper(arguments.at(1), arguments.at(2), arguments.at(3));
  } else {
    models::write_tensors(arguments.at(3),
                          run_all(models::load_model(arguments.at(1)),
                                  batch_of(models::read_tensors(arguments.at(2)))));
  }
  return EXIT_SUCCESS;
}

}  // namespace

int main(int argc, char** argv) {
  int code = EXIT_FAILURE;
  try {
    code = run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
  }
  std::_Exit(code);  // without torch's destructors, as in cli/main.cc
}
