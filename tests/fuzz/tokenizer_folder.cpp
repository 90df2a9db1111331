#include "base/error.h"
#include "data/chat/chat_encoder.h"
#include "data/tokenizer/tokenizer_files.h"
#include "fuzz/heap_bound.h"
#include "fuzz/input_folder.h"
#include "fuzz/targets.h"

namespace echelon::fuzz {

int tokenizer_folder(const std::uint8_t* data, std::size_t size) {
  static const InputFolder folder;
  std::string_view text = text_of(data, size);
  for (const std::string_view name : {"tokenizer_config.json", "special_tokens_map.json", "config.json"})
    folder.put(name, take_part(text));
  static const std::string tokenizer = (folder.path() / "tokenizer.json").string();
  const HeapBound bound(size);
  for (const auto read : {+[] { (void)named_tokens(tokenizer); }, +[] { (void)model_vocab_size(tokenizer); },
                          +[] { (void)chat_templates_of(tokenizer, ""); }}) {
    try {
      read();
    } catch (const Error&) {
      continue;
    }
  }
  return 0;
}

}  // namespace echelon::fuzz
