// Conversations on several threads: the files and the errors of one.
#include "chat_fixture.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <map>

namespace echelon {
namespace {

using ::testing::HasSubstr;

// Several batches of each number of threads.
constexpr int num_lines = 3500;

std::string conversation(int i) {
  return fmt::format(
      R"({{"messages": [{{"role": "user", "content": "said {}"}}, {{"role": "assistant", "content": "{}there {}"}}]}})",
      i * i, i % 7 == 0 ? std::string(40, 'u') : "", i);
}

/// The lines of a file, some of them others.
std::string conversations(const std::map<int, std::string>& others = {}) {
  std::string lines;
  for (int i = 1; i <= num_lines; ++i) lines += (others.contains(i) ? others.at(i) : conversation(i)) + "\n";
  return lines;
}

TEST(ChatThreads, ChangeNoByte) {
  const Scratch scratch;
  PrepareOptions options = chat_options(scratch, conversations());
  options.corpus.validation_fraction = 0.2;
  options.chat.too_long = TooLong::truncate;
  options.chat.max_tokens = 32;
  std::map<std::string, std::string> expected;
  for (const int num_threads : {1, 2, 3}) {
    options.num_threads = num_threads;
    options.output = scratch.path(fmt::format("{}", num_threads));
    const PrepareResult result = prepare(options);
    EXPECT_GT(result.num_untrained, 300);
    EXPECT_GT(result.validation.num_documents, 400);
    EXPECT_EQ(result.train.num_documents + result.validation.num_documents + result.num_untrained, num_lines);
    for (const char* name : {"train.bin", "train.idx", "train.mask", "validation.bin", "validation.idx",
                             "validation.mask", "prepare.json"}) {
      const std::string bytes = scratch.read(fmt::format("{}/{}", num_threads, name));
      EXPECT_GT(bytes.size(), 100U);
      EXPECT_TRUE(expected.try_emplace(name, bytes).first->second == bytes) << num_threads << " " << name;
    }
  }
}

// Whatever is wrong with it, and with later ones.
TEST(ChatThreads, NameTheFirstLineThatIsWrong) {
  const Scratch scratch;
  const std::string other_fields = R"({"prompt": "a", "completion": "b"})", no_json = R"({"messages": )",
                    untrained = R"({"messages": [{"role": "user", "content": "a"}]})",
                    mixed = R"({"prompt": "a", "completion": ""})";
  const auto sentence = [&](const std::map<int, std::string>& others, int num_threads) {
    PrepareOptions options = chat_options(scratch, conversations(others));
    options.num_threads = num_threads;
    options.corpus.inputs.push_back(scratch.write("later.txt", "no lines"));
    return sentence_of([&] { prepare(options); });
  };
  for (const int num_threads : {1, 3}) {
    EXPECT_THAT(sentence({{1, no_json}, {2, untrained}}, num_threads), HasSubstr("chats.jsonl:1: not valid JSON"));
    EXPECT_THAT(sentence({{90, untrained}, {91, no_json}, {3300, other_fields}}, num_threads),
                HasSubstr("chats.jsonl:90: the conversation has nothing to train on"));
    EXPECT_THAT(sentence({{3400, mixed}, {3401, untrained}}, num_threads),
                HasSubstr("chats.jsonl:3400: a conversation in prompt/completion after others in messages"));
    EXPECT_THAT(sentence({}, num_threads), HasSubstr("later.txt is not a .jsonl file"));
  }
}

}  // namespace
}  // namespace echelon
