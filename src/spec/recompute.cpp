#include "spec/recompute.h"

#include "base/error.h"
#include "spec/choice.h"

#include <algorithm>
#include <iterator>

namespace echelon {
namespace {

constexpr BlockOperation all_operations[] = {
    BlockOperation::qkv_proj, BlockOperation::qk_norm, BlockOperation::core_attn, BlockOperation::o_proj,
    BlockOperation::mlp,      BlockOperation::router,  BlockOperation::experts,   BlockOperation::shared_expert};
constexpr RecomputeMethod all_methods[] = {RecomputeMethod::uniform, RecomputeMethod::block};

struct Word {
  std::string_view name;
  BlockOperations operations;
};
constexpr Word words[] = {{"none", {}}, {"selective", attention_internals}, {"full", whole_block}};

// Operations that other software recomputes by choice and that always run again here.
constexpr std::string_view never_kept[] = {"layernorm", "norm",    "input_layernorm", "post_attention_layernorm",
                                           "act",       "mlp_act", "moe_act",         "rope"};

/// Whether another operation of the set includes this one.
bool is_brought_along(BlockOperation operation, const BlockOperations& operations) {
  if (operation == BlockOperation::qk_norm) return operations.contain(BlockOperation::qkv_proj);
  return std::ranges::find(parts_of_mixture, operation) != std::end(parts_of_mixture) &&
         operations.contain(BlockOperation::mlp);
}

BlockOperations parse_one(std::string_view key, std::string_view name, bool is_alone) {
  std::vector<std::string_view> known;
  for (const Word& word : words) {
    if (is_alone && equal_but_for_case(name, word.name)) return word.operations;
    if (is_alone) known.push_back(word.name);
  }
  for (const BlockOperation operation : all_operations) {
    if (equal_but_for_case(name, name_of(operation))) return {operation};
    known.push_back(name_of(operation));
  }
  for (const std::string_view other : never_kept)
    require(!equal_but_for_case(name, other),
            "{} = '{}' saves no memory: the results of norms, rotations and activations are never stored (use {})", key,
            name, is_alone ? "none" : name_of(BlockOperation::mlp));
  throw Error(fmt::format("{} = '{}' is not one of {}; did you mean {}?", key, name, fmt::join(known, ", "),
                          closest_name(name, known)));
}

}  // namespace

std::string_view name_of(BlockOperation operation) {
  switch (operation) {
    case BlockOperation::qkv_proj: return "qkv_proj";
    case BlockOperation::qk_norm: return "qk_norm";
    case BlockOperation::core_attn: return "core_attn";
    case BlockOperation::o_proj: return "o_proj";
    case BlockOperation::mlp: return "mlp";
    case BlockOperation::router: return "router";
    case BlockOperation::experts: return "experts";
    case BlockOperation::shared_expert: return "shared_expert";
  }
  return "?";
}

std::string_view name_of(RecomputeMethod method) {
  switch (method) {
    case RecomputeMethod::uniform: return "uniform";
    case RecomputeMethod::block: return "block";
  }
  return "?";
}

BlockOperations parse_recompute(std::string_view key, const std::vector<std::string>& names) {
  BlockOperations operations;
  for (const std::string& name : names) {
    const BlockOperations more = parse_one(key, name, names.size() == 1);
    for (const BlockOperation operation : all_operations)
      if (more.contain(operation)) operations.add(operation);
  }
  return operations;
}

std::vector<std::string> names_of(const BlockOperations& operations) {
  for (const Word& word : words)
    if (operations == word.operations) return {std::string(word.name)};
  std::vector<std::string> names;
  for (const BlockOperation operation : all_operations)
    if (operations.contain(operation) && !is_brought_along(operation, operations))
      names.emplace_back(name_of(operation));
  return names;
}

RecomputeMethod parse_recompute_method(std::string_view key, std::string_view name) {
  return parse_choice(key, name, all_methods);
}

}  // namespace echelon
