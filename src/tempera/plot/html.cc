#include "tempera/plot/html.h"

#include <cctype>
#include <span>
#include <utility>

#include "tempera/base/base64.h"
#include "tempera/base/error.h"
#include "tempera/base/files.h"
#include "tempera/plot/csv.h"
#include "tempera/plot/style.h"
#include "tempera/plot/svg.h"
#include "tempera/plot/ticks.h"

namespace tempera::plot {
namespace {

// What a page may load: its own style and pictures inside it. No script runs, whoever wrote it.
constexpr std::string_view kPolicy =
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
    "form-action 'none'";

std::string element(std::string_view tag, std::string_view text) {
  return concat("<", tag, ">", escape_xml(text), "</", tag, ">\n");
}

// Sentences; what stands between two backticks is code.
std::string prose(std::string_view tag, std::string_view text) {
  std::string body;
  while (!text.empty()) {
    const size_t begin = text.find('`');
    const size_t end = begin == text.npos ? text.npos : text.find('`', begin + 1);
    if (end == text.npos) break;
    body += concat(escape_xml(text.substr(0, begin)), "<code>",
                   escape_xml(text.substr(begin + 1, end - begin - 1)), "</code>");
    text.remove_prefix(end + 1);
  }
  return concat("<", tag, ">", body, escape_xml(text), "</", tag, ">\n");
}

// A column's heading stands over its numbers.
bool is_number_column(const Table& table, size_t column) {
  return !table.rows.empty() && table.rows[0][column].number;
}

// A title as the name of a file: letters, digits and single dashes.
std::string file_name(std::string_view title) {
  constexpr size_t kLongest = 48;
  std::string name;
  for (const char c : title) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x80 && std::isalnum(byte))
      name += static_cast<char>(std::tolower(byte));
    else if (!name.empty() && name.back() != '-')
      name += '-';
    if (name.size() == kLongest) break;
  }
  while (name.ends_with('-')) name.pop_back();
  return name.empty() ? "figure" : name;
}

std::string save_link(const std::string& name, std::string_view kind, std::string_view type,
                      std::string_view content) {
  const std::span bytes(reinterpret_cast<const uint8_t*>(content.data()), content.size());
  return concat("<a download=\"", name, ".", kind, "\" href=\"data:", type,
                ";charset=utf-8;base64,", encode_base64(bytes), "\">",
                kind == "svg" ? "Save the figure (SVG)" : "Save its numbers (CSV)", "</a>");
}

class Writer {
 public:
  explicit Writer(const HtmlReport& report) : name_(file_name(report.title())) {
    for (const Block& block : report.blocks())
      std::visit([&](const auto& part) { put(part); }, block);
  }
  const std::string& body() const { return body_; }

