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
  require(dataset.num_tokens() >= 2, "{} = '{}' holds {}, of which none can be predicted (use more text)", data.key,
          data.prefix, counted(dataset.num_tokens(), "token"));
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
  if (!packing.fault.empty())
    observer.warned(
        fmt::format("the packed sequences are not stored, as their file cannot be read: {}", packing.fault));
}

OpenedData open_batches(const RunConfig& config, const DataKey& data, RunObserver& observer) {
  IndexedDataset dataset = open_dataset(config, data);
  const BatchOrder order = {.seed = config.data.seed,
                            .order = data.order,
                            .vocab_size = config.model.vocab_size,
                            .eod_mask_loss = config.data.eod_mask_loss};
  if (config.data.packing == Packing::stream) return {{std::move(dataset), order}};
  const std::int64_t T = config.training.seq_len;
  OpenedPacking packing = open_packing(dataset, T, order.seed);
  describe(packing, packing_path(data.prefix, T, order.seed), observer);
  return {{std::move(dataset), order, std::move(packing.packed)}, !packing.was_stored && packing.fault.empty()};
}

void require_targets(const RunConfig& config, const DataKey& data, const DatasetBatches& batches) {
  if (batches.has_targets(config.training.seq_len)) return;
  const bool masks_ends = config.data.eod_mask_loss;
  throw Error(fmt::format(
      "{} = '{}' has no token to predict: {}", data.key, data.prefix,
      batches.mask() != nullptr
          ? fmt::format("{}.mask leaves out {}", data.prefix, masks_ends ? "all but first tokens of documents" : "all")
      : masks_ends ? "no document has two tokens (use data.eod_mask_loss = false)"
                   : "no sequence has two tokens (use a larger training.seq_len)"));
}

}  // namespace

OpenedData open_training(const RunConfig& config, const RankPlacement& placement, RunObserver& observer) {
  constexpr std::int64_t most_tokens = 4'000'000'000;
  const DataKey data = {"data.path", config.data.path, WindowOrder::shuffled};
  OpenedData training = open_batches(config, data, observer);
  training.is_to_store &= placement.is_first_process();
  if (placement.is_first_process())
    require_tokens_below(config.model.vocab_size, training.batches.dataset(), most_tokens);
  require_targets(config, data, training.batches);
  return training;
}

DatasetBatches open_documents(const RunConfig& config) {
  RunObserver nobody;
  return open_batches(config, {"data.path", config.data.path, WindowOrder::shuffled}, nobody).batches;
}

OpenedData open_validation(const RunConfig& config, const RankPlacement& placement, RunObserver& observer) {
  const DataKey data = {"data.validation_path", config.data.validation_path, WindowOrder::in_order};
  OpenedData validation = open_batches(config, data, observer);
  validation.is_to_store &= placement.is_first_process();
  const std::int64_t T = config.training.seq_len;
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(T)), targets(tokens.size());
  for (std::int64_t window = 0; window < validation.batches.windows_per_epoch(T); ++window)
    validation.batches.read(window, T, tokens.data(), targets.data());
  require_targets(config, data, validation.batches);
  return validation;
}

void store_packing(const OpenedData& data, const RunConfig& config, RunObserver& observer) {
  if (!data.is_to_store) return;
  try {
    store_packing(data.batches.dataset(), *data.batches.packed(), config.data.seed);
  } catch (const Failure& failure) {
    observer.warned(fmt::format("the packed sequences could not be stored: {}", failure.what()));
  }
}

}  // namespace echelon
