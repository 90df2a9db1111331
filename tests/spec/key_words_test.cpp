// Unknown names lead to the intended keys.
#include "spec/config/key_words.h"

#include "spec/config/config_keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace echelon {
namespace {

TEST(KeyWords, MeanKeysThatThereAre) {
  std::set<std::string_view> words;
  for (const FieldWord& word : field_words()) {
    EXPECT_TRUE(words.insert(word.word).second) << word.word << " stands twice";
    EXPECT_NE(word.meaning.empty(), word.not_here.empty()) << word.word;
    if (word.meaning.find('.') == std::string_view::npos) continue;
    const ConfigKey* key = find_config_key(word.meaning.substr(0, word.meaning.find('=')));
    ASSERT_NE(key, nullptr) << word.meaning;
    EXPECT_TRUE(is_there(*key)) << word.meaning;
    EXPECT_EQ(find_config_key(word.word), nullptr) << word.word << " is a key";
  }
}

struct Meant {
  std::string name, hint;
};
class Hints : public testing::TestWithParam<Meant> {};

TEST_P(Hints, NameTheFieldsWordFirst) { EXPECT_EQ(hint_for_key(GetParam().name), GetParam().hint); }

const Meant meant[] = {
    {"optimizer.learning_rate", "; did you mean optimizer.lr?"},
    {"parallelism.tp", "; did you mean parallelism.tensor_parallel_degree?"},
    {"training.bf16", "; did you mean training.dtype=bfloat16?"},
    {"--Tensor-Parallel-Size=2", "; did you mean parallelism.tensor_parallel_degree?"},
    {"train.lr", "; did you mean optimizer.lr?"},
    {"training.stpes", "; did you mean training.steps?"},
    {"training.step_size", "; did you mean training.steps?"},
    {"resume", "; did you mean checkpoint.load?"},
    {"training.diloco", "; local steps are not supported; replicas sum gradients in every step"},
    {"data.blend", "; blends of data sets are not supported; echelon prepare joins its inputs"},
    {"training.frobnicate", "; echelon train --help lists the keys"},
};
INSTANTIATE_TEST_SUITE_P(Of, Hints, testing::ValuesIn(meant));

}  // namespace
}  // namespace echelon
