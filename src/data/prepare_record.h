// OUTPUT/prepare.json: what a preparation did, and for which request.
#pragma once

#include "data/prepare.h"

#include <optional>
#include <string>

namespace echelon {

/// 16 hexadecimal digits of everything that decides the outcome: the options, each file's name, size and time of
/// change, the given tokenizer's bytes.
[[nodiscard]] std::string request_hash(const PrepareOptions& options, const Corpus& corpus);

/// The result that OUTPUT/prepare.json records, if its request is `hash` and the files beside it are whole.
[[nodiscard]] std::optional<PrepareResult> read_prepare_record(const PrepareOptions& options, const std::string& hash);

void write_prepare_record(const PrepareOptions& options, const std::string& hash, const PrepareResult& result);

}  // namespace echelon
