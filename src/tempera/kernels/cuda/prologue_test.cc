// The prologue against a naive one in double precision, whose backward pass is checked by
// differences.
#include "tempera/kernels/cuda/prologue.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "tempera/base/error.h"
#include "tempera/kernels/cuda/normal.h"
#include "tempera/kernels/cuda/testing.h"
#include "tempera/kernels/reference/prologue.h"

namespace tempera::kernels::cuda {
namespace {

// The kernel's memory: float tensors, T tensors, positions.
template <class T>
class Run {
 public:
  Run(const PrologueCase& c, const Tensors<double>& in)
      : c_(c), floats_(converted<float>(in)), stride_(columns_of(c) + c.gap) {
    const std::vector<T> dense = converted<T>(in.at("x"));
    x_ = poisoned<T>(memory_size());
    d_x_ = poisoned<T>(memory_size());
    for (size_t i = 0; i < dense.size(); ++i) x_[position(i)] = dense[i];
    for (const char* name : kOperands) {
      d_out_[name] = converted<T>(in.at(concat("d_", name)));
      out_[name] = poisoned<T>(d_out_[name].size());
    }
    for (int64_t i = 0; i < c.batch * c.rows; ++i)
      positions_.push_back(table_row(c, i / c.rows, i % c.rows));
    for (const auto& [name, values] : floats_)
      if (name == "bias" || name.find('.') != std::string::npos)
        gradients_[name] = poisoned<float>(values.size());
    mirror_.add(x_);
    mirror_.add(d_x_);
    mirror_.add(positions_);
    for (auto* tensors : {&floats_, &gradients_})
      for (auto& [name, values] : *tensors) mirror_.add(values);
    for (auto* tensors : {&out_, &d_out_})
      for (auto& [name, values] : *tensors) mirror_.add(values);
  }

  void forward() {
    PrologueOutputs<T> outputs;
    outputs.q = rows(out_, "q", c_.q);
    outputs.k = rows(out_, "k", c_.k);
    outputs.v = rows(out_, "v", c_.v);
    prologue_forward(params(), outputs, nullptr);
    finish();
  }

  // in_place: the gradients of the inputs take the place of those of the outputs.
  void backward(bool in_place = false) {
    PrologueGradients<T> g;
    const auto as_input = [](Rows<T> r) { return Rows<const T>{r.data, r.batch, r.head, r.row}; };
    g.d_q = as_input(rows(d_out_, "q", c_.q));
    g.d_k = as_input(rows(d_out_, "k", c_.k));
    g.d_v = as_input(rows(d_out_, "v", c_.v));
    T* const d_x = mirror_(d_x_.data() + c_.offset);
    g.x_q = part(d_x, 0);
    g.x_k = part(d_x, 1);
    g.x_v = part(d_x, 2);
    if (in_place) {
      g.x_q = rows(d_out_, "q", c_.q);
      g.x_k = rows(d_out_, "k", c_.k);
      g.x_v = rows(d_out_, "v", c_.v);
    }
    g.bias = number(gradients_, "bias");
    g.q = operand_gradient("q", c_.q);
    g.k = operand_gradient("k", c_.k);
    g.v = operand_gradient("v", c_.v);
    const DeviceWorkspace workspace(prologue_backward_workspace(params()));
    prologue_backward(params(), g, workspace.data(), nullptr);
    EXPECT_TRUE(workspace.guard_intact()) << c_.name << ": ran over its workspace";
    finish();
  }

  PrologueParams<T> params() {
    PrologueParams<T> p;
    p.batch = c_.batch;
    p.rows = c_.rows;
    const T* const x = mirror_(x_.data() + c_.offset);
    p.x_q = part(x, 0);
    p.x_k = part(x, 1);
    p.x_v = part(x, 2);
    p.bias = number(floats_, "bias");
    p.q = operand("q", c_.q);
    p.k = operand("k", c_.k);
    p.v = operand("v", c_.v);
    p.epsilon = 1e-5F;
    p.pairs = c_.pairs;
    p.cos = number(floats_, "cos");
    p.sin = number(floats_, "sin");
    if (c_.positions) p.table_row = mirror_(positions_.data());
    if (c_.counts) p.log_n = number(floats_, "log_n");
    return p;
  }

