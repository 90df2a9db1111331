// What saving and loading costs, counted: bytes on disk, bytes between ranks, bytes read, memory.
#include "resume/small_run.h"

#include "blueprint/save_plan.h"
#include "checkpoint/safetensors/safetensors.h"
#include "checkpoint/state/state_names.h"
#include "comm/thread/thread_world.h"
#include "files/file.h"
#include "ops/cpu/cpu_ops.h"
#include "report/system_memory.h"
#include "spec/groups.h"
#include "train/save/state_saver.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <set>

namespace echelon::testing {
namespace {

class Counted : public SmallRun {
 protected:
  /// 1.7 M parameters, so that files have several blocks.
  RunConfig large_config(const std::string& folder) const {
    RunConfig config = this->config(folder);
    config.training.dtype = DType::float32;
    config.model.hidden_size = config.model.intermediate_size = 256;
    config.model.head_dim = 64;
    config.model.vocab_size = 1000;
    return config;
  }

  struct Rank {
    RankRun& run;
    Ops& ops;
    Mesh& mesh;
    StateSaver& saver;
  };
  template <class Body>
  static void on_ranks(const RunConfig& config, Body&& body) {
    const Blueprint blueprint(config);
    make_folder(checkpoint_folder(config));
    run_thread_ranks(blueprint.mesh(), {}, [&](Mesh& mesh) {
      const auto ops = make_cpu_ops({});
      RankRun run(blueprint, mesh, *ops);
      run.model().initialize(config.training.seed, *ops);
      StateSaver saver({blueprint, run, *ops, mesh}, 1, {});
      body(Rank{run, *ops, mesh, saver});
    });
  }
  static void save(const Rank& rank, std::int64_t step) {
    RunScalars scalars;
    scalars.step = step;
    const auto failure = rank.saver.save(scalars);
    EXPECT_FALSE(failure.has_value()) << failure->sentence;
  }
  static std::int64_t bytes_of(const Manifest& manifest) {
    std::int64_t sum = 0;
    for (const Manifest::File& file : manifest.files) sum += file.num_bytes;
    return sum;
  }
};

const auto layouts_with_copies = [](RunConfig& config, int number) {
  ParallelConfig& p = config.parallelism;
  if (number == 0) p.data_parallel_shard_degree = 4, p.zero_level = 3;
  if (number == 1) p.data_parallel_replicate_degree = 4;
  if (number == 2) p.tensor_parallel_degree = 4;
  if (number == 3) p.data_parallel_replicate_degree = p.data_parallel_shard_degree = 2, p.tensor_parallel_degree = 2;
};
constexpr int num_layouts_with_copies = 4;

TEST_F(Counted, FilesHaveThePlannedBytesAndRanksWriteEvenly) {
  for (int number = 0; number < num_layouts_with_copies; ++number) {
    SCOPED_TRACE(number);
    RunConfig config = large_config(fmt::format("out{}", number));
    layouts_with_copies(config, number);
    std::mutex mutex;
    std::vector<std::int64_t> planned;
    std::int64_t planned_sum = 0;
    on_ranks(config, [&](const Rank& rank) {
      save(rank, 1);
      const std::lock_guard lock(mutex);
      planned.push_back(rank.saver.own_bytes());
      if (rank.mesh.rank() == 0) planned_sum = rank.saver.files().num_bytes();
    });
    const std::filesystem::path folder = checkpoint(fmt::format("out{}", number), 1);
    const Manifest manifest = read_manifest(folder);
    std::vector<std::int64_t> written;
    for (const Manifest::File& file : manifest.files) {
      EXPECT_EQ(static_cast<std::int64_t>(std::filesystem::file_size(folder / file.name)), file.num_bytes);
      written.push_back(file.num_bytes);
    }
    std::ranges::sort(planned);
    std::ranges::sort(written);
    EXPECT_EQ(written, planned);
    EXPECT_EQ(bytes_of(manifest), planned_sum);
    // 12 bytes per parameter, and headers.
    const auto state = 12 * config.model.num_parameters();
    EXPECT_GE(planned_sum, state);
    EXPECT_LE(planned_sum, state + 4 * 100'000);
    EXPECT_LE(written.back() - written.front(), written.back() / 20);
  }
}

// Digests, and twice a value that says whether all went well.
TEST_F(Counted, RanksTellEachOtherDigestsAlone) {
  RunConfig config = large_config("out");
  config.parallelism.data_parallel_shard_degree = 4;
  on_ranks(config, [&](const Rank& rank) {
    const std::int64_t n = rank.mesh.shape().num_ranks();
    const auto sum = [&] {
      std::int64_t bytes = 0;
      for (const auto& [group, sent] : rank.mesh.sent_bytes()) bytes += sent;
      return bytes;
    };
    const std::int64_t before = sum();
    save(rank, 1);
    const std::int64_t digests = (n - 1) * static_cast<std::int64_t>(sizeof(Digest));
    EXPECT_GE(sum() - before, digests);
    EXPECT_LE(sum() - before, digests + 2 * 2 * (n - 1) * 8);
  });
}

/// Bytes of the blocks that have a value of the slices, by their definition: value by value.
std::int64_t bytes_of_blocks(const std::filesystem::path& folder, const Manifest& manifest,
                             const std::vector<StateSlice>& slices) {
  std::int64_t sum = 0;
  for (const Manifest::File& file : manifest.files) {
    const File stored = File::open_to_read(folder / file.name);
    const SafetensorsHeader header =
        parse_safetensors_header(read_header_bytes(stored, folder / file.name), file.num_bytes, file.name);
    std::set<std::int64_t> blocks;
    for (const auto& [name, tensor] : header.tensors) {
      const auto place = parse_state_tensor_name(name);
      if (!place) continue;
      for (const StateSlice& slice : slices) {
        if (slice.state != place->state || slice.parameter != place->parameter) continue;
        for (const SliceRectangle& wanted : rectangles_of(slice.slice))
          for (std::int64_t row = 0; row < place->rows.count; ++row)
            for (std::int64_t column = 0; column < place->columns.count; ++column) {
              const std::int64_t r = place->rows.first + row - wanted.rows.first,
                                 c = place->columns.first + column - wanted.columns.first;
              if (r < 0 || r >= wanted.rows.count || c < 0 || c >= wanted.columns.count) continue;
              const std::int64_t value = row * place->columns.count + column;
              blocks.insert((tensor.first_byte - header.num_bytes + value * size_of(*tensor.dtype)) / block_bytes);
            }
      }
    }
    for (const std::int64_t block : blocks)
      sum += std::min(block_bytes, file.num_bytes - header.num_bytes - block * block_bytes);
  }
  return sum;
}

TEST_F(Counted, ARankReadsTheBlocksOfItsShareOnce) {
  RunConfig config = large_config("out");
  config.parallelism.data_parallel_shard_degree = 4;
  config.parallelism.zero_level = 3;
  on_ranks(config, [&](const Rank& rank) { save(rank, 1); });
  const std::filesystem::path folder = checkpoint("out", 1);
  const Manifest manifest = read_manifest(folder);
  for (int number = 0; number < num_layouts_with_copies; ++number) {
    SCOPED_TRACE(number);
    RunConfig other = large_config("out");
    layouts_with_copies(other, number);
    const StateReader reader(folder);
    std::atomic<std::int64_t> num_values = 0, expected = 0;
    on_ranks(other, [&](const Rank& rank) {
      load_state(rank.run.model().part(), reader, {}, rank.ops, rank.mesh, rank.mesh);
      const std::vector<StateSlice> slices = state_slices(rank.run.model().part());
      for (const StateSlice& slice : slices) num_values += slice.slice.num_elements();
      expected += bytes_of_blocks(folder, manifest, slices);
    });
    EXPECT_EQ(num_values, 3 * other.model.num_parameters()) << "each value by one rank";
    EXPECT_EQ(reader.read_bytes(), expected);
  }
}

// Two hundred saves need no memory beyond the plan's, but for a bounded rest.
TEST_F(Counted, SavingAgainAndAgainNeedsNoMoreMemory) {
  RunConfig config = large_config("out");
  config.parallelism.data_parallel_shard_degree = 2;
  on_ranks(config, [&](const Rank& rank) {
    save(rank, 1);
    const std::int64_t before = process_memory().peak_bytes;
    for (std::int64_t step = 2; step <= 200; ++step) {
      save(rank, step);
      if (rank.mesh.rank() == 0) std::filesystem::remove_all(checkpoint("out", step - 1));
    }
    EXPECT_LE(process_memory().peak_bytes - before, 16 << 20);
  });
}

}  // namespace
}  // namespace echelon::testing
