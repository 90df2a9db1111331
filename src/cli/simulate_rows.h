// echelon simulate --rows: a table of published runs, one prediction each.
#pragma once

#include "base/error.h"

#include <string>

namespace echelon {

struct RowsArguments {
  std::string path;       // CSV with the columns of predict/published/published_row.h
  std::string profile;    // replaces the profile of a row's software; empty: the row's
  std::string documents;  // that attention of all rows ends at (asked_documents); a row's own column replaces them
  // JSON list of constants to predict with, one prediction each; empty: those of predict/software/calibration.cpp.
  std::string constants;
  bool json = false;
};

/// Rows that cannot be expressed get a sentence; the others are predicted.
ExitStatus simulate_rows(const RowsArguments& arguments);

}  // namespace echelon
