#include "tempera/text/jinja/template.h"

#include <gtest/gtest.h>

#include <string>

#include "tempera/base/error.h"

namespace tempera::text {
namespace {

using Json = nlohmann::ordered_json;

std::string render(std::string_view source, const Json& variables = Json::object()) {
  return Template(source, "test").render(variables).text;
}

// The message of the refusal; empty if there is none.
std::string refusal(std::string_view source, const Json& variables = Json::object(),
                    TemplateLimits limits = {}) {
  try {
    Template(source, "test", limits).render(variables);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Template, PrintsValuesAsPythonDoes) {
  EXPECT_EQ(render("{{ true }} {{ none }} {{ 1.0 }} {{ [1, 'a', none] }} {{ missing }}"),
            "True None 1.0 [1, 'a', None] ");
  EXPECT_EQ(render("{{ x }}", {{"x", {1e16, 1e-5, 0.1, 100.0}}}), "[1e+16, 1e-05, 0.1, 100.0]");
  EXPECT_EQ(render("{{ x }}", {{"x", {"it's", "a\n\x01"}}}), "[\"it's\", 'a\\n\\x01']");
}

TEST(Template, KeepsTheOrderOfKeys) {
  const Json variables{{"x", {{"z", 1}, {"a", {{"b", nullptr}}}}}};
  EXPECT_EQ(render("{{ x | tojson }}", variables), R"({"z": 1, "a": {"b": null}})");
  EXPECT_EQ(render("{{ x | tojson(indent=1) }}", variables),
            "{\n \"z\": 1,\n \"a\": {\n  \"b\": null\n }\n}");
}

TEST(Template, TakesBlanksAroundTags) {
  EXPECT_EQ(render("a\n  {% if true %}\n  b\n  {% endif %}\nc\n"), "a\n  b\nc");
  EXPECT_EQ(render("a {{- 1 -}} \n b"), "a1b");
  EXPECT_EQ(render(" {%+ if true +%}\nx{% endif %}"), " \nx");
  EXPECT_EQ(render("{{ 1 }}\n"), "1");
  EXPECT_EQ(render("{{ 1 }}\n\n"), "1\n");
}

TEST(Template, CountsCharactersAndNotBytes) {
  EXPECT_EQ(render("{{ x | length }} {{ x[1] }} {{ x[::-1] }}", {{"x", "aä漢"}}), "3 ä 漢äa");
}

TEST(Template, LoopsHaveTheirOwnVariables) {
  EXPECT_EQ(
      render("{% set n = 1 %}{% for x in [1, 2] %}{% set n = n + x %}{{ n }},{% endfor %}{{ n }}"),
      "2,3,1");
  EXPECT_EQ(render("{% set ns = namespace(n=1) %}{% for x in [1, 2] %}{% set ns.n = ns.n + x %}"
                   "{% endfor %}{{ ns.n }}"),
            "4");
}

TEST(Template, MarksWhatTheModelSays) {
  const auto rendered =
      Template("a{% generation %}b{{ 1 }}{% endgeneration %}c", "test").render(Json::object());
  EXPECT_EQ(rendered.text, "ab1c");
  EXPECT_EQ(rendered.generated, (std::vector<TextSpan>{{1, 3}}));
}

TEST(Template, TellsTheLineOfAFault) {
  EXPECT_EQ(refusal("a\n{% iff x %}"),
            "test, line 2: the block 'iff' is not supported here; did you mean 'if'?");
  EXPECT_EQ(refusal("\n\n{{ a.b.c }}"), "test, line 3: 'a' is undefined");
  EXPECT_EQ(refusal("{{ x.y.z }}", {{"x", Json::object()}}),
            "test, line 1: 'dict object' has no attribute 'y'");
  EXPECT_EQ(refusal("{{ x | trimm }}"),
            "test, line 1: the filter 'trimm' is not supported; did you mean 'trim'?");
  EXPECT_EQ(refusal("{{ raise_exception('no ' ~ 1) }}"),
            "test, line 1: the template refuses this: no 1");
}

TEST(Template, RefusesToChangeValues) {
  EXPECT_NE(refusal("{{ x.append(1) }}", {{"x", {1}}}).find("would change a list"),
            std::string::npos);
  EXPECT_EQ(render("{{ x.append is defined }}", {{"x", {1}}}), "False");
}

TEST(Template, StopsWhatWouldNotEnd) {
  const auto refused = [](std::string_view source, std::string_view reason) {
    const std::string message = refusal(source, Json::object(), {.steps = 1'000'000});
    EXPECT_NE(message.find(reason), std::string::npos) << source << ": " << message;
  };
  refused("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
          "steps");
  refused("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "deeper");
  refused(
      "{% set ns = namespace(x='abcdefgh') %}{% for i in range(99) %}{% set ns.x = ns.x ~ ns.x "
      "%}{% endfor %}",
      "more than");
  refused("{{ 'x' * 99999999999 }}", "bytes");
  refused(
      "{% set ns = namespace(x=[]) %}{% for i in range(999) %}{% set ns.x = [ns.x] %}{% endfor %}",
      "deeper");
  refused(
      "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% "
      "endfor %}"
      "{{ ns.x }}",
      "more than");
  refused("{{ " + std::string(5000, '(') + "1" + std::string(5000, ')') + " }}", "deeper");
  refused("{{ " + std::string(5000, '-') + "1 }}", "deeper");
  std::string sum = "1";
  for (int i = 0; i < 5000; ++i) sum += " + 1";
  refused("{{ " + sum + " }}", "deeper");
  std::string blocks;
  for (int i = 0; i < 5000; ++i) blocks += "{% if true %}";
  refused(blocks, "deeper");
  refused("{{ 9223372036854775807 + 1 }}", "64 bits");
  refused("{{ -9223372036854775807 - 2 }}", "64 bits");
  refused("{{ (-9223372036854775807 - 1) // -1 }}", "64 bits");
  refused("{{ 10 ** 99 }}", "64 bits");
}

TEST(Template, RefusesWhatIsTooLongOrNoText) {
  EXPECT_NE(refusal("0123456789", Json::object(), {.source_bytes = 9}).find("at most 9"),
            std::string::npos);
  EXPECT_NE(refusal("{{ x }}{{ x }}", {{"x", "01234"}}, {.output_bytes = 9}).find("more than 9"),
            std::string::npos);
  EXPECT_NE(refusal("\xff").find("UTF-8"), std::string::npos);
  EXPECT_NE(refusal("", {{"x", "\xff"}}).find("UTF-8"), std::string::npos);
}

TEST(Template, NoNamespaceHoldsItself) {
  for (const char* source :
       {"{% set ns = namespace() %}{% set ns.a = ns %}",
        "{% set ns = namespace() %}{% set ns.a = [{'x': ns}] %}",
        "{% set ns = namespace() %}{% for x in [ns] %}{% set ns.a = loop %}{% endfor %}",
        "{% set ns = namespace() %}{% set ns.a = [ns].index %}"})
    EXPECT_NE(refusal(source).find("namespace cannot hold"), std::string::npos) << source;
}

}  // namespace
}  // namespace tempera::text
