// Manifests that somebody crafted: each is refused in one short sentence, whose text a terminal may show.
#include "checkpoint/state/manifest.h"

#include "base/error.h"
#include "checkpoint/state/digest.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace echelon {
namespace {

using ::testing::HasSubstr;

Manifest small_manifest() {
  Manifest manifest;
  manifest.config = "[model]\n";
  manifest.scalars.step = 7;
  manifest.lineage = {{.attempt = 1}};
  manifest.products = {{"float32", "own"}, {"float64", "openblas/Haswell"}};
  manifest.parameters = {{"model.norm.weight", Sizes{16}}, {"lm_head.weight", Sizes{8, 16}}};
  manifest.states = {{"weight", DType::float32}};
  manifest.files = {{"attempt-0001-rank-00000.safetensors", 1000, {}, {{0, 2}}}};
  manifest.copies = {{"tokenizer.json", 10, {}}};
  return manifest;
}

std::string with_digest(const std::string& body) {
  return fmt::format("{{\"digest\":\"{}\",\"manifest\":{}}}\n", to_text(digest_of(body)), body);
}

/// The body of the small manifest with a part of its text replaced.
std::string changed(const std::string& from, const std::string& to) {
  const std::string text = to_text(small_manifest()), begin = "\"manifest\":";
  const std::size_t first = text.find(begin) + begin.size();
  std::string body = text.substr(first, text.size() - first - 2);
  const std::size_t at = body.find(from);
  EXPECT_NE(at, std::string::npos) << from << " is not in " << body;
  return body.replace(at == std::string::npos ? 0 : at, from.size(), to);
}

std::string refusal_of(const std::string& text) {
  try {
    (void)parse_manifest(text, "out/step-7/attempt-0001-manifest.json");
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), ExitStatus::bad_input);
    return error.what();
  }
  return "";
}

TEST(HostileManifest, IsNotTheOneThatIsWritten) {
  const Manifest manifest = small_manifest();
  EXPECT_EQ(parse_manifest(to_text(manifest), "here"), manifest);
}

TEST(HostileManifest, IsRefusedInOneSentence) {
  const std::string deep(1'000'000, '['), closed = deep + std::string(1'000'000, ']');
  const std::pair<std::string, std::string> changes[] = {
      {"attempt-0001-rank-00000.safetensors", "../../etc/passwd"},
      {"attempt-0001-rank-00000.safetensors", "/etc/passwd"},
      {"attempt-0001-rank-00000.safetensors", "a/b"},
      {"attempt-0001-rank-00000.safetensors", ".."},
      {"attempt-0001-rank-00000.safetensors", ""},
      {"attempt-0001-rank-00000.safetensors", "a\\u0000b"},
      {"tokenizer.json", "../tokenizer.json"},
      {"\"format\":1", "\"format\":2"},
      {"\"format\":1", "\"format\":\"1\""},
      {"\"requires\":[]", "\"requires\":[\"\\u001b[31mteleport\"]"},
      {"\"requires\":[]", "\"requires\":" + closed},
      {"\"step\":7", "\"step\":-7"},
      {"\"step\":7", "\"step\":7.5"},
      {"\"step\":7", "\"step\":1e999"},
      {"\"step\":7", "\"step\":9223372036854775808"},
      {"\"step\":7", "\"step\":" + closed},
      {"\"skipped_steps\":0", "\"skipped_steps\":8"},
      {"\"skipped_steps\":0", "\"skipped_steps\":0,\"loss_scale\":0"},
      {"\"skipped_steps\":0", "\"skipped_steps\":0,\"loss_scale\":NaN"},
      {"[8,16]", "[4611686018427387904,16]"},
      {"[8,16]", "[0,16]"},
      {"[8,16]", "[8,16,2,2]"},
      {"[8,16]", "[]"},
      {"[8,16]", "\"\\u001b]0;title\\u0007\""},
      {"[[0,2]]", "[[0,3]]"},
      {"[[0,2]]", "[[18446744073709551615,2]]"},
      {"[[0,2]]", "[[-1,2]]"},
      {"\"F32\"", "\"I32\""},
      {"\"F32\"", "\"\\u001b[2J\""},
      {"\"bytes\":1000", "\"bytes\":\"1000\""},
      {"\"lineage\"", "\"ancestors\""},
      {"\"own\"", "7"},
      {R"({"float32":"own","float64":"openblas/Haswell"})", "[\"own\"]"},
      {"\"attempt\":1,", ""},
  };
  for (const auto& [from, to] : changes) {
    const std::string shown = to.substr(0, 60);
    const std::string sentence = refusal_of(with_digest(changed(from, to)));
    EXPECT_THAT(sentence, HasSubstr("out/step-7/attempt-0001-manifest.json")) << shown;
    EXPECT_LT(sentence.size(), 400U) << shown;
    EXPECT_TRUE(std::ranges::none_of(sentence, [](unsigned char c) { return c < 32 || c == 127; })) << sentence;
  }
}

TEST(HostileManifest, OfAnyTextIsASentence) {
  for (const std::string& text :
       {std::string(), std::string("{}"), std::string("null\n"), std::string(1'000'000, '['), with_digest("[]"),
        with_digest("7"), with_digest("{"), with_digest(std::string(1'000'000, '[')),
        with_digest(std::string(1'000'000, '[') + std::string(1'000'000, ']')), with_digest("{\"format\":1}"),
        std::string("\x1b[31m\0\xff", 7)})
    EXPECT_THAT(refusal_of(text), HasSubstr("out/step-7/")) << text.substr(0, 60);
}

}  // namespace
}  // namespace echelon
