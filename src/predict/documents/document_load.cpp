#include "predict/documents/document_load.h"

#include "base/error.h"
#include "base/units.h"
#include "blueprint/unit_trace.h"
#include "predict/step/context_rank.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <numeric>
#include <optional>

namespace echelon {
namespace {

double sum_of(std::span<const std::int64_t> values) {
  return static_cast<double>(std::accumulate(values.begin(), values.end(), std::int64_t{0}));
}

double largest_of(std::span<const std::int64_t> values) { return static_cast<double>(std::ranges::max(values)); }

/// Those that the simulated rank has in a plan.
std::int64_t planned_of_busiest(const RunConfig& config, const BatchDocuments& batch) {
  return batch.planned_pairs()[static_cast<std::size_t>(ContextRanks(config).busiest())];
}

/// Sums over batches.
class PairCounter {
 public:
  explicit PairCounter(const RunConfig& config)
      : config_(config), of_ranks_(static_cast<std::size_t>(config.data_parallel_degree())) {
    for (auto& pairs : of_ranks_) pairs.resize(static_cast<std::size_t>(config.parallelism.context_parallel_degree));
  }

  void add(const BatchDocuments& batch) {
    const BatchLayout& layout = batch.layout();
    std::vector<std::int64_t> of_replicas, slowest_of_replicas;
    for (int replica = 0; replica < layout.num_replicas(); ++replica) {
      std::int64_t all = 0, slowest = 0;
      for (int microbatch = 0; microbatch < layout.num_microbatches(); ++microbatch) {
        const std::span<const std::int64_t> pairs = batch.pairs(replica, microbatch);
        const std::int64_t of_group = std::accumulate(pairs.begin(), pairs.end(), std::int64_t{0});
        all += of_group;
        slowest += std::ranges::max(pairs);
        largest_ += largest_of(pairs) * static_cast<double>(pairs.size()) / static_cast<double>(of_group);
        for (std::size_t rank = 0; rank < pairs.size(); ++rank)
          of_ranks_[static_cast<std::size_t>(replica)][rank] += pairs[rank];
      }
      of_replicas.push_back(all);
      slowest_of_replicas.push_back(slowest);
    }
    all_ += sum_of(of_replicas);
    slowest_ += largest_of(slowest_of_replicas);
    largest_replica_ += largest_of(of_replicas) * static_cast<double>(of_replicas.size()) / sum_of(of_replicas);
    ++num_batches_;
  }

  void write_to(DocumentLoad& load, const BatchDocuments& batch) const {
    const BatchLayout& layout = batch.layout();
    const auto n = static_cast<double>(num_batches_), num_replicas = static_cast<double>(layout.num_replicas()),
               sequences = static_cast<double>(config_.training.global_batch_size);  // of a batch
    load.pairs_share = all_ / (n * sequences * sum_of(batch.planned_pairs()));
    load.largest_over_mean = largest_ / (n * num_replicas * layout.num_microbatches());
    load.replicas_over_mean = largest_replica_ / n;
    load.slowest_share =
        slowest_ / (n * sequences / num_replicas * static_cast<double>(planned_of_busiest(config_, batch)));
    const MeshShape mesh = config_.mesh_shape();
    for (int rank = 0; rank < mesh.num_ranks(); ++rank) {
      const auto place = static_cast<std::size_t>(mesh.coordinate(rank, Axis::cp));
      const std::int64_t pairs = of_ranks_[static_cast<std::size_t>(layout.replica_of(rank))][place];
      load.rank_shares.push_back(static_cast<double>(pairs) /
                                 (n * sequences / num_replicas * static_cast<double>(batch.planned_pairs()[place])));
    }
  }

