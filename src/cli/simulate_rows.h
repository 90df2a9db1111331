// echelon simulate --rows: a table of published runs, one prediction each.
#pragma once

#include "base/error.h"

#include <string>

namespace echelon {

struct RowsArguments {
  std::string path;     // CSV with the columns of predict/published/published_row.h
  std::string profile;  // replaces the profile of a row's software; empty: the row's
  // JSON list of constants to predict with, one prediction each; empty: those of predict/software/calibration.cpp.
  std::string constants;
  bool json = false;
};

/// Rows that cannot be expressed get a sentence; the others are predicted.
ExitStatus simulate_rows(const RowsArguments& arguments);

}  // namespace echelon
