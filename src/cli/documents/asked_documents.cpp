#include "cli/documents/asked_documents.h"

#include "predict/documents/drawn_lengths.h"
#include "train/data/attention_shares.h"
#include "train/data/described_documents.h"
#include "train/data/open_data.h"

#include <memory>

namespace echelon {

DocumentsOf asked_documents(const std::string& text, const RunConfig& config, std::int64_t num_sequences) {
  const std::int64_t T = config.training.seq_len;
  constexpr std::string_view ending = ".idx";
  if (text.ends_with(ending)) {
    RunConfig of_file = config;
    of_file.data.path = text.substr(0, text.size() - ending.size());
    const auto batches = std::make_shared<const DatasetBatches>(open_documents(of_file));
    return [batches, of = documents_of(*batches, T)](std::int64_t sequence, DocumentOffsets& documents) {
      of(sequence, documents);
    };
  }
  const auto [mean, spread] = parse_length_distribution(text);
  return described_documents(config, drawn_lengths(mean, spread, num_sequences * T));
}

}  // namespace echelon
