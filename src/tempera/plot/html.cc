#include "tempera/plot/html.h"

#include "tempera/base/error.h"
#include "tempera/base/files.h"
#include "tempera/plot/svg.h"
#include "tempera/plot/ticks.h"

namespace tempera::plot {
namespace {

// The tp- rules restyle the charts' theme colours, see SvgCanvas.
constexpr std::string_view kStyle = R"(
:root { color-scheme: light dark; --paper: #ffffff; --ink: #1f2430; --muted: #5b6272; --grid: #e2e5eb; --shade: #f5f6f9; }
@media (prefers-color-scheme: dark) {
  :root { --paper: #16181d; --ink: #e7e9ee; --muted: #a3aab8; --grid: #343945; --shade: #1f222a; }
}
body { margin: 0; background: var(--paper); color: var(--ink); font: 16px/1.55 Helvetica, Arial, 'Liberation Sans', sans-serif; }
main { max-width: 70rem; margin: 0 auto; padding: 2rem 1.25rem 4rem; }
h1 { font-size: 1.8rem; line-height: 1.2; margin: 0 0 1.25rem; }
h2 { font-size: 1.25rem; margin: 2.25rem 0 .75rem; }
p, ul, pre { max-width: 46rem; }
pre { background: var(--shade); padding: .75rem 1rem; border-radius: 6px; overflow-x: auto; font-size: .85rem; }
.scroll { overflow-x: auto; margin: 1.25rem 0; }
table { border-collapse: collapse; font-size: .92rem; }
caption { text-align: left; color: var(--muted); padding-bottom: .5rem; }
th, td { padding: .35rem .9rem; text-align: left; border-bottom: 1px solid var(--grid); white-space: nowrap; }
thead th { border-bottom: 2px solid var(--muted); }
.number { text-align: right; font-variant-numeric: tabular-nums; }
figure { margin: 1.5rem 0; }
figure svg { max-width: 100%; height: auto; }
figcaption { color: var(--muted); font-size: .9rem; max-width: 46rem; }
.tp-paper { fill: var(--paper); } .tp-ink { fill: var(--ink); } .tp-muted { fill: var(--muted); } .tp-grid { fill: var(--grid); }
.tp-ink-line { stroke: var(--ink); } .tp-muted-line { stroke: var(--muted); } .tp-grid-line { stroke: var(--grid); }
@media print { main { max-width: none; padding: 0; } figure, table { break-inside: avoid; } }
)";

std::string element(std::string_view tag, std::string_view text) {
  return concat("<", tag, ">", escape_xml(text), "</", tag, ">\n");
}

// A column's heading stands over its numbers.
bool is_number_column(const Table& table, size_t column) {
  return !table.rows.empty() && table.rows[0][column].number;
}

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

HtmlReport::HtmlReport(std::string_view title) : title_(title) {}

void HtmlReport::heading(std::string_view text) { body_ += element("h2", text); }

void HtmlReport::paragraph(std::string_view text) { body_ += element("p", text); }

void HtmlReport::list(const std::vector<std::string>& items) {
  body_ += "<ul>\n";
  for (const std::string& item : items) body_ += element("li", item);
  body_ += "</ul>\n";
}

void HtmlReport::code(std::string_view text) { body_ += element("pre", text); }

void HtmlReport::table(const Table& table) {
  for (const auto& row : table.rows)
    TEMPERA_CHECK(row.size() == table.header.size(), "table '", table.caption, "': a row of ",
                  row.size(), " cells given under a header of ", table.header.size());
  body_ += "<div class=\"scroll\"><table>\n";
  if (!table.caption.empty()) body_ += element("caption", table.caption);
  body_ += "<thead><tr>";
  for (size_t i = 0; i < table.header.size(); ++i)
    body_ += concat("<th scope=\"col\"", is_number_column(table, i) ? " class=\"number\">" : ">",
                    escape_xml(table.header[i]), "</th>");
  body_ += "</tr></thead>\n<tbody>\n";
  for (const auto& row : table.rows) {
    body_ += "<tr>";
    for (const Cell& cell : row)
      body_ +=
          concat("<td", cell.number ? " class=\"number\">" : ">", cell.strong ? "<strong>" : "",
                 escape_xml(cell.text), cell.strong ? "</strong></td>" : "</td>");
    body_ += "</tr>\n";
  }
  body_ += "</tbody></table></div>\n";
}

void HtmlReport::figure(const Figure& figure, std::string_view caption) {
  body_ += "<figure>\n" + to_svg(figure);
  if (!caption.empty()) body_ += element("figcaption", caption);
  body_ += "</figure>\n";
}

std::string HtmlReport::html() const {
  return concat(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n",
      element("title", title_), "<style>", kStyle, "</style>\n</head>\n<body>\n<main>\n",
      element("h1", title_), body_, "</main>\n</body>\n</html>\n");
}

void HtmlReport::save(const std::filesystem::path& path) const { write_file(path, html()); }

}  // namespace tempera::plot
