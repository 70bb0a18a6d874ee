#include "tempera/adapt/learn.h"

#include <gtest/gtest.h>

#include "tempera/base/error.h"
#include "tempera/base/testing.h"
#include "tempera/ops/torch.h"

namespace tempera::adapt {
namespace {

std::string refusal(const char* text) {
  return message_of<UsageError>([&] { parse_learn(text); });
}

TEST(Learn, ListsMethodsWithTheirOptionsAndNorm) {
  const Learn plain = parse_learn("head,value,norm");
  ASSERT_TRUE(plain.temperature);
  EXPECT_EQ(plain.temperature->method, "head,value");
  EXPECT_TRUE(plain.temperature->options.empty());
  EXPECT_TRUE(plain.norm);
  EXPECT_FALSE(parse_learn("norm").temperature);
  const Learn options = parse_learn("norm,ssa:k=true:slope0=0.5,head+value:by=layer");
  ASSERT_TRUE(options.temperature);
  EXPECT_EQ(options.temperature->method, "ssa,head+value");
  EXPECT_EQ(options.temperature->options,
            (MethodOptions{{"by", std::string("layer")}, {"k", true}, {"slope0", 0.5}}));
}

TEST(Learn, RefusesWhatIsUnknown) {
  EXPECT_NE(refusal("sssa").find("did you mean 'ssa'"), std::string::npos);
  EXPECT_NE(refusal("nrom").find("did you mean 'norm'"), std::string::npos);
  EXPECT_NE(refusal("head+valu").find("did you mean 'value'"), std::string::npos);
  EXPECT_NE(refusal("head,head").find("twice"), std::string::npos);
  EXPECT_NE(refusal("norm,norm").find("twice"), std::string::npos);
  EXPECT_NE(refusal("ssa:kk=true").find("'k'"), std::string::npos);
  EXPECT_NE(refusal("ssa:k").find("OPTION=VALUE"), std::string::npos);
  EXPECT_NE(refusal(""), "");
}

TEST(Learn, RefusesWhatHasNothingToLearn) {
  for (const char* text : {"focal", "log-n", "yarn+llama4", "softmax", "focal,norm",
                           "ssmax:learned=false:bias=false"}) {
    const std::string message = refusal(text);
    EXPECT_NE(message.find("nothing to learn"), std::string::npos) << text;
    EXPECT_NE(
        message.find("one or more of focal-learned, ssa, ssmax, slope, head, value, norm, rope"),
        std::string::npos)
        << message;
  }
  EXPECT_EQ(parse_learn("yarn,head").temperature->method, "yarn,head");
  EXPECT_NE(refusal("ssa:f=feature").find("how often"), std::string::npos);
}

nn::ModelConfig small_config(const std::string& method) {
  nn::ModelConfig config;
  config.vocabulary = 16;
  config.layers = 2;
  config.width = 16;
  config.heads = 2;
  config.mlp_size = 16;
  config.temperature.method = method;
  return config;
}

// By what a parameter does, whatever it is called.
TEST(Learn, RatesAreThoseThatTheMethodDeclares) {
  const auto model = nn::make_model(small_config("ssa+ssmax+focal-learned+head"), 1);
  const auto learned = freeze_others(*model, [](const nn::NamedParameter& parameter) {
    return parameter.kind == nn::ParameterKind::kTemperature || is_norm_gain(parameter);
  });
  const auto rate = [&](const std::string& end) {
    for (const auto& parameter : learned)
      if (parameter.name.ends_with(end)) return parameter.rate;
    throw Error("no parameter " + end);
  };
  EXPECT_EQ(rate("ssmax.slope"), 0.125);
  EXPECT_EQ(rate("ssa.q_slope"), 0.125);
  EXPECT_EQ(rate("ssa.v_w"), 0.1);
  EXPECT_EQ(rate("focal-learned.weight"), 0.1);
  EXPECT_EQ(rate("focal-learned.bias"), 1);
  EXPECT_EQ(rate("head.theta"), 1);
  EXPECT_EQ(rate("mlp_norm.weight"), 1);
  for (const auto& parameter : model->parameter_list())
    EXPECT_EQ(parameter.tensor.requires_grad(),
              parameter.kind == nn::ParameterKind::kTemperature || is_norm_gain(parameter))
        << parameter.name;
}

TEST(Learn, HeadsThatShareAGainShareATemperatureUnlessToldOtherwise) {
  nn::ModelConfig config = small_config("softmax");
  config.qk_norm = nn::QkNorm::kGain;
  int lines = 0;
  const auto suited = [&](const char* text) {
    return suited_temperature(*parse_learn(text).temperature, config,
                              [&](const std::string&) { ++lines; });
  };
  EXPECT_EQ(suited("head,value").options, (MethodOptions{{"by", std::string("layer")}}));
  EXPECT_EQ(lines, 1);
  EXPECT_EQ(suited("head:by=head").options, (MethodOptions{{"by", std::string("head")}}));
  EXPECT_TRUE(suited("value").options.empty());
  EXPECT_EQ(lines, 1);
}

}  // namespace
}  // namespace tempera::adapt
