#include "cli/documents/asked_documents.h"

#include "base/error.h"
#include "predict/documents/drawn_lengths.h"
#include "train/data/attention_shares.h"
#include "train/data/described_documents.h"
#include "train/data/open_data.h"

#include <filesystem>
#include <memory>

namespace echelon {
namespace {

constexpr std::string_view ending = ".idx";

}  // namespace

void require_documents(const std::string& text) {
  if (!text.empty() && !text.ends_with(ending)) (void)described_lengths(text, 1);
}

DocumentsOf asked_documents(const std::string& text, const RunConfig& config, std::int64_t num_sequences) {
  const std::int64_t T = config.training.seq_len;
  if (text.ends_with(ending)) {
    require(std::filesystem::exists(text), "--documents={}: there is no such file; echelon prepare makes it", text);
    RunConfig of_file = config;
    of_file.data.path = text.substr(0, text.size() - ending.size());
    const auto batches = std::make_shared<const DatasetBatches>(open_documents(of_file));
    return [batches, of = documents_of(*batches, T)](std::int64_t sequence, DocumentOffsets& documents) {
      of(sequence, documents);
    };
  }
  return described_documents(config, described_lengths(text, num_sequences * T));
}

std::optional<DocumentLoad> asked_load(const std::string& text, const RunConfig& config) {
  if (text.empty()) return std::nullopt;
  const std::int64_t num_batches = batches_to_count(config);
  return document_load(config, asked_documents(text, config, num_batches * config.training.global_batch_size),
                       num_batches);
}

DocumentOffsets first_sequence(const std::string& text, const RunConfig& config) {
  DocumentOffsets documents;
  // Where whole documents are packed, the first sequence depends on all of them.
  if (!text.empty())
    asked_documents(text, config, batches_to_count(config) * config.training.global_batch_size)(0, documents);
  return documents;
}

}  // namespace echelon
