#pragma once

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "tempera/base/error.h"
#include "tempera/kernels/reference/numbers.h"

// The cases of the prologue's test, and the prologue written down row by row.
namespace tempera::kernels {

struct OperandCase {
  int64_t heads = 2;
  int64_t size = 64;
  bool norm = false, gain = false, rotate = false;
  bool rows = false, w = false, g = false, c = false, s = false;
  bool g_is_logit = false;
};

struct PrologueCase {
  std::string name;
  int64_t batch = 2, rows = 33;
  OperandCase q, k, v;
  bool bias = false;
  int64_t pairs = 0;
  bool positions = false;
  bool counts = true;  // log n is given; otherwise it is that of causal rows
  int64_t gap = 0;     // elements between the rows of the projection
  int64_t offset = 0;  // of the projection in its memory
};

inline const char* const kOperands[] = {"q", "k", "v"};
inline const OperandCase& operand_of(const PrologueCase& c, int which) {
  return which == 0 ? c.q : which == 1 ? c.k : c.v;
}
inline int64_t columns_of(const PrologueCase& c) {
  return c.q.heads * c.q.size + c.k.heads * c.k.size + c.v.heads * c.v.size;
}

inline void use_ssa(OperandCase& o) { o.w = o.g = o.c = true; }
inline void use_everything(PrologueCase& c) {
  for (OperandCase* o : {&c.q, &c.k, &c.v}) o->rows = o->w = o->g = o->c = o->s = true;
  c.k.g_is_logit = true;
  for (OperandCase* o : {&c.q, &c.k}) o->norm = o->gain = o->rotate = true;
  c.pairs = c.q.size / 2 / 4 * 4;
  c.bias = c.positions = true;
}

template <class Change>
PrologueCase prologue_case(std::string name, Change change) {
  PrologueCase c;
  c.name = std::move(name);
  change(c);
  return c;
}

// Every part alone.
inline std::vector<PrologueCase> prologue_parts() {
  const auto rotated = [](const char* name, int64_t pairs) {
    return prologue_case(name, [pairs](PrologueCase& c) {
      c.q.rotate = c.k.rotate = true;
      c.pairs = pairs;
    });
  };
  return {
      prologue_case("plain", [](PrologueCase&) {}),
      prologue_case("bias", [](PrologueCase& c) { c.bias = true; }),
      rotated("rotation", 32),
      rotated("part_of_the_columns_rotated", 8),
      prologue_case("few_columns_rotated",
                    [](PrologueCase& c) {
                      c.q.rotate = c.k.rotate = c.q.w = c.q.norm = true;
                      c.pairs = 4;
                      c.q.size = c.k.size = c.v.size = 24;
                    }),
      prologue_case("norm", [](PrologueCase& c) { c.q.norm = c.k.norm = true; }),
      prologue_case("norm_gain",
                    [](PrologueCase& c) { c.q.norm = c.k.norm = c.q.gain = c.k.gain = true; }),
      prologue_case("focal", [](PrologueCase& c) { c.q.c = true; }),
      prologue_case("ssmax", [](PrologueCase& c) { c.q.g = c.q.s = true; }),
      prologue_case("w_alone", [](PrologueCase& c) { c.k.w = true; }),
      prologue_case("rows", [](PrologueCase& c) { c.q.rows = c.k.rows = c.v.rows = true; }),
      prologue_case("ssa",
                    [](PrologueCase& c) {
                      use_ssa(c.q);
                      use_ssa(c.v);
                      c.q.rotate = c.k.rotate = true;
                      c.pairs = 32;
                    }),
  };
}

inline std::vector<PrologueCase> prologue_cases() {
  std::vector<PrologueCase> list = prologue_parts();
  const auto add = [&](std::string name, auto change) {
    list.push_back(prologue_case(std::move(name), change));
  };
  for (const int64_t size : {8, 16, 24, 40, 64, 80, 128, 256})
    add(concat("everything_", size), [size](PrologueCase& c) {
      c.q.size = c.k.size = c.v.size = size;
      use_everything(c);
    });
  add("grouped_heads_other_values", [](PrologueCase& c) {
    c.q.heads = 6;
    c.v.size = 40;
    use_everything(c);
  });
  add("long", [](PrologueCase& c) {
    c.rows = 300;
    use_everything(c);
  });
  add("queries_alone", [](PrologueCase& c) {
    c.k.heads = c.v.heads = 0;
    use_ssa(c.q);
  });
  add("keys_and_values_alone", [](PrologueCase& c) {
    c.q.heads = 0;
    use_ssa(c.v);
  });
  add("one_row", [](PrologueCase& c) {
    c.rows = 1;
    use_everything(c);
  });
  add("causal_counts", [](PrologueCase& c) {
    c.counts = false;
    use_ssa(c.q);
    use_ssa(c.v);
    c.q.g_is_logit = c.v.g_is_logit = true;
  });
  add("many_rows_of_a_block", [](PrologueCase& c) {
    c.batch = 64;
    c.rows = 1600;
    c.q.heads = c.k.heads = c.v.heads = 1;
    c.q.size = c.k.size = c.v.size = 8;
    use_ssa(c.q);
    use_ssa(c.v);
  });
  add("gaps_and_odd_addresses", [](PrologueCase& c) {
    c.gap = 3;
    c.offset = 1;
    use_everything(c);
  });
  return list;
}

// Inputs, exact in T where the kernel reads T's, in float elsewhere.
template <class T>
Tensors<double> prologue_inputs(const PrologueCase& c) {
  std::mt19937_64 engine(7);
  Tensors<double> in;
  const int64_t rows = c.batch * c.rows;
  in["x"] = normal_numbers<T>(engine, rows * columns_of(c));
  if (c.bias) in["bias"] = normal_numbers<float>(engine, columns_of(c), 0, 0.3);
  in["log_n"] = normal_numbers<float>(engine, rows, 3, 1);
  if (!c.counts)
    for (int64_t row = 0; row < rows; ++row)
      in["log_n"][static_cast<size_t>(row)] = std::log(static_cast<double>(row % c.rows + 1));
  std::vector<double> angles = normal_numbers<float>(engine, 2 * c.rows * c.pairs);
  for (const double angle : angles) {
    in["cos"].push_back(to_double(static_cast<float>(std::cos(angle))));
    in["sin"].push_back(to_double(static_cast<float>(std::sin(angle))));
  }
  for (int which = 0; which < 3; ++which) {
    const OperandCase& o = operand_of(c, which);
    const std::string name = kOperands[which];
    const auto fill = [&](bool wanted, const char* part, int64_t count, double mean, double sd) {
      if (wanted) in[name + part] = normal_numbers<float>(engine, count, mean, sd);
    };
    fill(o.gain, ".gain", o.size, 1, 0.2);
    fill(o.rows, ".rows", rows * o.heads, 1, 0.3);
    fill(o.w, ".w", o.heads * o.size, 0, 1 / std::sqrt(static_cast<double>(o.size)));
    fill(o.g, ".g", o.heads, 0, 0.3);
    fill(o.c, ".c", o.heads, 1, 0.2);
    fill(o.s, ".s", o.heads, 1, 0.2);
    in["d_" + name] = normal_numbers<T>(engine, rows * o.heads * o.size);
  }
  return in;
}

inline int64_t table_row(const PrologueCase& c, int64_t b, int64_t t) {
  return c.positions ? (t * 7 + b) % (2 * c.rows) : t;
}

// One row of one head, written down.
template <class R>
struct NaiveRow {
  std::vector<R> x, y, z;  // of the projection, normed, rotated
  R rstd = 1, tanh_term = 0, log_n = 0, sum = 1, s = 1, finished = 1;
  R a() const { return finished * s * sum; }
};

template <class R>
class NaivePrologue {
 public:
  NaivePrologue(const PrologueCase& c, const Tensors<double>& in) : c_(c), in_(converted<R>(in)) {}

