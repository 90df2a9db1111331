// Converts text to the files that training reads: OUTPUT/tokenizer.json, OUTPUT/train.{bin,idx},
// OUTPUT/validation.{bin,idx}, and OUTPUT/prepare.json, a record of the preparation that is written last.
#pragma once

#include "data/chat/chat_options.h"
#include "data/corpus.h"
#include "data/split_writer.h"

#include <cstdint>
#include <functional>
#include <string>

namespace echelon {

struct PrepareOptions {
  CorpusOptions corpus;
  std::string output;                              // a folder; created if missing
  std::string tokenizer;                           // a file of read_tokenizer to use; empty: one is trained
  std::string pattern;                             // of a tokenizer that is a file of ranks
  std::string separator;                           // the token between documents; empty: the tokenizer's
  std::int64_t vocab_size = 4096;                  // of the tokenizer that is trained
  std::int64_t min_frequency = 2;                  // of the pairs that it merges
  std::int64_t training_sample_bytes = 8'000'000;  // of text that the tokenizer is trained on
  bool appends_end_of_document = true;             // the separator after every document
  bool adds_template = false;                      // instead of it: what the tokenizer's template puts around a text
  bool parses_special = false;                     // control tokens in the text are those tokens, not text
  ChatOptions chat;
  int num_threads = 0;  // 0: one for each core; changes no token
};

/// Of its encoders: at least 1.
[[nodiscard]] int num_threads_of(const PrepareOptions& options);

struct PrepareResult {
  bool is_reused = false;  // OUTPUT exists already, from the same options and files
  std::int64_t vocab_size = 0;
  std::int64_t num_files = 0;
  std::int64_t num_skipped_files = 0;    // files that are not text
  std::int64_t num_control_as_text = 0;  // control tokens that the text spells out
  std::int64_t num_too_long = 0;         // conversations that were truncated or dropped
  std::int64_t num_untrained = 0;        // of them left out because nothing to train on was left
  std::string chat_format;               // the fields of the conversations
  SplitCounts train, validation;
  double validation_entropy = 0;  // unigram_entropy of the validation tokens, nats per token; 0 without validation
};

enum class PrepareStage : std::uint8_t { training_tokenizer, encoding };

/// Called after every document with the bytes of text done and the total. If it throws, the preparation ends and no
/// file has its final name.
using PrepareProgress = std::function<void(PrepareStage, std::int64_t done_bytes, std::int64_t total_bytes)>;

/// Makes OUTPUT unless it is up to date. The result depends on the options and on the names and contents of the files.
/// Throws Error on bad options, files that cannot be read and an empty split, Failure if OUTPUT cannot be written.
PrepareResult prepare(const PrepareOptions& options, const PrepareProgress& progress = {});

}  // namespace echelon
