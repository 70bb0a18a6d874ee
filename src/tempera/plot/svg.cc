#include "tempera/plot/svg.h"

#include <array>
#include <charconv>
#include <vector>

#include "tempera/base/base64.h"
#include "tempera/base/error.h"
#include "tempera/plot/raster.h"

namespace tempera::plot {
namespace {

// More cells than this go in as one embedded picture: an element for each would be megabytes.
constexpr size_t kMostCellElements = 1024;

// Two decimals at most: far below a pixel.
std::string number(double value) {
  std::array<char, 64> buffer;
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                 std::chars_format::fixed, 2);
  TEMPERA_CHECK(end.ec == std::errc(), "svg: coordinate ", value, " is too large");
  std::string text(buffer.data(), end.ptr);
  while (text.back() == '0') text.pop_back();
  if (text.back() == '.') text.pop_back();
  return text == "-0" ? "0" : text;
}

std::string role_name(Color color) {
  switch (color.role) {
    case Role::kPaper:
      return "tp-paper";
    case Role::kInk:
      return "tp-ink";
    case Role::kMuted:
      return "tp-muted";
    case Role::kGrid:
      return "tp-grid";
    case Role::kSeries:
      return "tp-series-" + std::to_string(color.series + 1);
    case Role::kFixed:
      break;
  }
  return "";
}

std::string join(std::span<const Point> points) {
  std::string text;
  for (const Point& p : points) {
    if (!text.empty()) text += ' ';
    text += number(p.x) + ',' + number(p.y);
  }
  return text;
}

// Length of the UTF-8 sequence that starts the text, or 0 if it is none that XML can carry.
size_t xml_character(std::string_view text) {
  const auto byte = [&](size_t i) -> uint32_t {
    return i < text.size() ? static_cast<uint8_t>(text[i]) : 0u;
  };
  const uint32_t lead = byte(0);
  if (lead < 0x80) return lead >= 0x20 || lead == '\t' || lead == '\n' || lead == '\r' ? 1 : 0;
  const size_t length = lead >= 0xc2 && lead < 0xe0   ? 2
                        : lead >= 0xe0 && lead < 0xf0 ? 3
                        : lead >= 0xf0 && lead < 0xf5 ? 4
                                                      : 0;
  if (length == 0) return 0;
  uint32_t code = lead & (0x7fu >> length);
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
    code = code << 6 | (byte(i) & 0x3f);
  }
  const bool overlong = (length == 3 && code < 0x800) || (length == 4 && code < 0x10000);
  const bool forbidden =
      (code >= 0xd800 && code < 0xe000) || code > 0x10ffff || (code & 0xfffe) == 0xfffe;
  return overlong || forbidden ? 0 : length;
}

}  // namespace

