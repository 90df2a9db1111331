// What the table refuses is refused in one sentence, and the value that the sentence names is accepted in place of the
// refused one.
#include "base/error.h"
#include "blueprint/blueprint.h"
#include "parity/sweep/sweep.h"
#include "spec/config/config_keys.h"
#include "spec/config/config_reader.h"
#include "spec/config/config_value.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <regex>

namespace echelon::testing {
namespace {

/// As `echelon train` reads and plans it.
void plan(const RunConfig& config, const std::vector<std::string>& arguments = {}) {
  const std::string path = ECHELON_BINARY_DIR "/sweep/refused.toml";
  std::filesystem::create_directories(ECHELON_BINARY_DIR "/sweep");
  std::ofstream(path) << to_toml(config);
  (void)Blueprint(read_run_config({.path = path, .arguments = arguments, .read_model = {}}));
}

std::string sentence_about(const RunConfig& config) {
  try {
    plan(config);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

std::string without_quotes(std::string text) {
  std::erase_if(text, [](char c) { return c == '"' || c == '\'' || c == '[' || c == ']'; });
  return text;
}

std::string value_in(const RunConfig& config, const std::string& key) {
  RunConfig copy = config;
  return without_quotes(to_toml(value_of(*find_config_key(key), copy)));
}

/// "KEY = VALUE ... (use VALUE)" or "... (use OTHER_KEY = VALUE)", where the other key's section may be left out, or
/// "KEY = VALUE ...; did you mean VALUE?".
struct Refusal {
  std::string key, value, fixed_key, fixed_value;
};
std::optional<Refusal> read_refusal(const std::string& sentence) {
  static const std::regex form(
      R"((\S+) = ('[^']*'|\[[^\]]*\]|\S+) .*?(?: \(use (?:([\w.]+) = )?(.+)\)|; did you mean (.+)\?))");
  std::smatch match;
  if (!std::regex_match(sentence, match, form)) return {};
  Refusal refusal = {match[1], without_quotes(match[2]), match[1],
                     without_quotes(match[4].matched ? match[4] : match[5])};
  if (match[3].matched) refusal.fixed_key = match[3];
  if (find_config_key(refusal.fixed_key) == nullptr)
    refusal.fixed_key = refusal.key.substr(0, refusal.key.find('.') + 1) + refusal.fixed_key;
  return refusal;
}

void expect_refused_with_a_fix(const Rule& rule, const RunConfig& config) {
  const std::string sentence = sentence_about(config);
  const std::optional<Refusal> refusal = read_refusal(sentence);
  ASSERT_TRUE(refusal) << "'" << sentence << "'";
  EXPECT_EQ(refusal->key, rule.key) << sentence;
  EXPECT_EQ(refusal->value, value_in(config, rule.key)) << sentence;
  EXPECT_NO_THROW(plan(config, {"--" + refusal->fixed_key + "=" + refusal->fixed_value})) << sentence;
}

/// Every combination of settings that a rule speaks of.
std::vector<Settings> combinations(const SweepTable& table, const Rule& rule) {
  std::vector<Settings> all = {Settings(table.axes.size(), not_set)};
  for (const Rule::Term& term : rule.terms) {
    std::vector<Settings> more;
    for (const Settings& settings : all)
      for (const std::size_t setting : term.settings) {
        more.push_back(settings);
        more.back()[term.axis] = setting;
      }
    all = more;
  }
  std::erase_if(all, [&](const Settings& settings) { return !applies(table, rule, settings); });
  return all;
}

TEST(Refusals, HaveASentenceWhoseNearestValueIsAccepted) {
  const SweepTable& table = sweep_table();
  for (std::size_t i = 0; i < table.rules.size(); ++i) {
    SweepTable others = table;
    others.rules.erase(others.rules.begin() + static_cast<std::ptrdiff_t>(i));
    for (const Settings& refused : combinations(table, table.rules[i])) {
      const std::optional<Settings> settings = plainest_with(others, refused);
      ASSERT_TRUE(settings) << table.rules[i].why;
      const SweepRow row = {*settings, least_world(table, *settings)};
      SCOPED_TRACE(table.rules[i].why + "\n" + describe(table, row));
      expect_refused_with_a_fix(table.rules[i], run_of(table, row).config);
    }
  }
}

}  // namespace
}  // namespace echelon::testing
