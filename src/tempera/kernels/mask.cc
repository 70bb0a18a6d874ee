#include "tempera/kernels/mask.h"

#include <cmath>
#include <limits>

#include "tempera/base/error.h"

namespace tempera::kernels {
namespace {

void check(const RowLayout& layout, const char* side) {
  TEMPERA_CHECK(
      layout.batch >= 0 && layout.rows >= 0 && layout.rows <= std::numeric_limits<int32_t>::max(),
      side, ": ", layout.batch, " sequences of ", layout.rows, " rows given");
  const auto batch = static_cast<size_t>(layout.batch);
  TEMPERA_CHECK(layout.documents.empty() || layout.documents.size() == batch, side,
                ": documents of ", layout.documents.size(), " sequences given, ", batch,
                " expected (the batch)");
  TEMPERA_CHECK(layout.content.empty() || layout.content.size() == batch, side, ": padding of ",
                layout.content.size(), " sequences given, ", batch, " expected (the batch)");
  for (size_t b = 0; b < layout.documents.size(); ++b) {
    int64_t sum = 0;
    for (const int64_t length : layout.documents[b]) {
      TEMPERA_CHECK(length >= 0, side, ": a document of ", length, " rows in sequence ", b,
                    "; at least 0 expected");
      sum += length;
    }
    TEMPERA_CHECK(sum == layout.rows, side, ": the documents of sequence ", b, " sum to ", sum,
                  " rows, ", layout.rows, " expected; count padding into the last (or first) one");
  }
  for (size_t b = 0; b < layout.content.size(); ++b) {
    const KeyRange& content = layout.content[b];
    TEMPERA_CHECK(content.begin >= 0 && content.end >= content.begin && content.end <= layout.rows,
                  side, ": the rows of sequence ", b, " that are not padding are given as ",
                  content.begin, " to ", content.end, ", a range within 0 to ", layout.rows,
                  " expected");
  }
}

KeyRange content_of(const RowLayout& layout, size_t b) {
  return layout.content.empty() ? KeyRange{0, layout.rows} : layout.content[b];
}

std::vector<int64_t> documents_of(const RowLayout& layout, size_t b) {
  return layout.documents.empty() ? std::vector<int64_t>{layout.rows} : layout.documents[b];
}

}  // namespace

VisibleRanges visible_ranges(const RowLayout& queries, const RowLayout& keys) {
  check(queries, "queries");
  check(keys, "keys");
  TEMPERA_CHECK(queries.batch == keys.batch, "queries of ", queries.batch, " and keys of ",
                keys.batch, " sequences given; as many expected");
  VisibleRanges ranges;
  const auto add = [&ranges](int64_t begin, int64_t end) {
    ranges.begin.push_back(static_cast<int32_t>(begin));
    ranges.end.push_back(static_cast<int32_t>(end));
  };
  for (size_t b = 0; b < static_cast<size_t>(queries.batch); ++b) {
    const std::vector<int64_t> query_documents = documents_of(queries, b);
    const std::vector<int64_t> key_documents = documents_of(keys, b);
    TEMPERA_CHECK(query_documents.size() == key_documents.size(), "sequence ", b, ": ",
                  query_documents.size(), " documents of queries and ", key_documents.size(),
                  " of keys given; as many expected, since document d reads document d");
    const KeyRange query_content = content_of(queries, b);
    const KeyRange key_content = content_of(keys, b);
    int64_t row = 0;
    int64_t key = 0;
    for (size_t d = 0; d < query_documents.size(); ++d) {
      const int64_t begin = std::max(key, key_content.begin);
      const int64_t end = std::min(key + key_documents[d], key_content.end);
      for (const int64_t next = row + query_documents[d]; row < next; ++row) {
        const bool padding = row < query_content.begin || row >= query_content.end;
        if (padding || begin >= end)
          add(0, 0);
        else
          add(begin, end);
      }
      key += key_documents[d];
    }
  }
  return ranges;
}

std::vector<int32_t> visible_counts(const Mask& mask, const Shape& shape) {
  std::vector<int32_t> counts;
  counts.reserve(static_cast<size_t>(shape.batch * shape.q_rows));
  for (int64_t b = 0; b < shape.batch; ++b)
    for (int64_t i = 0; i < shape.q_rows; ++i)
      counts.push_back(static_cast<int32_t>(visible_keys(mask, shape, b, i).size()));
  return counts;
}

template <class R>
std::vector<R> log_visible_counts(const Mask& mask, const Shape& shape) {
  std::vector<R> logs;
  for (const int32_t count : visible_counts(mask, shape))
    logs.push_back(static_cast<R>(std::log(std::max(count, 1))));
  return logs;
}

template std::vector<float> log_visible_counts<float>(const Mask&, const Shape&);
template std::vector<double> log_visible_counts<double>(const Mask&, const Shape&);

}  // namespace tempera::kernels