 private:
  const RunConfig& config_;
  std::int64_t num_batches_ = 0;
  double all_ = 0, slowest_ = 0, largest_ = 0, largest_replica_ = 0;
  std::vector<std::vector<std::int64_t>> of_ranks_;  // by replica and rank of its cp group
};

std::int64_t num_pieces(std::span<const std::int32_t> documents) {
  std::int64_t pieces = 0;
  for (std::size_t i = 1; i < documents.size(); ++i) pieces += documents[i] > documents[i - 1] ? 1 : 0;
  return pieces;
}

DocumentLoad counted_load(const RunConfig& config, const DocumentsOf& documents_of, std::int64_t num_batches,
                          KnownCounts* known) {
  BatchDocuments batch(config, known == nullptr ? nullptr : &known->pairs);
  const BatchLayout& layout = batch.layout();
  PairCounter pairs(config);
  std::optional<RowCounter> rows;
  if (skips_unseen_keys(config)) rows.emplace(config, known == nullptr ? nullptr : &known->rows);
  DocumentLoad load = {.num_batches = num_batches, .num_sequences = num_batches * config.training.global_batch_size};
  std::int64_t pieces = 0;
  for (std::int64_t i = 0; i < num_batches; ++i) {
    batch.read(documents_of, i * config.training.global_batch_size);
    pairs.add(batch);
    for (int replica = 0; replica < layout.num_replicas(); ++replica)
      for (int microbatch = 0; microbatch < layout.num_microbatches(); ++microbatch) {
        if (rows) rows->add_microbatch(batch, replica, microbatch);
        for (std::int64_t row = 0; row < config.training.micro_batch_size; ++row)
          pieces += num_pieces(batch.documents({replica, microbatch, row}));
      }
  }
  pairs.write_to(load, batch);
  if (rows) {
    load.keys = rows->shares();
    load.rows = rows->rows();
  }
  load.mean_length = static_cast<double>(load.num_sequences * config.training.seq_len) / static_cast<double>(pieces);
  return load;
}

}  // namespace

std::int64_t batches_to_count(const RunConfig& config) {
  constexpr std::int64_t num_microbatches = 64;
  const std::int64_t of_batch = config.data_parallel_degree() * config.num_microbatches();
  return (num_microbatches + of_batch - 1) / of_batch;
}

DocumentLoad document_load(const RunConfig& config, const DocumentsOf& documents_of, std::int64_t num_batches,
                           KnownCounts* known) {
  require(config.data.reset_attention_mask,
          "--documents changes nothing where tokens attend across documents: data.reset_attention_mask = false (use "
          "true)");
  return counted_load(config, documents_of, num_batches, known);
}

bool has_windows_alone(const RunConfig& config) { return !config.data.reset_attention_mask && has_windows(config); }

DocumentLoad load_of_whole_sequences(const RunConfig& config) {
  RunConfig of_one = config;  // all microbatches have the same
  of_one.training.global_batch_size = config.data_parallel_degree() * config.training.micro_batch_size;
  const auto T = static_cast<std::int32_t>(config.training.seq_len);
  return counted_load(
      of_one,
      [T](std::int64_t /*sequence*/, DocumentOffsets& documents) {
        documents = {0, T};
      },
      1, nullptr);
}

ContextBytes context_bytes(const Blueprint& blueprint, const DocumentLoad& load) {
  ContextBytes bytes;
  const RunConfig& config = blueprint.config();
  const int num_alike = blueprint.mesh().num_ranks() / blueprint.mesh().degree(Axis::pp),
            tp = blueprint.mesh().degree(Axis::tp);
  for (const RankBlueprint& rank : blueprint.pipeline_ranks()) {
    ContextTraffic traffic = context_traffic(config, rank, ProgramKind::training);
    bytes.planned += num_alike * traffic.planned_bytes;
    const std::int64_t num_steps = load.num_batches * (num_alike / tp);  // of ranks of one place along tp
    traffic.planned_bytes *= num_steps;
    traffic.planned.keys *= num_steps;
    traffic.planned.gradients *= num_steps;
    const std::int64_t sent = load.keys.skip_rows() ? traffic.sent_bytes(load.rows) : traffic.planned_bytes;
    bytes.sent += tp * static_cast<double>(sent) / static_cast<double>(load.num_batches);
  }
  return bytes;
}

ContextBytes context_bytes(const Blueprint& blueprint, DocumentLoad load, const SoftwareProfile& profile) {
  if (!profile.is_echelon) load.keys = {};
  return context_bytes(blueprint, load);
}

SoftwareProfile with_documents(SoftwareProfile profile, const DocumentLoad& load) {
  profile.attention_share = load.slowest_share;
  profile.pairs_share = load.pairs_share;
  profile.key_shares = load.keys;
  return profile;
}

nlohmann::ordered_json to_json(const DocumentLoad& load, const ContextBytes& bytes) {
  return {{"sequences", load.num_sequences},
          {"mean_length", load.mean_length},
          {"pairs_share", load.pairs_share},
          {"largest_over_mean", load.largest_over_mean},
          {"replicas_over_mean", load.replicas_over_mean},
          {"slowest_share", load.slowest_share},
          {"cp_bytes", bytes.sent},
          {"planned_cp_bytes", bytes.planned}};
}

std::string to_text(const DocumentLoad& load, const ContextBytes& bytes) {
  std::string text = fmt::format(
      "documents, {} sequences in pieces of {:.0f} tokens on average: {:.2f} % of the pairs of whole sequences, the "
      "largest rank {:.3f} times the mean, the largest replica {:.3f} times",
      load.num_sequences, load.mean_length, 100 * load.pairs_share, load.largest_over_mean, load.replicas_over_mean);
  if (bytes.planned > 0)
    text += fmt::format("; context parallelism sends {:.3f} GiB of {:.3f} a step", bytes.sent / gib,
                        static_cast<double>(bytes.planned) / gib);
  return text + "\n";
}

}  // namespace echelon
