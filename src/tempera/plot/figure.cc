#include <algorithm>

#include "tempera/base/error.h"
#include "tempera/base/files.h"
#include "tempera/plot/chart.h"
#include "tempera/plot/font.h"
#include "tempera/plot/raster.h"
#include "tempera/plot/svg.h"

namespace tempera::plot {
namespace {

constexpr double kMargin = 14, kGap = 22, kHeading = 16;

struct Layout {
  size_t columns, rows;
  double top, width, height;
};

Layout layout_of(const Figure& figure) {
  TEMPERA_CHECK(figure.columns >= 1, "figure '", figure.title,
                "': 0 columns given, at least 1 expected");
  TEMPERA_CHECK(figure.panel_width >= 120 && figure.panel_height >= 100, "figure '", figure.title,
                "': panels of ", figure.panel_width, " x ", figure.panel_height,
                " points given, at least 120 x 100 expected");
  const size_t count = std::max<size_t>(figure.panels.size(), 1);
  const size_t columns = std::min(figure.columns, count);
  const size_t rows = (count + columns - 1) / columns;
  const double top = kMargin + (figure.title.empty() ? 0 : kHeading + 12);
  const auto extent = [](size_t n, double panel) {
    return static_cast<double>(n) * panel + static_cast<double>(n - 1) * kGap;
  };
  return {columns, rows, top, 2 * kMargin + extent(columns, figure.panel_width),
          top + extent(rows, figure.panel_height) + kMargin};
}

void draw_figure(Canvas& canvas, const Figure& figure, const Layout& layout) {
  canvas.rect({0, 0, layout.width, layout.height}, kPaper);
  if (!figure.title.empty())
    canvas.text({kMargin, kMargin + cap_height(kHeading)},
                fit_text(figure.title, kHeading, layout.width - 2 * kMargin, /*bold=*/true),
                {.size = kHeading, .bold = true});
  for (size_t i = 0; i < figure.panels.size(); ++i) {
    const size_t row = i / layout.columns, column = i % layout.columns;
    const Rect panel{kMargin + static_cast<double>(column) * (figure.panel_width + kGap),
                     layout.top + static_cast<double>(row) * (figure.panel_height + kGap),
                     figure.panel_width, figure.panel_height};
    std::visit([&](const auto& chart) { draw(canvas, panel, chart); }, figure.panels[i]);
  }
}

std::string label_of(const Figure& figure) {
  if (!figure.title.empty() || figure.panels.empty()) return figure.title;
  return std::visit([](const auto& chart) { return chart.title; }, figure.panels[0]);
}

}  // namespace

std::string to_svg(const Figure& figure) {
  const Layout layout = layout_of(figure);
  SvgCanvas canvas(layout.width, layout.height, label_of(figure));
  draw_figure(canvas, figure, layout);
  return canvas.svg();
}

std::vector<uint8_t> to_png(const Figure& figure, double scale) {
  const Layout layout = layout_of(figure);
  RasterCanvas canvas(layout.width, layout.height, scale);
  draw_figure(canvas, figure, layout);
  return encode_png(canvas.image());
}

void save(const Figure& figure, const std::filesystem::path& path) {
  if (path.extension() == ".svg") return write_file(path, to_svg(figure));
  TEMPERA_CHECK(path.extension() == ".png", "cannot save a figure as ", path.string(),
                ": a name that ends in .svg or .png expected");
  const std::vector<uint8_t> bytes = to_png(figure);
  write_file(path, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

}  // namespace tempera::plot
