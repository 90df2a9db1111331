// A small tokenizer with the control tokens of ChatML, and what prepare makes of conversations with it.
#pragma once

#include "data/indexed_dataset.h"
#include "data/loss_mask.h"
#include "data/prepare.h"
#include "scratch.h"

#include <nlohmann/json.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace echelon {

/// A learned tokenizer with the control tokens of ChatML.
inline std::string write_tokenizer(const Scratch& scratch) {
  PrepareOptions options;
  options.corpus.inputs = {scratch.write("text.txt", "hello there, said the user to the assistant\n")};
  options.corpus.validation_fraction = 0;
  options.output = scratch.path("base");
  options.vocab_size = 280;
  const auto first = static_cast<int>(prepare(options).vocab_size);
  auto json = nlohmann::ordered_json::parse(scratch.read("base/tokenizer.json"));
  for (const char* content : {"<|im_start|>", "<|im_end|>"}) {
    auto added = json["added_tokens"][0];
    added["id"] = first + static_cast<int>(std::string(content) == "<|im_end|>");
    added["content"] = content;
    json["added_tokens"].push_back(added);
  }
  return scratch.write("model/tokenizer.json", json.dump());
}

inline PrepareOptions chat_options(const Scratch& scratch, std::string_view lines) {
  PrepareOptions options;
  options.tokenizer = write_tokenizer(scratch);
  options.corpus.inputs = {scratch.write("chats.jsonl", lines)};
  options.corpus.validation_fraction = 0;
  options.output = scratch.path("out");
  options.chat.is_on = true;
  options.chat.template_name = "chatml";
  return options;
}

/// The trained part in brackets.
inline std::string marked(const Scratch& scratch) {
  const Tokenizer tokenizer = Tokenizer::load(scratch.path("out/tokenizer.json"));
  const IndexedDataset dataset(scratch.path("out/train"));
  const auto mask = LossMask::of(dataset);
  std::vector<std::int32_t> ids(static_cast<std::size_t>(dataset.num_tokens()));
  dataset.read(0, ids);
  std::string text;
  bool was_trained = false;
  for (std::size_t i = 0; i <= ids.size(); ++i) {
    const bool is_trained = i < ids.size() && mask && mask->is_trained(static_cast<std::int64_t>(i));
    if (is_trained != was_trained) text += is_trained ? "[" : "]";
    was_trained = is_trained;
    if (i < ids.size()) text += tokenizer.bytes(ids[i]);
  }
  return text;
}

constexpr std::string_view two_turns =
    R"({"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello there"},)"
    R"( {"role": "user", "content": "so"}, {"role": "assistant", "content": "there"}]})";

}  // namespace echelon
