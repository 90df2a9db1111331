// What the format of checkpoints has room for: a parameter that is not trained has no optimizer state, is written once,
// and later steps refer to its file by a link of the file system.
#include "checkpoint/scratch_folder.h"
#include "checkpoint/state/publish.h"
#include "checkpoint/state/state_file.h"
#include "checkpoint/state/state_names.h"
#include "checkpoint/state/state_reader.h"
#include "checkpoint/state/step_folders.h"

#include "base/error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <numeric>

namespace echelon {
namespace {

using ::testing::HasSubstr;

class FrozenParameters : public ::testing::Test {
 protected:
  static constexpr std::int64_t size = 8;
  const std::vector<float> frozen_ = {1, 2, 3, 4, 5, 6, 7, 8}, trained_ = {8, 7, 6, 5, 4, 3, 2, 1};

  static StateSlice slice(const std::string& parameter, const std::string& state) {
    return {parameter, state, DType::float32, TensorSlice(Sizes{size})};
  }
  [[nodiscard]] std::filesystem::path folder(std::int64_t step) const { return step_folder(scratch_.path(), step); }

  /// A file with these slices, all of which have the same values.
  [[nodiscard]] Manifest::File write(std::int64_t step, std::int64_t attempt, int rank, Range parameters,
                                     const std::vector<StateSlice>& slices, const std::vector<float>& values) const {
    const StateFilePlan plan(slices);
    Manifest::File file = {state_file_name(attempt, rank), plan.num_bytes(), {}, {parameters}};
    StateFileWriter writer(folder(step) / file.name, plan);
    for (std::size_t i = 0; i < slices.size(); ++i)
      writer.write([&](Range elements, std::byte* out) {
        std::memcpy(out, values.data() + elements.first, static_cast<std::size_t>(elements.count) * sizeof(float));
      });
    file.header = writer.finish();
    return file;
  }
  [[nodiscard]] Manifest manifest(std::int64_t step, std::int64_t attempt) const {
    Manifest manifest;
    manifest.attempt = attempt;
    manifest.scalars.step = step;
    manifest.lineage = {{.attempt = attempt}};
    manifest.parameters = {{"frozen", Sizes{size}, {"weight"}}, {"trained", Sizes{size}}};
    manifest.states = {{"weight", DType::float32}, {"exp_avg", DType::float32}};
    return manifest;
  }
  /// Two steps: the second one, of a later attempt, has the frozen parameter's file of the first one.
  void SetUp() override {
    for (const std::int64_t step : {1, 2}) {
      std::filesystem::create_directory(folder(step));
      Manifest saved = manifest(step, step);
      const std::string once = state_file_name(1, 0);
      if (step == 1)
        of_frozen_ = write(step, step, 0, {0, 1}, {slice("frozen", "weight")}, frozen_);
      else
        std::filesystem::create_hard_link(folder(1) / once, folder(step) / once);
      saved.files = {of_frozen_,
                     write(step, step, 1, {1, 1}, {slice("trained", "weight"), slice("trained", "exp_avg")}, trained_)};
      publish_manifest(folder(step), saved);
    }
  }
  [[nodiscard]] std::vector<float> read(std::int64_t step, const std::string& parameter,
                                        const std::string& state) const {
    std::vector<float> values(size);
    StateReader(folder(step)).read(slice(parameter, state), reinterpret_cast<std::byte*>(values.data()));
    return values;
  }

  ScratchFolder scratch_;
  Manifest::File of_frozen_;
};

TEST_F(FrozenParameters, HaveAWeightAlone) {
  EXPECT_EQ(read(2, "frozen", "weight"), frozen_);
  EXPECT_EQ(read(2, "trained", "exp_avg"), trained_);
  StateReader(folder(2)).verify();
  try {
    (void)read(2, "frozen", "exp_avg");
    FAIL() << "it has none";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("has no 'exp_avg' of 'frozen', which was not trained"));
  }
}

TEST_F(FrozenParameters, OutliveTheStepThatWroteThem) {
  remove_litter(scratch_.path());  // their file is of another attempt, but the manifest names it
  prune_steps(scratch_.path(), 2, {.latest = 1}, {});
  EXPECT_FALSE(std::filesystem::exists(folder(1)));
  StateReader(folder(2)).verify();
  EXPECT_EQ(read(2, "frozen", "weight"), frozen_);
}

TEST_F(FrozenParameters, AreNotReadByProgramsThatDoNotKnowThem) {
  const std::string text = to_text(manifest(1, 1));
  EXPECT_THAT(text, HasSubstr(R"("requires":["parameter_states"])"));
  EXPECT_EQ(parse_manifest(text, "here").parameters, manifest(1, 1).parameters);
  Manifest trained = manifest(1, 1);
  trained.parameters[0].states.clear();
  EXPECT_THAT(to_text(trained), HasSubstr(R"("requires":[])")) << "format 1 as it was";
}

TEST_F(FrozenParameters, AreNoExcuseForAStateThatIsMissing) {
  Manifest claims_all = manifest(2, 3);
  claims_all.parameters[0].states.clear();
  claims_all.files = StateReader(folder(2)).manifest().files;
  publish_manifest(folder(2), claims_all);
  try {
    StateReader(folder(2)).verify();
    FAIL() << "exp_avg of 'frozen' is missing";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("has 0 of the 8 numbers of 'exp_avg' of 'frozen'"));
  }
}

}  // namespace
}  // namespace echelon
