#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tempera/cli/model.h"
#include "tempera/config/common.h"
#include "tempera/lens/live.h"

namespace tempera::cli {

// How the lens computes.
struct LensComputing {
  config::Dtype dtype = config::Dtype::kFloat32;
  int64_t threads = 0;
  bool unpack = false;
  // A page that lives asks for the same text again, with other temperatures.
  bool live = false;
};

// What the models look at: text, or a question for a number that a text of such a length hides.
struct LensTexts {
  std::string text, origin;  // origin names the text
  std::optional<std::string> target;
  int64_t most = 0;  // tokens of the text; 0: all
  int64_t passkey = 0;
  double depth = 0;
  int64_t seed = 0;
};

// A model that can look at its text again and again.
class LensModel final : public lens::LiveModel {
 public:
  // out: where write() writes; empty: nowhere.
  LensModel(const std::string& model, const LensTexts& texts, const LensComputing& computing,
            std::string out = {});

  lens::Subject look();
  // At the text of another model, with what this one would have answered there.
  lens::Subject look_at(const lens::Subject& other);

  lens::Subject changed(const lens::Subject& as_it_is, const lens::Factors& factors) override;
  void add_losses(lens::Subject& subject) override;
  lens::Subject read(const std::string& text) override;
  lens::Subject continued(const lens::Subject& subject) override;
  std::string write(const lens::Factors& factors) override;
  lens::Offers offers() const override;

 private:
  bool decodes() const;
  std::vector<lens::Sequence> sequences(const LensTexts& texts);
  lens::Sequence hide_passkey(const LensTexts& texts);
  std::string answer_to(const std::vector<int64_t>& question, int64_t tokens,
                        std::vector<int64_t>* ids = nullptr);
  lens::Subject looked(const std::string& name, std::vector<lens::Sequence> texts,
                       const lens::LookOptions& options, bool shows_progress = true);

  std::string path_, name_, out_;
  LensComputing computing_;
  OpenModel opened_;
  std::optional<lens::Passkey> passkey_;
  std::vector<lens::Sequence> texts_;
};

}  // namespace tempera::cli
