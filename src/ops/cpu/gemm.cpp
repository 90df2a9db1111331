#include "ops/cpu/gemm.h"

#include "base/team.h"
#include "ops/cpu/gemm_agenda.h"
#include "ops/cpu/gemm_blocks.h"
#include "ops/cpu/gemm_grid.h"

#include <algorithm>
#include <utility>

namespace echelon {
namespace {

// Rows of c at a time, so that float32 sums of a c of 16 bits are bounded.
constexpr std::int64_t most_rows = 4096;

class Multiplication {
 public:
  /// `most_threads` take part: num_threads of this thread's team, and those that others lend.
  Multiplication(const GemmKernels& kernels, const GemmProduct& product, int num_threads, std::int64_t most_threads)
      : kernels_(kernels),
        g_(product),
        sections_(kernels, product),
        num_threads_(num_threads),
        most_threads_(most_threads) {}

  void run() const {
    const std::int64_t num_bands = parts_of(g_.m, most_rows);
    for (std::int64_t i = 0; i < num_bands; ++i) multiply_band(part(g_.m, num_bands, i));
  }

 private:
  /// The threads claim the shares of all sections in one go.
  void multiply_band(GemmRange band) const {
    const GemmRowSplits cuts(band.size, kernels_, most_threads_);
    const std::int64_t fewest_panels =
        std::max<std::int64_t>(1, parts_of(g_.n, kernels_.tile_columns) / sections_.num_column_blocks());
    GemmAgenda::Counts counts{.column_shares = std::min(most_threads_, fewest_panels),
                              .row_shares = cuts.row_shares(),
                              .late_shares = most_threads_ == 1 ? 0 : most_threads_};
    const std::int64_t at_once =
        std::max<std::int64_t>(1, Team::most_shares / (counts.column_shares + counts.row_shares));
    const GemmBlocks::Buffers buffers = allocate(band.size);
    const GemmBlocks blocks(kernels_, g_, sections_, band, buffers);
    for (std::int64_t first = 0; first < sections_.size(); first += at_once) {
      counts.sections = std::min(at_once, sections_.size() - first);
      GemmProgress progress(counts, buffers.num_sections);
      multiply_sections(first, counts, cuts, [&](const GemmAgenda::Share& share, const GemmBlocks::Block& c) {
        const GemmProgress::End end(progress, share);
        progress.await(share);
        blocks.multiply(sections_[first + share.section], c);
      });
    }
  }

  /// multiply(share, block) for the shares of some sections.
  template <class F>
  void multiply_sections(std::int64_t first_section, const GemmAgenda::Counts& counts, const GemmRowSplits& cuts,
                         F&& multiply) const {
    const GemmAgenda agenda(counts);
    const auto rows_of = [&](const GemmAgenda::Share& share) {
      return share.is_of_columns ? cuts.first_rows() : cuts.rows_of(share.index);
    };
    const std::int64_t threads_now = Team::num_threads_now(num_threads_);
    share_out(agenda.size(), [&](int position) {
      const GemmAgenda::Share share = agenda[position];
      const std::int64_t num_panels = sections_[first_section + share.section].num_panels;
      GemmBlocks::Block c{.rows = rows_of(share),
                          .panels = share.is_of_columns ? part(num_panels, counts.column_shares, share.index)
                                                        : GemmRange{0, num_panels},
                          .packs_b = share.is_of_columns};
      if (const std::int64_t next = position + threads_now; next < agenda.size()) {
        c.next_rows = rows_of(agenda[next]);
        c.next_block = sections_[first_section + agenda[next].section].blocks.first;
      }
      multiply(share, c);
    });
  }

  [[nodiscard]] GemmBlocks::Buffers allocate(std::int64_t num_rows) const {
    GemmBlocks::Buffers buffers{.num_sections = most_threads_ == 1 ? 1 : std::min<std::int64_t>(2, sections_.size())};
    std::int64_t most_panels = 0;
    for (std::int64_t index = 0; index < sections_.size(); ++index) {
      const GemmSection s = sections_[index];
      buffers.section_size = std::max(buffers.section_size, s.num_panels * s.units * kernels_.tile_columns);
      most_panels = std::max(most_panels, s.num_panels);
    }
    buffers.packed_b =
        HugeBuffer::of_this_thread(HugeBuffer::shared).floats(buffers.num_sections * buffers.section_size);
    buffers.sums_stride = most_panels * kernels_.tile_columns;
    if (narrows(g_) && sections_.num_groups() > 1)
      buffers.sums = HugeBuffer::of_this_thread(HugeBuffer::sums).floats(num_rows * buffers.sums_stride);
    return buffers;
  }

  template <class F>
  void share_out(std::int64_t num_shares, F&& f) const {
    if (most_threads_ > 1) return Team::of_this_thread(num_threads_).run(static_cast<int>(num_shares), f);
    for (int share = 0; share < num_shares; ++share) f(share);
  }

  const GemmKernels& kernels_;
  const GemmProduct& g_;
  const GemmSections sections_;
  const int num_threads_;
  const std::int64_t most_threads_;
};

const std::byte* place_in(const Factor& factor, DType dtype, std::int64_t row, std::int64_t column) {
  if (factor.is_transposed) std::swap(row, column);
  return factor.data + (row * factor.stride + column) * size_of(dtype);
}

GemmProduct part_of(const GemmProduct& whole, DType dtype, GemmRange rows, GemmRange columns) {
  GemmProduct g = whole;
  g.a.data = place_in(whole.a, dtype, rows.first, 0);
  g.b.data = place_in(whole.b, dtype, 0, columns.first);
  g.c = whole.c + (rows.first * whole.c_stride + columns.first) * size_of(whole.c_dtype);
  g.m = rows.size;
  g.n = columns.size;
  return g;
}

}  // namespace

void multiply_part(const GemmKernels& kernels, const GemmProduct& product, GemmRange rows, GemmRange columns) {
  Multiplication(kernels, part_of(product, kernels.dtype, rows, columns), 1, 1).run();
}

void multiply(const GemmKernels& kernels, const GemmProduct& product, int num_threads) {
  const bool is_small = product.m * product.n * product.k < (std::int64_t{1} << 20);
  const std::int64_t threads = is_small ? 1 : Team::most_threads(num_threads);
  const GemmGrid grid(product.m, product.n, kernels, threads);
  if (grid.size() == 1) return Multiplication(kernels, product, num_threads, threads).run();
  const auto multiply_one = [&](int index) { multiply_part(kernels, product, grid.rows(index), grid.columns(index)); };
  Team::of_this_thread(num_threads).run(grid.size(), multiply_one);
}

}  // namespace echelon
