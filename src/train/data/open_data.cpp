#include "train/data/open_data.h"

#include "base/error.h"
#include "base/text/counted.h"
#include "data/packing/packing_file.h"
#include "files/file.h"

namespace echelon {
namespace {

struct DataKey {
  std::string_view key;
  const std::string& prefix;
  WindowOrder order;
};

IndexedDataset open_dataset(const RunConfig& config, const DataKey& data) {
  const bool is_there = has_target(data.prefix + ".idx");
  const bool is_file_name = data.prefix.ends_with(".bin") || data.prefix.ends_with(".idx");
  require(is_there || !is_file_name, "{} = '{}' is not the prefix of a .bin and an .idx file (use '{}')", data.key,
          data.prefix, data.prefix.substr(0, data.prefix.rfind('.')));
  require(is_there, "{} = '{}': there is no file {}.idx; echelon prepare makes it", data.key, data.prefix, data.prefix);
  IndexedDataset dataset(data.prefix);
  const bool has_conversations = has_target(data.prefix + ".mask");  // of which one is enough
  for (const auto& [key, value] : {std::pair("data.reset_attention_mask", config.data.reset_attention_mask),
                                   std::pair("data.reset_position_ids", config.data.reset_position_ids)})
    require(!value || has_conversations || dataset.num_documents() > 1,
            "{} = true, but {}.idx says that its {} tokens are one document (use false)", key, data.prefix,
            dataset.num_tokens());
  return dataset;
}

void describe(const OpenedPacking& packing, const std::string& path, RunObserver& observer) {
  const PackedSequences& packed = packing.packed;
  const double padding =
      100 * static_cast<double>(packed.num_padding()) / static_cast<double>(packed.num_sequences() * packed.seq_len);
  observer.described(fmt::format("{} {}: {} of {}, {:.3f} % padding; {} split", packing.was_stored ? "read" : "packed",
                                 path, counted(packed.num_sequences(), "sequence"), counted(packed.seq_len, "token"),
                                 padding, counted(packed.num_split, "longer document")));
  if (!packing.warning.empty())
    observer.warned(fmt::format("the packed sequences could not be stored: {}", packing.warning));
}

/// `stores`: what it packs.
DatasetBatches open_batches(const RunConfig& config, const DataKey& data, bool stores, RunObserver& observer) {
  IndexedDataset dataset = open_dataset(config, data);
  const BatchOrder order = {.seed = config.data.seed,
                            .order = data.order,
                            .vocab_size = config.model.vocab_size,
                            .eod_mask_loss = config.data.eod_mask_loss};
  if (config.data.packing == Packing::stream) return {std::move(dataset), order};
  const std::int64_t T = config.training.seq_len;
  OpenedPacking packing = open_packing(dataset, T, order.seed, stores);
  describe(packing, packing_path(data.prefix, T, order.seed), observer);
  return {std::move(dataset), order, std::move(packing.packed)};
}

}  // namespace

DatasetBatches open_training(const RunConfig& config, const RankPlacement& placement, RunObserver& observer) {
  constexpr std::int64_t most_tokens = 4'000'000'000;
  DatasetBatches training = open_batches(config, {"data.path", config.data.path, WindowOrder::shuffled},
                                         placement.is_first_process(), observer);
  if (placement.is_first_process()) require_tokens_below(config.model.vocab_size, training.dataset(), most_tokens);
  return training;
}

DatasetBatches open_documents(const RunConfig& config) {
  RunObserver nobody;
  return open_batches(config, {"data.path", config.data.path, WindowOrder::shuffled}, false, nobody);
}

DatasetBatches open_validation(const RunConfig& config, const RankPlacement& placement, RunObserver& observer) {
  const DataKey data = {"data.validation_path", config.data.validation_path, WindowOrder::in_order};
  DatasetBatches validation = open_batches(config, data, placement.is_first_process(), observer);
  const std::int64_t T = config.training.seq_len;
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(T)), targets(tokens.size());
  for (std::int64_t window = 0; window < validation.windows_per_epoch(T); ++window)
    validation.read(window, T, tokens.data(), targets.data());
  return validation;
}

}  // namespace echelon
