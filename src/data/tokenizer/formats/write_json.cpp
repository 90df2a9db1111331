#include "data/tokenizer/tokenizer_spec.h"

#include "base/text/base64.h"
#include "data/tokenizer/byte_alphabet.h"
#include "data/tokenizer/formats/step_names.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <utility>

namespace echelon {
namespace {

using Json = nlohmann::ordered_json;

Json pattern_json(const std::string& pattern, bool is_regex) { return {{is_regex ? "Regex" : "String", pattern}}; }

Json step_json(const NormalizerStep& step) {
  switch (step.kind) {
    case NormalizerStep::Kind::form: return {{"type", name_in(form_names, step.form)}};
    case NormalizerStep::Kind::lowercase: return {{"type", "Lowercase"}};
    case NormalizerStep::Kind::strip:
      return {{"type", "Strip"}, {"strip_left", step.strips_left}, {"strip_right", step.strips_right}};
    case NormalizerStep::Kind::prepend: return {{"type", "Prepend"}, {"prepend", step.content}};
    case NormalizerStep::Kind::replace:
      return {{"type", "Replace"}, {"pattern", pattern_json(step.pattern, step.is_regex)}, {"content", step.content}};
    case NormalizerStep::Kind::character_map:
      return {{"type", "Precompiled"}, {"precompiled_charsmap", to_base64(step.content)}, {"longest_match", true}};
  }
  return {};
}

Json step_json(const SplitStep& step) {
  switch (step.kind) {
    case SplitStep::Kind::split:
      return {{"type", "Split"},
              {"pattern", pattern_json(step.pattern, step.is_regex)},
              {"behavior", name_in(behavior_names, step.behavior)},
              {"invert", step.is_inverted}};
    case SplitStep::Kind::byte_level:
      return {{"type", "ByteLevel"},
              {"add_prefix_space", step.adds_space},
              {"trim_offsets", true},
              {"use_regex", step.splits}};
    case SplitStep::Kind::digits: return {{"type", "Digits"}, {"individual_digits", step.is_individual}};
    case SplitStep::Kind::metaspace:
      return {{"type", "Metaspace"},
              {"replacement", step.pattern},
              {"prepend_scheme", name_in(prepend_names, step.prepend)},
              {"split", step.splits}};
    case SplitStep::Kind::punctuation:
      return {{"type", "Punctuation"}, {"behavior", name_in(behavior_names, step.behavior)}};
    case SplitStep::Kind::whitespace: return {{"type", "Whitespace"}};
    case SplitStep::Kind::whitespace_split: return {{"type", "WhitespaceSplit"}};
  }
  return {};
}

Json step_json(const DecodeStep& step) {
  switch (step.kind) {
    case DecodeStep::Kind::byte_level:
      return {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", true}, {"use_regex", true}};
    case DecodeStep::Kind::byte_fallback: return {{"type", "ByteFallback"}};
    case DecodeStep::Kind::fuse: return {{"type", "Fuse"}};
    case DecodeStep::Kind::replace:
      return {{"type", "Replace"}, {"pattern", pattern_json(step.pattern, step.is_regex)}, {"content", step.content}};
    case DecodeStep::Kind::strip:
      return {{"type", "Strip"}, {"content", step.pattern}, {"start", step.start}, {"stop", step.stop}};
    case DecodeStep::Kind::metaspace:
      return {{"type", "Metaspace"},
              {"replacement", step.pattern},
              {"prepend_scheme", name_in(prepend_names, step.prepend)},
              {"split", true}};
  }
  return {};
}

template <class Step>
Json steps_json(const std::vector<Step>& steps, const char* key) {
  if (steps.empty()) return nullptr;
  if (steps.size() == 1) return step_json(steps[0]);
  Json list = Json::array();
  for (const Step& step : steps) list.push_back(step_json(step));
  return {{"type", "Sequence"}, {key, std::move(list)}};
}

std::string in_file(const TokenizerSpec& spec, std::int32_t id) {
  const std::string& token = spec.tokens[static_cast<std::size_t>(id)];
  const bool is_bytes =
      spec.model == TokenModel::byte_level && !std::binary_search(spec.no_bytes.begin(), spec.no_bytes.end(), id);
  return is_bytes ? to_byte_alphabet(token) : token;
}

std::string joined(const std::vector<std::string>& entries) { return fmt::format("{}", fmt::join(entries, ",\n    ")); }

// Written by hand: an ordered object of nlohmann's library looks for each new key among all others.
std::string model_text(const TokenizerSpec& spec) {
  const auto num_tokens = static_cast<std::int32_t>(spec.tokens.size());
  std::vector<std::string> vocab, merges;
  if (spec.model == TokenModel::unigram) {
    for (std::int32_t id = 0; id < num_tokens; ++id)
      vocab.push_back(
          Json({spec.tokens[static_cast<std::size_t>(id)], spec.scores[static_cast<std::size_t>(id)]}).dump());
    return fmt::format(R"({{"type": "Unigram", "unk_id": {}, "byte_fallback": {}, {}"vocab": [{}]}})",
                       spec.unknown ? fmt::to_string(*spec.unknown) : "null", spec.has_byte_fallback,
                       spec.has_float32_sums ? R"("float32_sums": true, )" : "", joined(vocab));
  }
  for (std::int32_t id = 0; id < num_tokens; ++id) {
    if (!spec.tokens[static_cast<std::size_t>(id)].empty())
      vocab.push_back(fmt::format("{}: {}", Json(in_file(spec, id)).dump(), id));
  }
  for (const Merge& merge : spec.merges)
    merges.push_back(Json({in_file(spec, merge.left), in_file(spec, merge.right)}).dump());
  return fmt::format(R"({{"type": "BPE", "dropout": null, "unk_token": {}, "continuing_subword_prefix": null,
    "end_of_word_suffix": null, "fuse_unk": {}, "byte_fallback": {}, "ignore_merges": {},
    "vocab": {{{}}},
    "merges": [{}]}})",
                     spec.unknown ? Json(in_file(spec, *spec.unknown)).dump() : "null", spec.fuses_unknown,
                     spec.has_byte_fallback, spec.prefers_whole_pieces, joined(vocab), joined(merges));
}

