#include "train/data/special_tokens.h"

#include "base/error.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/tokenizer_files.h"

#include <string>

namespace echelon {

SpecialTokens special_tokens(const std::filesystem::path& tokenizer) {
  require(tokenizer.extension() == ".json" && tokenizer.filename() != "vocab.json",
          "'{}' is not a tokenizer.json (use the one that `echelon prepare` writes next to the data)",
          tokenizer.string());
  const Tokenizer read = Tokenizer::load(tokenizer.string());
  auto bos = named_token(tokenizer.string(), "bos_token"), eos = named_token(tokenizer.string(), "eos_token");
  if (!bos && !eos) bos = eos = std::string(end_of_text);
  SpecialTokens tokens;
  if (bos) tokens.bos = read.token_of(*bos);
  if (eos) tokens.eos = read.token_of(*eos);
  return tokens;
}

}  // namespace echelon