  const std::vector<T>& out(const std::string& name) { return out_[name]; }
  const Tensors<float>& gradients() const { return gradients_; }
  std::vector<T> d_x() const {
    std::vector<T> dense;
    for (size_t i = 0; i < u(c_.batch * c_.rows * columns_of(c_)); ++i)
      dense.push_back(d_x_[position(i)]);
    return dense;
  }
  // The same numbers, where they took the place of the outputs' gradients.
  std::vector<T> d_x_in_place() {
    std::vector<T> dense;
    for (int64_t row = 0; row < c_.batch * c_.rows; ++row)
      for (int which = 0; which < 3; ++which) {
        const OperandCase& o = operand_of(c_, which);
        const std::vector<T>& from = d_out_[kOperands[which]];
        for (int64_t head = 0; head < o.heads; ++head) {
          const int64_t at = (row / c_.rows * o.heads + head) * c_.rows + row % c_.rows;
          dense.insert(dense.end(), from.begin() + at * o.size, from.begin() + (at + 1) * o.size);
        }
      }
    return dense;
  }

 private:
  static size_t u(int64_t i) { return static_cast<size_t>(i); }
  template <class X>
  Rows<X> part(X* x, int which) const {
    int64_t column = 0;
    for (int before = 0; before < which; ++before)
      column += operand_of(c_, before).heads * operand_of(c_, before).size;
    return projection_heads(x, c_.rows, stride_, column, operand_of(c_, which).size);
  }
  size_t memory_size() const { return u(c_.offset + c_.batch * c_.rows * stride_); }
  size_t position(size_t i) const {
    const size_t columns = u(columns_of(c_));
    return u(c_.offset) + i / columns * u(stride_) + i % columns;
  }
  float* number(Tensors<float>& tensors, const std::string& name) {
    const auto found = tensors.find(name);
    return found == tensors.end() || found->second.empty() ? nullptr
                                                           : mirror_(found->second.data());
  }
  Rows<T> rows(Tensors<T>& tensors, const char* name, const OperandCase& o) {
    if (o.heads == 0) return {};
    return {mirror_(tensors[name].data()), o.heads * c_.rows * o.size, c_.rows * o.size, o.size};
  }
  PrologueOperand operand(const std::string& name, const OperandCase& o) {
    PrologueOperand p;
    p.heads = o.heads;
    p.size = o.size;
    p.norm = o.norm;
    p.gain = number(floats_, name + ".gain");
    p.rotate = o.rotate;
    p.scale.rows = {number(floats_, name + ".rows"), o.heads * c_.rows, c_.rows, 1};
    p.scale.w = number(floats_, name + ".w");
    p.scale.g = number(floats_, name + ".g");
    p.scale.c = number(floats_, name + ".c");
    p.scale.s = number(floats_, name + ".s");
    p.scale.g_is_logit = o.g_is_logit;
    return p;
  }
  PrologueOperandGradient operand_gradient(const std::string& name, const OperandCase& o) {
    PrologueOperandGradient g;
    g.rows = {number(gradients_, name + ".rows"), o.heads * c_.rows, c_.rows, 1};
    g.w = number(gradients_, name + ".w");
    g.g = number(gradients_, name + ".g");
    g.c = number(gradients_, name + ".c");
    g.s = number(gradients_, name + ".s");
    g.gain = number(gradients_, name + ".gain");
    return g;
  }
  void finish() {
    check(cudaDeviceSynchronize(), c_.name.c_str());
    mirror_.download();
  }

