#include "data/tokenizer/embeddings.h"

#include "base/error.h"
#include "base/text/printable.h"
#include "files/file.h"

#include <algorithm>
#include <optional>

namespace echelon {
namespace {

std::optional<Tokenizer> readable(const std::string& path) {
  if (!has_target(path)) return std::nullopt;
  try {
    return Tokenizer::load(path);
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace

std::int32_t largest_document_id(const Tokenizer& tokenizer) {
  const TokenizerSpec& spec = tokenizer.spec();
  std::vector<bool> is_control(static_cast<std::size_t>(tokenizer.vocab_size()));
  std::int32_t largest = tokenizer.end_of_document().value_or(-1);
  for (const AddedToken& added : spec.added) {
    is_control[static_cast<std::size_t>(added.id)] = added.is_special;
    if (!added.is_special) largest = std::max(largest, added.id);
  }
  for (std::size_t id = 0; id < spec.tokens.size(); ++id)
    if (!spec.tokens[id].empty() && !is_control[id]) largest = std::max(largest, static_cast<std::int32_t>(id));
  for (const auto* around : {&spec.before_text, &spec.after_text})
    for (const std::int32_t id : *around) largest = std::max(largest, id);
  return largest;
}

void require_embeddings(const Tokenizer& tokenizer, std::int64_t vocab_size, const std::string& name,
                        const std::string& remedy) {
  const std::int32_t id = largest_document_id(tokenizer);
  if (id < vocab_size) return;
  throw Error(fmt::format("{} makes token {} ({}), but the model's vocab_size is {}, not at least {} ({})", name, id,
                          printable(tokenizer.bytes(id), 40), vocab_size, id + 1, remedy));
}

void require_embeddings(const std::string& path, std::int64_t vocab_size, const std::string& name,
                        const std::string& remedy) {
  if (const std::optional<Tokenizer> tokenizer = readable(path))
    require_embeddings(*tokenizer, vocab_size, name, remedy);
}

}  // namespace echelon
