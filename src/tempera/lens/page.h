#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace tempera::lens {

// Whether the scripts of the page were built in. Throws, saying what was missing, where not.
void require_page();

// A whole page with its data: one file that asks for nothing from anywhere.
std::string offline_page(const nlohmann::ordered_json& data, const std::string& title);
// The same for a page that asks the server it comes from.
std::string live_page(const nlohmann::ordered_json& data, const std::string& title);

// 32 random hexadecimal digits, which nobody guesses.
std::string random_name();

}  // namespace tempera::lens
