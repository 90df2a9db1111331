// echelon simulate --rows: a table of published runs, one prediction each.
#pragma once

#include "base/error.h"

#include <string>

namespace echelon {

struct RowsArguments {
  std::string path;     // CSV with the columns of predict/published/published_row.h
  std::string profile;  // instead of the one that a row's software names; empty: the row's
  // JSON list of constants to predict with, one prediction each; empty: those of predict/software/calibration.cpp.
  std::string constants;
  bool json = false;
};

/// Rows that cannot be expressed get a sentence, and the others go on.
ExitStatus simulate_rows(const RowsArguments& arguments);

}  // namespace echelon
