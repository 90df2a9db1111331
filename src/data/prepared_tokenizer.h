// The tokenizer of prepared text: one that is given or trained on the text, and its files in the output.
#pragma once

#include "data/corpus.h"
#include "data/prepare.h"
#include "data/split_writer.h"
#include "data/tokenizer/tokenizer.h"

namespace echelon {

/// Throws Error if a tokenizer is to be trained that cannot be.
void require_learnable(const PrepareOptions& options);

/// Throws Error if it cannot be read, or if there is no text to train it on.
[[nodiscard]] Tokenizer prepared_tokenizer(const PrepareOptions& options, const Corpus& corpus,
                                           const PrepareProgress& progress);

/// What is put around every document. Throws Error if the options name what the tokenizer has not.
[[nodiscard]] DocumentFrame frame_of(const PrepareOptions& options, const Tokenizer& tokenizer);

/// Writes it to the output. A tokenizer.json is copied byte for byte, with what its reader ignores; the files that name
/// its tokens come along.
void publish_tokenizer(const PrepareOptions& options, const Tokenizer& tokenizer);

}  // namespace echelon
