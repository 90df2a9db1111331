// The sections of a matmul: columns of b over some blocks of k, which are packed together.
#pragma once

#include "ops/cpu/gemm.h"
#include "ops/cpu/gemm_splits.h"

#include <algorithm>
#include <cstdint>

namespace echelon {

struct GemmSection {
  std::int64_t index = 0;
  GemmRange columns, blocks;
  std::int64_t num_panels = 0, units = 0;  // of packed b

  [[nodiscard]] std::int64_t end_block() const { return blocks.first + blocks.size; }
};

/// Whether sums have to be rounded into c.
inline bool narrows(const GemmProduct& g) { return is_half_dtype(g.c_dtype); }

class GemmSections {
 public:
  GemmSections(const GemmKernels& kernels, const GemmProduct& g)
      : kernels_(kernels),
        n_(g.n),
        depths_{g.k, kernels.per_unit, kernels.grain, parts_of(parts_of(g.k, kernels.per_unit), kernels.most_units)} {
    const std::int64_t blocks_at_once =
        narrows(g) || kernels.keeps_blocks ? std::min(kernels.most_blocks, depths_.num_blocks) : 1;
    num_groups_ = parts_of(depths_.num_blocks, blocks_at_once);
    num_column_blocks_ =
        parts_of(g.n, std::min(most_columns, packed_units / (blocks_at_once * std::min(g.k, kernels.most_units))));
  }

  [[nodiscard]] const GemmDepths& depths() const { return depths_; }
  [[nodiscard]] std::int64_t num_groups() const { return num_groups_; }  // of blocks of k
  [[nodiscard]] std::int64_t num_column_blocks() const { return num_column_blocks_; }
  [[nodiscard]] std::int64_t size() const { return num_column_blocks_ * num_groups_; }

  [[nodiscard]] GemmSection operator[](std::int64_t index) const {
    GemmSection s;
    s.index = index;
    s.columns = part(n_, num_column_blocks_, index / num_groups_, kernels_.tile_columns);
    s.blocks = part(depths_.num_blocks, num_groups_, index % num_groups_);
    s.num_panels = parts_of(s.columns.size, kernels_.tile_columns);
    s.units = units_before(s, s.end_block() - 1) + depths_.units(s.end_block() - 1);
    return s;
  }

  /// Units of a panel of the section that are those of earlier blocks.
  [[nodiscard]] std::int64_t units_before(const GemmSection& s, std::int64_t block) const {
    return parts_of(depths_.numbers(block).first - depths_.numbers(s.blocks.first).first, kernels_.per_unit);
  }
  [[nodiscard]] GemmRange columns_of(const GemmSection& s, std::int64_t panel) const {
    const std::int64_t first = panel * kernels_.tile_columns;
    return {s.columns.first + first, std::min<std::int64_t>(kernels_.tile_columns, s.columns.size - first)};
  }

 private:
  static constexpr std::int64_t packed_units = 1 << 21;  // 8 MiB: in the last cache; threads are in two at a time

  const GemmKernels& kernels_;
  std::int64_t n_ = 0;
  GemmDepths depths_;
  std::int64_t num_groups_ = 1, num_column_blocks_ = 1;
};

}  // namespace echelon
