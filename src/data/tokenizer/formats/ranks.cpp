// tiktoken's ranks, and GPT-2's vocab.json with merges.txt.
#include "base/bounded_json.h"
#include "base/text/base64.h"
#include "data/tokenizer/byte_alphabet.h"
#include "data/tokenizer/formats/json_node.h"
#include "data/tokenizer/tokenizer_files.h"

#include <algorithm>
#include <charconv>
#include <unordered_map>
#include <utility>

namespace echelon {
namespace {

std::string_view next_line(std::string_view& text) {
  std::string_view line = text.substr(0, text.find('\n'));
  text.remove_prefix(std::min(line.size() + 1, text.size()));
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

/// tiktoken merges two tokens whenever their bytes together are a token: each way to split a token in two is a merge.
void add_merges(TokenizerSpec& spec) {
  std::unordered_map<std::string_view, std::int32_t> ids;
  std::size_t longest = 0;
  for (std::size_t id = 0; id < spec.tokens.size(); ++id) {
    if (!spec.tokens[id].empty()) ids.emplace(spec.tokens[id], static_cast<std::int32_t>(id));
    longest = std::max(longest, spec.tokens[id].size());
  }
  for (std::size_t id = 0; id < spec.tokens.size(); ++id) {
    const std::string_view token = spec.tokens[id];
    for (std::size_t cut = 1; cut < token.size(); ++cut) {
      const auto left = ids.find(token.substr(0, cut)), right = ids.find(token.substr(cut));
      if (left != ids.end() && right != ids.end())
        spec.merges.push_back({left->second, right->second, static_cast<std::int32_t>(id)});
    }
  }
}

}  // namespace

TokenizerSpec parse_ranks(std::string_view text, const std::string& pattern, const std::string& name) {
  constexpr std::size_t longest_token = 1024;  // each way to split a token is looked up
  const std::int64_t end_of_ranks = end_of_ids(static_cast<std::size_t>(std::ranges::count(text, '\n')) + 1);
  TokenizerSpec spec;
  for (std::int64_t number = 1; !text.empty(); ++number) {
    const std::string_view line = next_line(text);
    if (line.empty()) continue;
    const std::size_t space = std::min(line.find(' '), line.size());
    const auto token = from_base64(line.substr(0, space));
    std::int32_t rank = -1;
    const std::string_view digits = line.substr(std::min(space + 1, line.size()));
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), rank);
    const bool is_whole = error == std::errc() && end == digits.data() + digits.size() && rank >= 0;
    require(token && !token->empty() && token->size() <= longest_token && is_whole,
            "{}:{} is not a token in base64 and its rank, such as \"IQ== 0\"", name, number);
    require(rank < end_of_ranks, "{}:{} gives rank {}, which leaves too many without a token (use less than {})", name,
            number, rank, end_of_ranks);
    const auto slot = static_cast<std::size_t>(rank);
    if (spec.tokens.size() <= slot) spec.tokens.resize(slot + 1);
    require(spec.tokens[slot].empty(), "{}:{} gives rank {} to a second token", name, number, rank);
    spec.tokens[slot] = *token;
  }
  add_merges(spec);
  spec.prefers_whole_pieces = true;
  spec.splitter = byte_level_splitter({pattern});
  spec.decoder = {{.kind = DecodeStep::Kind::byte_level}};
  return spec;
}

TokenizerSpec parse_vocab_and_merges(std::string_view vocab, std::string_view merges, const std::string& name) {
  nlohmann::json model = {{"type", "BPE"}, {"vocab", parse_json_object(vocab, name)}};
  nlohmann::json pairs = nlohmann::json::array();
  while (!merges.empty()) {
    const std::string_view line = next_line(merges);
    if (!line.empty() && !line.starts_with("#version")) pairs.push_back(line);
  }
  model["merges"] = std::move(pairs);
  TokenizerSpec spec;
  spec.splitter = byte_level_splitter({std::string(gpt2_pattern)});
  spec.decoder = {{.kind = DecodeStep::Kind::byte_level}};
  read_model({model, name + ": model"}, spec);
  const auto end = std::find(spec.tokens.begin(), spec.tokens.end(), end_of_text);
  if (end != spec.tokens.end())
    spec.added.push_back({static_cast<std::int32_t>(end - spec.tokens.begin()), std::string(end_of_text), true});
  return spec;
}

}  // namespace echelon
