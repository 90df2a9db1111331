// Which tokens of a tokenizer reach a model.
#pragma once

#include "data/tokenizer/tokenizer.h"

#include <cstdint>
#include <string>

namespace echelon {

/// The largest id that an encoded document has: of the vocabulary, of added tokens, and of what is put around a text.
/// Control tokens are none of them unless they end a document or the file's template adds them: prepare takes them for
/// text, and published tokenizers have some, such as Gemma 3's for images, that their model has no embedding for.
[[nodiscard]] std::int32_t largest_document_id(const Tokenizer& tokenizer);

/// Throws Error, starting with `name` and ending with `remedy`, if that id of the tokenizer has no embedding.
void require_embeddings(const Tokenizer& tokenizer, std::int64_t vocab_size, const std::string& name,
                        const std::string& remedy);

/// The same for the file at `path`. One that is missing, or of another kind than read_tokenizer reads, is not checked:
/// nothing here encodes with it.
void require_embeddings(const std::string& path, std::int64_t vocab_size, const std::string& name,
                        const std::string& remedy);

}  // namespace echelon