 private:
  void put(const Summary& summary) {
    body_ += "<dl class=\"summary\">\n";
    if (!summary.asked.empty())
      body_ += element("dt", "What was asked") + element("dd", summary.asked);
    if (!summary.answer.empty())
      body_ += concat(element("dt", "The answer"), "<dd class=\"answer\">",
                      escape_xml(summary.answer), "</dd>\n");
    if (!summary.not_shown.empty()) {
      body_ += element("dt", "What it does not show") + "<dd>";
      put(List{summary.not_shown});
      body_ += "</dd>\n";
    }
    body_ += "</dl>\n";
  }
  void put(const Heading& heading) {
    const std::string tag = concat("h", heading.level);
    if (heading.part == 0) {
      body_ += element(tag, heading.text);
    } else {
      body_ += concat("<", tag, " class=\"part\" id=\"part-", heading.part, "\">",
                      escape_xml(heading.text), "</", tag, ">\n");
    }
  }
  void put(const Paragraph& paragraph) { body_ += prose("p", paragraph.text); }
  void put(const List& list) {
    body_ += "<ul>\n";
    for (const std::string& item : list.items) body_ += prose("li", item);
    body_ += "</ul>\n";
  }
  void put(const Code& code) {
    if (!code.folded.empty()) body_ += "<details>" + element("summary", code.folded);
    body_ += element("pre", code.text);
    if (!code.folded.empty()) body_ += "</details>\n";
  }
  void put(const Table& table) {
    body_ += "<div class=\"scroll\"><table>\n";
    if (!table.caption.empty()) body_ += element("caption", table.caption);
    body_ += "<thead><tr>";
    for (size_t i = 0; i < table.header.size(); ++i)
      body_ += concat("<th scope=\"col\"", is_number_column(table, i) ? " class=\"number\">" : ">",
                      escape_xml(table.header[i]), "</th>");
    body_ += "</tr></thead>\n<tbody>\n";
    for (const auto& row : table.rows) {
      body_ += "<tr>";
      for (const Cell& cell : row) put(cell);
      body_ += "</tr>\n";
    }
    body_ += "</tbody></table></div>\n";
  }
  void put(const Cell& cell) {
    body_ += cell.number ? "<td class=\"number\">" : cell.wide ? "<td class=\"long\">" : "<td>";
    if (cell.strong) body_ += "<strong>";
    if (cell.part > 0) body_ += concat("<a href=\"#part-", cell.part, "\">");
    body_ += escape_xml(cell.text);
    if (cell.part > 0) body_ += "</a>";
    if (cell.strong) body_ += "</strong>";
    body_ += "</td>";
  }
  void put(const Picture& picture) {
    const std::string svg = to_svg(picture.figure);
    body_ += "<figure>\n" + svg;
    if (!picture.caption.empty()) body_ += element("figcaption", picture.caption);
    const std::string name = concat(name_, "-", ++figures_);
    body_ +=
        concat("<p class=\"save\">", save_link(name, "svg", "image/svg+xml", svg), " ",
               save_link(name, "csv", "text/csv", to_csv(picture.figure)), "</p>\n</figure>\n");
  }

  std::string name_, body_;
  size_t figures_ = 0;
};

}  // namespace

Cell Cell::of(std::string_view text) { return {.text = std::string(text)}; }

Cell Cell::of(double mean, std::optional<double> spread, int decimals) {
  std::string text = fixed_number(mean, decimals);
  if (spread) text += " \u00b1 " + fixed_number(*spread, decimals);
  return {.text = std::move(text), .number = true};
}

Cell Cell::emphasised() const {
  Cell cell = *this;
  cell.strong = true;
  return cell;
}

void HtmlReport::summary(Summary summary) { add(std::move(summary)); }

void HtmlReport::heading(std::string_view text, int level) {
  add(Heading{.text = std::string(text), .level = level});
}

void HtmlReport::part(std::string_view text, size_t n) {
  add(Heading{.text = std::string(text), .part = n});
}

void HtmlReport::paragraph(std::string_view text) { add(Paragraph{std::string(text)}); }

void HtmlReport::list(const std::vector<std::string>& items) { add(List{items}); }

void HtmlReport::code(std::string_view text) { add(Code{.text = std::string(text)}); }

void HtmlReport::table(const Table& table) {
  for (const auto& row : table.rows)
    TEMPERA_CHECK(row.size() == table.header.size(), "table '", table.caption, "': a row of ",
                  row.size(), " cells given under a header of ", table.header.size());
  add(table);
}

void HtmlReport::figure(const Figure& figure, std::string_view caption) {
  add(Picture{figure, std::string(caption)});
}

void HtmlReport::how_made(std::string_view program, std::string_view command,
                          std::string_view settings) {
  heading("How it was made");
  paragraph(concat(program, ", `", command, "`."));
  add(Code{.text = std::string(settings), .folded = "The settings"});
}

Summary HtmlReport::first_summary() const {
  for (const Block& block : blocks_)
    if (const auto* summary = std::get_if<Summary>(&block)) return *summary;
  return {};
}

std::string HtmlReport::html() const {
  return concat(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n", kGenerator,
      "\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"",
      kPolicy, "\"/>\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n",
      element("title", title_), "<style>", page_style(), "</style>\n</head>\n<body>\n<main>\n",
      element("h1", title_), Writer(*this).body(), "</main>\n</body>\n</html>\n");
}

void HtmlReport::save(const std::filesystem::path& path) const { write_file(path, html()); }

}  // namespace tempera::plot
