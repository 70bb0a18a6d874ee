#include "tempera/kernels/cuda/prologue.h"

#include <array>
#include <optional>

#include "tempera/ops/autograd.h"
#include "tempera/ops/cuda/prologue.h"
#include "tempera/ops/cuda/stream.h"
#include "tempera/ops/problem.h"
#include "tempera/ops/storage.h"
#include "tempera/ops/torch.h"

namespace tempera::ops::cuda {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr size_t kOperands = 3;
constexpr size_t kParts = 7;  // tensors of an operand
constexpr size_t kTensors = 1 + kOperands * kParts;

// The tensors that can have a gradient.
template <class Args, class Visit>
void visit_tensors(Args& args, Visit&& visit) {
  visit(args.x);
  for (auto& operand : args.operands) {
    visit(operand.x);
    visit(operand.gain);
    visit(operand.rows);
    visit(operand.recipe.w);
    visit(operand.recipe.g);
    visit(operand.recipe.c);
    visit(operand.recipe.s);
  }
}

// Of the rows, wherever they are.
const Tensor& any_rows(const PrologueArgs& args) {
  return args.x.defined() ? args.x : args.operands.front().x;
}
int64_t row_axis(const PrologueArgs& args) { return args.x.defined() ? 1 : 2; }

// The heads of an operand in a tensor like the joint projection, or in its own.
template <class T>
kernels::Rows<T> operand_rows(const PrologueArgs& args, const Tensor& joint, const Tensor& own,
                              size_t which) {
  if (own.defined()) return rows_of<T>(own);
  int64_t column = 0;
  for (size_t before = 0; before < which; ++before)
    column += args.operands[before].heads * args.size;
  using Plain = std::remove_const_t<T>;
  return kernels::cuda::projection_heads<T>(static_cast<Plain*>(joint.mutable_data_ptr()),
                                            joint.size(1), joint.size(2), column, args.size);
}

// The arguments as the kernel takes them. What had to be converted lives as long as this.
template <class T>
class Bound {
 public:
  explicit Bound(const PrologueArgs& args) {
    p.batch = any_rows(args).size(0);
    p.rows = any_rows(args).size(row_axis(args));
    p.epsilon = static_cast<float>(args.epsilon);
    if (args.cos.defined()) {
      p.pairs = args.cos.size(1);
      p.cos = binder_.parameter(args.cos);
      p.sin = binder_.parameter(args.sin);
    }
    if (args.positions.defined())
      p.table_row = binder_.keep(args.positions.to(at::kLong).contiguous())
                        .template const_data_ptr<int64_t>();
    p.log_n = binder_.parameter(args.log_n);
    const std::array<kernels::cuda::PrologueOperand*, kOperands> targets = {&p.q, &p.k, &p.v};
    const std::array<kernels::Rows<const T>*, kOperands> inputs = {&p.x_q, &p.x_k, &p.x_v};
    for (size_t i = 0; i < args.operands.size(); ++i) {
      *targets[i] = operand(args.operands[i], args.size);
      *inputs[i] = operand_rows<const T>(args, args.x, args.operands[i].x, i);
    }
  }

  kernels::cuda::PrologueParams<T> p;

 private:
  kernels::cuda::PrologueOperand operand(const PrologueOperand& from, int64_t size) {
    return {.heads = from.heads,
            .size = size,
            .norm = from.norm,
            .gain = binder_.parameter(from.gain),
            .rotate = from.rotate,
            .scale = {.rows = binder_.row_scale("scales", from.rows, {p.batch, from.heads, p.rows}),
                      .w = binder_.parameter(from.recipe.w),
                      .g = binder_.parameter(from.recipe.g),
                      .c = binder_.parameter(from.recipe.c),
                      .s = binder_.parameter(from.recipe.s),
                      .g_is_logit = from.recipe.g_is_logit}};
  }

