// Every stored input of every fuzzing target again: files that once crashed or hung a reader, hostile ones
// made by hand, and valid ones, from which fuzzing starts.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <stdexcept>
#include <string>

#include "bilevel/data/gzip.h"
#include "bilevel/data/jpeg.h"
#include "bilevel/data/png.h"
#include "bilevel/data/xz.h"
#include "bilevel/run/machine.h"
#include "fuzz/target.h"

namespace bilevel::fuzz {
namespace {

namespace fs = std::filesystem;

fs::path corpus() {
  const char* root = std::getenv("BILEVEL_SOURCE_DIR");
  if (root == nullptr) throw std::runtime_error("BILEVEL_SOURCE_DIR is not set: run by ctest, or set it");
  return fs::path(root) / "tests/fuzz/corpus";
}

std::set<std::string> names_in(const fs::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.insert(entry.path().filename().string());
  return names;
}

std::string bytes_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The most address space that this process ever had, in MiB: a size field that is believed shows here even
// where the memory is never touched.
int64_t peak() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    int64_t kilobytes = 0;
    if (word == "VmPeak:" && status >> kilobytes) return kilobytes / 1024;
  }
  throw std::runtime_error("/proc/self/status has no VmPeak");
}

constexpr int64_t most_taken = 512;  // MiB, as in scripts/fuzz; an xz file may ask for 256

TEST(Replay, every_target_has_inputs_and_every_input_a_target) {
  std::set<std::string> names;
  for (const Target& target : targets()) names.insert(target.name);
  EXPECT_EQ(names, names_in(corpus()));
  EXPECT_GE(names.size(), 15U);
}

TEST(Replay, readers_take_or_refuse_every_input) {
  (void)machine_facts();  // asks for a GPU, whose library takes addresses for itself when it is first asked
  const bool all_formats = has_png() && has_jpeg() && has_gzip() && has_xz();
  for (const Target& target : targets()) {
    int valid = 0;
    for (const std::string& name : names_in(corpus() / target.name)) {
      const std::string bytes = bytes_of(corpus() / target.name / name);
      EXPECT_LE(bytes.size(), 4096U) << target.name << '/' << name << ": fuzzing starts from small files";
      int taken = 0;
      const int64_t before = peak();
      EXPECT_NO_THROW(taken = target.read(bytes)) << target.name << '/' << name;
      EXPECT_LE(peak() - before, most_taken) << target.name << '/' << name << " takes memory for a promise";
      if (!name.starts_with("valid") || !all_formats) continue;
      EXPECT_GT(taken, 0) << target.name << '/' << name << " is refused";
      ++valid;
    }
    EXPECT_TRUE(valid > 0 || !all_formats) << target.name << ": fuzzing has nothing to start from";
  }
}

}  // namespace
}  // namespace bilevel::fuzz
