// A sentence about a number that is out of its range offers the closest valid value. The key accepts it, unless other
// keys bound it further: then the next sentence, or the one after that, leads to a value that is accepted.
#include "spec/config/config_keys.h"
#include "spec/config/config_reader.h"

#include "base/error.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace echelon {
namespace {

/// Sections that apply to few runs.
std::vector<std::string> needed_by(std::string_view key) {
  std::vector<std::string> arguments = {key.starts_with("moe.") ? "--model.preset=mixtral-30m"
                                                                : "--model.preset=llama-1m"};
  if (key.starts_with("lora.")) arguments.emplace_back("--lora.rank=4");
  if (key.starts_with("grad_scaler.")) arguments.emplace_back("--training.dtype=float16");
  if (key == "parallelism.prefetch_depth") arguments.emplace_back("--parallelism.zero_level=3");
  return arguments;
}

std::string complaint(std::string_view key, const std::string& value) {
  std::vector<std::string> arguments = needed_by(key);
  arguments.push_back(fmt::format("--{}={}", key, value));
  try {
    (void)read_run_config({.path = {}, .arguments = arguments, .read_model = {}});
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

/// The number after "(use "; empty: none, or that of another key.
std::string suggested_number(const std::string& sentence) {
  const std::string_view before = "(use ";
  const std::size_t at = sentence.find(before);
  if (at == std::string::npos) return "";
  const std::string_view rest = std::string_view(sentence).substr(at + before.size());
  return std::string(rest.substr(0, rest.find_first_not_of("0123456789.e+-")));
}

bool is_about(std::string_view key, const std::string& sentence) {
  return sentence.starts_with(fmt::format("{} = ", key)) ||
         sentence.starts_with(fmt::format("command line: {} = ", key));
}

/// Else another key is to be changed.
bool offers_value(std::string_view key, const std::string& sentence) {
  return is_about(key, sentence) && !suggested_number(sentence).empty();
}

TEST(SuggestedValues, AreAcceptedByTheirKeys) {
  int num_suggested = 0;
  for (const ConfigKey& key : config_keys()) {
    const bool is_real = std::holds_alternative<FieldOf<double>>(key.field);
    if (!is_real && !std::holds_alternative<FieldOf<std::int64_t>>(key.field)) continue;
    for (const char* value : {"-99999999999999999999", "-1e300", "-1", "0", "1", "2147483648", "1e300"}) {
      const std::string sentence = complaint(key.name, value);
      if (!offers_value(key.name, sentence)) continue;
      ++num_suggested;
      std::string next = sentence;
      for (int i = 0; i < (is_real ? 1 : 3) && offers_value(key.name, next); ++i)
        next = complaint(key.name, suggested_number(next));
      EXPECT_FALSE(offers_value(key.name, next) || (is_real && is_about(key.name, next))) << sentence << "\n" << next;
    }
  }
  EXPECT_GT(num_suggested, 200);
}

}  // namespace
}  // namespace echelon
