#include "tempera/lens/page.h"

#include <array>
#include <cstdio>
#include <random>

#include "tempera/base/error.h"
#include "tempera/lens/bundle.h"
#include "tempera/plot/svg.h"

namespace tempera::lens {
namespace {

// JSON in a script element ends at the first "</script", so that no "<" may be in it.
std::string without_markup(const nlohmann::ordered_json& data) {
  const std::string json =
      data.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  std::string safe;
  safe.reserve(json.size());
  for (const char c : json) {
    if (c == '<')
      safe += "\\u003c";
    else
      safe += c;
  }
  return safe;
}

// The nonce names the one script and the one style that the page may use.
std::string page_of(const nlohmann::ordered_json& data, const std::string& title,
                    std::string_view more_policy) {
  require_page();
  const std::string nonce = random_name();
  return concat(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src "
      "'nonce-",
      nonce, "'; style-src 'nonce-", nonce, "'; base-uri 'none'; form-action 'none'", more_policy,
      "\">\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>",
      plot::escape_xml(title), "</title>\n<style nonce=\"", nonce, "\">", page_style(),
      "</style>\n</head>\n<body>\n<noscript>This page needs JavaScript.</noscript>\n"
      "<main id=\"page\"></main>\n<script type=\"application/json\" id=\"data\">",
      without_markup(data), "</script>\n<script nonce=\"", nonce, "\">", page_script(),
      "</script>\n</body>\n</html>\n");
}

}  // namespace

void require_page() {
  TEMPERA_CHECK(!page_script().empty(),
                "this tempera was built without its page: esbuild and tsc (Debian: esbuild, "
                "node-typescript) were not there; install them and build again, or use --png, "
                "--svg or --json");
}

std::string random_name() {
  std::random_device source;
  std::string name;
  for (int i = 0; i < 4; ++i) {
    std::array<char, 9> digits{};
    std::snprintf(digits.data(), digits.size(), "%08x", source());
    name += digits.data();
  }
  return name;
}

std::string offline_page(const nlohmann::ordered_json& data, const std::string& title) {
  return page_of(data, title, "");
}

std::string live_page(const nlohmann::ordered_json& data, const std::string& title) {
  return page_of(data, title, "; connect-src 'self'");
}

}  // namespace tempera::lens
