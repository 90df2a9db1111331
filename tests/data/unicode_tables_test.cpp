// Compares every code point with what `tokenizers` does to it: tests/data/unicode_digests.txt, by
// scripts/unicode_tables.
#include "data/tokenizer/unicode/character_tables.h"
#include "data/tokenizer/unicode/letter_case.h"
#include "data/tokenizer/unicode/normal_forms.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>
#include <vector>

namespace echelon {
namespace {

/// Appends what the library gives for a code point.
using Answer = std::function<void(char32_t, std::string&)>;

std::string utf8_of(char32_t code) {
  std::string text;
  append_utf8(code, text);
  return text;
}

Answer form_of(NormalForm form, const std::string& before = "", const std::string& after = "") {
  return [=, storage = std::string()](char32_t code, std::string& out) mutable {
    out += to_normal_form(before + utf8_of(code) + after, form, storage);
  };
}

void fill(std::vector<char>& values, const CodePointSet& set, char value) {
  for (const CodePointRange& range : set.ranges())
    std::fill(values.begin() + static_cast<int>(range.first), values.begin() + static_cast<int>(range.end), value);
}

/// By code point: the number of its category, in the script's order, or whether it is in a set.
std::vector<char> values_of(const std::string& name, const CharacterTables& tables) {
  std::vector<char> values(num_code_points);
  char number = 0;
  if (name == "category") {
    for (const char* category :
         {"Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps", "Pe",
          "Pi", "Pf", "Po", "Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Co", "Cn"})
      fill(values, tables.categories.find(category)->second, number++);
  } else {
    const auto set = tables.sets.find(name);
    fill(values, set != tables.sets.end() ? set->second : tables.scripts.find(name)->second, 1);
  }
  return values;
}

std::string cased(const std::string& text, const std::string& method) {
  static const std::map<std::string, LetterCase> cases = {{"upper", LetterCase::upper},
                                                          {"lower", LetterCase::lower},
                                                          {"title", LetterCase::titled},
                                                          {"capitalize", LetterCase::capitalized},
                                                          {"swapcase", LetterCase::swapped}};
  std::string result;
  for_each_cased(text, cases.at(method), [&](std::size_t, std::string_view becomes) { result += becomes; });
  return result;
}

/// A method of Python's str, of the character alone or of a text around it.
Answer method_of_str(const std::string& method, bool is_alone) {
  if (method.starts_with("is"))
    return [=](char32_t code, std::string& out) { out += is_all(utf8_of(code), method) ? '\1' : '\0'; };
  return [=](char32_t code, std::string& out) {
    const std::string one = utf8_of(code), around = "a" + one + "Σ" + one + "A 1" + one + "Σ";
    out += cased(is_alone ? one : around, method);
  };
}

Answer answer_of(const std::string& name, const CharacterTables& tables) {
  if (name.starts_with("str.")) return method_of_str(name.substr(4), true);
  if (name.starts_with("around.")) return method_of_str(name.substr(7), false);
  if (name == "NFC") return form_of(NormalForm::nfc);
  if (name == "NFD") return form_of(NormalForm::nfd);
  if (name == "NFKC") return form_of(NormalForm::nfkc);
  if (name == "NFKD") return form_of(NormalForm::nfkd);
  if (name == "around") return form_of(NormalForm::nfc, "e\xcd\x85", "\xcc\x82\xcc\xa3\xcc\xb4");
  if (name == "lower") return [](char32_t code, std::string& out) { out += to_lower_case(utf8_of(code)); };
  return [values = values_of(name, tables)](char32_t code, std::string& out) { out += values[code]; };
}

std::string digest(const Answer& answer, char32_t plane) {
  std::string bytes;
  for (char32_t code = plane << 16; code < (plane + 1) << 16; ++code) {
    if (code < 0xd800 || code >= 0xe000) answer(code, bytes);
  }
  std::uint64_t value = 0xcbf29ce484222325u;
  for (const char* at = bytes.data(); at != bytes.data() + bytes.size(); ++at)
    value = (value ^ static_cast<std::uint8_t>(*at)) * 0x100000001b3u;
  return fmt::format("{:016x}", value);
}

// Claim: Categories, scripts, lower case and normalization forms of every code point equal those of tokenizers 0.23.3;
//   case and the methods of strings equal those of Python with Unicode 14.
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
    const Answer answer = answer_of(name, tables);
    for (char32_t plane = 0; words >> expected; ++plane)
      EXPECT_EQ(digest(answer, plane), expected) << name << " of plane " << static_cast<int>(plane);
    ++num_properties;
  }
  EXPECT_EQ(num_properties, 43);
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
