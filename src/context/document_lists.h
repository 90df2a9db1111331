// The token lists of the balancers that read documents.
#pragma once

#include "context/document_packer.h"
#include "context/token_run.h"
#include "context/token_split.h"

#include <cstdint>
#include <span>
#include <vector>

namespace echelon {

/// A plan counts the pairs (query, key) of a sequence that is one document, and no rank computes more: documents whose
/// lists would give a rank more than that have the lists of one document, where each query sees at most as many keys.
/// Such sequences are short: documents leave fewer than 2 cp tokens each to be handed out singly, and the more pairs a
/// sequence has the more of them a boundary removes.
class DocumentLists {
 public:
  /// Appends the runs of all positions, ascending; memory is reused. `documents`: DocumentOffsets of the sequence.
  void append_runs(const TokenSplit& split, std::span<const std::int32_t> documents, std::vector<TokenRun>& runs);

 private:
  void append(const TokenSplit& split, std::span<const std::int32_t> documents, std::vector<TokenRun>& runs);
  void plan(const TokenSplit& split);

  DocumentPacker packer_;
  // Those of one document: of which split, its runs, and pairs by window and rank.
  TokenSplit planned_of_;
  std::vector<TokenRun> whole_;
  std::vector<std::int64_t> planned_;
  std::vector<std::int64_t> pairs_;  // while append_runs() runs
};

}  // namespace echelon
