#include "tempera/generate/translate.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <tuple>
#include <utility>

#include "tempera/base/error.h"
#include "tempera/ops/torch.h"

namespace tempera::generate {
namespace {

using Sources = std::vector<std::vector<int64_t>>;

// Rows that are decoded at once: beams of all sentences together.
constexpr int64_t kRowsAtOnce = 128;

double normalised(double log_probability, size_t length, double penalty) {
  return log_probability / std::pow(static_cast<double>(std::max<size_t>(length, 1)), penalty);
}

// What a row of the model may be continued with.
struct Candidate {
  size_t beam = 0;  // of the sentence
  int64_t token = 0;
  double log_probability = 0;
};

// One source and what has been written for it.
class Sentence {
 public:
  Sentence(size_t index, int64_t room, const BeamOptions& options, int64_t end)
      : index_(index), room_(room), options_(options), end_(end), live_(1) {}

  size_t index() const { return index_; }
  size_t rows() const { return live_.size(); }
  const Hypothesis& row(size_t beam) const { return live_[beam]; }

  // Goes one token on; gives for each row that it has then the row it comes from.
  std::vector<size_t> advance(std::vector<Candidate> candidates) {
    std::ranges::sort(candidates, [](const Candidate& a, const Candidate& b) {
      return std::tuple(-a.log_probability, a.beam, a.token) <
             std::tuple(-b.log_probability, b.beam, b.token);
    });
    std::vector<Hypothesis> next;
    std::vector<size_t> parents;
    const auto beams = static_cast<size_t>(options_.beams);
    for (size_t rank = 0; rank < candidates.size() && next.size() < beams; ++rank) {
      const auto& [beam, token, log_probability] = candidates[rank];
      Hypothesis grown = live_[beam];
      grown.log_probability = log_probability;
      if (token == end_) {
        // An end that is no better than what goes on is no result of a search with so few beams.
        if (rank < beams) finish(std::move(grown), /*ended=*/true);
        continue;
      }
      grown.tokens.push_back(token);
      next.push_back(std::move(grown));
      parents.push_back(beam);
    }
    live_ = std::move(next);
    if (static_cast<int64_t>(live_[0].tokens.size()) == room_)
      for (const auto& hypothesis : live_) finish(hypothesis, /*ended=*/false);
    return parents;
  }

  // Whether nothing that is still written can win: for one of this length, at least.
  bool done() const {
    if (static_cast<int64_t>(live_[0].tokens.size()) >= room_) return true;
    if (static_cast<int64_t>(finished_.size()) < options_.beams) return false;
    const double hope =
        normalised(live_[0].log_probability, live_[0].tokens.size(), options_.length_penalty);
    return finished_.back().score >= hope;
  }

  Hypothesis best() const { return finished_.front(); }

 private:
  // Those that ended come before those that ran out of room, the better ones first.
  void finish(Hypothesis hypothesis, bool ended) {
    hypothesis.ended = ended;
    hypothesis.score =
        normalised(hypothesis.log_probability, hypothesis.tokens.size() + (ended ? 1 : 0),
                   options_.length_penalty);
    const auto better = [](const Hypothesis& a, const Hypothesis& b) {
      return std::pair(a.ended, a.score) > std::pair(b.ended, b.score);
    };
    finished_.insert(std::ranges::upper_bound(finished_, hypothesis, better), hypothesis);
    if (static_cast<int64_t>(finished_.size()) > options_.beams) finished_.pop_back();
  }

