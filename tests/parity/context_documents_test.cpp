// What attention sends of batches whose documents differ, and of layers whose windows differ: the transport against
// every pair (query, key) by itself.
#include "context/brute_force.h"
#include "nn/context_parallel/block_ring.h"
#include "parity/layout.h"
#include "parity/training_run.h"
#include "predict/documents/document_load.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <mutex>

namespace echelon::testing {
namespace {

/// Documents of drawn lengths, different in every sequence.
class DrawnDocuments final : public BatchSource {
 public:
  /// Unless they are masked, a sequence is one document.
  explicit DrawnDocuments(unsigned seed, bool masks = true) : seed_(seed), masks_(masks) {}
  void read(std::int64_t sequence, std::int64_t seq_len, std::int32_t* tokens, std::int32_t* targets) const override {
    for (std::int64_t i = 0; i < seq_len; ++i) {
      tokens[i] = static_cast<std::int32_t>((sequence * 7 + i * i) % 61);
      targets[i] = static_cast<std::int32_t>((sequence + 3 * i) % 61);
    }
  }
  void read_document_starts(std::int64_t sequence, std::int64_t seq_len, std::int32_t* starts) const override {
    const DocumentOffsets documents = of(sequence, seq_len);
    for (std::int32_t i = 0; i < seq_len; ++i) starts[i] = start_of(i, documents);
  }
  [[nodiscard]] DocumentOffsets of(std::int64_t sequence, std::int64_t seq_len) const {
    return masks_ ? drawn_documents(seq_len, seed_ + static_cast<unsigned>(sequence) * 7)
                  : DocumentOffsets{0, static_cast<std::int32_t>(seq_len)};
  }

 private:
  unsigned seed_;
  bool masks_;
};

/// Rows that the ranks send of one sequence, by rank. In a ring, a key that the rank e places on is the last to see is
/// sent e times; its gradients go home from the first one that sees it. Where keys are gathered, each rank that sees it
/// is sent it.
std::vector<KeyRowCounts> rows_of(const TokenLists& lists, const KeyExchange& exchange, const Visibility& visibility) {
  const int u = exchange.head_ranks, n = lists.cp() / u;
  std::vector<KeyRowCounts> rows(static_cast<std::size_t>(n));
  const auto is_seen_by = [&](std::int32_t key, int place) {
    for (int rank = place * u; rank < (place + 1) * u; ++rank)
      for (const std::int32_t query : lists.positions(rank))
        if (sees(query, key, visibility)) return true;
    return false;
  };
  for (int source = 0; source < lists.cp(); ++source)
    for (const std::int32_t key : lists.positions(source)) {
      const int block = source / u;
      int first = n, last = 0;
      for (int distance = n - 1; distance > 0; --distance) {
        if (!is_seen_by(key, (block + distance) % n)) continue;
        last = std::max(last, first = distance);
        if (exchange.method != ContextMethod::all_gather) continue;
        ++rows[static_cast<std::size_t>(block)].keys;
        ++rows[static_cast<std::size_t>((block + distance) % n)].gradients;
      }
      if (exchange.method == ContextMethod::all_gather) continue;
      for (int distance = 0; distance < n; ++distance) {
        KeyRowCounts& of_rank = rows[static_cast<std::size_t>((block + distance) % n)];
        of_rank.keys += distance < last ? 1 : 0;
        of_rank.gradients += distance >= first ? 1 : 0;
      }
    }
  return rows;
}

/// After each step, on each rank.
class EachStep final : public RunObserver {
 public:
  EachStep(const RunConfig& config, const DrawnDocuments& documents) : config_(config), documents_(documents) {}
  void ended_step(const RankView& rank, std::int64_t step, const StepResult& /*result*/) override {
    const std::scoped_lock lock(mutex_);
    num_steps = std::max(num_steps, static_cast<int>(step));
    const KeyExchange exchange = key_exchange(config_.parallelism);
    const std::int64_t counted = rank.mesh.sent_bytes()[ring_group(exchange)], n = config_.training.global_batch_size;
    std::int64_t &before = sent_before_[rank.mesh.rank()], expected = 0;
    for (std::int64_t sequence = (step - 1) * n; sequence < step * n; ++sequence)
      expected += bytes_of(sequence, exchange, rank.mesh.coordinate(Axis::cp), rank.run.blueprint().part());
    EXPECT_EQ(counted - before, expected) << "rank " << rank.mesh.rank() << " step " << step;
    before = counted;
    const AttentionWork& work = rank.run.step().attention_work();
    EXPECT_LE(work.sent_bytes, work.planned_sent_bytes);
    sent_by_run += work.sent_bytes;
    planned_by_run += work.planned_sent_bytes;
    sent += expected;
    planned += work.planned_sent_bytes - work.sent_bytes + expected;
  }
  std::int64_t sent = 0, planned = 0, sent_by_run = 0, planned_by_run = 0;
  int num_steps = 0;

