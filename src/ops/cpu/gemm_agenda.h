// The order in which threads claim the shares of a matmul, and what each waits for. A section is a block of columns
// over some blocks of k, whose panels of b are packed together. Its shares of columns pack them and multiply them with
// the first rows; its shares of rows multiply other rows with all of them.
#pragma once

#include "base/team.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <vector>

namespace echelon {

/// The columns of a section come before the last rows of the section before it: a thread that has packed its panels
/// finds work while another still packs.
class GemmAgenda {
 public:
  struct Share {
    std::int64_t section = 0, index = 0;
    bool is_of_columns = false;
  };
  struct Counts {
    std::int64_t sections = 1, column_shares = 1, row_shares = 0;  // shares of each section
    std::int64_t late_shares = 0;                                  // of rows, claimed after the next section's columns
  };
  explicit GemmAgenda(const Counts& counts) : n_(counts) { n_.late_shares = std::min(n_.late_shares, n_.row_shares); }

  [[nodiscard]] std::int64_t size() const { return n_.sections * per_section(); }
  [[nodiscard]] std::int64_t per_section() const { return n_.column_shares + n_.row_shares; }

  [[nodiscard]] Share operator[](std::int64_t position) const {
    if (position < n_.column_shares) return {0, position, true};
    const std::int64_t shifted = position + n_.late_shares;  // as if a section before the first had left some
    const std::int64_t section = shifted / per_section(), index = shifted % per_section();
    const bool is_over = section == n_.sections;
    if (index < n_.column_shares && !is_over) return {section, index, true};
    const std::int64_t row_share = index - (is_over ? 0 : n_.column_shares);
    if (row_share < n_.late_shares) return {section - 1, n_.row_shares - n_.late_shares + row_share, false};
    return {section, row_share - n_.late_shares, false};
  }

 private:
  Counts n_;
};

/// Which shares have ended. What a share waits for is earlier in the agenda, so some thread computes it.
class GemmProgress {
 public:
  /// Sections use `num_buffers` buffers for packed panels in turn.
  GemmProgress(const GemmAgenda::Counts& counts, std::int64_t num_buffers)
      : n_(counts), num_buffers_(num_buffers), sections_of_rows_(static_cast<std::size_t>(counts.row_shares)) {}

  /// Until its panels are packed, or can be, and no thread adds to its part of c any more.
  void await(const GemmAgenda::Share& share) const {
    Team::await(column_shares_, (share.section + (share.is_of_columns ? 0 : 1)) * n_.column_shares);
    if (!share.is_of_columns)
      return Team::await(sections_of_rows_[static_cast<std::size_t>(share.index)], share.section);
    for (const std::atomic<std::uint32_t>& sections : sections_of_rows_)
      Team::await(sections, share.section + 1 - num_buffers_);
  }

  /// Ends it at the end of the scope, also after an exception, so that no thread waits forever.
  class End {
   public:
    End(GemmProgress& progress, const GemmAgenda::Share& share)
        : count_(share.is_of_columns ? progress.column_shares_
                                     : progress.sections_of_rows_[static_cast<std::size_t>(share.index)]) {}
    ~End() {
      count_.fetch_add(1);
      count_.notify_all();
    }
    End(const End&) = delete;
    End& operator=(const End&) = delete;

   private:
    std::atomic<std::uint32_t>& count_;
  };

 private:
  const GemmAgenda::Counts n_;
  const std::int64_t num_buffers_;
  alignas(64) std::atomic<std::uint32_t> column_shares_ = 0;
  std::vector<std::atomic<std::uint32_t>> sections_of_rows_;  // that each share of rows has finished
};

}  // namespace echelon
