#include "base/bounded_json.h"

#include "base/error.h"

#include <gmock/gmock.h>

namespace echelon {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(JsonFault, HasAPlaceAReasonAndWhatWouldBeValid) {
  const std::pair<std::string, std::string> cases[] = {
      {"", "at column 1: unexpected end of input; expected '[', '{', or a literal"},
      {R"({"a": tru})", "at column 10, after '{\"a\": tru': invalid literal"},
      {R"({"a": 1 "b": 2})", "at column 9, after '{\"a\": 1': unexpected string literal; expected '}'"},
      {"{\n  \"a\": 1,\n}\n", "at line 3, column 1: unexpected '}'; expected string literal"},
      {"{\n  \"a\": \"\xc3\xa4\xc3\xa4\" 1\n}\n",
       "at line 2, column 13, after '  \"a\": \"\xc3\xa4\xc3\xa4\"': unexpected number literal"},
      {"[1, 2", "at column 6, after '[1, 2': unexpected end of input; expected ']'"},
      {"[1, 2]\n]", "at line 2, column 1: unexpected ']'; expected end of input"},
      {"{\"a\": \"cut", "at column 11, after '{\"a\": \"cut': invalid string: missing closing quote"},
      {"{\"a\": \"\n\"}", "at line 1, column 8, after '{\"a\": \"': invalid string: control character U+000A (LF)"},
      {"[\"\xc3\x28\"]", "at column 4, after '[\"\\xc3': invalid string: ill-formed UTF-8 byte"},
      {"[1e999]", "at column 2, after '[': number overflow parsing '1e999'"},
      {"[1 true]", "at column 4, after '[1': unexpected true literal; expected ']'"},
      {"[1 false]", "at column 4, after '[1': unexpected false literal; expected ']'"},
      {"{'a': 1}", "at column 2, after '{': invalid literal; expected string literal"},
  };
  for (const auto& [text, said] : cases) {
    EXPECT_THAT(json_fault(text), HasSubstr("not valid JSON " + said)) << text;
    EXPECT_THROW((void)parse_bounded_json(text), Error) << text;
  }
  EXPECT_EQ(json_fault("{\"a\": [1, \"\xc3\xa4\"]}"), "");
}

TEST(JsonFault, IsShort) {
  const std::string fault = json_fault("[\"" + std::string(1'000'000, 'x') + "\" 7]");
  EXPECT_THAT(fault, AllOf(HasSubstr("column 1000005"), HasSubstr("unexpected number literal")));
  EXPECT_LT(fault.size(), 200U);
}

TEST(ParseJsonObject, NamesTheFile) {
  const auto complaint = [](const std::string& text) -> std::string {
    try {
      (void)parse_json_object(text, "c.json");
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(complaint("{}"), "");
  EXPECT_EQ(complaint("[]"), "c.json is not a JSON object");
  EXPECT_EQ(complaint("{}}"), "c.json: not valid JSON at column 3, after '{}': unexpected '}'; expected end of input");
  EXPECT_THAT(complaint(std::string(1000, '[')), HasSubstr("c.json: its JSON is nested more than 32 levels deep"));
  EXPECT_THAT(complaint("{\"a\":[" + std::string(1'000'000, ' ')), Not(HasSubstr("      ")));
}

}  // namespace
}  // namespace echelon
