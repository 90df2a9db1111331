// Experts over ranks whose loads are known: steps after the first find the counts of all ranks where they would
// exchange them. Only where every step has the same choices, in one microbatch.
#pragma once

#include "forwarding_mesh.h"

#include <cstring>
#include <vector>

namespace echelon {

class KnowingComm final : public ForwardingComm {
 public:
  KnowingComm(Comm& inner, std::int64_t num_layers)
      : ForwardingComm(inner), num_layers_(static_cast<std::size_t>(num_layers)) {}
  [[nodiscard]] Pending all_gather(Tensor full, Tensor shard) override {
    if (shard.dtype != DType::int32) return inner().all_gather(full, shard);
    const std::size_t layer = num_calls_++ % num_layers_;
    const auto bytes = static_cast<std::size_t>(full.num_bytes());
    if (num_calls_ > num_layers_) {
      std::memcpy(full.as<std::int32_t>(), known_.at(layer).data(), bytes);
      return {};
    }
    inner().all_gather(full, shard).wait();
    known_.emplace_back(full.as<std::int32_t>(), full.as<std::int32_t>() + full.num_elements());
    return {};
  }

 private:
  std::size_t num_layers_, num_calls_ = 0;
  std::vector<std::vector<std::int32_t>> known_;
};

}  // namespace echelon