  size_t index_;
  int64_t room_;
  const BeamOptions& options_;
  int64_t end_;
  std::vector<Hypothesis> live_;  // the best first
  std::vector<Hypothesis> finished_;
};

void check(nn::Model& model, const Sources& sources, const BeamOptions& options) {
  const nn::ModelConfig& config = model.config();
  TEMPERA_CHECK(config.kind == nn::ModelKind::kEncoderDecoder,
                "the model reads no source: an encoder-decoder expected");
  TEMPERA_CHECK(options.beams >= 1, "beams: ", options.beams, " given, at least 1 expected");
  for (const auto& source : sources) {
    TEMPERA_CHECK(!source.empty(), "an empty source given: at least one token expected");
    for (const int64_t token : source)
      TEMPERA_CHECK(token >= 0 && token < config.vocabulary, "a source has the token ", token,
                    ", and the model knows 0 to ", config.vocabulary - 1);
    TEMPERA_CHECK(
        config.max_length() == 0 || static_cast<int64_t>(source.size()) <= config.max_length(),
        "a source has ", source.size(), " tokens, and the model takes ", config.max_length());
  }
}

int64_t room_for(const nn::ModelConfig& config, size_t source, const BeamOptions& options) {
  int64_t room =
      options.max_tokens > 0 ? options.max_tokens : 2 * static_cast<int64_t>(source) + 10;
  // The start token takes a place too.
  if (config.max_length() > 0) room = std::min(room, config.max_length() - 1);
  return std::max<int64_t>(room, 1);
}

// The sources filled up behind, on the model's device.
nn::Batch source_batch(const nn::Model& model, const Sources& sources,
                       std::span<const size_t> indices, int64_t pad) {
  size_t longest = 0;
  for (const size_t index : indices) longest = std::max(longest, sources[index].size());
  const auto rows = static_cast<int64_t>(indices.size());
  auto tokens = torch::full({rows, static_cast<int64_t>(longest)}, pad, torch::kInt64);
  auto ends = torch::empty({rows}, torch::kInt64);
  for (int64_t row = 0; row < rows; ++row) {
    const auto& source = sources[indices[static_cast<size_t>(row)]];
    const auto size = static_cast<int64_t>(source.size());
    tokens[row].narrow(0, 0, size).copy_(torch::tensor(source, torch::kInt64));
    ends[row] = size;
  }
  const auto device = model.output_weight().device();
  nn::Batch batch;
  batch.source = tokens.to(device);
  batch.source_end = ends.to(device);
  return batch;
}

// Sentences that are decoded together.
class Search {
 public:
  Search(nn::Model& model, const Sources& sources, std::span<const size_t> indices,
         const text::SequenceTokens& ids, const BeamOptions& options)
      : model_(model),
        options_(options),
        start_(ids.start),
        cache_(model.read_source(source_batch(model, sources, indices, ids.pad), [&] {
          int64_t most = 0;
          for (const size_t i : indices)
            most = std::max(most, room_for(model.config(), sources[i].size(), options));
          return most + 1;
        }())) {
    for (const size_t index : indices)
      sentences_.emplace_back(index, room_for(model.config(), sources[index].size(), options),
                              options_, ids.end);
  }

  void run(std::vector<Hypothesis>& results) {
    while (!sentences_.empty()) step(results);
  }

 private:
  torch::Tensor last_tokens() const {
    std::vector<int64_t> tokens;
    for (const auto& sentence : sentences_)
      for (size_t beam = 0; beam < sentence.rows(); ++beam) {
        const auto& written = sentence.row(beam).tokens;
        tokens.push_back(written.empty() ? start_ : written.back());
      }
    return torch::tensor(tokens, torch::kInt64).unsqueeze(1).to(model_.output_weight().device());
  }

