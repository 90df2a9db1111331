// Chat templates against Python's Jinja, set up as transformers does. tests/interop/template_expressions.py makes the
// cases; ECHELON_TEMPLATES names a file with more of them.
#include "base/error.h"
#include "data/template/chat_template.h"
#include "tree/tree.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cstdlib>
#include <filesystem>
#include <string>

namespace echelon::jinja {
namespace {

nlohmann::ordered_json cases_of(const std::filesystem::path& file) {
  return nlohmann::ordered_json::parse(tree::read_text(file));
}

Map map_of(const nlohmann::ordered_json& json) {
  Map map;
  for (const auto& [key, value] : json.items()) map.set(Text(key), value_of(value));
  return map;
}

struct Counts {
  int num_equal = 0, num_unsupported = 0, num_refused_by_both = 0, num_lenient = 0;
};

/// What is not supported is an Error that says so; anything else that Python renders has the same text.
Counts compare(const nlohmann::ordered_json& fixture, bool allows_unsupported) {
  Counts counts;
  const Map variables = map_of(fixture.at("variables"));
  for (const auto& one : fixture.at("cases")) {
    const auto source = one.at(0).get<std::string>();
    try {
      const std::string text = ChatTemplate(source).render(variables).text.bytes;
      if (one.at(1).is_null()) {
        ++counts.num_lenient;
      } else {
        EXPECT_EQ(text, one.at(1).get<std::string>()) << source;
        ++counts.num_equal;
      }
    } catch (const Error& error) {
      const bool is_unsupported = std::string_view(error.what()).find("not supported") != std::string_view::npos ||
                                  std::string_view(error.what()).find("64 bits") != std::string_view::npos;
      EXPECT_TRUE(one.at(1).is_null() || (allows_unsupported && is_unsupported)) << source << "\n" << error.what();
      ++(one.at(1).is_null() ? counts.num_refused_by_both : counts.num_unsupported);
    }
  }
  return counts;
}

TEST(ChatTemplate, EvaluatesAsPython) {
  const Counts counts = compare(cases_of(tree::root() / "tests/data/templates/expressions.json"), false);
  EXPECT_GE(counts.num_equal, 100);
}

TEST(ChatTemplate, EvaluatesFuzzedTemplatesAsPython) {
  const char* file = std::getenv("ECHELON_TEMPLATES");
  if (file == nullptr) GTEST_SKIP() << "ECHELON_TEMPLATES names no file";
  const Counts counts = compare(cases_of(file), true);
  EXPECT_GT(counts.num_equal, 20 * counts.num_unsupported);
  std::printf("%d equal, %d refused by both, %d not supported, %d that only Python refuses\n", counts.num_equal,
              counts.num_refused_by_both, counts.num_unsupported, counts.num_lenient);
}

}  // namespace
}  // namespace echelon::jinja
