// Templates with the constructs of published ones on conversations, against transformers' apply_chat_template.
// tests/interop/chat_templates.py makes the results.
#include "crc.h"
#include "data/chat/chat_encoder.h"
#include "data/tokenizer/tokenizer_files.h"
#include "scratch.h"
#include "tree/tree.h"

#include <gtest/gtest.h>

#include <map>

namespace echelon {
namespace {

template <class T>
std::uint32_t crc_of(const T* values, std::size_t size) {
  return crc32_of({reinterpret_cast<const char*>(values), size * sizeof(T)});
}

/// The pipeline with the added tokens of the template, in a folder that names its bos and eos.
std::string write_tokenizer(const Scratch& scratch, const std::string& name, const nlohmann::ordered_json& of) {
  nlohmann::ordered_json spec = nlohmann::ordered_json::parse(
      tree::read_text(tree::root() / "tests/data/pipelines" / (of.at("pipeline").get<std::string>() + ".json")));
  spec["added_tokens"] = of.at("added_tokens");
  nlohmann::ordered_json config = nlohmann::ordered_json::object();
  for (const char* token : {"bos_token", "eos_token"})
    if (of.at(token).is_string()) config[token] = of.at(token);
  scratch.write(name + "/tokenizer_config.json", config.dump());
  return scratch.write(name + "/tokenizer.json", spec.dump());
}

TEST(ChatTemplates, GiveTheIdsAndMasksOfTransformers) {
  const Scratch scratch;
  const auto folder = tree::root() / "tests/data/templates";
  const nlohmann::ordered_json fixture = nlohmann::ordered_json::parse(tree::read_text(folder / "chats.json"));
  int num_compared = 0;
  std::map<std::string, int> num_longer;
  for (const auto& [name, of] : fixture.at("templates").items()) {
    const std::string path = write_tokenizer(scratch, name, of);
    const Tokenizer tokenizer = Tokenizer::load(path);
    ChatEncoder encoder(tokenizer, path, {tree::read_text(folder / (name + ".jinja"))}, TrainOn::assistant);
    for (std::size_t i = 0; i < of.at("results").size(); ++i, ++num_compared) {
      const nlohmann::ordered_json& expected = of.at("results").at(i);
      const EncodedChat chat = encoder.encode(read_conversation(fixture.at("conversations").at(i).dump()));
      // Only an end that the library lacks may follow: it is trained.
      const auto size = expected.at(1).get<std::size_t>();
      ASSERT_TRUE(chat.ids.size() == size || chat.ids.size() == size + 1 || chat.ids.size() == size + 2)
          << name << " " << i << " " << chat.ids.size() << " " << size;
      num_longer[name] += chat.ids.size() > size ? 1 : 0;
      for (std::size_t k = size; k < chat.ids.size(); ++k) EXPECT_EQ(chat.is_trained[k], 1);
      ASSERT_EQ(crc_of(chat.ids.data(), size), expected.at(2).get<std::uint32_t>()) << name << " " << i;
      EXPECT_EQ(crc_of(chat.is_trained.data(), size), expected.at(3).get<std::uint32_t>()) << name << " " << i;
    }
  }
  EXPECT_EQ(num_compared, 14 * 60);
  for (const auto& [name, count] : num_longer) EXPECT_EQ(count, name == "glm" ? 60 : 0) << name;
}

// What generate --chat makes of the conversation before its last answer.
TEST(ChatTemplates, GiveThePromptsOfTransformers) {
  const Scratch scratch;
  const auto folder = tree::root() / "tests/data/templates";
  const nlohmann::ordered_json fixture = nlohmann::ordered_json::parse(tree::read_text(folder / "chats.json"));
  for (const auto& [name, of] : fixture.at("templates").items()) {
    const std::string path = write_tokenizer(scratch, name, of);
    const Tokenizer tokenizer = Tokenizer::load(path);
    ChatEncoder encoder(tokenizer, path, {tree::read_text(folder / (name + ".jinja"))}, TrainOn::assistant);
    for (std::size_t i = 0; i < of.at("results").size(); ++i) {
      Conversation chat = read_conversation(fixture.at("conversations").at(i).dump());
      chat.messages.erase(chat.messages.end() - 1);
      chat.is_trained.pop_back();
      const std::vector<std::int32_t> ids = encoder.encode_prompt(chat);
      EXPECT_EQ(crc_of(ids.data(), ids.size()), of.at("results").at(i).at(4).get<std::uint32_t>()) << name << " " << i;
    }
  }
}

// As the templates' authors say it; GLM's answers end where the next message starts.
TEST(ChatTemplates, EndTurnsWithTheTokenAfterAnAnswer) {
  const std::map<std::string, std::string> ends = {{"chatml", "<|im_end|>"},
                                                   {"llama2", "</s>"},
                                                   {"llama3", "<|eot_id|>"},
                                                   {"mistral", "</s>"},
                                                   {"gemma", "<end_of_turn>"},
                                                   {"phi4", "<|im_end|>"},
                                                   {"qwen2", "<|im_end|>"},
                                                   {"qwen3", "<|im_end|>"},
                                                   {"smollm3", "<|im_end|>"},
                                                   {"olmo2", "<|endoftext|>"},
                                                   {"granite", "<|end_of_text|>"},
                                                   {"glm", "<|user|>"},
                                                   {"deepseek", "<｜end▁of▁sentence｜>"},
                                                   {"tools", "<|im_end|>"}};
  const Scratch scratch;
  const auto folder = tree::root() / "tests/data/templates";
  const nlohmann::ordered_json fixture = nlohmann::ordered_json::parse(tree::read_text(folder / "chats.json"));
  for (const auto& [name, of] : fixture.at("templates").items()) {
    const std::string path = write_tokenizer(scratch, name, of);
    const Tokenizer tokenizer = Tokenizer::load(path);
    ChatEncoder encoder(tokenizer, path, {tree::read_text(folder / (name + ".jinja"))}, TrainOn::assistant);
    EXPECT_EQ(encoder.end_of_turn(), tokenizer.added_token(ends.at(name)).value()) << name;
  }
}

TEST(ChatTemplates, RenderTheTextOfTransformers) {
  const auto folder = tree::root() / "tests/data/templates";
  const nlohmann::ordered_json fixture = nlohmann::ordered_json::parse(tree::read_text(folder / "chats.json"));
  for (const auto& [name, of] : fixture.at("templates").items()) {
    jinja::Map variables;
    for (const char* token : {"bos_token", "eos_token"})
      if (of.at(token).is_string()) variables.set(jinja::Text(token), jinja::Text(of.at(token).get<std::string>()));
    const Tokenizer tokenizer = Tokenizer::load(
        (tree::root() / "tests/data/pipelines" / (of.at("pipeline").get<std::string>() + ".json")).string());
    const ChatRenderer renderer(tokenizer, {tree::read_text(folder / (name + ".jinja"))}, variables);
    for (std::size_t i = 0; i < of.at("results").size(); ++i) {
      const auto text = renderer.render(read_conversation(fixture.at("conversations").at(i).dump())).text.bytes;
      EXPECT_EQ(crc_of(text.data(), text.size()), of.at("results").at(i).at(0).get<std::uint32_t>())
          << name << " " << i << "\n"
          << text;
    }
  }
}

}  // namespace
}  // namespace echelon