  PrologueCase c_;
  Tensors<float> floats_, gradients_;
  int64_t stride_;
  std::vector<T> x_, d_x_;
  Tensors<T> out_, d_out_;
  std::vector<int64_t> positions_;
  DeviceMirror mirror_;
};

template <class T>
class CudaPrologue : public testing::Test {};
TYPED_TEST_SUITE(CudaPrologue, KernelTypes, TypeNames);

TYPED_TEST(CudaPrologue, EveryCaseAgreesWithTheNaiveOne) {
  TEMPERA_NEEDS_GPU();
  using T = TypeParam;
  for (const PrologueCase& c : prologue_cases()) {
    const Tensors<double> in = prologue_inputs<T>(c);
    Run<T> run(c, in);
    run.forward();
    const auto exact = NaivePrologue<double>(c, in).forward();
    const auto naive = NaivePrologue<float>(c, in).forward();
    for (const auto& [name, values] : exact)
      expect_close<T>(c.name + ": " + name, run.out(name), values, naive.at(name));
    run.backward();
    const auto d_exact = NaivePrologue<double>(c, in).backward();
    const auto d_naive = NaivePrologue<float>(c, in).backward();
    expect_close<T>(c.name + ": d_x", run.d_x(), d_exact.at("x"), d_naive.at("x"));
    for (const auto& [name, values] : run.gradients()) {
      const bool summed = !name.ends_with(".rows");
      // In bf16 the normal distribution is good to 2e-5, not to 3e-7.
      const int64_t rough = std::is_same_v<T, float> ? 1 : 400;
      const auto terms = static_cast<double>(rough * (summed ? c.batch * c.rows : 1) * c.q.size);
      expect_close<T>(c.name + ": d_" + name, values, d_exact.at(name), d_naive.at(name), terms);
    }
  }
}

TYPED_TEST(CudaPrologue, TheSameInputsGiveTheSameBits) {
  TEMPERA_NEEDS_GPU();
  using T = TypeParam;
  for (const PrologueCase& c : prologue_cases()) {
    if (c.name != "long") continue;
    const Tensors<double> in = prologue_inputs<T>(c);
    Run<T> first(c, in), second(c, in);
    first.backward();
    second.backward();
    for (const auto& [name, values] : first.gradients())
      EXPECT_EQ(values, second.gradients().at(name)) << name;
  }
}

TYPED_TEST(CudaPrologue, GradientsMayTakeThePlaceOfThoseGiven) {
  TEMPERA_NEEDS_GPU();
  using T = TypeParam;
  for (const PrologueCase& c : prologue_cases()) {
    const Tensors<double> in = prologue_inputs<T>(c);
    Run<T> apart(c, in), in_place(c, in);
    apart.backward();
    in_place.backward(/*in_place=*/true);
    const std::vector<T> expected = apart.d_x(), given = in_place.d_x_in_place();
    ASSERT_EQ(given.size(), expected.size()) << c.name;
    EXPECT_EQ(std::memcmp(given.data(), expected.data(), given.size() * sizeof(T)), 0) << c.name;
    EXPECT_EQ(in_place.gradients(), apart.gradients()) << c.name;
  }
}

// The oracle's own gradients.
TEST(PrologueOracle, GradientsAreDifferences) {
  for (const PrologueCase& c : prologue_cases()) {
    if (c.name != "everything_24" && c.name != "grouped_heads_other_values") continue;
    const Tensors<double> in = prologue_inputs<float>(c);
    NaivePrologue<double> naive(c, in);
    const auto gradients = naive.backward();
    const auto loss = [&] {
      double sum = 0;
      for (const auto& [name, values] : naive.forward())
        for (size_t i = 0; i < values.size(); ++i) sum += values[i] * in.at("d_" + name)[i];
      return sum;
    };
    for (const auto& [name, values] : gradients)
      for (const size_t i : {size_t{0}, values.size() / 2, values.size() - 1}) {
        double& number = naive.numbers().at(name)[i];
        const double kept = number, step = 1e-5;
        number = kept + step;
        const double up = loss();
        number = kept - step;
        const double down = loss();
        number = kept;
        EXPECT_NEAR(values[i], (up - down) / (2 * step), 1e-5 * (1 + std::abs(values[i])))
            << c.name << ": " << name << "[" << i << "]";
      }
  }
}

// Of the formula; the hardware's tanh is in the test of every case.
TEST(PrologueNormal, IsGoodForEveryNumberOfBf16) {
  using Fit = NormalFit;
  for (unsigned bits = 0; bits < 0x10000; ++bits) {
    const double x = to_double(BFloat16{static_cast<uint16_t>(bits)});
    if (!std::isfinite(x)) continue;
    const double z = std::min<double>(x * x, Fit::kEnd);
    const double slope = double{Fit::kFirst} + z * (double{Fit::kSecond} + z * double{Fit::kThird});
    ASSERT_NEAR((1 + std::tanh(x * slope)) / 2, std::erfc(-x / std::sqrt(2.0)) / 2, 2e-5) << x;
  }
}

TEST(PrologueChecks, BadCallsThrow) {
  PrologueParams<float> p;
  p.batch = p.rows = 1;
  p.q.heads = 1;
  p.q.size = 12;
  EXPECT_THROW(validate(p), Error);
  p.q.size = 16;
  EXPECT_THROW(validate(p), Error);
  const float number = 1;
  p.x_q = {&number, 16, 16, 16};
  validate(p);
  p.q.scale.s = &number;
  EXPECT_THROW(validate(p), Error);
  p.q.scale.s = nullptr;
  p.q.rotate = true;
  EXPECT_THROW(validate(p), Error);
}

}  // namespace
}  // namespace tempera::kernels::cuda
