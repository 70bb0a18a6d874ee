#include "tempera/models/classifier.h"

#include "tempera/base/error.h"
#include "tempera/ops/torch.h"

namespace tempera::models {

std::shared_ptr<nn::Model> with_classifier(const nn::Model& model, int64_t classes, uint64_t seed) {
  nn::ModelConfig config = model.config();
  TEMPERA_CHECK(config.kind == nn::ModelKind::kEncoder,
                "classes are told by an encoder, and the model is none");
  config.head = nn::HeadKind::kSequence;
  config.head_transform = false;
  config.outputs = classes;
  auto made = nn::make_model(config, seed);
  const auto known = model.state();
  auto state = made->state();
  for (auto& [name, tensor] : state)
    if (const auto found = known.find(name);
        found != known.end() && found->second.sizes() == tensor.sizes())
      tensor = found->second;
  made->load_state(state);
  made->set_compute_type(model.compute_type());
  return made;
}

}  // namespace tempera::models
