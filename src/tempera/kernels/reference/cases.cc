#include "tempera/kernels/reference/cases.h"

#include <utility>

#include "tempera/base/error.h"

namespace tempera::kernels {
namespace {

constexpr ScaleCase kRows{.rows = true};
// The recipes of the methods: ssa (shared), ssmax, focal.
constexpr ScaleCase kSsa{.w = true, .g = true, .c = true};
constexpr ScaleCase kLogN{.g = true};
constexpr ScaleCase kConstant{.c = true};
constexpr ScaleCase kWhole{.rows = true, .w = true, .g = true, .c = true, .s = true};
constexpr ScaleCase kOther{
    .w = true, .g = true, .c = true, .s = true, .own_source = false, .extra_columns = 8};

Shape square(int64_t rows, int64_t size) {
  return {.batch = 2,
          .q_heads = 2,
          .kv_heads = 1,
          .q_rows = rows,
          .kv_rows = rows,
          .qk_size = size,
          .v_size = size};
}

Case causal(std::string name, Shape shape) {
  Case result;
  result.name = std::move(name);
  result.shape = shape;
  result.causal = true;
  return result;
}

Case causal(std::string name) { return causal(std::move(name), square(33, 16)); }

// Everything at once, on whatever mask the case has.
Case with_everything(Case base) {
  base.q_scale = kWhole;
  base.k_scale = kWhole;
  base.v_scale = kWhole;
  base.bias = BiasCase::kHeads;
  base.cap = 5;
  base.post = true;
  base.sinks = true;
  base.dropout = 0.1;
  base.d_lse = true;
  return base;
}

Case with_ssa(Case base) {
  base.q_scale = kSsa;
  base.v_scale = kSsa;
  return base;
}

template <class Change>
Case changed(Case base, Change change) {
  change(base);
  return base;
}

void add_shapes(std::vector<Case>& cases) {
  for (const int64_t rows : {1, 2, 3, 5, 7, 17, 31, 33, 63, 65, 127, 129, 257}) {
    cases.push_back(causal(concat("rows_", rows), square(rows, 16)));
    cases.push_back(with_ssa(changed(causal(concat("rows_", rows, "_both_ways"), square(rows, 16)),
                                     [](Case& c) { c.causal = false; })));
  }
  for (const int64_t size : {8, 16, 24, 40, 64, 72, 80, 96, 128, 256})
    cases.push_back(with_ssa(causal(concat("size_", size), square(37, size))));
  for (const auto& [qk_size, v_size] : {std::pair(64, 128), std::pair(96, 40), std::pair(24, 256)})
    cases.push_back(with_everything(
        changed(causal(concat("sizes_", qk_size, "_and_", v_size), square(35, qk_size)),
                [v = v_size](Case& c) { c.shape.v_size = v; })));
  for (const int64_t group : {1, 2, 4, 8})
    cases.push_back(
        with_everything(changed(causal(concat("group_", group), square(19, 24)), [group](Case& c) {
          c.shape.kv_heads = 2;
          c.shape.q_heads = 2 * group;
        })));
}

void add_masks(std::vector<Case>& cases) {
  cases.push_back(changed(causal("both_ways"), [](Case& c) { c.causal = false; }));
  for (const int64_t window : {1, 3, 64, 1000})
    for (const bool is_causal : {true, false})
      cases.push_back(with_ssa(
          changed(causal(concat(is_causal ? "causal_window_" : "window_", window), square(131, 16)),
                  [window, is_causal](Case& c) {
                    c.window = window;
                    c.causal = is_causal;
                  })));
  const std::vector<std::vector<int64_t>> documents = {{1, 1, 30, 1, 50, 1}, {84}};
  for (const bool is_causal : {true, false})
    cases.push_back(with_ssa(
        changed(causal(is_causal ? "causal_documents" : "documents", square(84, 16)), [&](Case& c) {
          c.documents = documents;
          c.causal = is_causal;
        })));
  cases.push_back(
      with_everything(changed(causal("documents_window_everything", square(84, 24)), [&](Case& c) {
        c.documents = documents;
        c.window = 9;
      })));
  for (const bool is_causal : {true, false}) {
    cases.push_back(with_ssa(changed(
        causal(is_causal ? "causal_padding" : "padding", square(70, 16)), [is_causal](Case& c) {
          c.content = {{5, 70}, {0, 61}};  // left, right
          c.causal = is_causal;
        })));
  }
  cases.push_back(with_everything(changed(causal("nothing_visible", square(40, 16)), [](Case& c) {
    c.content = {{40, 40}, {0, 3}};
  })));
  cases.push_back(
      with_everything(changed(causal("documents_and_padding", square(84, 16)), [&](Case& c) {
        c.documents = documents;
        c.content = {{7, 80}, {0, 80}};
      })));
}

void add_cross(std::vector<Case>& cases) {
  const auto cross = [](const char* name, int64_t q_rows, int64_t kv_rows) {
    return changed(causal(name, square(q_rows, 16)), [kv_rows](Case& c) {
      c.causal = false;
      c.shape.kv_rows = kv_rows;
    });
  };
  cases.push_back(cross("cross_short_queries", 5, 129));
  cases.push_back(with_everything(cross("cross_long_queries", 129, 7)));
  cases.push_back(with_everything(changed(cross("cross_padding", 17, 65), [](Case& c) {
    c.content = {{0, 40}, {9, 65}};
  })));
  cases.push_back(with_ssa(changed(cross("cross_documents", 20, 35), [](Case& c) {
    c.documents = {{3, 16, 1}, {10, 0, 10}};
    c.key_documents = {{20, 0, 15}, {1, 33, 1}};
  })));
  cases.push_back(with_everything(changed(cross("causal_offset", 13, 77), [](Case& c) {
    c.causal = true;
    c.query_offset = 64;
  })));
  cases.push_back(with_ssa(changed(cross("causal_offset_window", 13, 77), [](Case& c) {
    c.causal = true;
    c.query_offset = 50;
    c.window = 20;
  })));
  // The first rows stand before the first key, and see nothing.
  cases.push_back(with_everything(changed(cross("causal_negative_offset", 50, 30), [](Case& c) {
    c.causal = true;
    c.query_offset = -20;
  })));
  cases.push_back(cross("no_keys", 9, 0));
}

template <class Change>
void add_changed(std::vector<Case>& cases, const char* name, Change change) {
  cases.push_back(changed(causal(name), change));
}

void add_scales(std::vector<Case>& cases) {
  const auto add = [&](const char* name, auto change) { add_changed(cases, name, change); };
  add("plain", [](Case&) {});
  add("q_rows", [](Case& c) { c.q_scale = kRows; });
  add("k_rows", [](Case& c) { c.k_scale = kRows; });
  add("v_rows", [](Case& c) { c.v_scale = kRows; });
  add("qkv_rows", [](Case& c) { c.q_scale = c.k_scale = c.v_scale = kRows; });
  add("focal", [](Case& c) { c.q_scale = kConstant; });
  add("ssmax", [](Case& c) { c.q_scale = kLogN; });
  add("q_ssa", [](Case& c) { c.q_scale = kSsa; });
  add("k_ssa", [](Case& c) { c.k_scale = kSsa; });
  add("v_ssa", [](Case& c) { c.v_scale = kSsa; });
  add("q_w_alone", [](Case& c) { c.q_scale = {.w = true}; });
  add("q_s_and_log_n", [](Case& c) { c.q_scale = {.g = true, .s = true}; });
  add("q_whole_recipe", [](Case& c) { c.q_scale = kWhole; });
  add("k_whole_recipe", [](Case& c) { c.k_scale = kWhole; });
  add("v_whole_recipe", [](Case& c) { c.v_scale = kWhole; });
  add("q_other_source", [](Case& c) { c.q_scale = kOther; });
  add("k_other_source", [](Case& c) { c.k_scale = kOther; });
  add("v_other_source", [](Case& c) { c.v_scale = kOther; });
  add("all_other_sources", [](Case& c) { c.q_scale = c.k_scale = c.v_scale = kOther; });
  add("zero_scales", [](Case& c) {
    c.q_scale = c.k_scale = c.v_scale = kRows;
    c.signs = ScaleSigns::kZeros;
  });
  add("negative_scales", [](Case& c) {
    c.q_scale = c.k_scale = c.v_scale = kRows;
    c.signs = ScaleSigns::kNegative;
  });
}

void add_features(std::vector<Case>& cases) {
  const auto add = [&](const char* name, auto change) { add_changed(cases, name, change); };
  add("bias", [](Case& c) { c.bias = BiasCase::kFull; });
  add("bias_heads", [](Case& c) { c.bias = BiasCase::kHeads; });
  add("bias_shared", [](Case& c) { c.bias = BiasCase::kShared; });
  add("bias_and_q_rows", [](Case& c) {
    c.bias = BiasCase::kHeads;
    c.q_scale = kRows;
  });
  add("cap", [](Case& c) { c.cap = 2; });
  add("post", [](Case& c) { c.post = true; });
  add("cap_and_post", [](Case& c) {
    c.cap = 2;
    c.post = true;
  });
  add("cap_and_q_rows", [](Case& c) {
    c.cap = 2;
    c.q_scale = kRows;
  });
  add("sinks", [](Case& c) { c.sinks = true; });
  add("sinks_and_d_lse", [](Case& c) {
    c.sinks = true;
    c.d_lse = true;
  });
  add("d_lse", [](Case& c) { c.d_lse = true; });
  add("dropout_tenth", [](Case& c) { c.dropout = 0.1; });
  add("dropout_half", [](Case& c) { c.dropout = 0.5; });
  add("dropout_and_sinks", [](Case& c) {
    c.dropout = 0.5;
    c.sinks = true;
    c.v_scale = kRows;
  });
  add("huge_logits", [](Case& c) { c.magnitude = 1e4; });
  add("huge_logits_capped", [](Case& c) {
    c.magnitude = 1e4;
    c.cap = 30;
  });
  add("no_statistics", [](Case& c) { c.statistics = false; });
}

void add_everything(std::vector<Case>& cases) {
  cases.push_back(with_everything(causal("everything")));
  cases.push_back(with_everything(causal("everything_longer", square(150, 40))));
  cases.push_back(changed(with_everything(causal("everything_both_ways", square(67, 16))),
                          [](Case& c) { c.causal = false; }));
  cases.push_back(changed(with_everything(causal("operand_gradients")),
                          [](Case& c) { c.wanted = WantedCase::kOperands; }));
  cases.push_back(changed(with_everything(causal("scale_gradients")),
                          [](Case& c) { c.wanted = WantedCase::kScales; }));
}

void add_layouts(std::vector<Case>& cases) {
  const std::pair<const char*, LayoutCase> layouts[] = {{"rows_first", LayoutCase::kRowsFirst},
                                                        {"padded", LayoutCase::kPadded},
                                                        {"heads_first", LayoutCase::kHeadsFirst}};
  for (const auto& [name, layout] : layouts)
    for (const int64_t offset : {0, 1}) {
      Case base = causal(concat(name, "_offset_", offset), square(45, 40));
      base.layout = layout;
      base.offset = offset;
      base.shape.q_heads = 4;
      base.shape.kv_heads = 2;
      cases.push_back(base);
      base.name += "_everything";
      cases.push_back(with_everything(base));
    }
  Case empty = with_everything(causal("empty_batch"));
  empty.shape.batch = 0;
  cases.push_back(empty);
  cases.push_back(with_everything(causal("no_rows", square(0, 16))));
}

Case decode_case(std::string name, int64_t q_rows, std::vector<int32_t> lengths) {
  Case result = causal(std::move(name));
  result.shape = {.batch = static_cast<int64_t>(lengths.size()),
                  .q_heads = 4,
                  .kv_heads = 2,
                  .q_rows = q_rows,
                  .kv_rows = 200,
                  .qk_size = 40,
                  .v_size = 24};
  result.lengths = std::move(lengths);
  return result;
}

// Scales of cached rows are finished ones.
Case with_decode_everything(Case base) {
  base = with_everything(base);
  base.k_scale = base.v_scale = kRows;
  return base;
}

}  // namespace

const std::vector<Case>& attention_cases() {
  static const std::vector<Case> cases = [] {
    std::vector<Case> list;
    add_scales(list);
    add_features(list);
    add_everything(list);
    add_masks(list);
    add_cross(list);
    add_shapes(list);
    add_layouts(list);
    return list;
  }();
  return cases;
}

const std::vector<Case>& decode_cases() {
  static const std::vector<Case> cases = [] {
    std::vector<Case> list;
    for (const int64_t q_rows : {1, 2, 5}) {
      const Case plain = decode_case(concat("decode_", q_rows), q_rows, {200, 77, 5});
      for (const int64_t block_size : {0, 1, 16, 33}) {
        Case paged = plain;
        paged.block_size = block_size;
        if (block_size > 0) paged.name += concat("_paged_", block_size);
        list.push_back(paged);
        paged.name += "_everything";
        paged.layout = LayoutCase::kRowsFirst;
        list.push_back(with_decode_everything(paged));
      }
    }
    list.push_back(changed(decode_case("decode_one_key", 1, {1}), [](Case& c) { c.sinks = true; }));
    list.push_back(with_decode_everything(decode_case("decode_empty_cache", 1, {0, 3})));
    list.push_back(with_decode_everything(decode_case("decode_more_rows_than_keys", 5, {2, 9})));
    list.push_back(changed(decode_case("decode_window", 2, {199, 30}), [](Case& c) {
      c.window = 20;
      c.q_scale = kWhole;
    }));
    list.push_back(changed(decode_case("decode_both_ways", 3, {150, 9}), [](Case& c) {
      c.causal = false;
      c.v_scale = kRows;
    }));
    list.push_back(
        changed(with_decode_everything(decode_case("decode_padded", 2, {200, 131})), [](Case& c) {
          c.layout = LayoutCase::kPadded;
          c.offset = 1;
        }));
    list.push_back(changed(
        with_decode_everything(decode_case("decode_left_padding", 1, {100, 131})), [](Case& c) {
          c.content = {{10, 200}, {0, 200}};
        }));
    list.push_back(changed(decode_case("decode_group_8", 1, {200}), [](Case& c) {
      c.shape.q_heads = 8;
      c.shape.kv_heads = 1;
      c.shape.qk_size = c.shape.v_size = 128;
    }));
    return list;
  }();
  return cases;
}

const std::vector<Case>& bench_cases() {
  static const std::vector<Case> cases = [] {
    std::vector<Case> list;
    for (const int64_t size : {64, 128})
      for (const int64_t rows : {256, 1024, 4096}) {
        const Shape shape{.batch = 1,
                          .q_heads = 8,
                          .kv_heads = 8,
                          .q_rows = rows,
                          .kv_rows = rows,
                          .qk_size = size,
                          .v_size = size};
        Case plain = causal(concat("plain_", rows, "_", size), shape);
        plain.statistics = false;
        list.push_back(plain);
        plain.name = concat("ssa_", rows, "_", size);
        list.push_back(with_ssa(plain));
      }
    for (const int32_t keys : {4096, 32768}) {
      Case decode = decode_case(concat("decode_", keys), 1, {keys});
      decode.shape.kv_rows = keys;
      decode.shape.q_heads = decode.shape.kv_heads = 8;
      decode.shape.qk_size = decode.shape.v_size = 128;
      decode.statistics = false;
      list.push_back(decode);
    }
    return list;
  }();
  return cases;
}

}  // namespace tempera::kernels
