#include "tempera/lens/page_data.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "tempera/base/base64.h"
#include "tempera/base/error.h"
#include "tempera/lens/weights.h"
#include "tempera/ops/torch.h"

namespace tempera::lens {
namespace {

using nlohmann::ordered_json;
using torch::Tensor;

constexpr int64_t kMostBins = 48, kMostCells = 512, kMostTopKeys = 8;
constexpr int64_t kBytesOfTopKey = 4, kBytesOfCell = 2, kBytesOfMean = 4;

int64_t ceil_of(int64_t all, int64_t part) { return (all + part - 1) / part; }

// A square of keys and rows is a triangle where no row sees a later key.
bool is_triangle(const Attention& attention) {
  return attention.causal && attention.rows() == attention.keys();
}

int64_t cells_of(const Attention& attention, int64_t cell) {
  const int64_t rows = ceil_of(attention.rows(), cell), keys = ceil_of(attention.keys(), cell);
  return is_triangle(attention) ? rows * (rows + 1) / 2 : rows * keys;
}

template <class T>
std::string base64(const std::vector<T>& numbers) {
  return encode_base64(
      {reinterpret_cast<const uint8_t*>(numbers.data()), numbers.size() * sizeof(T)});
}

// Numbers that JSON has: those that are not finite are null.
ordered_json number(double value) {
  return std::isfinite(value) ? ordered_json(value) : ordered_json();
}

ordered_json numbers(const Tensor& tensor) {
  ordered_json list = ordered_json::array();
  const Tensor values = tensor.to(torch::kFloat64).contiguous();
  for (int64_t i = 0; i < values.numel(); ++i) list.push_back(number(values.data_ptr<double>()[i]));
  return list;
}

// Half a step is 7.6e-6.
uint16_t in_16_bits(float weight) {
  return static_cast<uint16_t>(std::lround(std::clamp(weight, 0.0F, 1.0F) * 65535.0F));
}

void append_weights(std::vector<uint16_t>& list, const float* weights, int64_t count) {
  for (int64_t i = 0; i < count; ++i) list.push_back(in_16_bits(weights[i]));
}

// The mean of the numbers that are some, NaN where there is none; of the largest logit the largest.
float bin_of(std::span<const float> rows, Metric metric) {
  if (metric == Metric::kLargest) return std::ranges::max(rows);
  double sum = 0;
  int64_t known = 0;
  for (const float value : rows) {
    if (std::isnan(value)) continue;
    sum += static_cast<double>(value);
    ++known;
  }
  return static_cast<float>(sum / static_cast<double>(known));
}

// By head and bin, of all rows in a bin. There are many bins: torch's operators would take longer
// than the model takes for several layers.
void append_bins(std::vector<float>& list, const Tensor& rows, Metric metric, int64_t bins) {
  const Tensor all = rows.contiguous();
  const int64_t count = all.size(1);
  for (int64_t head = 0; head < all.size(0); ++head) {
    const float* const first = all.data_ptr<float>() + head * count;
    for (int64_t bin = 0; bin < bins; ++bin)
      list.push_back(
          bin_of({first + bin * count / bins, first + (bin + 1) * count / bins}, metric));
  }
}

// What every page has of an attention; the weights come with the detail, or are asked for.
ordered_json outline_json(const Subject& subject, const Attention& attention,
                          const Detail& detail) {
  std::vector<float> bins;
  for (const Metric metric : kMetrics)
    append_bins(bins, attention.metric(metric), metric, detail.bins);
  return {{"role", role_name(attention.role)},
          {"layer", attention.layer},
          {"heads", attention.heads()},
          {"rows", attention.rows()},
          {"keys", attention.keys()},
          {"rowText", subject.row_text(attention)},
          {"keyText", subject.key_text(attention)},
          {"triangle", is_triangle(attention)},
          {"cell", detail.cell},
          {"stride", detail.stride},
          {"most", detail.most},
          {"bins", detail.bins},
          {"metrics", metrics_json(attention)},
          {"byPosition", base64(bins)}};
}

ordered_json attention_json(const Subject& subject, const Attention& attention,
                            const Detail& detail) {
  std::vector<uint16_t> map, top_key, top_weight;
  for (int64_t head = 0; head < attention.heads(); ++head) {
    const Digest made = digest(attention, head, detail.cell, std::max<int64_t>(detail.most, 1));
    const Tensor cells = made.maxima.contiguous();
    for (int64_t row = 0; row < cells.size(0); ++row)
      append_weights(map, cells.data_ptr<float>() + row * cells.size(1),
                     is_triangle(attention) ? row + 1 : cells.size(1));
    const auto every = [&](const Tensor& rows) {
      return rows.slice(0, 0, std::nullopt, detail.stride).narrow(1, 0, detail.most).contiguous();
    };
    const Tensor keys = every(made.top_key), weights = every(made.top_weight);
    for (int64_t i = 0; i < keys.numel(); ++i)
      top_key.push_back(static_cast<uint16_t>(keys.data_ptr<int64_t>()[i]));
    append_weights(top_weight, weights.data_ptr<float>(), weights.numel());
  }
  ordered_json made = outline_json(subject, attention, detail);
  made["map"] = base64(map);
  made["topKey"] = base64(top_key);
  made["topWeight"] = base64(top_weight);
  return made;
}

// Of every row that writes the answer: the weight on the number, and the other key that has most,
// the first token left out, where heads put what they need not.
ordered_json looks_json(const Attention& attention, const Passkey& passkey) {
  ordered_json heads = ordered_json::array();
  for (int64_t head = 0; head < attention.heads(); ++head) {
    const Tensor rows = weights(attention, head, passkey.answer, {0, attention.keys()});
    Tensor on_key = torch::zeros({rows.size(0)});
    for (const Span& place : passkey.places) {
      Tensor part = rows.narrow(1, place.first, place.count);
      on_key += part.sum(1);
      part.zero_();
    }
    rows.select(1, 0).zero_();
    const auto [weight, key] = rows.max(1);
    ordered_json list = ordered_json::array();
    for (int64_t row = 0; row < rows.size(0); ++row)
      list.push_back(
          {on_key[row].item<double>(), key[row].item<int64_t>(), weight[row].item<double>()});
    heads.push_back(std::move(list));
  }
  return heads;
}

ordered_json passkey_json(const Subject& subject) {
  if (!subject.passkey) return {};
  const Passkey& passkey = *subject.passkey;
  ordered_json places = ordered_json::array(), heads = ordered_json::array();
  for (const Span& place : passkey.places) places.push_back({place.first, place.count});
  for (const auto& attention : subject.view.attentions)
    heads.push_back(looks_json(attention, passkey));
  return {{"wanted", passkey.wanted},      {"given", passkey.given},
          {"right", passkey.right()},      {"places", std::move(places)},
          {"first", passkey.answer.first}, {"rows", passkey.answer.count},
          {"heads", std::move(heads)}};
}

using Describe = std::function<ordered_json(const Subject&, const Attention&)>;

ordered_json document(std::span<const Subject> subjects, bool live, const Describe& describe) {
  ordered_json models = ordered_json::array(), names = ordered_json::array();
  for (const auto& subject : subjects) {
    ordered_json attentions = ordered_json::array();
    for (const auto& attention : subject.view.attentions)
      attentions.push_back(describe(subject, attention));
    models.push_back({{"name", subject.name},
                      {"method", subject.method},
                      {"loss", loss_json(subject)},
                      {"losses", base64(losses_of(subject))},
                      {"rounded", subject.view.rounded},
                      {"next", next_json(subject)},
                      {"ended", subject.ended},
                      {"passkey", passkey_json(subject)},
                      {"attentions", std::move(attentions)}});
  }
  for (const Metric metric : kMetrics)
    names.push_back({{"key", name_of(metric).key}, {"label", name_of(metric).label}});
  ordered_json texts = ordered_json::array();
  for (const auto& text : subjects.front().texts) texts.push_back(text.pieces);
  return {{"version", 1},
          {"live", live},
          {"metrics", std::move(names)},
          {"texts", std::move(texts)},
          {"comparable", subjects.size() > 1 && same_heads(subjects[0], subjects[1])},
          {"models", std::move(models)}};
}

int64_t head_count(std::span<const Subject> subjects) {
  int64_t heads = 0;
  for (const auto& subject : subjects)
    for (const auto& attention : subject.view.attentions) heads += attention.heads();
  return std::max<int64_t>(heads, 1);
}

}  // namespace

Detail detail_of(const Attention& attention, int64_t bytes) {
  const int64_t rows = attention.rows();
  Detail detail;
  detail.bins = std::min(kMostBins, rows);
  const int64_t left =
      std::max<int64_t>(bytes - detail.bins * std::ssize(kMetrics) * kBytesOfMean, 64);
  // All weights: nothing is left to tell.
  if (cells_of(attention, 1) * kBytesOfCell <= left && rows <= kMostCells) {
    detail.most = 0;
    return detail;
  }
  // Top keys tell single tokens, which the cells of a long text cannot: they get most of the room.
  const int64_t keys = std::max<int64_t>(left * 7 / 10 / kBytesOfTopKey, 1);
  detail.stride = ceil_of(rows, keys);
  detail.most = std::clamp<int64_t>(keys / rows, 1, std::min(kMostTopKeys, attention.keys()));
  const int64_t room = left - ceil_of(rows, detail.stride) * detail.most * kBytesOfTopKey;
  const int64_t longest = std::max(rows, attention.keys());
  detail.cell = ceil_of(longest, kMostCells);
  while (detail.cell < longest && cells_of(attention, detail.cell) * kBytesOfCell > room)
    ++detail.cell;
  return detail;
}

ordered_json metrics_json(const Attention& attention) {
  ordered_json made = ordered_json::object();
  for (const Metric metric : kMetrics)
    made[std::string(name_of(metric).key)] = numbers(attention.over_rows(metric));
  return made;
}

ordered_json next_json(const Subject& subject) {
  ordered_json list = ordered_json::array();
  for (size_t i = 0; i < subject.view.next.size(); ++i)
    list.push_back({{"id", subject.view.next[i].id},
                    {"text", subject.next_pieces[i]},
                    {"logProbability", subject.view.next[i].log_probability}});
  return list;
}

ordered_json loss_json(const Subject& subject) {
  return number(subject.view.losses.nanmean().item<double>());
}

std::vector<float> losses_of(const Subject& subject) {
  const Tensor losses = subject.view.losses.contiguous();
  return {losses.data_ptr<float>(), losses.data_ptr<float>() + losses.numel()};
}

std::vector<uint16_t> in_16_bits(const Tensor& weights) {
  const Tensor all = weights.contiguous();
  std::vector<uint16_t> list;
  append_weights(list, all.data_ptr<float>(), all.numel());
  return list;
}

ordered_json page_data(std::span<const Subject> subjects, int64_t bytes,
                       const std::function<void(int64_t)>& report) {
  const int64_t each = bytes / head_count(subjects);
  int64_t done = 0;
  return document(
      subjects, /*live=*/false, [&](const Subject& subject, const Attention& attention) {
        ordered_json made = attention_json(subject, attention, detail_of(attention, each));
        report(++done);
        return made;
      });
}

ordered_json live_data(std::span<const Subject> subjects, const Offers& offers, int64_t shown) {
  ordered_json made =
      document(subjects, /*live=*/true, [](const Subject& subject, const Attention& attention) {
        const int64_t longest = std::max(attention.rows(), attention.keys());
        return outline_json(subject, attention,
                            {.cell = ceil_of(longest, kMostCells),
                             .stride = 1,
                             .most = 0,
                             .bins = std::min(kMostBins, attention.rows())});
      });
  made["offers"] = {{"write", offers.write}, {"generate", offers.generate}};
  made["shown"] = shown;
  return made;
}

}  // namespace tempera::lens
