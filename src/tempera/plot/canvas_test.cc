#include "tempera/plot/canvas.h"

#include <gtest/gtest.h>
#include <png.h>

#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "tempera/base/error.h"
#include "tempera/plot/font.h"
#include "tempera/plot/glyphs.h"
#include "tempera/plot/raster.h"
#include "tempera/plot/svg.h"
#include "tempera/plot/testing.h"
#include "tempera/plot/xml_check.h"

namespace tempera::plot {
namespace {

constexpr Color kRed{255, 0, 0}, kBlue{0, 0, 255}, kBlack{0, 0, 0};

std::array<int, 3> pixel(const Image& image, size_t x, size_t y) {
  const uint8_t* p = &image.rgb[(y * image.width + x) * 3];
  return {p[0], p[1], p[2]};
}
using Rgb = std::array<int, 3>;
const Rgb kWhitePixel{255, 255, 255};

double darkness(const Image& image) {
  double sum = 0;
  for (const uint8_t channel : image.rgb) sum += 255 - channel;
  return sum / (3 * 255);
}

TEST(RasterTest, RectCoversItsPixelsAndHalvesTheEdges) {
  RasterCanvas canvas(10, 10, 1);
  canvas.rect({2, 2, 4.5, 3}, kRed);
  EXPECT_EQ(pixel(canvas.image(), 2, 2), (Rgb{255, 0, 0}));
  EXPECT_EQ(pixel(canvas.image(), 5, 4), (Rgb{255, 0, 0}));
  EXPECT_EQ(pixel(canvas.image(), 6, 4), (Rgb{255, 128, 128}));
  EXPECT_EQ(pixel(canvas.image(), 7, 4), kWhitePixel);
  EXPECT_EQ(pixel(canvas.image(), 1, 2), kWhitePixel);
  EXPECT_EQ(pixel(canvas.image(), 2, 5), kWhitePixel);
}

TEST(RasterTest, ScaleMultipliesSize) {
  RasterCanvas canvas(10, 7, 3);
  EXPECT_EQ(canvas.image().width, 30u);
  EXPECT_EQ(canvas.image().height, 21u);
  canvas.rect({1, 1, 1, 1}, kBlue);
  EXPECT_EQ(pixel(canvas.image(), 3, 3), (Rgb{0, 0, 255}));
  EXPECT_EQ(pixel(canvas.image(), 5, 5), (Rgb{0, 0, 255}));
  EXPECT_EQ(pixel(canvas.image(), 6, 6), kWhitePixel);
}

TEST(RasterTest, AreaOfMarksIsRight) {
  RasterCanvas triangle(40, 40, 1);
  triangle.polygon(std::array<Point, 3>{{{5.3, 5.1}, {35.3, 5.1}, {5.3, 35.1}}}, kBlack);
  EXPECT_NEAR(darkness(triangle.image()), 450, 2);
  RasterCanvas disc(40, 40, 1);
  disc.circle({20, 20}, 10, kBlack);
  EXPECT_NEAR(darkness(disc.image()), 314.2, 3);
  RasterCanvas line(60, 60, 1);
  line.polyline(std::array<Point, 2>{{{10, 10}, {40, 50}}}, {kBlack, 4});
  EXPECT_NEAR(darkness(line.image()), 50 * 4 + 3.1416 * 4, 3);
  RasterCanvas thin(60, 60, 1);
  thin.polyline(std::array<Point, 2>{{{10, 30.5}, {50, 30.5}}}, {kBlack, 0.25});
  EXPECT_NEAR(darkness(thin.image()), 40 * 0.25, 0.6);
}

TEST(RasterTest, TranslucentJoinsAreNotDrawnTwice) {
  RasterCanvas canvas(30, 30, 1);
  canvas.polyline(std::array<Point, 3>{{{5, 15}, {15, 15}, {25, 15}}},
                  {with_alpha(kBlack, 0.5), 6});
  EXPECT_EQ(pixel(canvas.image(), 15, 15), pixel(canvas.image(), 10, 15));
  EXPECT_EQ(pixel(canvas.image(), 15, 15), (Rgb{128, 128, 128}));
}

TEST(RasterTest, DashesLeaveGaps) {
  RasterCanvas canvas(40, 10, 1);
  canvas.polyline(std::array<Point, 2>{{{0, 5}, {40, 5}}}, {kBlack, 2, {8, 8}});
  EXPECT_EQ(pixel(canvas.image(), 4, 4), (Rgb{0, 0, 0}));
  EXPECT_EQ(pixel(canvas.image(), 12, 4), kWhitePixel);
  EXPECT_EQ(pixel(canvas.image(), 20, 4), (Rgb{0, 0, 0}));
}

TEST(RasterTest, ClipsAndStaysInsideThePicture) {
  RasterCanvas canvas(20, 20, 1);
  canvas.begin_clip({5, 5, 5, 5});
  canvas.rect({0, 0, 20, 20}, kRed);
  canvas.polyline(std::array<Point, 2>{{{-1e5, 7}, {1e5, 7}}}, {kBlue, 1});
  canvas.end_clip();
  EXPECT_EQ(pixel(canvas.image(), 4, 7), kWhitePixel);
  EXPECT_EQ(pixel(canvas.image(), 10, 7), kWhitePixel);
  EXPECT_EQ(pixel(canvas.image(), 9, 9), (Rgb{255, 0, 0}));
  EXPECT_GT(pixel(canvas.image(), 7, 7)[2], 100);
  canvas.rect({-50, -50, 1000, 1000}, kBlue);
  canvas.circle({-3, 40}, 1e4, kRed);
  canvas.polygon(std::array<Point, 3>{{{-1e6, -1e6}, {1e6, -1e6}, {0, 1e6}}}, kBlack);
  EXPECT_EQ(pixel(canvas.image(), 19, 19), (Rgb{0, 0, 0}));
}

TEST(RasterTest, CellsTileWithoutSeams) {
  RasterCanvas canvas(31, 31, 1);
  const std::vector<Color> colors(9, kBlue);
  canvas.cells({0.5, 0.5, 30, 30}, 3, 3, colors);
  for (size_t i = 1; i < 30; ++i) EXPECT_EQ(pixel(canvas.image(), i, 15), (Rgb{0, 0, 255})) << i;
  EXPECT_THROW(canvas.cells({0, 0, 1, 1}, 2, 2, colors), Error);
}

TEST(RasterTest, TextFallsWhereItsAnchorSays) {
  const double width = text_width("HHHH", 12);
  for (const Anchor anchor : {Anchor::kStart, Anchor::kMiddle, Anchor::kEnd}) {
    RasterCanvas canvas(200, 40, 1);
    canvas.text({100, 30}, "HHHH", {.size = 12, .color = kBlack, .anchor = anchor});
    size_t left = 200, right = 0, top = 40, bottom = 0;
    for (size_t y = 0; y < 40; ++y)
      for (size_t x = 0; x < 200; ++x)
        if (pixel(canvas.image(), x, y)[0] < 128) {
          left = std::min(left, x);
          right = std::max(right, x);
          top = std::min(top, y);
          bottom = std::max(bottom, y);
        }
    const double expected = anchor == Anchor::kStart    ? 100
                            : anchor == Anchor::kMiddle ? 100 - width / 2
                                                        : 100 - width;
    EXPECT_NEAR(static_cast<double>(left), expected, 2.0);
    EXPECT_NEAR(static_cast<double>(right), expected + width, 2.5);
    EXPECT_NEAR(static_cast<double>(bottom), 30, 1.5);
    EXPECT_NEAR(static_cast<double>(top), 30 - cap_height(12), 1.5);
  }
}

TEST(RasterTest, TurnedTextRunsUpwards) {
  RasterCanvas canvas(60, 60, 1);
  canvas.text({30, 55}, "HHHH", {.size = 12, .color = kBlack, .degrees = -90});
  double above = 0;
  for (size_t y = 18; y < 56; ++y)
    for (size_t x = 18; x < 32; ++x) above += 255 - pixel(canvas.image(), x, y)[0];
  EXPECT_NEAR(above / 255, darkness(canvas.image()), 1);
  EXPECT_GT(above / 255, 30);
}

TEST(RasterTest, RefusesAbsurdSizes) {
  EXPECT_THROW(RasterCanvas(1e9, 10, 1), Error);
  EXPECT_THROW(RasterCanvas(0, 10, 1), Error);
  EXPECT_THROW(RasterCanvas(kNan, 10, 1), Error);
}

TEST(PngTest, DecodesToTheSamePixels) {
  RasterCanvas canvas(17, 9, 1);
  canvas.rect({3, 2, 5, 4}, kRed);
  canvas.polyline(std::array<Point, 2>{{{0, 0}, {17, 9}}}, {kBlue, 2});
  const std::vector<uint8_t> bytes = encode_png(canvas.image());
  png_image header{};
  header.version = PNG_IMAGE_VERSION;
  ASSERT_NE(png_image_begin_read_from_memory(&header, bytes.data(), bytes.size()), 0);
  EXPECT_EQ(header.width, 17u);
  EXPECT_EQ(header.height, 9u);
  header.format = PNG_FORMAT_RGB;
  std::vector<uint8_t> decoded(PNG_IMAGE_SIZE(header));
  ASSERT_NE(png_image_finish_read(&header, nullptr, decoded.data(), 0, nullptr), 0);
  EXPECT_EQ(decoded, canvas.image().rgb);
  EXPECT_THROW(encode_png(Image{2, 2, {1, 2, 3}}), Error);
}

TEST(FontTest, GlyphsAreSortedAndHaveInk) {
  char32_t previous = 0;
  for (const Glyph& glyph : glyphs()) {
    EXPECT_GT(glyph.code, previous);
    EXPECT_GT(glyph.advance, 0);
    previous = glyph.code;
  }
  for (char c = '!'; c <= '~'; ++c) {
    const auto strokes = text_strokes(std::string(1, c), 10);
    ASSERT_FALSE(strokes.empty()) << c;
    for (const auto& stroke : strokes)
      for (const Point& p : stroke) {
        EXPECT_GE(p.x, -0.5) << c;
        EXPECT_LE(p.x, text_width(std::string(1, c), 10) + 0.5) << c;
        EXPECT_GE(p.y, -8) << c;
        EXPECT_LE(p.y, 2.6) << c;
      }
  }
}

TEST(FontTest, WidthsAddUpAndUnknownBytesAreBoxes) {
  EXPECT_DOUBLE_EQ(text_width("abc", 10),
                   text_width("a", 10) + text_width("b", 10) + text_width("c", 10));
  EXPECT_EQ(text_width("", 10), 0);
  EXPECT_GT(text_width("m", 10, /*bold=*/true), text_width("m", 10));
  // One box for a character the font lacks, one for each byte that is not UTF-8.
  EXPECT_EQ(text_strokes("\u6f22", 10).size(), 1u);
  EXPECT_EQ(text_strokes("\xff\xc3", 10).size(), 2u);
}

TEST(FontTest, FitsByCuttingWholeCharacters) {
  EXPECT_EQ(fit_text("short", 10, 100), "short");
  const std::string cut =
      fit_text("\u03b1\u03b2\u03b3\u03bb\u03c3\u03c4\u03b1\u03b2\u03b3", 10, 30);
  EXPECT_LE(text_width(cut, 10), 30);
  EXPECT_TRUE(cut.ends_with("\u2026"));
  EXPECT_TRUE(cut.starts_with("\u03b1"));
}

TEST(SvgTest, WritesTheMarks) {
  SvgCanvas canvas(100, 50, "a \"label\" & more");
  canvas.rect({1, 2, 3.456, 4}, kRed);
  canvas.circle({10, 11}, 2, with_alpha(kBlue, 0.25));
  canvas.polyline(std::array<Point, 2>{{{0, 0}, {5, -0.001}}}, {kGrid, 1, {4, 2}});
  canvas.polygon(std::array<Point, 3>{{{0, 0}, {1, 0}, {0, 1}}}, kInk);
  canvas.text({5, 6}, "1 < 2 & 'x'", {.anchor = Anchor::kMiddle, .bold = true, .degrees = -90});
  const std::string svg = canvas.svg();
  EXPECT_EQ(xml_fault(svg), "");
  const auto has = [&](std::string_view part) { return svg.find(part) != std::string::npos; };
  EXPECT_TRUE(has("width=\"100\" height=\"50\" viewBox=\"0 0 100 50\""));
  EXPECT_TRUE(has("aria-label=\"a &quot;label&quot; &amp; more\""));
  EXPECT_TRUE(has("<rect x=\"1\" y=\"2\" width=\"3.46\" height=\"4\" fill=\"#ff0000\"/>"));
  EXPECT_TRUE(has("fill=\"#0000ff\" fill-opacity=\"0.25\""));
  EXPECT_TRUE(
      has("points=\"0,0 5,0\" fill=\"none\" stroke=\"" + hex(kGrid) + "\" class=\"tp-grid-line\""));
  EXPECT_TRUE(has("stroke-dasharray=\"4 2\""));
  EXPECT_TRUE(has("fill=\"#1f2430\" class=\"tp-ink\""));
  EXPECT_TRUE(has("rotate(-90 5 6)"));
  EXPECT_TRUE(has(">1 &lt; 2 &amp; &#39;x&#39;</text>"));
}

TEST(SvgTest, ManyCellsBecomeOnePicture) {
  SvgCanvas few(10, 10, ""), many(10, 10, "");
  few.cells({0, 0, 10, 10}, 2, 2, std::vector<Color>(4, kRed));
  many.cells({0, 0, 10, 10}, 100, 100, std::vector<Color>(10000, kRed));
  EXPECT_NE(few.svg().find("<rect"), std::string::npos);
  EXPECT_EQ(many.svg().find("<rect"), std::string::npos);
  EXPECT_NE(many.svg().find("data:image/png;base64,iVBORw0KGgo"), std::string::npos);
  EXPECT_EQ(xml_fault(many.svg()), "");
}

TEST(SvgTest, EscapesWhatXmlForbids) {
  EXPECT_EQ(escape_xml("a<b>&\"'"), "a&lt;b&gt;&amp;&quot;&#39;");
  EXPECT_EQ(escape_xml("\u00e9\u6f22\U0001f600"), "\u00e9\u6f22\U0001f600");
  EXPECT_EQ(escape_xml(std::string_view("\0\x01\t", 3)), "\ufffd\ufffd\t");
  EXPECT_EQ(escape_xml("\xff"), "\ufffd");
  EXPECT_EQ(escape_xml("\xc0\xaf"), "\ufffd\ufffd");            // overlong
  EXPECT_EQ(escape_xml("\xed\xa0\x80"), "\ufffd\ufffd\ufffd");  // surrogate
  EXPECT_EQ(escape_xml("\xef\xbf\xbf"), "\ufffd\ufffd\ufffd");  // U+FFFF
  EXPECT_EQ(escape_xml("x\xe6\xbc"), "x\ufffd\ufffd");          // cut off
}

TEST(ColorTest, ScalesAndContrast) {
  EXPECT_EQ(hex({1, 171, 255}), "#01abff");
  EXPECT_EQ(hex(scale_color(ColorScale::kSequential, -1)),
            hex(scale_color(ColorScale::kSequential, 0)));
  EXPECT_EQ(hex(scale_color(ColorScale::kSequential, 7)),
            hex(scale_color(ColorScale::kSequential, 1)));
  EXPECT_EQ(hex(scale_color(ColorScale::kSequential, kNan)),
            hex(scale_color(ColorScale::kSequential, 0)));
  EXPECT_EQ(hex(text_on(scale_color(ColorScale::kSequential, 1))), "#ffffff");
  EXPECT_EQ(hex(text_on(scale_color(ColorScale::kSequential, 0))), "#1f2430");
  double previous = 1e9;
  for (int i = 0; i <= 20; ++i) {
    const Color c = scale_color(ColorScale::kSequential, i / 20.0);
    const double lightness = 0.2126 * c.r + 0.7152 * c.g + 0.0722 * c.b;
    EXPECT_LT(lightness, previous);
    previous = lightness;
  }
}

}  // namespace
}  // namespace tempera::plot