Json template_json(const TokenizerSpec& spec) {
  if (spec.before_text.empty() && spec.after_text.empty()) return nullptr;
  Json parts = Json::array(), tokens = Json::object();
  const auto add = [&](std::int32_t id) {
    const auto added =
        std::find_if(spec.added.begin(), spec.added.end(), [&](const auto& one) { return one.id == id; });
    const std::string name = added != spec.added.end() ? added->content : in_file(spec, id);
    parts.push_back({{"SpecialToken", {{"id", name}, {"type_id", 0}}}});
    tokens[name] = {{"id", name}, {"ids", Json::array({id})}, {"tokens", Json::array({name})}};
  };
  for (const std::int32_t id : spec.before_text) add(id);
  parts.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
  for (const std::int32_t id : spec.after_text) add(id);
  const Json pair =
      Json::array({{{"Sequence", {{"id", "A"}, {"type_id", 0}}}}, {{"Sequence", {{"id", "B"}, {"type_id", 0}}}}});
  return {{"type", "TemplateProcessing"}, {"single", parts}, {"pair", pair}, {"special_tokens", tokens}};
}

}  // namespace

std::string to_tokenizer_json(const TokenizerSpec& spec) {
  Json added = Json::array();
  for (const AddedToken& one : spec.added) {
    added.push_back({{"id", one.id},
                     {"content", one.content},
                     {"single_word", one.is_single_word},
                     {"lstrip", one.strips_left},
                     {"rstrip", one.strips_right},
                     {"normalized", one.is_normalized},
                     {"special", one.is_special}});
  }
  std::string text = "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n";
  const std::pair<const char*, Json> parts[] = {{"added_tokens", std::move(added)},
                                                {"normalizer", steps_json(spec.normalizer, "normalizers")},
                                                {"pre_tokenizer", steps_json(spec.splitter, "pretokenizers")},
                                                {"post_processor", template_json(spec)},
                                                {"decoder", steps_json(spec.decoder, "decoders")}};
  for (const auto& [key, value] : parts) text += fmt::format("  \"{}\": {},\n", key, value.dump());
  return text + fmt::format("  \"model\": {}\n}}\n", model_text(spec));
}

}  // namespace echelon