  Binder<T> binder_;
};

std::vector<Tensor> forward_pass(const PrologueArgs& args) {
  const Tensor& x = any_rows(args);
  std::vector<Tensor> heads;
  for (const PrologueOperand& operand : args.operands)
    heads.push_back(
        at::empty({x.size(0), x.size(row_axis(args)), operand.heads, args.size}, x.options())
            .transpose(1, 2));
  if (x.numel() == 0) return heads;
  for_storage(x, [&]<class T>(T*) {
    const Bound<T> bound(args);
    std::array<kernels::Rows<T>, kOperands> rows;
    for (size_t i = 0; i < heads.size(); ++i) rows[i] = rows_of<T>(heads[i]);
    kernels::cuda::prologue_forward(bound.p, {rows[0], rows[1], rows[2]}, stream_of(x));
  });
  return heads;
}

// The gradients while they are computed: float32, scales for every row.
struct Gradients {
  Tensor x;
  std::array<std::array<Tensor, kParts>, kOperands> parts;
};

kernels::cuda::PrologueOperandGradient operand_gradient(const std::array<Tensor, kParts>& parts) {
  const auto numbers = [](const Tensor& t) {
    return t.defined() ? t.mutable_data_ptr<float>() : nullptr;
  };
  return {.rows = parts[2].defined() ? rows_of<float>(parts[2]) : kernels::Rows<float>{},
          .w = numbers(parts[3]),
          .g = numbers(parts[4]),
          .c = numbers(parts[5]),
          .s = numbers(parts[6]),
          .gain = numbers(parts[1])};
}

void backward_pass(const PrologueArgs& args, const variable_list& d, const Gradients& gradients) {
  const Tensor& x = any_rows(args);
  for_storage(x, [&]<class T>(T*) {
    const Bound<T> bound(args);
    Binder<T> binder;
    std::array<kernels::Rows<const T>, kOperands> d_rows;
    std::array<kernels::Rows<T>, kOperands> x_rows;
    for (size_t i = 0; i < d.size(); ++i) {
      d_rows[i] = binder.operand(d[i]);
      x_rows[i] = operand_rows<T>(args, gradients.x, gradients.parts[i][0], i);
    }
    kernels::cuda::PrologueGradients<T> g{.d_q = d_rows[0],
                                          .d_k = d_rows[1],
                                          .d_v = d_rows[2],
                                          .x_q = x_rows[0],
                                          .x_k = x_rows[1],
                                          .x_v = x_rows[2],
                                          .bias = nullptr,
                                          .q = operand_gradient(gradients.parts[0]),
                                          .k = operand_gradient(gradients.parts[1]),
                                          .v = operand_gradient(gradients.parts[2])};
    const Tensor workspace =
        byte_workspace(kernels::cuda::prologue_backward_workspace(bound.p), x.device());
    kernels::cuda::prologue_backward(bound.p, g, workspace.mutable_data_ptr(), stream_of(x));
  });
}

// Nobody else can see the tensor, and no two of its elements are the same.
bool is_ours(const Tensor& tensor) {
  return !at::GradMode::is_enabled() && tensor.use_count() == 1 &&
         tensor.storage().use_count() == 1 && tensor.is_non_overlapping_and_dense() &&
         tensor.stride(3) == 1;
}

// The rows' gradients are always written: the kernel has no other way. They take the place of
// those that were given, where it may: fewer bytes to move.
Gradients empty_gradients(const PrologueArgs& args, const variable_list& d,
                          const variable_list& saved, const std::array<bool, kTensors>& wanted) {
  Gradients gradients;
  if (args.x.defined()) gradients.x = at::empty_like(args.x);
  const Tensor& x = any_rows(args);
  const auto real = x.options().dtype(at::kFloat);
  for (size_t i = 0; i < args.operands.size(); ++i) {
    const PrologueOperand& operand = args.operands[i];
    auto& parts = gradients.parts[i];
    if (operand.x.defined())
      parts[0] = is_ours(d[i])
                     ? d[i]
                     : at::empty({x.size(0), x.size(2), operand.heads, args.size}, x.options())
                           .transpose(1, 2);
    for (size_t part = 1; part < kParts; ++part) {
      const size_t index = 1 + i * kParts + part;
      if (!wanted[index]) continue;
      parts[part] = part == 2 ? at::empty({x.size(0), operand.heads, x.size(row_axis(args))}, real)
                              : at::empty(saved[index].sizes(), real);
    }
  }
  return gradients;
}

class PrologueFunction : public torch::autograd::Function<PrologueFunction> {
 public:
  // The tensors repeat those of args: autograd looks for its variables among the arguments.
  template <class... Tensors>
  static variable_list forward(AutogradContext* context, const PrologueArgs& args,
                               const Tensors&... tensors) {
    context->save_for_backward(
        {tensors.value_or(Tensor())..., args.cos, args.sin, args.positions, args.log_n});
    std::vector<int64_t> numbers = {args.size};
    for (const PrologueOperand& operand : args.operands)
      numbers.insert(numbers.end(),
                     {operand.heads, operand.norm, operand.rotate, operand.recipe.g_is_logit});
    context->saved_data["numbers"] = numbers;
    context->saved_data["epsilon"] = args.epsilon;
    return forward_pass(args);
  }