  Tensors<R> forward() {
    Tensors<R> out;
    each_row([&](const std::string& name, const OperandCase& o, int64_t b, int64_t h, int64_t t,
                 int64_t column) {
      const NaiveRow<R> row = evaluate(name, o, b, h, t, column);
      auto& to = out[name];
      to.resize(static_cast<size_t>(c_.batch * o.heads * c_.rows * o.size));
      for (int64_t i = 0; i < o.size; ++i) to[at(o, b, h, t) + u(i)] = row.a() * row.z[u(i)];
    });
    return out;
  }

  Tensors<R> backward() {
    Tensors<R> out;
    for (const char* name : {"x", "bias"})
      if (in_.count(name)) out[name].resize(in_[name].size());
    for (const char* operand : kOperands)
      for (const char* part : {".gain", ".rows", ".w", ".g", ".c", ".s"})
        if (in_.count(concat(operand, part)))
          out[concat(operand, part)].resize(in_[concat(operand, part)].size());
    each_row([&](const std::string& name, const OperandCase& o, int64_t b, int64_t h, int64_t t,
                 int64_t column) { row_backward(out, name, o, b, h, t, column); });
    return out;
  }

  Tensors<R>& numbers() { return in_; }

 private:
  static size_t u(int64_t i) { return static_cast<size_t>(i); }
  size_t at(const OperandCase& o, int64_t b, int64_t h, int64_t t) const {
    return u(((b * o.heads + h) * c_.rows + t) * o.size);
  }

  template <class Body>
  void each_row(Body body) {
    int64_t column = 0;
    for (int which = 0; which < 3; ++which) {
      const OperandCase& o = operand_of(c_, which);
      for (int64_t h = 0; h < o.heads; ++h, column += o.size)
        for (int64_t b = 0; b < c_.batch; ++b)
          for (int64_t t = 0; t < c_.rows; ++t) body(kOperands[which], o, b, h, t, column);
    }
  }

