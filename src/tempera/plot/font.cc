#include "tempera/plot/font.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numbers>
#include <string>

#include "tempera/plot/glyphs.h"

namespace tempera::plot {
namespace {

constexpr double kEm = 10;
// Thicker strokes need more air between the letters, as bold faces have.
constexpr double kBoldSpacing = 1.07;

double units_to_size(double size, bool bold) { return size / kEm * (bold ? kBoldSpacing : 1); }

// Shown for every character the font lacks, so that its absence is seen.
constexpr Glyph kMissing{U'\ufffd', 6.0, "M.9 0 L.9 7 L5.1 7 L5.1 0 L.9 0"};

// The next code point; a byte that is not UTF-8 counts as one unknown character.
char32_t next_code(std::string_view& text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = byte(0);
  const size_t length = lead < 0x80           ? 1
                        : (lead >> 5) == 6    ? 2
                        : (lead >> 4) == 0xe  ? 3
                        : (lead >> 3) == 0x1e ? 4
                                              : 0;
  char32_t code = length == 1 ? lead : lead & (0x7fu >> length);
  bool good = length != 0 && length <= text.size();
  for (size_t i = 1; good && i < length; ++i) {
    good = (byte(i) & 0xc0) == 0x80;
    code = (code << 6) | (byte(i) & 0x3f);
  }
  text.remove_prefix(good ? length : 1);
  return good ? code : U'\ufffd';
}

const Glyph& find_glyph(char32_t code) {
  const auto all = glyphs();
  const auto found = std::lower_bound(
      all.begin(), all.end(), code, [](const Glyph& glyph, char32_t c) { return glyph.code < c; });
  return found != all.end() && found->code == code ? *found : kMissing;
}

// Follows a glyph's pen and leaves its strokes in em units, y upwards.
class Pen {
 public:
  explicit Pen(std::string_view path) : at_(path.data()), end_(at_ + path.size()) {
    while (at_ < end_) step();
  }
  const std::vector<std::vector<Point>>& strokes() const { return strokes_; }

 private:
  void step() {
    const char command = *at_++;
    if (command == 'M') {
      strokes_.emplace_back();
      push(read_point());
    } else if (command == 'L') {
      push(read_point());
    } else if (command == 'Q') {
      const Point control = read_point();
      curve(control, read_point());
    } else if (command == 'O') {
      strokes_.emplace_back();
      arc();
    } else if (command == 'A') {
      arc();
    }
  }

  double number() {
    while (at_ < end_ && *at_ == ' ') ++at_;
    double value = 0;
    at_ = std::from_chars(at_, end_, value).ptr;
    return value;
  }
  Point read_point() {
    const double x = number();
    return {x, number()};
  }
  void push(Point point) { strokes_.back().push_back(point); }

  void curve(Point control, Point to) {
    const Point from = strokes_.back().back();
    constexpr int kPieces = 8;
    for (int i = 1; i <= kPieces; ++i) {
      const double t = static_cast<double>(i) / kPieces, s = 1 - t;
      push({s * s * from.x + 2 * s * t * control.x + t * t * to.x,
            s * s * from.y + 2 * s * t * control.y + t * t * to.y});
    }
  }

  void arc() {
    const Point centre = read_point(), radius = read_point(), range = read_point();
    const int pieces = std::max(4, static_cast<int>(std::abs(range.y - range.x) / 15));
    for (int i = 0; i <= pieces; ++i) {
      const double degrees = range.x + (range.y - range.x) * i / pieces;
      const double angle = degrees * std::numbers::pi / 180;
      push({centre.x + radius.x * std::cos(angle), centre.y + radius.y * std::sin(angle)});
    }
  }

  const char* at_;
  const char* end_;
  std::vector<std::vector<Point>> strokes_;
};

}  // namespace

double text_width(std::string_view utf8, double size, bool bold) {
  double width = 0;
  while (!utf8.empty()) width += find_glyph(next_code(utf8)).advance;
  return width * units_to_size(size, bold);
}

double cap_height(double size) { return 0.72 * size; }

double pen_width(double size, bool bold) { return size * (bold ? 0.125 : 0.085); }

std::vector<std::vector<Point>> text_strokes(std::string_view utf8, double size, bool bold) {
  std::vector<std::vector<Point>> strokes;
  const double scale = size / kEm;
  double x = 0;
  while (!utf8.empty()) {
    const Glyph& glyph = find_glyph(next_code(utf8));
    const Pen pen(glyph.path);
    for (std::vector<Point> stroke : pen.strokes()) {
      for (Point& point : stroke) point = {x + point.x * scale, -point.y * scale};
      strokes.push_back(std::move(stroke));
    }
    x += glyph.advance * units_to_size(size, bold);
  }
  return strokes;
}

std::string fit_text(std::string_view utf8, double size, double width, bool bold) {
  if (text_width(utf8, size, bold) <= width) return std::string(utf8);
  const std::string ellipsis = "\u2026";
  const double room = width - text_width(ellipsis, size, bold);
  std::string_view rest = utf8;
  double used = 0;
  while (!rest.empty()) {
    std::string_view after = rest;
    used += find_glyph(next_code(after)).advance * units_to_size(size, bold);
    if (used > room) break;
    rest = after;
  }
  return std::string(utf8.substr(0, utf8.size() - rest.size())) + ellipsis;
}

}  // namespace tempera::plot
