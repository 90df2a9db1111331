// Every input that people thought of, or that libFuzzer found, is refused or read: without a crash, and in little
// memory and time.
#include "fuzz/heap_bound.h"
#include "fuzz/targets.h"
#include "tree/tree.h"

#include "base/bounded_json.h"
#include "base/error.h"
#include "data/chat/conversation.h"
#include "data/text_field.h"
#include "data/tokenizer/tokenizer_files.h"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>

namespace echelon::fuzz {
namespace {

struct Target {
  const char* name;
  int (*run)(const std::uint8_t* data, std::size_t size);
};
constexpr Target targets[] = {{"manifest", manifest},         {"state_file", state_file},
                              {"model_folder", model_folder}, {"adapter", adapter},
                              {"tokenizer", tokenizer},       {"chat_template", chat_template},
                              {"chat_line", chat_line},       {"text_line", text_line},
                              {"dataset", dataset},           {"tokenizer_folder", tokenizer_folder}};

std::vector<std::filesystem::path> inputs_of(const Target& target) {
  std::vector<std::filesystem::path> inputs;
  for (const auto& entry : std::filesystem::directory_iterator(tree::root() / "tests/fuzz/corpus" / target.name))
    inputs.push_back(entry.path());
  std::ranges::sort(inputs);
  return inputs;
}

void run(const Target& target, const std::string& text) {
  target.run(reinterpret_cast<const std::uint8_t*>(text.data()), text.size());
}

TEST(FuzzCorpus, IsReplayed) {
  for (const Target& target : targets) {
    const auto inputs = inputs_of(target);
    EXPECT_GE(inputs.size(), 10U) << target.name;
    for (const std::filesystem::path& input : inputs) {
      const auto begun = std::chrono::steady_clock::now();
      run(target, tree::read_text(input));
      const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begun;
      EXPECT_LT(seconds.count(), 2) << input;
    }
  }
}

TEST(FuzzCorpus, IsSmall) {
  std::uintmax_t num_bytes = 0;
  for (const Target& target : targets)
    for (const std::filesystem::path& input : inputs_of(target)) num_bytes += std::filesystem::file_size(input);
  EXPECT_LT(num_bytes, 200'000U);
}

TEST(HeapBoundDeathTest, EndsTheProgramThatTakesMore) {
  const auto take = [](std::size_t num_bytes) {
    const HeapBound bound(1000);
    const std::vector<char> memory(num_bytes, 'x');
    EXPECT_GE(bound.most_bytes(), memory.size());
  };
  take(std::size_t{60} << 20U);
  EXPECT_DEATH(take(std::size_t{65} << 20U), "the heap grew by");
}

/// Of a long input: 64 MiB hide what a short one takes.
TEST(FuzzTargets, TakeMemoryInProportionToALongInput) {
  constexpr std::size_t size = 8 << 20;
  for (const std::string_view text : {"1,", "[],", "{},", "\"\",", "[0,1],", "{\"\":{}},", "[", "1,[],1,1,"}) {
    SCOPED_TRACE(text);
    std::string all = "[";
    while (all.size() < size) all += text;
    all += "1]";
    const HeapBound bound(size);
    try {
      (void)parse_bounded_json(all);
    } catch (const Error&) {
      EXPECT_LT(bound.most_bytes(), 4 * size) << "it is refused before it is kept";
    }
  }
}

/// Each in its own way keeps less than what values of empty lists take.
TEST(FuzzTargets, RefuseManyListsBeforeTheyAreKept) {
  constexpr std::size_t size = 4 << 20;
  std::string all = "{\"a\": [";
  while (all.size() < size) all += "[],";
  all += "[]]}";
  const std::pair<const char*, void (*)(const std::string&)> readers[] = {
      {"tokenizer.json", [](const std::string& text) { (void)parse_tokenizer_json(text, "tokenizer.json"); }},
      {"a conversation", [](const std::string& text) { (void)read_conversation(text); }},
      {"a text", [](const std::string& text) { (void)read_text_field(text, "text"); }}};
  for (const auto& [name, read] : readers) {
    const HeapBound bound(size);
    EXPECT_THROW(read(all), Error) << name;
    EXPECT_LT(bound.most_bytes(), 4 * size) << name;
  }
}

/// No line of text is too long. What the line has in addition to the text takes no memory.
TEST(FuzzTargets, ReadALongLineInAFewTimesItsBytes) {
  constexpr std::size_t size = 4 << 20;
  const std::string text(size, 'x');
  std::string line = "{\"ids\": [0";
  while (line.size() < size) line += ", [], {\"text\": 1}";
  line += "], \"text\": \"" + text + "\"}";
  const HeapBound bound(size);
  EXPECT_EQ(read_text_field(line, "text"), text);
  EXPECT_LT(bound.most_bytes(), 6 * size);
}

}  // namespace
}  // namespace echelon::fuzz
