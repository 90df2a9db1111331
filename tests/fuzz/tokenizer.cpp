#include "data/tokenizer/tokenizer.h"
#include "base/error.h"
#include "data/tokenizer/encoder.h"
#include "data/tokenizer/tokenizer_files.h"
#include "fuzz/heap_bound.h"
#include "fuzz/input_folder.h"
#include "fuzz/targets.h"

#include <fmt/format.h>

#include <stdexcept>

namespace echelon::fuzz {
namespace {

TokenizerSpec parse(char kind, std::string_view text) {
  if (kind == 's') return parse_sentencepiece(text, "tokenizer.model");
  if (kind == 'r') return parse_ranks(text, std::string(named_pattern("llama3")), "x.tiktoken");
  if (kind != 'v') return parse_tokenizer_json(text, "tokenizer.json");
  const std::string_view vocab = take_part(text);
  return parse_vocab_and_merges(vocab, text, "vocab.json");
}

void use(const TokenizerSpec& spec) {
  const Tokenizer tokenizer(spec);
  for (const bool parses_control : {true, false}) {
    std::vector<std::int32_t> ids;
    Encoder(tokenizer, parses_control)
        .append("Hello,  w\xc3\xb6rld 1234 <s><|im_end|>\n\n\xe2\x96\x81 ab\xff\xf0", ids);
    (void)tokenizer.decode(ids);
  }
}

}  // namespace

int tokenizer(const std::uint8_t* data, std::size_t size) {
  std::string_view text = text_of(data, size);
  if (text.empty()) return 0;
  const char kind = text.front();
  text.remove_prefix(1);
  const HeapBound bound(size);
  try {
    const TokenizerSpec spec = parse(kind, text);
    use(spec);
    if (parse_tokenizer_json(to_tokenizer_json(spec), "again") != spec)
      throw std::logic_error("a tokenizer that is written and read again is another one");
  } catch (const Error&) {
    return 0;
  }
  return 0;
}

}  // namespace echelon::fuzz
