// Seconds of wall time and of processor time for a corpus that is in memory.
// usage: bench_tokenizers TOKENIZER_FILE CORPUS.jsonl [THREADS [ROUNDS [IDS_FILE]]]
//          encodes, a line per round; writes int32 ids to IDS_FILE
//        bench_tokenizers learn CORPUS.jsonl VOCAB_SIZE MIN_FREQUENCY TOKENIZER_FILE
//          learns merges
#include "base/clock.h"
#include "base/error.h"
#include "data/tokenizer/bpe_trainer.h"
#include "data/tokenizer/encoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include <nlohmann/json.hpp>

namespace {

using namespace echelon;
using Ids = std::vector<std::int32_t>;

std::vector<std::string> documents_of(const std::string& path) {
  std::vector<std::string> documents;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) documents.push_back(nlohmann::json::parse(line).at("text"));
  require(!documents.empty(), "{} has no documents", path);
  return documents;
}

// Each thread has its encoder and a contiguous part of the documents, as in `prepare`.
std::vector<Ids> encode(const Tokenizer& tokenizer, const std::vector<std::string>& documents, int num_threads) {
  std::vector<Ids> parts(static_cast<std::size_t>(num_threads));
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < parts.size(); ++t) {
    threads.emplace_back([&, t] {
      Encoder encoder(tokenizer);
      const std::size_t begin = documents.size() * t / parts.size(), end = documents.size() * (t + 1) / parts.size();
      for (std::size_t d = begin; d < end; ++d) encoder.append(documents[d], parts[t]);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return parts;
}

double processor_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

/// Runs `work` and prints its seconds.
template <class Work>
void timed(const Work& work) {
  const double start = now_seconds(), processor_start = processor_seconds();
  work();
  const double seconds = now_seconds() - start;
  fmt::print("{:.3f} {:.3f}\n", seconds, processor_seconds() - processor_start);
}

void learn(const std::string& corpus, std::int64_t vocab_size, std::int64_t min_frequency, const std::string& output) {
  const std::vector<std::string> documents = documents_of(corpus);
  TokenizerSpec spec;
  timed([&] {
    BpeTrainer trainer;
    for (const std::string& document : documents) trainer.add(document);
    spec = trainer.train(vocab_size, min_frequency);
  });
  std::ofstream(output) << to_tokenizer_json(spec);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 6 && argv[1] == std::string("learn"))
    return learn(argv[2], std::atoi(argv[3]), std::atoi(argv[4]), argv[5]), 0;
  if (argc < 3)
    return fmt::print(stderr, "usage: bench_tokenizers TOKENIZER_FILE CORPUS.jsonl [THREADS [ROUNDS [IDS_FILE]]]\n"), 2;
  const Tokenizer tokenizer = Tokenizer::load(argv[1]);
  const std::vector<std::string> documents = documents_of(argv[2]);
  const int num_threads = std::max(argc > 3 ? std::atoi(argv[3]) : 1, 1),
            num_rounds = argc > 4 ? std::atoi(argv[4]) : 1;
  std::vector<Ids> parts;
  for (int round = 0; round < num_rounds; ++round) timed([&] { parts = encode(tokenizer, documents, num_threads); });
  if (argc < 6) return 0;
  std::ofstream file(argv[5], std::ios::binary);
  for (const Ids& ids : parts)
    file.write(reinterpret_cast<const char*>(ids.data()), static_cast<std::streamsize>(ids.size() * sizeof(ids[0])));
}
