// Time, memory and padding of data.packing = best_fit for documents of lognormal lengths (median 2,000, sigma 1.5), and
// the time to write and read its index.
// usage: bench_packing [DOCUMENTS [SEQ_LEN]]   (10,000,000 and 32,768; one core)
//
// Claim (speed): Ten million documents are packed into sequences of 32,768 tokens in seconds of one core.
// Bound: 3.1 s, 287 MiB and 0.005 % of padding on an Intel Granite Rapids.
// Run: build/release/bench_packing
#include "base/clock.h"
#include "context/drawn_lengths.h"
#include "data/packing/packing_file.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <cstdlib>
#include <filesystem>
#include <string>

int main(int argc, char** argv) {
  using namespace echelon;
  const std::int64_t num_documents = argc > 1 ? std::atoll(argv[1]) : 10'000'000;
  const std::int64_t seq_len = argc > 2 ? std::atoll(argv[2]) : 32768;
  DrawnLengths lengths(1);
  std::vector<std::int64_t> starts = {0};
  starts.reserve(static_cast<std::size_t>(num_documents) + 1);
  for (std::int64_t d = 0; d < num_documents; ++d) starts.push_back(starts.back() + lengths.draw(Lengths::lognormal));
  const double start = now_seconds();
  const PackingRequest request = {.document_starts = starts, .seq_len = seq_len, .seed = 1};
  const PackedSequences packed = pack_best_fit(request);
  const double seconds = now_seconds() - start;
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  fmt::print(
      "{} documents, {} tokens: {} sequences of {}, {} documents split, {:.4f} % padding\n", num_documents,
      packed.num_tokens, packed.num_sequences(), seq_len, packed.num_split,
      100.0 * static_cast<double>(packed.num_padding()) / static_cast<double>(packed.num_sequences() * packed.seq_len));
  fmt::print("{:.2f} s, peak of the process {:.0f} MiB\n", seconds, static_cast<double>(usage.ru_maxrss) / 1024);
  const std::string path = std::filesystem::temp_directory_path() / "bench_packing.best_fit";
  const double before = now_seconds();
  write_packing(path, request, packed);
  const double written = now_seconds();
  const bool is_same = read_packing(path, request) == packed;
  fmt::print("index of {:.0f} MiB: written in {:.2f} s, {} in {:.2f} s\n",
             static_cast<double>(std::filesystem::file_size(path)) / (1 << 20), written - before,
             is_same ? "read" : "NOT READ", now_seconds() - written);
  std::filesystem::remove(path);
}
