#include "data/tokenizer/models/unigram_model.h"

#include "base/error.h"
#include "base/text/utf8.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace echelon {
namespace {

constexpr double unknown_penalty = 10;

bool has_lower_byte(const std::pair<std::uint8_t, std::uint32_t>& child, std::uint8_t byte) {
  return child.first < byte;
}

}  // namespace

UnigramModel::UnigramModel(const TokenizerSpec& spec, const std::string& name)
    : scores_(spec.scores), unknown_(spec.unknown), has_float32_sums_(spec.has_float32_sums) {
  require(scores_.size() == spec.tokens.size(), "{} has {} scores for {} tokens", name, scores_.size(),
          spec.tokens.size());
  double least = std::numeric_limits<double>::infinity();
  for (std::size_t id = 0; id < spec.tokens.size(); ++id) {
    least = std::min(least, scores_[id]);
    insert(spec.tokens[id], static_cast<std::int32_t>(id));
    ids_.insert_or_assign(spec.tokens[id], static_cast<std::int32_t>(id));
  }
  unknown_score_ = rounded(least - unknown_penalty);
  for (const AddedToken& added : spec.added) {
    if (added.is_special) control_.insert(added.id);
  }
  has_bytes_ = spec.has_byte_fallback;
  for (std::size_t byte = 0; byte < byte_ids_.size() && has_bytes_; ++byte) {
    const auto found = ids_.find(fmt::format("<0x{:02X}>", byte));
    byte_ids_[byte] = found == ids_.end() ? -1 : found->second;
  }
}

double UnigramModel::rounded(double sum) const {
  return has_float32_sums_ ? static_cast<double>(static_cast<float>(sum)) : sum;
}

std::uint32_t UnigramModel::child(std::uint32_t node, std::uint8_t byte) const {
  const auto& children = nodes_[node].children;
  const auto found = std::lower_bound(children.begin(), children.end(), byte, has_lower_byte);
  return found != children.end() && found->first == byte ? found->second : 0;
}

void UnigramModel::insert(std::string_view token, std::int32_t id) {
  if (token.empty()) return;
  std::uint32_t node = 0;
  for (const char c : token) {
    const auto byte = static_cast<std::uint8_t>(c);
    std::uint32_t next = child(node, byte);
    if (next == 0) {
      next = static_cast<std::uint32_t>(nodes_.size());
      nodes_.emplace_back();
      auto& children = nodes_[node].children;
      children.insert(std::lower_bound(children.begin(), children.end(), byte, has_lower_byte), {byte, next});
    }
    node = next;
  }
  nodes_[node].id = id;
}

/// Extends the best path that ends at `begin` by every token, or by an unknown character.
void UnigramModel::relax(std::string_view piece, std::size_t begin, bool may_be_control,
                         std::vector<Step>& best) const {
  const auto offer = [&](std::size_t end, double score, std::int32_t id) {
    if (best[end].begin == no_step || score > best[end].score) best[end] = {rounded(score), id, begin};
  };
  const std::size_t length = std::max<std::size_t>(utf8_character_length(piece.substr(begin)), 1);
  bool has_character = false;
  std::uint32_t node = 0;
  for (std::size_t at = begin; at < piece.size();) {
    node = child(node, static_cast<std::uint8_t>(piece[at++]));
    if (node == 0) break;
    const std::int32_t id = nodes_[node].id;
    if (id < 0 || (!may_be_control && control_.contains(id))) continue;
    offer(at, best[begin].score + scores_[static_cast<std::size_t>(id)], id);
    has_character = has_character || at - begin == length;
  }
  if (has_character) return;
  require(unknown_.has_value(), "the tokenizer has no token for \"{}\" and none for unknown characters",
          piece.substr(begin, length));
  offer(begin + length, best[begin].score + unknown_score_, *unknown_);
}

// The library looks up the text of a run of unknown characters before it falls back to bytes.
void UnigramModel::append_unknown(std::string_view text, std::vector<std::int32_t>& ids) const {
  const auto known = ids_.find(std::string(text));
  if (known != ids_.end() && known->second != *unknown_ && !control_.contains(known->second))
    return ids.push_back(known->second);
  const auto has_byte = [&](char byte) { return byte_ids_[static_cast<std::uint8_t>(byte)] >= 0; };
  if (!has_bytes_ || !std::all_of(text.begin(), text.end(), has_byte)) return ids.push_back(*unknown_);
  for (const char byte : text) ids.push_back(byte_ids_[static_cast<std::uint8_t>(byte)]);
}

void UnigramModel::append(std::string_view piece, bool may_be_control, std::vector<std::int32_t>& ids) const {
  std::vector<Step> best(piece.size() + 1);
  for (std::size_t at = 0; at < piece.size(); at += std::max<std::size_t>(utf8_character_length(piece.substr(at)), 1))
    relax(piece, at, may_be_control, best);
  std::vector<std::pair<std::size_t, std::size_t>> path;  // backwards
  for (std::size_t end = piece.size(); end > 0; end = best[end].begin) path.emplace_back(best[end].begin, end);
  for (std::size_t i = path.size(); i-- > 0;) {
    const auto [begin, end] = path[i];
    if (best[end].id != unknown_) {
      ids.push_back(best[end].id);
      continue;
    }
    while (i > 0 && best[path[i - 1].second].id == unknown_) --i;
    append_unknown(piece.substr(begin, path[i].second - begin), ids);
  }
}

}  // namespace echelon
