#include "tempera/lens/page.h"

#include <gtest/gtest.h>

#include <limits>

#include "tempera/base/base64.h"
#include "tempera/base/error.h"
#include "tempera/lens/bundle.h"
#include "tempera/lens/page_data.h"
#include "tempera/lens/pictures.h"
#include "tempera/nn/testing_model.h"

namespace tempera::lens {
namespace {

Subject subject_of(const nn::ModelConfig& config, std::vector<std::string> pieces) {
  const auto model = nn::moved_model(config);
  model->eval();
  Subject subject{.name = "a </script> model",
                  .method = "softmax",
                  .texts = {{.ids = {}, .pieces = std::move(pieces)}},
                  .view = {},
                  .next_pieces = {}};
  for (size_t i = 0; i < subject.texts[0].pieces.size(); ++i)
    subject.texts[0].ids.push_back(static_cast<int64_t>(i % 11));
  subject.view = look(*model, batch_of(subject.texts), {.next_tokens = 2});
  subject.next_pieces = {"x", "y"};
  return subject;
}

TEST(LensPage, HoldsNoMarkupOfTokens) {
  if (page_script().empty()) GTEST_SKIP() << "built without esbuild and tsc";
  const std::vector<Subject> subjects = {
      subject_of(nn::tiny_config(), {"</script>", "<script>alert(1)</script>", "<!--", "\n"})};
  const auto data = page_data(subjects, kPageBytes, [](int64_t) {});
  const std::string page = offline_page(data, "a <title>");
  EXPECT_EQ(page.find("<script>"), std::string::npos);
  EXPECT_EQ(page.find("<!--"), std::string::npos);
  EXPECT_EQ(page.find("<title>a <"), std::string::npos);
  size_t ends = 0;
  for (size_t at = page.find("</script"); at != std::string::npos;
       at = page.find("</script", at + 1))
    ++ends;
  EXPECT_EQ(ends, 2U);
  EXPECT_NE(page.find("default-src 'none'"), std::string::npos);
  EXPECT_NE(page, offline_page(data, "a <title>")) << "every page has another nonce";
}

TEST(LensPage, WithoutItsScriptsSaysWhatIsMissing) {
  if (!page_script().empty()) {
    EXPECT_NO_THROW(require_page());
    return;
  }
  try {
    require_page();
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("node-typescript"), std::string::npos);
  }
}

TEST(LensPage, DetailFitsTheRoom) {
  auto config = nn::tiny_config();
  config.context = 600;
  const auto subject = subject_of(config, std::vector<std::string>(500, "a"));
  const Attention& attention = subject.view.attentions[0];
  const Detail all = detail_of(attention, 1 << 20);
  EXPECT_EQ(all.cell, 1);
  EXPECT_EQ(all.most, 0);
  for (const int64_t bytes : {1500, 3000, 13000, 60000}) {
    const Detail detail = detail_of(attention, bytes);
    const std::vector<Subject> one = {subject};
    const auto data = page_data(one, bytes * 4, [](int64_t) {});
    const auto& first = data["models"][0]["attentions"][0];
    size_t size = 0;
    for (const auto* part : {"byPosition", "map", "topKey", "topWeight"})
      size += first[part].get<std::string>().size();
    EXPECT_LE(static_cast<double>(size), 2 * 1.34 * static_cast<double>(bytes) + 64) << bytes;
    EXPECT_GT(detail.cell, 1);
    EXPECT_EQ(first["cell"].get<int64_t>(), detail.cell);
  }
}

// Bins of two rows each: means of the rows that have a number, and the largest of the logits.
TEST(LensPage, TellsMetricsByPosition) {
  auto config = nn::tiny_config();
  config.context = 96;
  std::vector<Subject> one = {subject_of(config, std::vector<std::string>(96, "a"))};
  Attention& attention = one[0].view.attentions[0];
  const auto rows = torch::arange(96, torch::kFloat32).expand({2, 96});
  attention.largest = rows;
  attention.entropy = rows.clone();
  attention.entropy[1][0] = std::numeric_limits<float>::quiet_NaN();
  const auto data = live_data(one, {}, 0);
  const auto told = data["models"][0]["attentions"][0]["byPosition"].get<std::string>();
  const auto expect_bins = [&](size_t metric, float first_of_other, float shift) {
    std::vector<float> bins;
    for (int head = 0; head < 2; ++head)
      for (int bin = 0; bin < 48; ++bin) bins.push_back(2 * static_cast<float>(bin) + shift);
    bins[48] = first_of_other;
    const std::string expected =
        encode_base64({reinterpret_cast<const uint8_t*>(bins.data()), bins.size() * sizeof(float)});
    EXPECT_EQ(told.substr(metric * expected.size(), expected.size()), expected) << metric;
  };
  expect_bins(0, 1, 0.5);
  expect_bins(3, 1, 1);
}

TEST(LensPage, ComparesOnlyTheSameTokens) {
  const auto one = subject_of(nn::tiny_config(), {"a", "b", "c"});
  auto other = subject_of(nn::with_method(nn::tiny_config(), "focal"), {"a", "b", "c"});
  EXPECT_NO_THROW(check_comparable(one, other));
  EXPECT_TRUE(same_heads(one, other));
  other.texts[0].pieces = {"ab", "c"};
  EXPECT_THROW(check_comparable(one, other), Error);
  auto deeper = nn::tiny_config();
  deeper.layers = 3;
  EXPECT_FALSE(same_heads(one, subject_of(deeper, {"a", "b", "c"})));
}

TEST(LensPictures, NamesOfHeadsAreChecked) {
  const auto subject = subject_of(nn::tiny_config(), {"a", "b", "c"});
  EXPECT_EQ(parse_head("1.0", subject).attention, 1);
  for (const auto* bad :
       {"", "1", "2.0", "0.2", "-1.0", "a.b", "1.0x", "1.", ".1", "1.99999999999999999999"})
    EXPECT_THROW(parse_head(bad, subject), UsageError) << bad;
  const std::vector<Subject> both = {subject, subject};
  const std::vector<HeadName> heads = {{1, 0}};
  const auto made = pictures(both, heads);
  ASSERT_EQ(made.size(), 3U);
  EXPECT_EQ(made[0].second.panels.size(), 15U);
  EXPECT_EQ(made[2].first, "head-1-0");
  for (const auto& [name, figure] : made) EXPECT_FALSE(plot::to_svg(figure).empty());
}

}  // namespace
}  // namespace tempera::lens