std::string escape_xml(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const size_t length = xml_character(text);
    if (length == 0) {
      out += "\ufffd";
    } else if (text[0] == '&') {
      out += "&amp;";
    } else if (text[0] == '<') {
      out += "&lt;";
    } else if (text[0] == '>') {
      out += "&gt;";
    } else if (text[0] == '"') {
      out += "&quot;";
    } else if (text[0] == '\'') {
      out += "&#39;";
    } else {
      out += text.substr(0, length);
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return out;
}

SvgCanvas::SvgCanvas(double width, double height, std::string_view label) {
  body_ = "<svg xmlns=\"http://www.w3.org/2000/svg\" xmlns:xlink=\"http://www.w3.org/1999/xlink\"";
  attribute("width", width);
  attribute("height", height);
  body_ += " viewBox=\"0 0 " + number(width) + ' ' + number(height) +
           "\" font-family=\"Helvetica, Arial, 'Liberation Sans', sans-serif\" role=\"img\" "
           "aria-label=\"" +
           escape_xml(label) + "\">\n";
}

void SvgCanvas::attribute(std::string_view name, double value) {
  body_ += ' ';
  body_ += name;
  body_ += "=\"" + number(value) + '"';
}

void SvgCanvas::paint(std::string_view property, Color color) {
  const std::string property_name(property);
  body_ += ' ' + property_name + "=\"" + hex(color) + '"';
  if (color.role != Role::kFixed)
    body_ += " class=\"" + role_name(color) + (property == "stroke" ? "-line\"" : "\"");
  if (color.alpha < 1) attribute(property_name + "-opacity", color.alpha);
}

void SvgCanvas::polyline(std::span<const Point> points, const Stroke& stroke) {
  if (points.empty()) return;
  body_ += "<polyline points=\"" + join(points) + "\" fill=\"none\"";
  paint("stroke", stroke.color);
  attribute("stroke-width", stroke.width);
  if (!stroke.dashes.empty()) {
    body_ += " stroke-dasharray=\"";
    for (const double length : stroke.dashes) body_ += number(length) + ' ';
    body_.back() = '"';
  }
  body_ += " stroke-linecap=\"round\" stroke-linejoin=\"round\"/>\n";
}

void SvgCanvas::polygon(std::span<const Point> points, Color fill) {
  if (points.size() < 3) return;
  body_ += "<polygon points=\"" + join(points) + "\" fill-rule=\"evenodd\"";
  paint("fill", fill);
  body_ += "/>\n";
}

void SvgCanvas::rect(const Rect& rect, Color fill) {
  body_ += "<rect";
  attribute("x", rect.x);
  attribute("y", rect.y);
  attribute("width", rect.width);
  attribute("height", rect.height);
  paint("fill", fill);
  body_ += "/>\n";
}

void SvgCanvas::circle(Point centre, double radius, Color fill) {
  body_ += "<circle";
  attribute("cx", centre.x);
  attribute("cy", centre.y);
  attribute("r", radius);
  paint("fill", fill);
  body_ += "/>\n";
}

void SvgCanvas::text(Point at, std::string_view utf8, const TextStyle& style) {
  body_ += "<text";
  attribute("x", at.x);
  attribute("y", at.y);
  attribute("font-size", style.size);
  if (style.anchor != Anchor::kStart)
    body_ += style.anchor == Anchor::kMiddle ? " text-anchor=\"middle\"" : " text-anchor=\"end\"";
  if (style.bold) body_ += " font-weight=\"bold\"";
  if (style.degrees != 0)
    body_ += " transform=\"rotate(" + number(style.degrees) + ' ' + number(at.x) + ' ' +
             number(at.y) + ")\"";
  paint("fill", style.color);
  body_ += '>' + escape_xml(utf8) + "</text>\n";
}

void SvgCanvas::cells(const Rect& rect, size_t rows, size_t columns,
                      std::span<const Color> colors) {
  TEMPERA_CHECK(colors.size() == rows * columns, "cells: ", colors.size(), " colours given for ",
                rows, " x ", columns);
  if (colors.empty()) return;
  if (colors.size() <= kMostCellElements) {
    body_ += "<g shape-rendering=\"crispEdges\">\n";
    const double width = rect.width / static_cast<double>(columns);
    const double height = rect.height / static_cast<double>(rows);
    for (size_t i = 0; i < colors.size(); ++i) {
      const size_t row = i / columns, column = i % columns;
      this->rect({rect.x + width * static_cast<double>(column),
                  rect.y + height * static_cast<double>(row), width, height},
                 colors[i]);
    }
    body_ += "</g>\n";
    return;
  }
  Image image{columns, rows, {}};
  for (const Color& color : colors) image.rgb.insert(image.rgb.end(), {color.r, color.g, color.b});
  body_ += "<image";
  attribute("x", rect.x);
  attribute("y", rect.y);
  attribute("width", rect.width);
  attribute("height", rect.height);
  body_ +=
      " preserveAspectRatio=\"none\" style=\"image-rendering:pixelated\" "
      "xlink:href=\"data:image/png;base64," +
      encode_base64(encode_png(image)) + "\"/>\n";
}

// A nested svg element clips to its box without a clip path, whose id could clash with another
// chart's on the same page.
void SvgCanvas::begin_clip(const Rect& rect) {
  body_ += "<svg";
  attribute("x", rect.x);
  attribute("y", rect.y);
  attribute("width", rect.width);
  attribute("height", rect.height);
  body_ += " viewBox=\"" + number(rect.x) + ' ' + number(rect.y) + ' ' + number(rect.width) + ' ' +
           number(rect.height) + "\">\n";
}

void SvgCanvas::end_clip() { body_ += "</svg>\n"; }

}  // namespace tempera::plot