  static variable_list backward(AutogradContext* context, const variable_list& d) {
    const variable_list saved = context->get_saved_variables();
    const PrologueArgs args = restored(context, saved);
    // Which inputs want a gradient; absent ones have no edge.
    std::array<bool, kTensors> wanted{};
    size_t edge = 0;
    for (size_t i = 0; i < kTensors; ++i)
      wanted[i] = saved[i].defined() && context->needs_input_grad(edge++);
    const Gradients gradients = empty_gradients(args, d, saved, wanted);
    variable_list results(1 + kTensors);  // the first is that of the struct
    if (any_rows(args).numel() == 0) {
      for (size_t i = 0; i < kTensors; ++i)
        if (wanted[i]) results[1 + i] = at::zeros_like(saved[i]);
      return results;
    }
    backward_pass(args, d, gradients);
    if (wanted[0]) results[1] = gradients.x;
    for (size_t i = 0; i < args.operands.size(); ++i)
      for (size_t part = 0; part < kParts; ++part) {
        const size_t index = 1 + i * kParts + part;
        if (!wanted[index]) continue;
        Tensor g = gradients.parts[i][part];
        if (!g.sizes().equals(saved[index].sizes())) g = at::sum_to(g, saved[index].sizes());
        results[1 + index] = g.to(saved[index].scalar_type());
      }
    return results;
  }

 private:
  static PrologueArgs restored(AutogradContext* context, const variable_list& saved) {
    const auto numbers = context->saved_data["numbers"].toIntVector();
    PrologueArgs args;
    args.size = numbers[0];
    for (size_t i = 1; i < numbers.size(); i += 4) {
      PrologueOperand& operand = args.operands.emplace_back();
      operand.heads = numbers[i];
      operand.norm = numbers[i + 1] != 0;
      operand.rotate = numbers[i + 2] != 0;
      operand.recipe.g_is_logit = numbers[i + 3] != 0;
    }
    args.epsilon = context->saved_data["epsilon"].toDouble();
    size_t next = 0;
    visit_tensors(args, [&](Tensor& tensor) { tensor = saved[next++]; });
    args.cos = saved[kTensors];
    args.sin = saved[kTensors + 1];
    args.positions = saved[kTensors + 2];
    args.log_n = saved[kTensors + 3];
    return args;
  }
};

template <size_t... I>
variable_list with_gradients(const PrologueArgs& args, std::index_sequence<I...>) {
  std::array<std::optional<Tensor>, kTensors> tensors;
  size_t next = 0;
  visit_tensors(args, [&](const Tensor& tensor) {
    if (tensor.defined()) tensors[next] = tensor;
    ++next;
  });
  return PrologueFunction::apply(args, tensors[I]...);
}

bool any_gradient(const PrologueArgs& args) {
  bool any = false;
  visit_tensors(args, [&](const Tensor& tensor) { any |= wants_gradient({tensor}); });
  return any;
}

void check(const PrologueArgs& args) {
  TORCH_CHECK(!args.operands.empty() && args.operands.size() <= kOperands,
              "prologue: ", args.operands.size(), " operands given, one to three expected");
  int64_t columns = 0;
  for (const PrologueOperand& operand : args.operands) columns += operand.heads * args.size;
  const int64_t rows = any_rows(args).size(row_axis(args));
  if (args.x.defined()) {
    TORCH_CHECK(args.x.dim() == 3 && args.x.size(2) == columns, "prologue: x ", args.x.sizes(),
                " given, (B, T, ", columns, " = all heads' columns) expected");
  } else {
    for (const PrologueOperand& operand : args.operands)
      TORCH_CHECK(operand.x.dim() == 4 && operand.x.size(1) == operand.heads &&
                      operand.x.size(2) == rows && operand.x.size(3) == args.size,
                  "prologue: an operand ", operand.x.sizes(), " given, (B, ", operand.heads, ", ",
                  rows, ", ", args.size, ") expected");
  }
  TORCH_CHECK(!args.cos.defined() || args.positions.defined() || args.cos.size(0) >= rows,
              "prologue: ", rows, " rows given, the tables have ", args.cos.size(0));
}

}  // namespace

std::vector<Tensor> prologue(const PrologueArgs& given) {
  RECORD_FUNCTION("tempera::prologue", {});
  check(given);
  PrologueArgs args = given;
  if (args.x.defined()) args.x = args.x.contiguous();
  for (PrologueOperand& operand : args.operands)
    if (operand.x.defined() && operand.x.stride(3) != 1) operand.x = operand.x.contiguous();
  return any_gradient(args) ? with_gradients(args, std::make_index_sequence<kTensors>())
                            : forward_pass(args);
}

}  // namespace tempera::ops::cuda
