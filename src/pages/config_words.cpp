#include "pages/config_words.h"

#include "base/text/counted.h"
#include "base/text/written_number.h"

#include <fmt/format.h>

#include <iterator>
#include <span>

namespace echelon {

std::string with_unit(double number, std::string_view unit) {
  constexpr std::string_view prefixes[] = {"", "k", "M", "G", "T", "P", "E"};
  std::size_t prefix = 0;
  for (; number >= 1000 && prefix + 1 < std::size(prefixes); ++prefix) number /= 1000;
  return fmt::format("{:.4g} {}{}", number, prefixes[prefix], unit);
}

std::string layout_line(const RunConfig& config) {
  const ParallelConfig& p = config.parallelism;
  const MeshShape mesh = config.mesh_shape();
  std::string degrees;
  const std::span<const Axis> axes = p.order.axes();
  for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis)
    if (mesh.degree(*axis) > 1)
      degrees += fmt::format("{}{} {}", degrees.empty() ? " = " : " x ", name_of(*axis), mesh.degree(*axis));
  const std::string zero = p.data_parallel_shard_degree > 1 ? fmt::format(", ZeRO-{}", p.zero_level) : "";
  std::string experts = p.expert_parallel_degree > 1 ? fmt::format(", experts over {}", p.expert_parallel_degree) : "";
  if (num_feature_ranks(p) > 1) experts += fmt::format(", features of experts over {}", num_feature_ranks(p));
  const std::string order = p.order == AxisOrder() ? "" : fmt::format(", order {}", name_of(p.order));
  return fmt::format("{} {}{}{}{}{}{}; {} {} of {} x {} tokens", grouped(static_cast<double>(mesh.num_ranks())),
                     plural(mesh.num_ranks(), "rank"), degrees, p.sequence_parallel ? ", sequence parallel" : "", zero,
                     experts, order, grouped(static_cast<double>(config.num_microbatches())),
                     plural(config.num_microbatches(), "microbatch"), config.training.micro_batch_size,
                     config.training.seq_len);
}

}  // namespace echelon
