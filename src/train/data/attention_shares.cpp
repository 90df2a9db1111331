#include "train/data/attention_shares.h"

#include "blueprint/documents/batch_documents.h"

namespace echelon {

DocumentsOf documents_of(const BatchSource& source, std::int64_t seq_len) {
  return [&source, starts = std::vector<std::int32_t>(static_cast<std::size_t>(seq_len))](
             std::int64_t sequence, DocumentOffsets& documents) mutable {
    source.read_document_starts(sequence, std::ssize(starts), starts.data());
    find_documents(starts, documents);
  };
}

std::vector<double> attention_shares(const RunConfig& config, const BatchSource& source, std::int64_t num_batches) {
  BatchDocuments batch(config);
  const BatchLayout& layout = batch.layout();
  const DocumentsOf documents = documents_of(source, config.training.seq_len);
  const auto cp = static_cast<std::size_t>(batch.split().cp);
  std::vector<std::vector<std::int64_t>> pairs(static_cast<std::size_t>(layout.num_replicas()),
                                               std::vector<std::int64_t>(cp));
  for (std::int64_t i = 0; i < num_batches; ++i) {
    batch.read(documents, i * config.training.global_batch_size);
    for (int replica = 0; replica < layout.num_replicas(); ++replica)
      for (int microbatch = 0; microbatch < layout.num_microbatches(); ++microbatch)
        for (std::size_t rank = 0; rank < cp; ++rank)
          pairs[static_cast<std::size_t>(replica)][rank] += batch.pairs(replica, microbatch)[rank];
  }
  const MeshShape mesh = config.mesh_shape();
  const std::int64_t num_sequences = num_batches * config.training.global_batch_size / layout.num_replicas();
  std::vector<double> shares;
  for (int rank = 0; rank < mesh.num_ranks(); ++rank) {
    const auto cp_rank = static_cast<std::size_t>(mesh.coordinate(rank, Axis::cp));
    const std::int64_t of_rank = pairs[static_cast<std::size_t>(layout.replica_of(rank))][cp_rank];
    shares.push_back(static_cast<double>(of_rank) /
                     static_cast<double>(num_sequences * batch.planned_pairs()[cp_rank]));
  }
  return shares;
}

}  // namespace echelon
