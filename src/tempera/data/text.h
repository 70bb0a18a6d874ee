#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "tempera/base/parallel.h"
#include "tempera/data/shard.h"
#include "tempera/text/tokenizer.h"

// Documents out of text files. A file that ends in .jsonl or .ndjson has a JSON object with the
// string "text" on each line; any other is plain text, in which lines that are exactly
// <|endoftext|> separate documents.
namespace tempera::data {

// Throws where the path is no readable file; a missing one is answered with the nearest name in its
// folder.
void check_readable_file(const std::filesystem::path& path);

// Calls take(document) for each document that is not empty. Throws for empty files, for bytes that
// are no text, and, with the number of the line, for lines that are not what jsonl needs.
void for_each_document(const std::filesystem::path& path,
                       FunctionRef<void(std::string_view document)> take);
// The same in pieces of bounded size, the last of each document marked as such: the memory that it
// takes does not grow with the file. A file that changes meanwhile is refused.
void for_each_piece(const std::filesystem::path& path,
                    FunctionRef<void(std::string_view piece, bool last)> take);
// Documents of bytes in memory; origin names them in messages.
void for_each_document(std::string_view bytes, bool jsonl, const std::string& origin,
                       FunctionRef<void(std::string_view document)> take);

// The lines of a text file, empty ones too, without their ends. Throws as for_each_document does.
std::vector<std::string> read_lines(const std::filesystem::path& path);
std::vector<std::string> lines_of(std::string_view text);

struct TextProgress {
  int64_t bytes = 0;            // of text, since the file's begin
  int64_t tokens = 0;           // of the last piece
  bool document_ended = false;  // with the last piece
};

// Adds every document of the file to the builder, each with the tokenizer's end-of-text behind it.
// report is called after each piece, which is of bounded size; it may take the shard out of the
// builder, which cuts a document that is longer than a shard should be.
void tokenize_file(const std::filesystem::path& path, const text::Tokenizer& tokenizer,
                   ShardBuilder& builder, FunctionRef<void(const TextProgress&)> report);

// How many bytes belong to no well-formed UTF-8 sequence.
int64_t count_invalid_utf8(std::string_view text);

}  // namespace tempera::data