  void rotate(const OperandCase& o, int64_t b, int64_t t, R direction, std::vector<R>& y) const {
    if (!o.rotate) return;
    for (int64_t i = 0; i < c_.pairs; ++i) {
      const size_t angle = u(table_row(c_, b, t) * c_.pairs + i);
      const R cos = in_.at("cos")[angle], sin = direction * in_.at("sin")[angle];
      const R first = y[u(i)], second = y[u(i + c_.pairs)];
      y[u(i)] = first * cos - second * sin;
      y[u(i + c_.pairs)] = second * cos + first * sin;
    }
  }

  static R below(R x) { return std::erfc(-x / std::sqrt(R{2})) / 2; }

  NaiveRow<R> evaluate(const std::string& name, const OperandCase& o, int64_t b, int64_t h,
                       int64_t t, int64_t column) {
    NaiveRow<R> row;
    const int64_t line = b * c_.rows + t;
    R square = 0, f = 0;
    for (int64_t i = 0; i < o.size; ++i) {
      R x = in_["x"][u(line * columns_of(c_) + column + i)];
      if (c_.bias) x += in_["bias"][u(column + i)];
      row.x.push_back(x);
      square += x * x;
      if (o.w) f += in_[name + ".w"][u(h * o.size + i)] * x * below(x);
    }
    if (o.norm) row.rstd = 1 / std::sqrt(square / static_cast<R>(o.size) + R(1e-5));
    for (int64_t i = 0; i < o.size; ++i) row.y.push_back(row.x[u(i)] * row.rstd * gain(name, o, i));
    row.z = row.y;
    rotate(o, b, t, 1, row.z);
    if (o.w || o.g || o.c || o.s) row.sum = 0;
    if (o.c) row.sum += in_[name + ".c"][u(h)];
    if (o.w) row.sum += row.tanh_term = std::tanh(f);
    row.log_n = in_["log_n"][u(line)];
    if (o.g) row.sum += slope(name, o, h) * row.log_n;
    if (o.s) row.s = in_[name + ".s"][u(h)];
    if (o.rows) row.finished = in_[name + ".rows"][u((b * o.heads + h) * c_.rows + t)];
    return row;
  }

  R slope(const std::string& name, const OperandCase& o, int64_t h) {
    const R g = in_[name + ".g"][u(h)];
    return o.g_is_logit ? 1 / (1 + std::exp(-g)) : g;
  }
  R gain(const std::string& name, const OperandCase& o, int64_t i) {
    return o.gain ? in_[name + ".gain"][u(i)] : R{1};
  }

  void row_backward(Tensors<R>& out, const std::string& name, const OperandCase& o, int64_t b,
                    int64_t h, int64_t t, int64_t column) {
    const NaiveRow<R> row = evaluate(name, o, b, h, t, column);
    std::vector<R> d;
    R d_a = 0;
    for (int64_t i = 0; i < o.size; ++i) {
      d.push_back(in_["d_" + name][at(o, b, h, t) + u(i)]);
      d_a += d.back() * row.z[u(i)];
      d.back() *= row.a();
    }
    rotate(o, b, t, -1, d);
    R mean = 0;
    for (int64_t i = 0; i < o.size; ++i) {
      const R normed = row.x[u(i)] * row.rstd;
      if (o.gain) out[name + ".gain"][u(i)] += d[u(i)] * normed;
      d[u(i)] *= gain(name, o, i);
      mean += d[u(i)] * normed / static_cast<R>(o.size);
    }
    const R d_recipe = d_a * row.finished, d_sum = d_recipe * row.s;
    if (o.rows) out[name + ".rows"][u((b * o.heads + h) * c_.rows + t)] = d_a * row.s * row.sum;
    if (o.s) out[name + ".s"][u(h)] += d_recipe * row.sum;
    if (o.c) out[name + ".c"][u(h)] += d_sum;
    if (o.g) {
      const R g = slope(name, o, h);
      out[name + ".g"][u(h)] += d_sum * row.log_n * (o.g_is_logit ? g * (1 - g) : R{1});
    }
    const R d_f = d_sum * (1 - row.tanh_term * row.tanh_term);
    for (int64_t i = 0; i < o.size; ++i) {
      const R x = row.x[u(i)];
      if (o.norm) d[u(i)] = row.rstd * (d[u(i)] - x * row.rstd * mean);
      if (o.w) {
        const R density = std::exp(-x * x / 2) / std::sqrt(2 * R(3.14159265358979323846));
        out[name + ".w"][u(h * o.size + i)] += d_f * x * below(x);
        d[u(i)] += d_f * in_[name + ".w"][u(h * o.size + i)] * (below(x) + x * density);
      }
      out["x"][u((b * c_.rows + t) * columns_of(c_) + column + i)] = d[u(i)];
      if (c_.bias) out["bias"][u(column + i)] += d[u(i)];
    }
  }

  PrologueCase c_;
  Tensors<R> in_;
};

}  // namespace tempera::kernels