  void step(std::vector<Hypothesis>& results) {
    const auto hidden = model_.extend(last_tokens(), cache_);
    const auto scores = model_.project(hidden.select(1, 0)).to(torch::kFloat32).log_softmax(1);
    // Each row may lose one of these to the end token.
    const int64_t wide = std::min<int64_t>(2 * options_.beams, scores.size(1));
    const auto [values, tokens] = scores.topk(wide, 1);
    const auto value = values.to(torch::kCPU).contiguous(),
               token = tokens.to(torch::kCPU).contiguous();
    std::vector<int64_t> rows;  // of the pass, for the rows of the next
    std::vector<Sentence> left;
    int64_t first = 0;
    for (auto& sentence : sentences_) {
      const auto count = static_cast<int64_t>(sentence.rows());
      std::vector<Candidate> candidates;
      for (int64_t row = 0; row < count; ++row)
        for (int64_t i = 0; i < wide; ++i) {
          const int64_t at = (first + row) * wide + i;
          candidates.push_back({static_cast<size_t>(row), token.data_ptr<int64_t>()[at],
                                sentence.row(static_cast<size_t>(row)).log_probability +
                                    static_cast<double>(value.data_ptr<float>()[at])});
        }
      const auto parents = sentence.advance(std::move(candidates));
      if (sentence.done()) {
        results[sentence.index()] = sentence.best();
      } else {
        for (const size_t parent : parents) rows.push_back(first + static_cast<int64_t>(parent));
        left.push_back(std::move(sentence));
      }
      first += count;
    }
    sentences_ = std::move(left);
    keep(rows, first);
  }

  // The cache of the rows that go on.
  void keep(const std::vector<int64_t>& rows, int64_t before) {
    std::vector<int64_t> same(static_cast<size_t>(before));
    std::iota(same.begin(), same.end(), 0);
    if (!rows.empty() && rows != same) cache_ = cache_.select(rows);
  }

  nn::Model& model_;
  const BeamOptions& options_;
  int64_t start_;
  nn::ModelCache cache_;
  std::vector<Sentence> sentences_;
};

}  // namespace

void BeamOptions::declare(config::Options& options) {
  options.section(config::Section::kText);
  options.option("beams", beams, config::range(1, 256), "encoder-decoder: beam size; 1: greedy");
  options.option("length-penalty", length_penalty, config::range(0, 10),
                 "encoder-decoder: beams are ranked by log-probability / length^this");
}

std::vector<Hypothesis> beam_search(nn::Model& model, const Sources& sources,
                                    const text::SequenceTokens& ids, const BeamOptions& options,
                                    const BeamReport& report) {
  check(model, sources, options);
  const torch::NoGradGuard no_grad;
  std::vector<Hypothesis> results(sources.size());
  std::vector<size_t> order(sources.size());
  std::iota(order.begin(), order.end(), size_t{0});
  // Sources of like length together: less padding, and they end at about the same step.
  std::ranges::stable_sort(
      order, [&](size_t a, size_t b) { return sources[a].size() > sources[b].size(); });
  const auto most = static_cast<size_t>(std::max<int64_t>(1, kRowsAtOnce / options.beams));
  for (size_t begin = 0; begin < order.size(); begin += most) {
    const auto some = std::span(order).subspan(begin, std::min(most, order.size() - begin));
    Search(model, sources, some, ids, options).run(results);
    if (report) report(static_cast<int64_t>(begin + some.size()));
  }
  return results;
}

std::vector<Translation> translate(nn::Model& model, const text::Tokenizer& tokenizer,
                                   const std::vector<std::string>& sources,
                                   const BeamOptions& options, const BeamReport& report) {
  const text::SequenceTokens ids(tokenizer);
  Sources encoded;
  for (const auto& source : sources) {
    encoded.push_back(text::encode_sequence(tokenizer, ids, source));
    text::cut_sequence(encoded.back(), model.config().context);
  }
  std::vector<Translation> translations;
  for (auto& hypothesis : beam_search(model, encoded, ids, options, report)) {
    // Ids behind the vocabulary stand for nothing in a text.
    std::vector<int32_t> tokens;
    for (const int64_t token : hypothesis.tokens)
      if (token < tokenizer.vocabulary()) tokens.push_back(static_cast<int32_t>(token));
    std::string text;
    tokenizer.decode(tokens, text);
    translations.push_back({std::move(text), std::move(hypothesis)});
  }
  return translations;
}

}  // namespace tempera::generate
