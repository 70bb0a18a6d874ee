#include "tempera/ops/checks.h"

#include <cmath>
#include <initializer_list>
#include <vector>

#include "tempera/base/error.h"

namespace tempera::ops {
namespace {

using c10::SymInt;

void check_dims(const char* name, const at::Tensor& tensor, int64_t dims, const char* shape) {
  TEMPERA_CHECK(tensor.defined(), name, " is required: a tensor ", shape, " expected");
  TEMPERA_CHECK(tensor.dim() == dims, name, ": shape ", tensor.sym_sizes(), " given, ", shape,
                " expected");
}

// A tensor of numbers beside q: floating point, on q's device.
void check_floating(const char* name, const at::Tensor& tensor, const at::Tensor& q) {
  TEMPERA_CHECK(tensor.device() == q.device(), name, ": on device ", tensor.device(),
                ", and q is on ", q.device(), "; move it there");
  TEMPERA_CHECK(at::isFloatingType(tensor.scalar_type()), name, ": dtype ", tensor.scalar_type(),
                " given, a floating-point one expected");
}

void check_sizes(const char* name, const at::Tensor& tensor, const std::vector<SymInt>& expected,
                 const char* meaning) {
  bool fits = tensor.dim() == static_cast<int64_t>(expected.size());
  for (size_t i = 0; fits && i < expected.size(); ++i) fits = tensor.sym_sizes()[i] == expected[i];
  TEMPERA_CHECK(fits, name, ": shape ", tensor.sym_sizes(), " given, ",
                c10::SymIntArrayRef(expected), " = ", meaning, " expected");
}

void check_broadcast(const char* name, const at::Tensor& tensor,
                     const std::vector<SymInt>& expected, const char* meaning) {
  const c10::SymIntArrayRef sizes = tensor.sym_sizes();
  bool fits = sizes.size() <= expected.size();
  for (size_t i = 0; fits && i < sizes.size(); ++i) {
    const SymInt& size = sizes[sizes.size() - 1 - i];
    fits = size == 1 || size == expected[expected.size() - 1 - i];
  }
  TEMPERA_CHECK(fits, name, ": shape ", sizes, " given, one that broadcasts to ",
                c10::SymIntArrayRef(expected), " = ", meaning, " expected");
}

void check_operand(const char* name, const at::Tensor& tensor, const at::Tensor& q) {
  check_floating(name, tensor, q);
  TEMPERA_CHECK(tensor.scalar_type() == q.scalar_type(), name, ": dtype ", tensor.scalar_type(),
                " given, ", q.scalar_type(), " expected, as q has");
}

// Keys or values of a cache, which may have fewer bits than q.
void check_cached(const char* name, const at::Tensor& tensor, const DecodeArgs& args) {
  const auto type = tensor.scalar_type();
  TEMPERA_CHECK(tensor.device() == args.q.device(), name, ": on device ", tensor.device(),
                ", and q is on ", args.q.device(), "; move it there");
  TEMPERA_CHECK(type == args.q.scalar_type() || type == at::kBFloat16 || type == at::kChar, name,
                ": dtype ", type, " given, ", args.q.scalar_type(),
                " as q has, or BFloat16 or Char (int8) expected");
  TEMPERA_CHECK(type == args.k.scalar_type(), name, ": dtype ", type, " given, ",
                args.k.scalar_type(), " expected, as k has");
}

void check_row_scale(const char* name, const at::Tensor& tensor, const at::Tensor& q,
                     const std::vector<SymInt>& expected, const char* meaning) {
  if (!tensor.defined()) return;
  check_floating(name, tensor, q);
  check_broadcast(name, tensor, expected, meaning);
}

// rows: (B, heads, rows) of the operand.
void check_recipe(const char* name, const Recipe& recipe, const at::Tensor& operand,
                  const std::vector<SymInt>& rows) {
  const std::string prefix(name);
  const at::Tensor& source = recipe.source.defined() ? recipe.source : operand;
  if (recipe.source.defined()) {
    const std::string source_name = prefix + "_source";
    TEMPERA_CHECK(recipe.w.defined(), source_name, " is given without ", prefix,
                  "_w, which would read it");
    check_operand(source_name.c_str(), source, operand);
    TEMPERA_CHECK(source.dim() == 4, source_name, ": shape ", source.sym_sizes(),
                  " given, (B, heads, rows, size) expected");
    check_sizes(source_name.c_str(), source, {rows[0], rows[1], rows[2], source.sym_size(3)},
                "(B, heads, rows, size)");
  }
  if (recipe.w.defined()) {
    const std::string w_name = prefix + "_w";
    check_floating(w_name.c_str(), recipe.w, operand);
    check_sizes(w_name.c_str(), recipe.w, {rows[1], source.sym_size(3)},
                "(heads, size of a source row)");
  }
  const std::initializer_list<std::pair<const char*, const at::Tensor*>> numbers = {
      {"_g", &recipe.g}, {"_c", &recipe.c}, {"_s", &recipe.s}};
  for (const auto& [suffix, tensor] : numbers) {
    if (!tensor->defined()) continue;
    const std::string number_name = prefix + suffix;
    check_floating(number_name.c_str(), *tensor, operand);
    check_sizes(number_name.c_str(), *tensor, {rows[1]}, "(heads)");
  }
  TEMPERA_CHECK(
      !recipe.s.defined() || recipe.w.defined() || recipe.g.defined() || recipe.c.defined(), prefix,
      "_s: given alone, it makes every scale 0; give a constant as ", prefix, "_c");
}

void check_heads(const Dims& dims) {
  TEMPERA_CHECK(dims.q_heads >= 1 && dims.kv_heads >= 1, "heads: ", dims.q_heads, " of q and ",
                dims.kv_heads, " of k given, at least 1 expected");
  TEMPERA_CHECK(dims.q_heads % dims.kv_heads == 0, "q: ", dims.q_heads,
                " heads given, a multiple of the ", dims.kv_heads, " heads of k expected");
  TEMPERA_CHECK(dims.qk_size >= 1 && dims.v_size >= 1, "size of a head: ", dims.qk_size,
                " of q and ", dims.v_size, " of v given, at least 1 expected");
}

void check_bias(const at::Tensor& bias, const at::Tensor& q, const Dims& dims) {
  if (!bias.defined()) return;
  check_floating("bias", bias, q);
  check_dims("bias", bias, 4, "(1 or B, 1 or H, query rows, key rows)");
  const auto sizes = bias.sym_sizes();
  const bool fits = (sizes[0] == 1 || sizes[0] == dims.batch) &&
                    (sizes[1] == 1 || sizes[1] == dims.q_heads) && sizes[2] == dims.q_rows &&
                    sizes[3] == dims.kv_rows;
  TEMPERA_CHECK(fits, "bias: shape ", sizes, " given, [1 or ", dims.batch, ", 1 or ", dims.q_heads,
                ", ", dims.q_rows, ", ", dims.kv_rows,
                "] = (1 or B, 1 or H, query rows, key rows) expected");
}

void check_index(const char* name, const at::Tensor& tensor) {
  TEMPERA_CHECK(at::isIntegralType(tensor.scalar_type(), /*includeBool=*/false), name, ": dtype ",
                tensor.scalar_type(), " given, an integer one expected");
}

void check_batch_index(const char* name, const at::Tensor& tensor, const Dims& dims) {
  if (!tensor.defined()) return;
  check_index(name, tensor);
  check_sizes(name, tensor, {dims.batch}, "(B)");
}

// One number a sequence, or one a query row.
void check_key_bound(const char* name, const at::Tensor& tensor, const AttentionArgs& args,
                     const Dims& dims) {
  if (!tensor.defined() || tensor.dim() < 2) return check_batch_index(name, tensor, dims);
  check_index(name, tensor);
  check_sizes(name, tensor, {dims.batch, dims.q_rows}, "(B, query rows)");
  TEMPERA_CHECK(!args.documents.defined(), name,
                " has a number for each query row, and documents are given too; the rows' own "
                "ranges say all");
}

void check_documents(const char* name, const at::Tensor& tensor, const Dims& dims) {
  if (!tensor.defined()) return;
  check_index(name, tensor);
  check_dims(name, tensor, 2, "(B, documents)");
  TEMPERA_CHECK(tensor.sym_size(0) == dims.batch, name, ": shape ", tensor.sym_sizes(), " given, [",
                dims.batch, ", documents] expected");
}

template <class Args>
void check_options(const Args& args) {
  TEMPERA_CHECK(!args.window || *args.window >= 1, "window: ", args.window.value_or(0),
                " given, at least 1 expected; leave it out for no window");
  TEMPERA_CHECK(!args.scale || std::isfinite(*args.scale), "scale: ", args.scale.value_or(0),
                " given, a finite number expected");
  TEMPERA_CHECK(args.cap >= 0 && std::isfinite(args.cap), "cap: ", args.cap,
                " given, a positive number expected, or 0 for no cap");
}

template <class Args>
void check_query_side(const Args& args, const Dims& dims) {
  const std::vector<SymInt> rows = {dims.batch, dims.q_heads, dims.q_rows};
  check_row_scale("a_q", args.a_q, args.q, rows, "(B, H, query rows)");
  check_row_scale("post", args.post, args.q, rows, "(B, H, query rows)");
  check_recipe("q", args.q_recipe, args.q, rows);
  check_bias(args.bias, args.q, dims);
  if (args.sinks.defined()) {
    check_floating("sinks", args.sinks, args.q);
    check_sizes("sinks", args.sinks, {dims.q_heads}, "(H)");
  }
  check_options(args);
}

// The documents as such; whether they sum to the rows is only known with their numbers.
void check_masks(const AttentionArgs& args, const Dims& dims) {
  check_documents("documents", args.documents, dims);
  check_documents("key_documents", args.key_documents, dims);
  check_key_bound("key_start", args.key_start, args, dims);
  check_key_bound("key_end", args.key_end, args, dims);
  TEMPERA_CHECK(!args.key_documents.defined() || args.documents.defined(),
                "key_documents are given without documents, those of the queries");
  TEMPERA_CHECK(!args.key_documents.defined() || (!args.causal && !args.window),
                "key_documents with ", args.causal ? "causal" : "window",
                ": positions of two different packings have no order; leave one of them out");
  TEMPERA_CHECK(!args.documents.defined() || args.key_documents.defined() ||
                    (dims.q_rows == dims.kv_rows && args.query_offset.value_or(0) == 0),
                "documents of self-attention need as many query rows as key rows and no "
                "query_offset, and ",
                dims.q_rows, " and ", dims.kv_rows, " rows are given; give key_documents too");
}

bool self_attention(const AttentionArgs& args, const Dims& dims) {
  return dims.q_rows == dims.kv_rows && args.query_offset.value_or(0) == 0;
}

}  // namespace

Dims check(const AttentionArgs& args) {
  check_dims("q", args.q, 4, "(B, H, query rows, size)");
  check_dims("k", args.k, 4, "(B, key heads, key rows, size)");
  check_dims("v", args.v, 4, "(B, key heads, key rows, value size)");
  check_operand("q", args.q, args.q);
  check_operand("k", args.k, args.q);
  check_operand("v", args.v, args.q);
  const Dims dims{.batch = args.q.sym_size(0),
                  .q_heads = args.q.sym_size(1),
                  .kv_heads = args.k.sym_size(1),
                  .q_rows = args.q.sym_size(2),
                  .kv_rows = args.k.sym_size(2),
                  .qk_size = args.q.sym_size(3),
                  .v_size = args.v.sym_size(3)};
  check_sizes("k", args.k, {dims.batch, dims.kv_heads, dims.kv_rows, dims.qk_size},
              "(B, key heads, key rows, size as of q)");
  check_sizes("v", args.v, {dims.batch, dims.kv_heads, dims.kv_rows, dims.v_size},
              "(B, key heads, key rows, value size)");
  check_heads(dims);
  check_query_side(args, dims);
  const std::vector<SymInt> rows = {dims.batch, dims.kv_heads, dims.kv_rows};
  check_row_scale("a_k", args.a_k, args.q, rows, "(B, key heads, key rows)");
  check_row_scale("a_v", args.a_v, args.q, rows, "(B, key heads, key rows)");
  check_recipe("k", args.k_recipe, args.k, rows);
  check_recipe("v", args.v_recipe, args.v, rows);
  check_masks(args, dims);
  if (args.key_counts.defined()) {
    check_index("key_counts", args.key_counts);
    check_sizes("key_counts", args.key_counts, {dims.batch, dims.kv_rows}, "(B, key rows)");
  } else {
    TEMPERA_CHECK(
        (!args.k_recipe.g.defined() && !args.v_recipe.g.defined()) || self_attention(args, dims),
        args.k_recipe.g.defined() ? "k_g" : "v_g", " needs key_counts of shape [", dims.batch, ", ",
        dims.kv_rows,
        "]: outside self-attention the queries do not tell how many keys a key row saw");
  }
  TEMPERA_CHECK(args.dropout >= 0 && args.dropout < 1, "dropout: ", args.dropout,
                " given, at least 0 and less than 1 expected");
  return dims;
}

Dims check(const DecodeArgs& args) {
  const bool paged = args.block_table.defined();
  check_dims("q", args.q, 4, "(B, H, rows, size)");
  const char* cache =
      paged ? "(blocks, key heads, block size, size)" : "(B, key heads, capacity, size)";
  check_dims("k", args.k, 4, cache);
  check_dims("v", args.v, 4, cache);
  check_dims("lengths", args.lengths, 1, "(B)");
  check_operand("q", args.q, args.q);
  check_cached("k", args.k, args);
  check_cached("v", args.v, args);
  Dims dims{.batch = args.q.sym_size(0),
            .q_heads = args.q.sym_size(1),
            .kv_heads = args.k.sym_size(1),
            .q_rows = args.q.sym_size(2),
            .kv_rows = args.k.sym_size(2),
            .qk_size = args.q.sym_size(3),
            .v_size = args.v.sym_size(3)};
  const std::vector<SymInt> rows = {paged ? args.k.sym_size(0) : dims.batch, dims.kv_heads,
                                    dims.kv_rows};
  check_sizes("k", args.k, {rows[0], rows[1], rows[2], dims.qk_size}, cache);
  check_sizes("v", args.v, {rows[0], rows[1], rows[2], dims.v_size}, cache);
  check_batch_index("lengths", args.lengths, dims);
  check_batch_index("key_start", args.key_start, dims);
  if (paged) {
    check_index("block_table", args.block_table);
    check_dims("block_table", args.block_table, 2, "(B, blocks of a sequence)");
    TEMPERA_CHECK(args.block_table.sym_size(0) == dims.batch, "block_table: shape ",
                  args.block_table.sym_sizes(), " given, [", dims.batch,
                  ", blocks of a sequence] expected");
    TEMPERA_CHECK(dims.kv_rows >= 1, "k: blocks of 0 rows given, at least 1 expected");
    dims.kv_rows = dims.kv_rows * args.block_table.sym_size(1);
  }
  check_heads(dims);
  check_query_side(args, dims);
  const char* scales = paged ? "(blocks, key heads, block size)" : "(B, key heads, capacity)";
  check_row_scale("a_k", args.a_k, args.q, rows, scales);
  check_row_scale("a_v", args.a_v, args.q, rows, scales);
  return dims;
}

}  // namespace tempera::ops
