// Compares every code point with what `tokenizers` does to it: tests/data/unicode_digests.txt, by
// scripts/unicode_tables.
#include "data/tokenizer/unicode/character_tables.h"
#include "data/tokenizer/unicode/normal_forms.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <memory>
#include <sstream>

namespace echelon {
namespace {

using Answer = std::function<std::string(char32_t)>;

std::string utf8_of(char32_t code) {
  std::string text;
  append_utf8(code, text);
  return text;
}

Answer form_of(NormalForm form, std::string before = "", std::string after = "") {
  return [=](char32_t code) {
    std::string storage;
    return std::string(to_normal_form(before + utf8_of(code) + after, form, storage));
  };
}

Answer answer_of(const std::string& name, const CharacterTables& tables) {
  if (name == "NFC") return form_of(NormalForm::nfc);
  if (name == "NFD") return form_of(NormalForm::nfd);
  if (name == "NFKC") return form_of(NormalForm::nfkc);
  if (name == "NFKD") return form_of(NormalForm::nfkd);
  if (name == "around") return form_of(NormalForm::nfc, "e\xcd\x85", "\xcc\x82\xcc\xa3\xcc\xb4");
  if (name == "lower") return [](char32_t code) { return to_lower_case(utf8_of(code)); };
  const auto set = tables.sets.find(name);
  const CodePointSet& members = set != tables.sets.end() ? set->second : tables.scripts.at(name);
  return [&members](char32_t code) { return std::string(1, members.contains(code) ? '\1' : '\0'); };
}

/// The order of the script's list.
Answer category_answer(const CharacterTables& tables) {
  auto numbers = std::make_shared<std::vector<char>>(num_code_points, '\xff');
  char number = 0;
  for (const char* name : {"Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps", "Pe",
                           "Pi", "Pf", "Po", "Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Co", "Cn"}) {
    for (const CodePointRange& range : tables.categories.find(name)->second.ranges())
      std::fill((*numbers).begin() + range.first, (*numbers).begin() + range.end, number);
    ++number;
  }
  return [numbers](char32_t code) { return std::string(1, (*numbers)[code]); };
}

std::string digest(const Answer& answer, char32_t plane) {
  std::uint64_t value = 0xcbf29ce484222325u;
  for (char32_t code = plane << 16; code < (plane + 1) << 16; ++code) {
    if (code >= 0xd800 && code < 0xe000) continue;
    for (const char byte : answer(code)) value = (value ^ static_cast<std::uint8_t>(byte)) * 0x100000001b3u;
  }
  return fmt::format("{:016x}", value);
}

// Claim: Categories, scripts, lower case and normalization forms of every code point equal those of tokenizers 0.23.3.
TEST(UnicodeTables, EveryCodePointIsTheLibrarys) {
  const CharacterTables& tables = character_tables();
  std::ifstream file(std::string(ECHELON_SOURCE_DIR) + "/tests/data/unicode_digests.txt");
  std::string line;
  std::getline(file, line);  // the comment
  int num_properties = 0;
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::string name, expected;
    words >> name;
    const Answer answer = name == "category" ? category_answer(tables) : answer_of(name, tables);
    for (char32_t plane = 0; words >> expected; ++plane)
      EXPECT_EQ(digest(answer, plane), expected) << name << " of plane " << static_cast<int>(plane);
    ++num_properties;
  }
  EXPECT_EQ(num_properties, 28);
}

TEST(UnicodeTables, HasLettersThatUnicode14LacksAndNamesOfGroups) {
  const auto size_of = [](std::string_view name) {
    const auto set = character_property(name);
    std::size_t size = 0;
    for (const CodePointRange& range : set->ranges()) size += range.end - range.first;
    return size;
  };
  EXPECT_EQ(size_of("L"), 141'028u);
  EXPECT_EQ(size_of("N"), 1'911u);
  EXPECT_TRUE(character_property("L")->contains(0x31350));
  EXPECT_TRUE(character_property("Han")->contains(0x4e00));
  EXPECT_FALSE(character_property("Klingon").has_value());
}

TEST(NormalForms, KeepBytesThatAreNoText) {
  std::string storage;
  EXPECT_EQ(to_normal_form("e\xcc\x81\xff\xe2\x84\xab\xcc", NormalForm::nfc, storage), "\xc3\xa9\xff\xc3\x85\xcc");
  EXPECT_EQ(to_lower_case("\xc3\x84\xffZ"), "\xc3\xa4\xffz");
}

}  // namespace
}  // namespace echelon
