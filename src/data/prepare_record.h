// OUTPUT/prepare.json: the record of a preparation and of its request.
#pragma once

#include "data/prepare.h"

#include <optional>
#include <string>

namespace echelon {

/// A hash (16 hexadecimal digits) of everything that determines the result: the options, each file's name, size and
/// modification time, and the given tokenizer's bytes.
[[nodiscard]] std::string request_hash(const PrepareOptions& options, const Corpus& corpus);

/// The result in OUTPUT/prepare.json, if its request is `hash` and its files are complete.
[[nodiscard]] std::optional<PrepareResult> read_prepare_record(const PrepareOptions& options, const std::string& hash);

void write_prepare_record(const PrepareOptions& options, const std::string& hash, const PrepareResult& result);

}  // namespace echelon
