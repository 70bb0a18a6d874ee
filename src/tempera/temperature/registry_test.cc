#include "tempera/temperature/registry.h"

#include <gtest/gtest.h>

#include <set>

#include "tempera/base/error.h"
#include "tempera/base/testing.h"
#include "tempera/ops/torch.h"
#include "tempera/temperature/method_text.h"
#include "tempera/temperature/register.h"
#include "tempera/temperature/testing_layer.h"

namespace tempera {
namespace {

TEST(Registry, EntriesAreComplete) {
  std::set<std::string> names;
  for (const auto& entry : method_registry()) {
    EXPECT_TRUE(names.insert(entry.name).second) << entry.name;
    EXPECT_FALSE(entry.formula.empty() || entry.help.empty() || entry.variants.empty());
    for (const auto& option : entry.options) EXPECT_FALSE(option.help.empty()) << option.name;
    const auto specs = method_specs(entry.name, {}, Origin::kScratch);
    const auto method = make_method(specs, tiny_shape());
    EXPECT_EQ(method->specs(), specs);
    for (const auto& parameter : method->named_parameters()) {
      ASSERT_TRUE(method->rates().contains(parameter.key())) << entry.name;
      EXPECT_GT(method->rates().at(parameter.key()), 0) << entry.name;
    }
  }
  EXPECT_TRUE(names.contains("softmax"));
}

TEST(Registry, WhatALoadedModelLearnsStartsAsPlainAttention) {
  for (const auto& entry : method_registry()) {
    const auto made = make_method(method_specs(entry.name, {}, Origin::kLoaded), tiny_shape());
    if (made->parameter_count() == 0) continue;
    ASSERT_TRUE(entry.plain) << entry.name;
    EXPECT_EQ(method_specs(entry.name, {}, Origin::kLoaded),
              method_specs(entry.name, *entry.plain, Origin::kScratch));
  }
  const auto specs = method_specs("ssa", {}, Origin::kLoaded);
  EXPECT_EQ(text_option(specs[0].options, "g"), "linear");
  EXPECT_EQ(text_option(method_specs("ssa", {}, Origin::kScratch)[0].options, "g"), "sigmoid");
}

TEST(Registry, UnknownNamesGetTheNearestOne) {
  EXPECT_NE(message_of<UsageError>([] { find_method("focl"); }).find("focal"), std::string::npos);
  EXPECT_NE(message_of<UsageError>([] { split_methods("head,valu"); }).find("value"),
            std::string::npos);
  const auto message = message_of<UsageError>([] {
    method_specs("ssa", {{"alfa0", 1.0}}, Origin::kScratch);
  });
  EXPECT_NE(message.find("alpha0"), std::string::npos) << message;
  EXPECT_NE(message_of<UsageError>([] { split_methods("head,head"); }).find("twice"),
            std::string::npos);
  EXPECT_NE(message_of<UsageError>([] { split_methods(""); }), "");
  EXPECT_NE(message_of<UsageError>([] { split_methods("head,"); }), "");
}

TEST(Registry, MethodsOfOtherLibrariesAreRefusedWhereIncompleteOrTaken) {
  const auto refusal = [](MethodEntry entry) {
    return message_of<Error>([&] { register_method(std::move(entry)); });
  };
  const size_t known = method_registry().size();
  MethodEntry entry = find_method("head");
  EXPECT_NE(refusal(entry).find("already"), std::string::npos);
  entry.name = "my head";
  EXPECT_NE(refusal(entry).find("no name"), std::string::npos);
  entry.name = "my-head";
  entry.help.clear();
  EXPECT_NE(refusal(entry).find("lacks"), std::string::npos);
  EXPECT_EQ(method_registry().size(), known);
}

TEST(Registry, WrongValuesAreRefused) {
  const auto refused = [](const std::string& method, const std::string& name,
                          const config::Value& value) {
    return !message_of<UsageError>([&] {
              method_specs(method, {{name, value}}, Origin::kScratch);
            }).empty();
  };
  EXPECT_TRUE(refused("focal", "t", 0.0));
  EXPECT_TRUE(refused("focal", "t", std::nan("")));
  EXPECT_TRUE(refused("focal", "t", std::string("sharp")));
  EXPECT_TRUE(refused("focal", "t", true));
  EXPECT_TRUE(refused("ssa", "f", std::string("shard")));
  EXPECT_TRUE(refused("llama4", "floor", 0.5));
  EXPECT_TRUE(refused("llama4", "floor", int64_t{0}));
}

TEST(Registry, NumbersComeInEveryForm) {
  const auto t = [](const config::Value& value) {
    return real_option(method_specs("focal", {{"t", value}}, Origin::kScratch)[0].options, "t");
  };
  EXPECT_EQ(t(int64_t{1}), 1.0);
  EXPECT_EQ(t(std::string("0.7")), 0.7);
  const auto specs = method_specs("llama4", {{"floor", 4096.0}}, Origin::kScratch);
  EXPECT_EQ(int_option(specs[0].options, "floor"), 4096);
}

TEST(Registry, AProductHasTheOptionsOfItsParts) {
  const auto declarations = method_declarations("focal+llama4", Origin::kScratch);
  ASSERT_EQ(declarations.size(), 4U);
  EXPECT_EQ(declarations[0].name, "t");
  const auto specs = method_specs("focal+llama4", {{"t", 0.5}, {"beta", 0.2}}, Origin::kScratch);
  ASSERT_EQ(specs.size(), 2U);
  EXPECT_EQ(real_option(specs[0].options, "t"), 0.5);
  EXPECT_EQ(real_option(specs[1].options, "beta"), 0.2);
  const auto method = make_method(specs, tiny_shape());
  EXPECT_EQ(method->specs(), specs);
}

TEST(MethodText, HasOptionsAndProducts) {
  const auto parsed = parse_method_text("focal+llama4:t=0.5:beta=0.2", "--x", Origin::kScratch);
  const auto specs = method_specs(parsed.methods, parsed.options, Origin::kScratch);
  EXPECT_EQ(real_option(specs[0].options, "t"), 0.5);
  EXPECT_EQ(real_option(specs[1].options, "beta"), 0.2);
  const auto refusal = [](const char* text) {
    return message_of<UsageError>([&] { parse_method_text(text, "--x", Origin::kScratch); });
  };
  EXPECT_NE(refusal("focal:t").find("--x: 't' in 'focal:t'; OPTION=VALUE"), std::string::npos);
  EXPECT_NE(refusal("focal:=2"), "");
  EXPECT_NE(refusal("focal:tt=2").find("'t'"), std::string::npos);
  EXPECT_NE(refusal("focal:t=high"), "");
  EXPECT_NE(refusal("focl"), "");
}

TEST(MethodText, ProductsKeepTheOptionsOfTheirParts) {
  const auto product =
      product_of({{"log-n", {{"length", std::string("8")}}},
                  {"focal+yarn", {{"length", std::string("16")}, {"t", std::string("0.5")}}}});
  const auto specs = method_specs(product.methods, product.options, Origin::kScratch);
  ASSERT_EQ(specs.size(), 3U);
  EXPECT_EQ(int_option(specs[0].options, "length"), 8);
  EXPECT_EQ(real_option(specs[1].options, "t"), 0.5);
  EXPECT_EQ(int_option(specs[2].options, "length"), 16);
}

TEST(Registry, ImpossibleLayersAreRefused) {
  auto shape = tiny_shape();
  shape.kv_heads = 3;
  EXPECT_THROW(make_method({{"head", {}}}, shape), Error);
  EXPECT_THROW(make_method({}, tiny_shape()), Error);
}

}  // namespace
}  // namespace tempera
