#include "checkpoint/merged_weights.h"

#include "base/error.h"
#include "checkpoint/base_digest.h"
#include "checkpoint/hf/adapter/adapter_reader.h"
#include "checkpoint/model_reader.h"
#include "checkpoint/safetensors/convert_values.h"
#include "checkpoint/state/saved_config.h"
#include "checkpoint/state/state_reader.h"
#include "spec/lora/saved_modules.h"

#include <algorithm>

namespace echelon {
namespace {

/// What is read, and where its values go.
struct Wanted {
  const std::string& name;
  const TensorSlice& slice;
  DType dtype;
  void* out;
};

/// values_of(part, values) writes the float64 values of a part, which are rounded once.
template <class ValuesOf>
void read_in_parts(const Wanted& wanted, ValuesOf&& values_of) {
  constexpr std::int64_t chunk = 1 << 20;
  const std::int64_t count = wanted.slice.num_elements();
  std::vector<double> values;
  for (std::int64_t first = 0; first < count; first += chunk) {
    const TensorSlice part = wanted.slice.elements({first, std::min(chunk, count - first)});
    values.resize(static_cast<std::size_t>(part.num_elements()));
    values_of(part, values.data());
    convert_values(DType::float64, reinterpret_cast<const std::byte*>(values.data()), wanted.dtype,
                   static_cast<std::byte*>(wanted.out) + first * size_of(wanted.dtype), part.num_elements());
  }
  require(first_not_finite(wanted.dtype, wanted.out, count) == count,
          "the merged '{}' has a value that is NaN or infinite in {}", wanted.name, name_of(wanted.dtype));
}

}  // namespace

MergedWeights::MergedWeights(const std::filesystem::path& adapters, const std::filesystem::path& base) {
  if (is_checkpoint(adapters))
    open_checkpoint(adapters, base);
  else
    open_folder(adapters, base);
}

void MergedWeights::open_base(const std::filesystem::path& base) {
  require(!is_adapter_folder(base), "'{}' has adapters, which are no base (use echelon convert --merge first)",
          base.string());
  require(!is_checkpoint(base) || !config_of(read_manifest(base), base).lora.exists(),
          "'{}' is a checkpoint with adapters, which are no base (use echelon convert --merge first)", base.string());
  base_folder_ = base;
  base_ = std::make_shared<const ModelReader>(base);
}

void MergedWeights::open_checkpoint(const std::filesystem::path& adapters, const std::filesystem::path& base) {
  const auto reader = std::make_shared<const StateReader>(adapters);
  const RunConfig config = config_of(reader->manifest(), adapters);
  require(config.lora.exists(), "{} is a checkpoint without adapters", adapters.string());
  const std::filesystem::path& own = config.checkpoint.initial_load_path;
  require(!base.empty() || !own.empty(),
          "{} has adapters of a model that its run drew at random: there is no folder to merge them with",
          adapters.string());
  open_base(base.empty() ? own : base);
  require(reader->manifest().base == digest_of_base(*base_), "{} has adapters of another base than '{}'{}",
          adapters.string(), base_folder_.string(),
          own.empty() ? "" : fmt::format(" (they are of '{}')", own.string()));
  for (const NamedShape& parameter : saved_parameters(spec(), config.lora))
    reader->require_parameter(parameter.name, parameter.sizes);
  lora_ = config.lora;
  read_adapter_ = [reader](const std::string& name, const TensorSlice& slice, double* out) {
    reader->read({.parameter = name, .state = "weight", .dtype = DType::float64, .slice = slice},
                 reinterpret_cast<std::byte*>(out));
  };
}

void MergedWeights::open_folder(const std::filesystem::path& adapters, const std::filesystem::path& base) {
  open_base(base.empty() ? std::filesystem::path(read_adapter_base(adapters)) : base);
  const auto reader = std::make_shared<const AdapterReader>(adapters, spec());
  const AdapterConfig& config = reader->config();
  require(!config.base_digest || *config.base_digest == digest_of_base(*base_),
          "{} has adapters of another base than '{}'{}", adapters.string(), base_folder_.string(),
          config.base.empty() ? "" : fmt::format(" (they are of '{}')", config.base));
  lora_ = config.lora;
  read_adapter_ = [reader](const std::string& name, const TensorSlice& slice, double* out) {
    reader->read(name, slice, DType::float64, out);
  };
}

const ModelSpec& MergedWeights::spec() const { return base_->spec(); }

std::vector<float> MergedWeights::router_bias() const { return base_->router_bias(); }

std::shared_ptr<const MergedWeights::Matrices> MergedWeights::matrices_of(const std::string& layer,
                                                                          const Sizes& weight) const {
  const std::lock_guard lock(last_->mutex);
  if (last_->matrices != nullptr && last_->matrices->layer == layer) return last_->matrices;
  const auto values_of = [&](const std::string& name, const Sizes& sizes) {
    std::vector<double> values(static_cast<std::size_t>(sizes.num_elements()));
    read_adapter_(name, TensorSlice(sizes), values.data());
    return values;
  };
  last_->matrices =
      std::make_shared<const Matrices>(Matrices{.layer = layer,
                                                .a = values_of(name_of_a(spec(), layer), {lora_.rank, weight[1]}),
                                                .b = values_of(layer + ".lora_B.weight", {weight[0], lora_.rank})});
  return last_->matrices;
}

void MergedWeights::read(const std::string& name, const TensorSlice& slice, DType dtype, void* out) const {
  constexpr std::string_view suffix = ".weight";
  const bool is_tied_head = name == head_weight && spec().tie_word_embeddings;
  const std::string own = is_tied_head ? std::string(tied_weight) : name;
  if (lora_.exists() && is_saved_whole(lora_, spec(), own))
    return read_in_parts({own, slice, dtype, out},
                         [&](const TensorSlice& part, double* values) { read_adapter_(own, part, values); });
  const std::string layer = name.substr(0, name.size() - std::min(name.size(), suffix.size()));
  if (!name.ends_with(suffix) || layer_of(layer) == layer || !has_adapter(lora_, spec(), layer_of(layer)))
    return base_->read(name, slice, dtype, out);
  const std::shared_ptr<const Matrices> of = matrices_of(layer, slice.global_sizes());
  const std::int64_t in = slice.global_sizes()[1], r = lora_.rank;
  read_in_parts({name, slice, dtype, out}, [&](const TensorSlice& part, double* sums) {
    base_->read(name, part, DType::float64, sums);
    part.for_each_run([&](const Run& run) {
      for (std::int64_t i = 0; i < run.count; ++i) {
        const std::int64_t row = (run.global + i) / in, column = (run.global + i) % in;
        double sum = 0;
        for (std::int64_t k = 0; k < r; ++k)
          sum += of->b[static_cast<std::size_t>(row * r + k)] * of->a[static_cast<std::size_t>(k * in + column)];
        sums[run.local + i] += lora_.scale() * sum;
      }
    });
  });
}

}  // namespace echelon
