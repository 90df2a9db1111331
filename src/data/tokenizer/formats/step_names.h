// The words of tokenizer.json for values that are one of several.
#pragma once

#include "data/tokenizer/tokenizer_spec.h"

#include <array>
#include <string_view>
#include <utility>

namespace echelon {

template <class Value, std::size_t count>
using ValueNames = std::array<std::pair<std::string_view, Value>, count>;

inline constexpr ValueNames<SplitBehavior, 5> behavior_names = {
    {{"Removed", SplitBehavior::removed},
     {"Isolated", SplitBehavior::isolated},
     {"MergedWithPrevious", SplitBehavior::merged_with_previous},
     {"MergedWithNext", SplitBehavior::merged_with_next},
     {"Contiguous", SplitBehavior::contiguous}}};
inline constexpr ValueNames<PrependScheme, 3> prepend_names = {
    {{"always", PrependScheme::always}, {"first", PrependScheme::first}, {"never", PrependScheme::never}}};
inline constexpr ValueNames<NormalForm, 4> form_names = {
    {{"NFC", NormalForm::nfc}, {"NFD", NormalForm::nfd}, {"NFKC", NormalForm::nfkc}, {"NFKD", NormalForm::nfkd}}};

template <class Value, std::size_t count>
constexpr std::string_view name_in(const ValueNames<Value, count>& names, Value value) {
  for (const auto& [name, known] : names) {
    if (known == value) return name;
  }
  return "";
}

}  // namespace echelon