 private:
  // Each layer passes keys around forward, perhaps once more to recompute, and backward, and gradients once: those that
  // its own window shows to some query.
  [[nodiscard]] std::int64_t bytes_of(std::int64_t sequence, const KeyExchange& exchange, int rank,
                                      const ModelPart& part) const {
    const TokenSplit split = token_split(config_);
    const DocumentOffsets documents = documents_.of(sequence, split.seq_len);
    const int u = exchange.head_ranks;
    const TokenLists lists = lists_of(split, documents);
    const DType dtype = config_.training.dtype,
                of_gradients = exchange.method == ContextMethod::all_gather ? dtype : accumulate_dtype(dtype);
    const std::int64_t values =
        2 * std::max<std::int64_t>(1, config_.model.num_key_value_heads / u) * config_.model.head_dim;
    std::int64_t bytes = 0;
    for (const StagePart& stage : part.stages)
      for (std::int64_t i = 0; i < stage.layers.num_layers; ++i) {
        const Visibility visibility = {documents, config_.model.window_of(stage.layers.first_layer + i)};
        const KeyRowCounts rows = rows_of(lists, exchange, visibility)[static_cast<std::size_t>(rank / u)];
        const bool recomputes = part.options.recompute.of_block(i).contain(BlockOperation::core_attn);
        bytes += values * ((recomputes ? 3 : 2) * rows.keys * size_of(dtype) + rows.gradients * size_of(of_gradients));
      }
    return bytes;
  }

  const RunConfig& config_;
  const DrawnDocuments& documents_;
  std::mutex mutex_;
  std::map<int, std::int64_t> sent_before_;
};

/// What `simulate --documents` says of the same batches, and `plan` of sequences without documents.
void expect_predicted(const RunConfig& config, const DrawnDocuments& source, const EachStep& run) {
  const DocumentsOf documents_of = [&](std::int64_t sequence, DocumentOffsets& documents) {
    documents = source.of(sequence, config.training.seq_len);
  };
  const std::int64_t num_steps = config.training.steps;
  const ContextBytes bytes =
      context_bytes(Blueprint(config), config.data.reset_attention_mask ? document_load(config, documents_of, num_steps)
                                                                        : load_of_whole_sequences(config));
  EXPECT_EQ(std::llround(bytes.sent * static_cast<double>(num_steps)), run.sent_by_run);
  EXPECT_EQ(bytes.planned * num_steps, run.planned_by_run);
}

// Claim (plans): With documents and windows, of some layers or all, rings and gathers send the keys that a later rank
//   sees, and their gradients.
// Bound: equal to the byte, 148 batches.
// Tests: ContextDocuments|ContextWindows
TEST(ContextDocuments, AreSentAsFarAsTheyAreSeen) {
  using enum ContextMethod;
  int num_batches = 0;
  for (const LoadBalancer balancer : load_balancers)
    for (const auto& [cp, method, u] :
         {std::tuple(2, ring, 1), std::tuple(3, ring, 1), std::tuple(5, ring, 1), std::tuple(4, ulysses_ring, 2),
          std::tuple(2, all_gather, 1), std::tuple(3, all_gather, 1), std::tuple(5, all_gather, 1)}) {
      Layout layout = {.microbatches = 2, .layers = 2, .documents = true, .cp = cp, .balancer = balancer};
      layout.seq_len = 23;
      layout.method = method;
      layout.ulysses = u > 1 ? u : 0;
      if (cp == 5) layout.family = Family::mistral, layout.window = 7;  // of all blocks
      RunConfig config = config_of(layout);
      config.training.steps = 4;
      config.lr_scheduler.warmup_steps = 0;
      if (cp == 3) config.training.dtype = DType::bfloat16;
      SCOPED_TRACE(name_of(layout));
      const DrawnDocuments documents(static_cast<unsigned>(num_batches));
      EachStep steps(config, documents);
      run_layout({.blueprint = Blueprint(config), .batches = documents, .num_steps = config.training.steps}, steps);
      EXPECT_GT(steps.sent, 0);
      EXPECT_LT(steps.sent, steps.planned);
      num_batches += steps.num_steps;
      expect_predicted(config, documents, steps);
    }
  EXPECT_GE(num_batches, 100);
}

// One layer of four without a window, and with or without documents.
TEST(ContextWindows, EachLayerSendsWhatItsOwnShows) {
  using enum ContextMethod;
  int num_batches = 0, index = 0;
  for (const bool masks : {true, false})
    for (const auto& [cp, method, u, pp] :
         {std::tuple(3, ring, 1, 1), std::tuple(2, ring, 1, 2), std::tuple(4, ulysses_ring, 2, 1),
          std::tuple(6, ulysses_ring, 2, 1), std::tuple(2, all_gather, 1, 1), std::tuple(3, all_gather, 1, 2)})
      for (const BlockOperations& recompute : {BlockOperations(), whole_block}) {
        Layout layout = {.microbatches = masks ? 2 : 1, .layers = 4, .documents = masks, .cp = cp};
        layout.family = index % 2 == 0 ? Family::qwen2 : Family::qwen3;
        layout.window = 4;  // from the second layer on
        layout.balancer = load_balancers[static_cast<std::size_t>(index++) % (masks ? load_balancers.size() : 3)];
        layout.seq_len = 23;
        layout.method = method;
        layout.ulysses = u > 1 ? u : 0;
        layout.pp = pp;
        layout.recompute = recompute;
        RunConfig config = config_of(layout);
        config.training.steps = 2;
        config.lr_scheduler.warmup_steps = 0;
        if (cp == 3) config.training.dtype = DType::bfloat16;
        SCOPED_TRACE(name_of(layout));
        ASSERT_EQ(config.model.windows(), (std::vector<std::int64_t>{0, 4}));
        const DrawnDocuments documents(static_cast<unsigned>(index), masks);
        EachStep steps(config, documents);
        run_layout({.blueprint = Blueprint(config), .batches = documents, .num_steps = config.training.steps}, steps);
        EXPECT_GT(steps.sent, 0);
        EXPECT_LT(steps.sent, steps.planned);
        num_batches += steps.num_steps;
        expect_predicted(config, documents, steps);
      }
  EXPECT_GE(num_batches, 48);
}

}  // namespace
}  // namespace echelon::testing
