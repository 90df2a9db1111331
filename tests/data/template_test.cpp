#include "data/template/chat_template.h"

#include "base/error.h"
#include "tree/tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <string>

namespace echelon::jinja {
namespace {

Map variables_of(const nlohmann::ordered_json& messages) {
  Map variables;
  variables.set(Text("messages"), value_of(messages));
  variables.set(Text("bos_token"), Text("<s>"));
  variables.set(Text("add_generation_prompt"), false);
  return variables;
}

std::string rendered(const std::string& source) { return ChatTemplate(source).render({}).text.bytes; }

std::string refused(const std::string& source, std::int64_t num_steps = 1'000'000) {
  try {
    (void)ChatTemplate(source).render({}, {.num_steps = num_steps});
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

std::ptrdiff_t num_characters(std::string_view text) {
  return std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xc0U) != 0x80U; });
}

// scripts/template_fixtures made the file with Python's Jinja, set up as transformers does.
TEST(ChatTemplate, RendersWhatPythonsJinjaRenders) {
  const auto fixtures =
      nlohmann::ordered_json::parse(tree::read_text(tree::root() / "tests/data/templates/rendered.json"));
  int num_spans = 0;
  for (const auto& fixture : fixtures) {
    const ChatTemplate chat(fixture["template"].get<std::string>());
    for (const auto& example : fixture["cases"]) {
      const Rendered result = chat.render(variables_of(example["messages"]));
      ASSERT_EQ(result.text.bytes, example["text"].get<std::string>()) << example["messages"];
      ASSERT_EQ(result.generations.size(), example["spans"].size());
      for (std::size_t i = 0; i < result.generations.size(); ++i, ++num_spans) {
        const auto [start, end] = result.generations[i];
        EXPECT_EQ(num_characters(result.text.bytes.substr(0, start)), example["spans"][i][0].get<int>());
        EXPECT_EQ(num_characters(result.text.bytes.substr(0, end)), example["spans"][i][1].get<int>());
      }
    }
  }
  EXPECT_EQ(fixtures.size(), 3U);
  EXPECT_EQ(num_spans, 50);
}

TEST(ChatTemplate, BytesRememberTheirOriginThroughOperations) {
  Map variables;
  variables.set(Text("x"), Text(" abc ", 7));
  const ChatTemplate chat("<{{ (x | trim)[1:] ~ '|' ~ x.replace('b', '-') | upper }}{{ [x] | tojson }}>");
  const Text text = chat.render(variables).text;
  EXPECT_EQ(text.bytes, "<bc| A-C [\" abc \"]>");
  const std::string marks = [&] {
    std::string result;
    for (const char32_t origin : text.origins) result += origin == 0 ? '.' : static_cast<char>('0' + origin);
    return result;
  }();
  EXPECT_EQ(marks, ".77.77.77..77777...");
}

// A letter that becomes several, in the middle of others, is the user's as a whole.
TEST(ChatTemplate, BytesRememberTheirOriginThroughCases) {
  Map variables;
  variables.set(Text("x"), Text("ßa", 7));
  for (const char* cased : {"('ŉ' ~ x ~ 'é') | upper", "('ŉ' ~ x ~ 'é').upper()", "'Ŋ' ~ x.title().upper() ~ 'É'"}) {
    const Text text = ChatTemplate(std::string("{{ ") + cased + " }}").render(variables).text;
    const std::size_t start = text.bytes.find("SSA");
    ASSERT_NE(start, std::string::npos) << text.bytes;
    for (std::size_t i = 0; i < text.bytes.size(); ++i)
      EXPECT_EQ(text.origins[i], start <= i && i < start + 3 ? 7U : 0U) << cased << " " << i;
  }
}

TEST(ChatTemplate, FiltersLists) {
  Map variables;
  variables.set(Text("m"), value_of(parse_bounded(R"([{"r": "a", "x": 1}, {"r": "b", "x": 2}, {"r": "a", "x": 3}])")));
  const auto render = [&](const std::string& source) { return ChatTemplate(source).render(variables).text.bytes; };
  EXPECT_EQ(render("{{ m | selectattr('r', 'equalto', 'a') | map(attribute='x') | list }}"), "[1, 3]");
  EXPECT_EQ(render("{{ m | rejectattr('r', 'equalto', 'a') | list | length }}"), "1");
  EXPECT_EQ(render("{{ m | map(attribute='r') | map('upper') | join }}{{ 'abc' | reverse | capitalize }}"), "ABACba");
  EXPECT_EQ(render("[{{ '\u00a0 x\u3000'.strip() }}]"), "[x]");
  EXPECT_EQ(render("{{ m[0] | tojson(ensure_ascii=False) }}"), R"({"r": "a", "x": 1})");
  EXPECT_EQ(render("{{ strftime_now('%Y') | length }}"), "4");
}

TEST(ChatTemplate, ReadsForeignJsonInBoundedStack) {
  using ::testing::HasSubstr;
  const auto sentence = [](const std::string& json) -> std::string {
    try {
      (void)parse_bounded(json);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(sentence(std::string(1'000'000, '[')), HasSubstr("nested more than 60 levels deep"));
  EXPECT_THAT(sentence("{\"a\": \"\xff\"}"),
              HasSubstr("not valid JSON at column 8, after '{\"a\": \"': invalid string: "
                        "ill-formed UTF-8 byte"));
  EXPECT_THAT(sentence("{\"a\""), HasSubstr("not valid JSON"));
  std::string keys = "{";
  for (int i = 0; i < 2000; ++i) keys += fmt::format("\"{}\": 0,", i);
  EXPECT_THAT(sentence(keys), HasSubstr("more than 1000 keys"));
}

TEST(ChatTemplate, RefusesWithLineAndColumn) {
  using ::testing::HasSubstr;
  EXPECT_THAT(refused("a\n {% import 'x' as y %}"), HasSubstr("line 2, column 2: {% import %} is not supported"));
  EXPECT_THAT(refused("{{ raise_exception('no') }}"), HasSubstr("the template refuses: no"));
  EXPECT_THAT(refused("{% if true %}a"), HasSubstr("has no endif"));
  EXPECT_THAT(refused("{{ missing.part }}"), HasSubstr("'missing' is undefined"));
  EXPECT_THAT(refused("{{ 'a' | centre }}"), HasSubstr("the filter centre"));
  EXPECT_THAT(refused("{{ 9223372036854775807 + 1 }}"), HasSubstr("is not in 64 bits"));
  EXPECT_THAT(refused("{{ " + std::string(1000, '(') + "1" + std::string(1000, ')') + " }}"),
              HasSubstr("nested more than"));
}

TEST(ChatTemplate, IsBoundedInTimeAndMemory) {
  using ::testing::HasSubstr;
  EXPECT_THAT(refused("{% for a in range(100000000) %}{% endfor %}"), HasSubstr("more than 1000000 steps"));
  EXPECT_THAT(refused("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"), HasSubstr("deep"));
  const std::string doubling = "{% set n = namespace(x='ab') %}{% for a in range(60) %}{% set n.x = ";
  EXPECT_THAT(refused(doubling + "n.x ~ n.x %}{% endfor %}"), HasSubstr("bytes of text"));
  EXPECT_THAT(refused(doubling + "[n.x, n.x] %}{% endfor %}{{ n.x }}"), HasSubstr("more than"));
  EXPECT_THAT(refused(doubling + "n %}{% endfor %}"), HasSubstr("a namespace inside another value"));
  EXPECT_THAT(refused("{% set n = namespace() %}{% for i in [1] %}{% macro m() %}{{ i }}{% endmacro %}"
                      "{% set n.m = m %}{% endfor %}{% set f = n.m %}\n{{ f() }}"),
              HasSubstr("line 2, column 4: calling m after the block that defines it is not supported"));
}

// What makes no string takes time, too: each of these loops would take minutes.
TEST(ChatTemplate, ReadingLongTextTakesSteps) {
  using ::testing::HasSubstr;
  const std::string long_ones =
      "{% set n = namespace(a='aaaaaaaa') %}{% for i in range(14) %}{% set n.a = n.a ~ n.a %}{% endfor %}"
      "{% set n.b = n.a[:50000] ~ 'b' %}{% for i in range(200000) %}{% if ";
  for (const char* test : {"n.a.find(n.b)", "n.a.rfind(n.b)", "n.b in n.a", "n.a.count(n.b)", "n.a.startswith(n.a)",
                           "n.a < n.a", "n.a.isalpha()", "n.a | length", "n.a[-1]"})
    EXPECT_THAT(refused(long_ones + test + " %}{% endif %}{% endfor %}", 90'000), HasSubstr("more than 90000 steps"))
        << test;
  // Not so many values of one character or part, of which each takes a hundred bytes.
  for (const char* list : {"n.a | list", "n.a.split('a')", "n.a[::2]", "n.a | reverse"})
    EXPECT_THAT(refused(long_ones + "(" + list + ") %}{% endif %}{% endfor %}", 90'000),
                HasSubstr("more than 90000 steps"));
}

TEST(ChatTemplate, PartsOfTextAreCountedInCharacters) {
  const std::string text = "{% set t = 'a\u00e9\u20ac\U0001f600b' %}";
  EXPECT_EQ(
      rendered(text + "{{ t | length }}|{{ t[1] }}|{{ t[-2] }}|{{ t[9] }}|{{ t[1:3] }}|{{ t[-3:] }}|{{ t[3:1] }}"),
      "5|\u00e9|\U0001f600||\u00e9\u20ac|\u20ac\U0001f600b|");
  EXPECT_EQ(rendered(text + "{{ t[:2] }}|{{ t[:-9] }}|{{ t[9:] }}|{{ t[::2] }}|{{ t[::-1] }}"),
            "a\u00e9|||a\u20acb|b\U0001f600\u20ac\u00e9a");
}

TEST(ChatTemplate, RefusesArgumentsOfAnotherKind) {
  using ::testing::HasSubstr;
  EXPECT_THAT(refused("{{ 'abc'.split('b', 'x') }}"), HasSubstr("line 1, column 21: a string is not an integer"));
  EXPECT_THAT(refused("{{ 'abc'.rsplit('b', 0.5) }}"), HasSubstr("a float is not an integer"));
  EXPECT_THAT(refused("{{ 1.5 | round(1, 5) }}"), HasSubstr("round takes the methods 'common', 'ceil' and 'floor'"));
  EXPECT_EQ(rendered("{{ 'a b c'.split(' ', -9223372036854775807 - 1) | length }}"), "3");
}

}  // namespace
}  // namespace echelon::jinja
